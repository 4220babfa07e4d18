"""The systemd unit of the daemon: written, removed, and what to know about it."""

import os
import subprocess
import sys
from collections.abc import Mapping

from dibs.client.starting import daemon_environment
from dibs.errors import DibsError

NAME = "dibs.service"
_KEPT = ("DIBS_STATE", "DIBS_SOCKET", "DIBS_LEASES", "DIBS_PROBE", "DIBS_POOL")  # else it is another queue
_LINGER = "/var/lib/systemd/linger"
_FORGETS_LINGER = 255  # the version of systemd that ends user managers at logout, lingering or not
_PATIENCE = 20.0  # seconds for systemctl

# KillMode=process: a stop or a restart ends the daemon alone, and the jobs go on.
# 2 is a queue that another daemon has: to start again and again would not help.
_UNIT = """\
[Unit]
Description=dibs, the queue for GPU jobs{of_whom}

[Service]
Type=exec
ExecStart={command}
{surroundings}KillMode=process
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2
TimeoutStopSec=30

[Install]
WantedBy={target}
"""


def write(environ: Mapping[str, str]) -> str:
    """Write the user unit, and return its path."""
    path = unit_path(environ)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(_text(environ, of_whom="", extra=[], target="default.target"))
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise DibsError(
            f"cannot write {path}: {error.strerror}", remedy="check the folder's permissions"
        ) from error
    return path


def remove(environ: Mapping[str, str]) -> str:
    """Disable and remove the user unit; an empty path where there was none."""
    path = unit_path(environ)
    if not os.path.lexists(path):
        return ""
    try:
        systemctl("disable", NAME)
    except DibsError:
        _unlink(f"{os.path.dirname(path)}/default.target.wants/{NAME}")
    _unlink(path)
    return path


def unit_path(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return f"{base}/systemd/user/{NAME}"


def system_unit(environ: Mapping[str, str]) -> str:
    """A unit for /etc/systemd/system: it needs an administrator, and no login at all."""
    import pwd

    user = pwd.getpwuid(os.geteuid())
    extra = [f"User={user.pw_name}", f"Environment={_quoted(f'HOME={user.pw_dir}')}"]
    return _text(environ, of_whom=f" of {user.pw_name}", extra=extra, target="multi-user.target")


def systemctl(*words: str) -> None:
    """Ask the user's systemd; what it refuses raises DibsError in its words."""
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DibsError(
            f"cannot run {' '.join(command)}: {error}", remedy="dibs daemon start does without"
        ) from error
    if done.returncode:
        said = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[0]
        raise DibsError(f"{' '.join(command)}: {said}", remedy="`dibs daemon start` does without systemd")


def warnings(environ: Mapping[str, str]) -> list[str]:
    """What may end the daemon although it is installed."""
    import pwd

    found = []
    user = pwd.getpwuid(os.geteuid()).pw_name
    if not os.path.exists(f"{_LINGER}/{user}"):
        found.append(
            f"it ends when you log out, and its jobs with it, unless you linger: loginctl enable-linger {user}"
        )
    if systemd_version() == _FORGETS_LINGER:
        found.append(
            "systemd 255 may end user services at the last logout even where you linger (systemd issue 43361); "
            "`dibs daemon install --system` prints a unit that is safe from that"
        )
    return found


def systemd_version() -> int | None:
    """Which systemd this is; None where there is none."""
    try:
        said = subprocess.run(
            ["systemctl", "--version"], capture_output=True, text=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL
        ).stdout.split()
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return int(said[1]) if len(said) > 1 and said[1].isdigit() else None


def _text(environ: Mapping[str, str], *, of_whom: str, extra: list[str], target: str) -> str:
    words = (sys.executable, "-P", "-m", "dibs", "daemon", "run")
    command = " ".join(_quoted(word.replace("$", "$$")) for word in words)  # here alone systemd reads variables
    told = daemon_environment(environ)
    kept = [f"Environment={_quoted(f'{name}={told[name]}')}" for name in _KEPT if told.get(name)]
    surroundings = "".join(f"{line}\n" for line in [*extra, *kept])
    text = _UNIT.format(command=command, surroundings=surroundings, target=target, of_whom=of_whom)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DibsError(
            "cannot name the queue's folders in a unit: systemd reads UTF-8 only",
            remedy="`dibs daemon start` does without systemd",
        ) from error
    return text


def _quoted(text: str) -> str:
    """One word of a unit: systemd reads \\, " and % inside of it."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{text}"' if set(text) & set(" \t'\"\\") else text


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DibsError(f"cannot remove {path}: {error.strerror}", remedy="remove it by hand") from error
