"""A real sshd of our own for tests: on the loopback, with keys of its own, for whoever runs the tests.

Every name leads to this machine, so that the nodes of a private Slurm can be reached by theirs.
"""

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from stories.outside import wait_until

# The default is safe from quantum computers too, and takes a tenth of a second of CPU time for each connection.
CHEAP_KEYS = "KexAlgorithms curve25519-sha256"
_PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))


def missing_programs() -> list[str]:
    return [name for name in ("sshd", "ssh", "ssh-keygen") if shutil.which(name, path=_PATH) is None]


class PrivateSshd:
    """A server that tests may stop and start again at the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self._port = one.getsockname()[1]
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        (folder / "config").write_text(
            f"Host *\n HostName 127.0.0.1\n Port {self._port}\n IdentityFile {folder}/user\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {folder}/known\n StrictHostKeyChecking no\n LogLevel ERROR\n {CHEAP_KEYS}\n"
        )
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self._port}\nHostKey {folder}/host\nPidFile {folder}/sshd.pid\n"
            f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
            "PasswordAuthentication no\nMaxStartups 100\nPrintMotd no\n"
        )
        self.ssh = ("ssh", "-F", f"{folder}/config")

    def start(self) -> None:
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where a root's sshd locks itself in
        program = shutil.which("sshd", path=_PATH)
        assert program is not None
        config, log = f"{self.folder}/sshd_config", f"{self.folder}/log"
        subprocess.run([program, "-f", config, "-E", log], check=True, stdin=subprocess.DEVNULL)
        wait_until(self._answers, show=lambda: Path(log).read_text())

    def stop(self) -> None:
        """Take no more calls."""
        pid = self._pid()
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        (self.folder / "sshd.pid").unlink(missing_ok=True)
        wait_until(lambda: not self._answers())

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False

    def _pid(self) -> int | None:
        """From its pid file, if it is still an sshd."""
        try:
            pid = int((self.folder / "sshd.pid").read_text())
            return pid if b"sshd" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        except (OSError, ValueError):
            return None
