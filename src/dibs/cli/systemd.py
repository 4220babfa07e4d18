"""systemd: the unit of the daemon, and what systemd does to it when its user logs out."""

import glob
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from dibs.client.starting import daemon_environment
from dibs.errors import DibsError
from dibs.files import replace_file
from dibs.leases.lockers import user_name

NAME = "dibs.service"
_KEPT = (
    "DIBS_STATE",
    "DIBS_SOCKET",
    "DIBS_LEASES",
    "DIBS_PROBE",
    "DIBS_POOL",
)  # without these the unit would start another queue
IGNORES_LINGER = (
    255  # this version may end user services at the last logout although linger is on (systemd issue 43361)
)
LOGIND_FILES = (
    "/usr/lib/systemd/logind.conf",
    "/usr/lib/systemd/logind.conf.d/*.conf",
    "/etc/systemd/logind.conf",
    "/run/systemd/logind.conf.d/*.conf",
    "/etc/systemd/logind.conf.d/*.conf",
)
_LINGER = "/var/lib/systemd/linger"
_CHANGE_SECONDS = 20.0  # for a systemctl that changes something
_READ_SECONDS = 2.0  # for one that is only asked

# KillMode=process: a stop or a restart ends the daemon alone, and the jobs go on.
# Status 2: another daemon has the queue. Starting again would not help.
_UNIT = """\
[Unit]
Description=dibs, the queue for GPU jobs{of_user}

[Service]
Type=exec
ExecStart={command}
{environment}KillMode=process
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
        replace_file(path, _text(environ, of_user="", extra=[], target="default.target"), mode=None)
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
    user = pwd.getpwuid(os.geteuid())
    extra = [f"User={user.pw_name}", f"Environment={_quoted(f'HOME={user.pw_dir}')}"]
    return _text(environ, of_user=f" of {user.pw_name}", extra=extra, target="multi-user.target")


def systemctl(*words: str) -> None:
    """Ask the user's systemd; a failure raises DibsError with the message of systemctl."""
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CHANGE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DibsError(
            f"cannot run {' '.join(command)}: {error}", remedy="`dibs daemon start` works without systemd"
        ) from error
    if done.returncode:
        said = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[0]
        raise DibsError(f"{' '.join(command)}: {said}", remedy="`dibs daemon start` works without systemd")


def warnings(environ: Mapping[str, str]) -> list[str]:
    """What may end the daemon although it is installed."""
    found = []
    if not lingers(environ):
        found.append(
            "the daemon and its jobs end when you log out, unless linger is on: "
            f"loginctl enable-linger {user_name(os.geteuid())}"
        )
    if version(environ) == IGNORES_LINGER:
        found.append(
            "systemd 255 may end user services at the last logout although linger is on (systemd issue 43361); "
            "`dibs daemon install --system` prints a unit that this does not affect"
        )
    return found


def version(environ: Mapping[str, str]) -> int | None:
    """The version of systemd; None where there is none."""
    match = re.match(r"systemd ([0-9]{1,6})", _output_of(environ, "systemctl", "--version") or "")
    return int(match[1]) if match else None


def lingers(environ: Mapping[str, str]) -> bool | None:
    """Whether this user's processes stay after the last logout (`loginctl enable-linger`); None: not known."""
    shown = _output_of(environ, "loginctl", "show-user", str(os.getuid()), "--property=Linger")
    if shown is not None and "Linger=" in shown:
        return "Linger=yes" in shown
    # loginctl does not know users who have not logged in since the machine started.
    return os.path.exists(f"{_LINGER}/{user_name(os.getuid())}") if os.path.isdir(_LINGER) else None


def kills_user_processes(patterns: Sequence[str] = LOGIND_FILES) -> bool:
    """Whether logind ends all processes of a user at logout: the last file that mentions it decides."""
    value = ""
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            try:
                with open(path, errors="replace") as file:
                    for line in file:
                        if match := re.match(r"\s*KillUserProcesses\s*=\s*(\w+)", line):
                            value = match[1].lower()
            except OSError:
                continue
    return value in ("1", "yes", "true", "on")


def _text(environ: Mapping[str, str], *, of_user: str, extra: list[str], target: str) -> str:
    words = (sys.executable, "-P", "-m", "dibs", "daemon", "run")
    command = " ".join(
        _quoted(word.replace("$", "$$")) for word in words
    )  # in this line alone systemd expands variables
    variables = daemon_environment(environ)
    kept = [f"Environment={_quoted(f'{name}={variables[name]}')}" for name in _KEPT if variables.get(name)]
    environment_lines = "".join(f"{line}\n" for line in [*extra, *kept])
    text = _UNIT.format(command=command, environment=environment_lines, target=target, of_user=of_user)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DibsError(
            "cannot name the queue's folders in a unit: systemd reads UTF-8 only",
            remedy="`dibs daemon start` works without systemd",
        ) from error
    return text


def _quoted(text: str) -> str:
    """One word of a unit, with the characters escaped that systemd interprets: \\, " and %."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{text}"' if set(text) & set(" \t'\"\\") else text


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DibsError(f"cannot remove {path}: {error.strerror}", remedy="remove it by hand") from error


def _output_of(environ: Mapping[str, str], program: str, *arguments: str) -> str | None:
    """What a program prints; None where it is not there, fails or takes too long."""
    found = shutil.which(program, path=environ.get("PATH")) or shutil.which(program, path=os.defpath)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_READ_SECONDS,
            env={**environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
