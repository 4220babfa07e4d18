"""Servers for tests: network namespaces with an sshd each, a bridge between them, and disks of their own.

Each has its own address, host name, users, /var/tmp and home folder, so that nothing is shared unless a test wants
it so. Only root can make them; whoever logs in is an ordinary user.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backends.private_sshd import CHEAP_KEYS
from stories.outside import DIBS, Finished, wait_until

USER, UID = "ann", 42_424
_CHECKOUT = Path(__file__).resolve().parents[2]
_NEEDED = ("ip", "unshare", "nsenter", "setpriv", "ssh", "ssh-keygen", "sshd", "mount")
_PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
_SCRIPT = """
set -e
mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd
mount --bind {folder}/passwd /etc/passwd
{seen}
mount --rbind {folder}/tmp /var/tmp
[ -d {folder}/home ] && mount --bind {folder}/home {home}
hostname {name}
ip link set lo up
exec "$@"
"""


def why_not() -> str:
    """Why there can be no such servers here; empty where there can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    missing = [name for name in _NEEDED if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"there is no {missing[0]} here"
    if subprocess.run(["unshare", "-n", "-m", "-u", "true"], capture_output=True).returncode != 0:
        return "network namespaces are not allowed here"
    version = subprocess.run(
        ["python3", "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True
    )
    return "" if version.stdout.strip() == b"True" else "the system's Python is older than 3.11"


def _see_checkout(tmp: Path) -> str:
    """What lets a server with this /var/tmp see the checkout, where that lies below the real one."""
    if not _CHECKOUT.is_relative_to("/var/tmp"):
        return ""
    seen = tmp / _CHECKOUT.relative_to("/var/tmp")
    seen.mkdir(parents=True)
    return f"mount --bind {_CHECKOUT} {seen}"


@dataclass(frozen=True)
class Server:
    """A namespace that a process keeps open."""

    name: str
    address: str
    folder: Path
    keeper: "subprocess.Popen[bytes]"
    network: str  # the kernel's name for its namespace

    @property
    def in_tmp(self) -> list[Path]:
        """What lies in its /var/tmp. The way to the checkout, which may be there, is ours."""
        ours = _CHECKOUT.parts[3] if _CHECKOUT.is_relative_to("/var/tmp") else ""
        return [one for one in (self.folder / "tmp").iterdir() if one.name != ours]

    @property
    def pids(self) -> list[int]:
        """Whoever lives in its network, its sshd and their children among them."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if os.readlink(f"/proc/{entry}/ns/net") == self.network:
                    found.append(int(entry))
        return found

    @property
    def daemons(self) -> dict[str, int]:
        """Those of Slurm and munge, and the steps of jobs."""
        found = {}
        for pid in self.pids:
            with suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name.startswith(("slurm", "munge")):
                    found[name.split("-")[0]] = pid
        return found


class Servers:
    """A desk at which the user sits, and servers that can be reached from it over ssh."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dibs-cluster-"))
        self.folder.chmod(0o755)
        self.home = self.folder / "home"
        self._own(self.home)
        self._config: list[str] = []
        self._number = 1
        self.servers: dict[str, Server] = {}
        self.desk = self._make("desk", 1, ["sleep", "infinity"], home=False)
        self._in(self.desk, "ip", "link", "add", "br0", "type", "bridge")
        self._in(self.desk, "ip", "addr", "add", f"{self.desk.address}/24", "dev", "br0")
        self._in(self.desk, "ip", "link", "set", "br0", "up")
        self._own(self.folder / "keys")
        for name in ("host", "user"):
            path = self.folder / "keys" / name
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
            os.chown(path, UID if name == "user" else 0, -1)

    def add(
        self,
        name: str,
        *,
        cards: int = 2,
        uid: int = UID,
        environment: str = "",
        home: bool = True,
        port: int | None = None,
    ) -> Server:
        """A server with so many fake cards.

        Without `home` it shares the home folder of the desk; `port` is taken by somebody else.
        """
        self._number += 1
        number = self._number
        folder = self.folder / name
        folder.mkdir()
        world = [
            {"index": index, "uuid": f"GPU-{name}-{index}", "name": "NVIDIA H200 NVL"} for index in range(cards)
        ]
        (folder / "cards.json").write_text(json.dumps(world))
        settings = {
            "ListenAddress": _address(number),
            "HostKey": f"{self.folder}/keys/host",
            "AuthorizedKeysFile": f"{self.folder}/keys/user.pub",
            "SetEnv": f"DIBS_PROBE=fake:{folder}/cards.json {environment}",
            "MaxStartups": "100",
            "PidFile": "none",
            **dict.fromkeys(("UsePAM", "StrictModes"), "no"),
            **dict.fromkeys(("PasswordAuthentication", "KbdInteractiveAuthentication"), "no"),
        }
        ports = [f"Port {one}" for one in (22, port) if one]
        lines = [*ports, *(f"{name} {value}" for name, value in settings.items())]
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        words = [
            "sh",
            "-c",
            f"until ip -4 addr show dev eth0 2>/dev/null | grep -q inet; do sleep 0.02; done;"
            f" exec {shutil.which('sshd', path=_PATH)} -D -e -f {folder}/sshd_config",
        ]
        server = self.servers[name] = self._make(name, number, words, uid=uid, home=home)
        link = ["ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0"]
        self._in(self.desk, *link, "netns", str(server.keeper.pid))
        self._in(self.desk, "ip", "link", "set", f"v{number}", "master", "br0", "up")
        self._in(server, "ip", "link", "set", "eth0", "up")
        self._in(server, "ip", "addr", "add", f"{server.address}/24", "dev", "eth0")
        key = (self.folder / "keys" / "host.pub").read_text()
        with (self.folder / "known").open("a") as known:
            known.write(f"{server.address} {key}")
        self._config.append(f"Host {name}\n  HostName {server.address}\n")
        config = f"{''.join(self._config)}Host *\n  User {USER}\n  IdentityFile {self.folder}/keys/user\n"
        config += f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.folder}/known\n  LogLevel ERROR\n"
        config += f"  {CHEAP_KEYS}\n"
        (self.folder / "ssh_config").write_text(config)
        wait_until(lambda: self._answers(server), show=lambda: (folder / "log").read_text())
        return server

    @property
    def ssh(self) -> str:
        return f"ssh -F {self.folder}/ssh_config"

    def dibs(self, *words: str, state: str = "state") -> Finished:
        """The installed command, typed by the user at the desk."""
        return self.at_desk(DIBS, *words, DIBS_STATE=f"{self.home}/{state}")

    def at_desk(self, *words: str, seconds: float = 120, **environment: str) -> Finished:
        environment = {
            "PATH": _PATH,
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "DIBS_PROBE": "none",
            "COLUMNS": "200",
            **environment,
        }
        enter = ["nsenter", "-t", str(self.desk.keeper.pid), "-n", "-m", "-u"]
        # Our interpreter may lie in root's home folder, as pyenv's does: whoever sits at the desk can look there.
        look = [f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")]
        become = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *look]
        done = subprocess.run(
            [*enter, *become, *words], env=environment, capture_output=True, text=True, timeout=seconds, cwd="/"
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def remove(self, name: str) -> None:
        """End a server and everything on it, as if its power had gone."""
        server = self.servers.pop(name)
        self._end(server)

    def close(self) -> None:
        for server in (*self.servers.values(), self.desk):
            self._end(server)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self, name: str, number: int, words: list[str], *, uid: int = UID, home: bool = True) -> Server:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        users = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith(f"{USER}:")]
        users.append(f"{USER}:*:{uid}:{uid}::{self.home}:/bin/sh")
        (folder / "passwd").write_text("\n".join(users) + "\n")
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        if home:
            self._own(folder / "home", uid)
        script = _SCRIPT.format(folder=folder, home=self.home, name=name, seen=_see_checkout(folder / "tmp"))
        log = (folder / "log").open("wb")
        keeper = subprocess.Popen(
            ["unshare", "-n", "-m", "-u", "sh", "-c", script, "sh", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": _PATH},
            cwd="/",
            start_new_session=True,
        )
        log.close()
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{keeper.pid}/ns/net") != own)
        return Server(name, _address(number), folder, keeper, os.readlink(f"/proc/{keeper.pid}/ns/net"))

    def _end(self, server: Server) -> None:
        until = time.monotonic() + 10
        while (pids := server.pids) and time.monotonic() < until:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            server.keeper.wait(timeout=10)

    def _answers(self, server: Server) -> bool:
        return self.at_desk("bash", "-c", f"exec 3<>/dev/tcp/{server.address}/22").status == 0

    def _in(self, server: Server, *words: str) -> None:
        enter = ["nsenter", "-t", str(server.keeper.pid), "-n"]
        subprocess.run([*enter, *words], env={"PATH": _PATH}, check=True, capture_output=True)

    @staticmethod
    def _own(folder: Path, uid: int = UID) -> None:
        folder.mkdir()
        os.chown(folder, uid, uid)


def _address(number: int) -> str:
    return f"10.77.0.{number}"


if __name__ == "__main__":  # a few servers to try things on by hand
    servers = Servers()
    try:
        for one in sys.argv[1:] or ["a", "b", "c"]:
            servers.add(one)
        print(servers.folder, servers.desk.keeper.pid, servers.ssh, flush=True)
        signal.pause()
    finally:
        servers.close()
