"""A real Slurm of our own for tests: munged, slurmctld and several slurmd on this machine, with fake GPUs.

Any user can run it. It listens on the loopback only, lives in one folder, and is ended by its pid files.
"""

import getpass
import glob
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from stories.outside import wait_until

_PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
_DATABASE = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr", "sacct")  # for accounting
_CGROUP = "/sys/fs/cgroup/memory"
# That for several threads. Shifts the clock of one program; empty where it is not installed.
FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), "")
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")


def has_memory_cgroup() -> bool:
    """Whether an accounting Slurm keeps its jobs to their memory here."""
    return os.access(_CGROUP, os.W_OK)


def missing_programs(*, accounting: bool = False) -> list[str]:
    needed = (*NEEDED, *_DATABASE) if accounting else NEEDED
    return [name for name in needed if shutil.which(name, path=_PATH) is None]


class PrivateSlurm:
    """A controller and nodes `n1`, `n2`, ... that tests may kill and start again.

    Its cards may be of a kind, and those of each node be divided into so many shards. With accounting it has a
    database, limits of accounts and QOS, and the kernel keeps its jobs to their memory; that needs root. Jobs of
    the partition `urgent`, if there is one, take the places of others. `clocks` has the seconds by which that of a
    node, or of the `controller`, is ahead of ours.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        gpus: int = 2,
        kind: str = "",
        shards: int = 0,
        accounting: bool = False,
        is_preemptive: bool = False,
        clocks: Mapping[str, int] | None = None,
    ) -> None:
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.environment = {
            "PATH": _PATH,
            "HOME": os.environ.get("HOME", "/"),
            "SLURM_CONF": f"{folder}/etc/slurm.conf",
        }
        self.clocks = clocks or {}
        self._has_accounting = accounting
        self._database: subprocess.Popen[bytes] | None = None
        for name in ("etc", "state", "spool", "log", "run", "dev"):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "run").chmod(0o755)
        self._configure(gpus, kind, shards)
        if is_preemptive:
            with (folder / "etc/slurm.conf").open("a") as file:
                file.write("PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n")
                file.write(f"PartitionName=urgent Nodes={','.join(self.nodes)} PriorityTier=10 State=UP\n")

    def start(self) -> None:
        munged = [
            "munged",
            f"--key-file={self.folder}/etc/munge.key",
            f"--socket={self.folder}/run/munge.sock",
            f"--pid-file={self.folder}/run/munged.pid",
            f"--log-file={self.folder}/log/munged.log",
            f"--seed-file={self.folder}/run/munge.seed",
        ]
        self._run(munged)
        if self._has_accounting:
            self._start_accounting()
        self.start_controller(afresh=True)
        for node in self.nodes:
            self.start_node(node)
        wait_until(lambda: self._idle() == len(self.nodes), show=self.errors)

    def start_controller(self, *, afresh: bool = False) -> None:
        """Start it with what it had saved, and wait until it answers: a node that cannot reach it waits long."""
        self._run(["slurmctld", *(["-c"] if afresh else [])], clock="controller")
        wait_until(lambda: "is UP" in self.ask("scontrol", "ping"), show=self.errors)

    def kill_controller(self) -> None:
        self._kill("slurmctld.pid")

    def wait_until_saved(self) -> None:
        """Until the controller has on disk what it knows now; it writes some seconds after something changed."""
        state = self.folder / "state/job_state"
        begin = time.time()
        for job in self.ask("squeue", "-h", "-o", "%i").split():
            self.ask("scontrol", "update", f"jobid={job}", f"admincomment={begin}")
        wait_until(lambda: state.exists() and state.stat().st_mtime > begin, seconds=60)

    def start_node(self, node: str) -> None:
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        self._run(["slurmd", "-N", node], clock=node)

    def kill_node(self, node: str) -> None:
        """As if its power had gone: its daemon, its steps, and everything below them."""
        daemon = self._pid(f"slurmd-{node}.pid")
        pids = [*([daemon] if daemon else []), *self._processes_on(node)]
        # Stopped first, all of them: nobody must see another one die and write that down.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        (self.folder / "run" / f"slurmd-{node}.pid").unlink(missing_ok=True)

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands says; empty where it fails."""
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(words, env=self.environment, capture_output=True, timeout=5)
            return done.stdout.decode(errors="replace")
        return ""

    def clear(self) -> None:
        """End every job and free every node, as the next test wants to find it."""
        self.ask("scancel", f"--user={os.getuid()}")
        wait_until(lambda: not self.ask("squeue", "-h").strip(), show=lambda: self.ask("squeue", "-h"))
        self.resume()

    def resume(self) -> None:
        """What an operator does when a node has drained itself.

        A controller that came back uses numbers again, and a node that still knows the old one does that.
        """
        drained = self.ask("sinfo", "-h", "-N", "-t", "drain", "-o", "%N").split()
        if drained:
            self.ask("scontrol", "update", f"nodename={','.join(drained)}", "state=resume")

    def errors(self) -> str:
        found = []
        for log in sorted((self.folder / "log").glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()
            found += [f"{log.name}: {line}" for line in lines if "error" in line or "fatal" in line][-5:]
        return "\n".join(found)

    def stop(self) -> None:
        """End everything by its pid file: jobs first, while somebody is there to end them."""
        if self._pid("slurmctld.pid"):
            with suppress(AssertionError):
                self.clear()
        files = [*(f"slurmd-{node}.pid" for node in self.nodes), "slurmctld.pid", "slurmdbd.pid", "munged.pid"]
        for name in files:
            if pid := self._pid(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(map(self._pid, files)):
            time.sleep(0.05)
        for name in files:
            self._kill(name)
        if self._database is not None:
            self._database.kill()  # what it holds goes with the folder
            self._database.wait(20)
            for node in self.nodes:
                for path, _, _ in os.walk(f"{_CGROUP}/slurm_{node}", topdown=False):
                    with suppress(OSError):
                        os.rmdir(path)

    def _start_accounting(self) -> None:
        """A database that can be reached by a socket of ours alone, and the daemon that Slurm asks for it."""
        socket, data = f"{self.folder}/run/mysql.sock", self.folder / "database"
        # Two that start at once take the same names for temporary tables in one folder.
        temporary = self.folder / "temporary"
        temporary.mkdir()
        where = ["--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}", f"--tmpdir={temporary}"]
        self._run(["mariadb-install-db", *where, "--auth-root-authentication-method=normal", "--skip-test-db"])
        words = ["mariadbd", *where, f"--socket={socket}", "--skip-networking", "--innodb-log-file-size=8M"]
        words += ["--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"]
        with (self.folder / "log/mariadbd.log").open("wb") as log:
            self._database = subprocess.Popen(words, env=self.environment, stdout=log, stderr=log, cwd="/")
        wait_until(lambda: Path(socket).exists(), show=self.errors)
        self.environment["MYSQL_UNIX_PORT"] = socket
        self._run(["slurmdbd"])
        self.manage("add", "cluster", "private")
        self.manage("add", "account", "lab")
        self.manage("add", "user", getpass.getuser(), "account=lab")

    def manage(self, *words: str) -> None:
        """Change the accounts, once the database answers."""
        said = b""

        def is_done() -> bool:
            nonlocal said
            done = subprocess.run(
                ["sacctmgr", "-i", *words], env=self.environment, capture_output=True, timeout=20
            )
            said = done.stdout + done.stderr
            return done.returncode == 0

        wait_until(is_done, show=lambda: (said, self.errors()), seconds=20)

    def _processes_on(self, node: str) -> set[int]:
        """Whoever was told that it runs there, and the steps above them."""
        found = set()
        marks = {f"SLURMD_NODENAME={node}", f"SLURM_CONF={self.environment['SLURM_CONF']}"}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                pid = int(entry.name)
                if marks <= set((entry / "environ").read_text(errors="replace").split("\0")):
                    parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                    is_step = b"slurmstepd" in Path(f"/proc/{parent}/cmdline").read_bytes()
                    found |= {pid, parent} if is_step else {pid}
        return found

    def _kill(self, name: str) -> None:
        pid = self._pid(name)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _is_alive(pid))
        (self.folder / "run" / name).unlink(missing_ok=True)

    def _pid(self, name: str) -> int | None:
        """From its pid file, if it is still the daemon of that file."""
        try:
            pid = int((self.folder / "run" / name).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        is_it = name.split("-")[0].removesuffix(".pid").encode() in command
        return pid if is_it and _is_alive(pid) else None

    def _idle(self) -> int:
        return len(set(self.ask("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()))

    def clock(self, whose: str) -> dict[str, str]:
        """The variables of a program that sees the clock of this one."""
        ahead = self.clocks.get(whose, 0)
        shifted = {"LD_PRELOAD": FAKETIME, "FAKETIME": f"{ahead:+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        return shifted if ahead else {}

    def _run(self, words: list[str], clock: str = "") -> None:
        environment = {**self.environment, **self.clock(clock)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, cwd="/")
        assert done.returncode == 0, (words, done.stderr)

    def _accounting(self, port: int, user: str) -> str:
        if not self._has_accounting:
            return """\
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
"""
        folder = self.folder
        database = folder / "etc/slurmdbd.conf"
        database.touch(0o600)
        database.write_text(f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
DbdHost={socket.gethostname().split(".")[0]}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
CommunicationParameters=NoInAddrAny
""")
        return f"""\
TaskPlugin=task/{"cgroup" if has_memory_cgroup() else "none"}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/run/munge.sock
AccountingStorageEnforce=associations,limits,qos
"""

    def _configure(self, gpus: int, kind: str, shards: int) -> None:
        user, host, folder = getpass.getuser(), socket.gethostname().split(".")[0], self.folder
        ports = _free_ports(len(self.nodes) + 2)
        gres = f"gpu:{kind}:{gpus}" if kind else f"gpu:{gpus}"
        gres += f",shard:{shards}" if shards else ""
        nodes = [
            f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=4 RealMemory=4000"
            f" Gres={gres}"
            for node, port in zip(self.nodes, ports[2:], strict=True)
        ]
        text = f"""\
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
MailProg=/bin/true
MpiDefault=none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
{self._accounting(ports[1], user)}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=0,batch_sched_delay=0
PriorityType=priority/basic
GresTypes=gpu{",shard" if shards else ""}
ReturnToService=2
SlurmdTimeout=5
SlurmctldTimeout=5
MessageTimeout=3
TCPTimeout=2
KillWait=4
MinJobAge=600
MaxArraySize=1001
SlurmdParameters=config_overrides
DefMemPerCPU=10
{chr(10).join(nodes)}
PartitionName=gpu Nodes={",".join(self.nodes)} Default=YES MaxTime=INFINITE State=UP
"""
        (folder / "etc/slurm.conf").write_text(text)
        # Loaded even when unused; looking for itself it dies where no cgroup is mounted.
        limits = "CgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\nAllowedSwapSpace=0\n"
        (folder / "etc/cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\n{limits * self._has_accounting}")
        for number in range(gpus):
            # A card must be a character device; a link to one will do.
            (folder / f"dev/nvidia{number}").symlink_to("/dev/null")
        devices = f"{folder}/dev/nvidia[0-{gpus - 1}]"
        names = ",".join(self.nodes)
        lines = [f"NodeName={names} Name=gpu {f'Type={kind} ' if kind else ''}File={devices}"]
        lines += [f"NodeName={names} Name=shard Count={shards}"] if shards else []
        (folder / "etc/gres.conf").write_text("\n".join(lines) + "\n")
        key = folder / "etc/munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _free_ports(number: int) -> list[int]:
    """Taken all together, so that they differ; somebody else may still be quicker."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
