"""What `dibs doctor` looks at around the daemon: limits, and what happens to it when its user logs out."""

import glob
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Sequence

from dibs.cli.checkup import OK, WARNING, Environ, Finding

_FEW_FILES = 256
_FEW_PROCESSES = 200
_SECONDS = 2.0
_SYSTEMD = "/run/systemd/system"  # is there where systemd is the init
_LOGIND = (
    "/usr/lib/systemd/logind.conf",
    "/usr/lib/systemd/logind.conf.d/*.conf",
    "/etc/systemd/logind.conf",
    "/run/systemd/logind.conf.d/*.conf",
    "/etc/systemd/logind.conf.d/*.conf",
)
# Ends the user's services at the last logout even where linger is on: systemd issue 43361.
_TRAP = 255


def check_limits(environ: Environ) -> list[Finding]:
    found = []
    files, processes = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    if 0 <= files < _FEW_FILES:
        found.append(
            Finding(WARNING, f"a process may open {files} files only", f"`ulimit -n {_FEW_FILES * 4}` before dibs")
        )
    if 0 <= processes < _FEW_PROCESSES:
        found.append(
            Finding(
                WARNING, f"you may have {processes} processes only, and every job is at least two", "`ulimit -u`"
            )
        )
    return found or [Finding(OK, f"{_shown(files)} open files, {_shown(processes)} processes")]


def check_login(environ: Environ, *, systemd: str = _SYSTEMD, logind: Sequence[str] = _LOGIND) -> list[Finding]:
    """Whether the daemon outlives its user's login."""
    if not os.path.isdir(systemd):
        return [Finding(OK, "there is no systemd here that would end the daemon at logout")]
    found = []
    if _kills_user_processes(logind):
        found.append(
            Finding(
                WARNING,
                "this machine ends all processes of a user at logout (KillUserProcesses), the daemon among them",
                "`loginctl enable-linger`, then `dibs daemon install`",
            )
        )
    linger = _linger(environ)
    version = _systemd_version(environ)
    if linger and version == _TRAP:
        found.append(
            Finding(
                WARNING,
                f"systemd {version} may end your services at the last logout though linger is on (systemd#43361)",
                "start it with `dibs daemon start`, not as a user service, or ask an admin for a system unit",
            )
        )
    known = {True: "linger is on", False: "linger is off", None: "whether linger is on is not known"}[linger]
    return found or [Finding(OK, f"{known}, and processes may outlive a login")]


def _linger(environ: Environ) -> bool | None:
    said = _said(environ, "loginctl", "show-user", str(os.getuid()), "--property=Linger")
    if said is not None and "Linger=" in said:
        return "Linger=yes" in said
    # Who has not logged in since the machine started is not known to loginctl, but may linger.
    from dibs.leases.who import user_name

    folder = "/var/lib/systemd/linger"
    return os.path.exists(f"{folder}/{user_name(os.getuid())}") if os.path.isdir(folder) else None


def _systemd_version(environ: Environ) -> int | None:
    match = re.match(r"systemd ([0-9]{1,6})", _said(environ, "systemctl", "--version") or "")
    return int(match[1]) if match else None


def _kills_user_processes(patterns: Sequence[str]) -> bool:
    """What the last file that mentions it says; by default systemd does not."""
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


def _said(environ: Environ, program: str, *arguments: str) -> str | None:
    """What a program says; None where it is not there, fails or takes too long."""
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
            timeout=_SECONDS,
            env={**environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _shown(limit: int) -> str:
    return "any number of" if limit < 0 else str(limit)
