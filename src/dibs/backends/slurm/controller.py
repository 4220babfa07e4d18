"""Slurm's controller: its client commands, each with a deadline, and what they answer as values."""

import contextlib
import getpass
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from dibs.backends.protocol import Node, Resources
from dibs.backends.slurm import sacct, squeue
from dibs.backends.slurm.sinfo import NODE_FORMAT, Partition, chosen_partitions, parse_nodes, parse_partitions
from dibs.backends.slurm.squeue import SqueueRow
from dibs.dataclass import dataclass
from dibs.errors import BackendMissing, BackendSilent

# Where clusters put them when they are not on the PATH.
_FOLDERS = ("/usr/local/bin", "/usr/local/slurm/bin", "/opt/slurm/bin", "/opt/slurm/default/bin", "/usr/bin")
_SILENT = re.compile(
    r"unable to contact slurm controller|timed out|connection refused|connection reset|zero bytes were transmitted"
    r"|backup controller|no route to host|network is unreachable|transport endpoint|munge|protocol authentication"
    r"|can't find an address|unable to connect|temporarily unavailable",
    re.IGNORECASE,
)
_NOT_SET_UP = re.compile(
    r"configuration source|slurm\.conf|SLURM_CONF|plugin_load|cannot find auth", re.IGNORECASE
)
_WHO_SAYS = re.compile(
    r"^(\w+: (error: |fatal: )?(Batch job submission failed: )?|allocation failure: )?(slurm_load_\w+ error: )?"
)
_OF_PYXIS = re.compile(r"--((?:no-)?container-[a-z-]+)")
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0  # seconds


class SlurmRefused(Exception):
    """A command ended with an error that is about what it was asked, in Slurm's words."""


class Commands:
    """Slurm's client commands. After a call without an answer the next ones fail at once, for a while."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        deadline: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment = _clean(environment)
        self._path = os.pathsep.join((self._environment["PATH"], *_FOLDERS))
        self._deadline = deadline  # seconds
        self._clock = clock
        self._silent_until = 0.0
        self._pause = 0.0
        self._why_silent = ""

    def ask(self, command: str, arguments: Sequence[str], *, given: bytes = b"", is_vital: bool = True) -> bytes:
        """Run one of Slurm's commands and return what it said. Times are seconds since the epoch.

        Raises BackendSilent where it does not answer, BackendMissing where there is no Slurm, else SlurmRefused.
        """
        before = self._pause, self._silent_until, self._why_silent
        try:
            # A job inherits what sbatch was told about times.
            return self._run(command, arguments, given, tells_seconds=command != "sbatch")[0]
        except BackendSilent:
            if not is_vital:  # the next question may be answered by another daemon
                self._pause, self._silent_until, self._why_silent = before
            raise

    def would_submit(self, arguments: Sequence[str], given: bytes) -> str:
        """What sbatch says about when and where such a job would start; nothing is submitted."""
        said = self._run("sbatch", ["--test-only", *arguments], given, tells_seconds=True)
        return b"\n".join(reversed(said)).decode("utf-8", "replace").strip()  # on stderr, and that may change

    def _run(
        self, command: str, arguments: Sequence[str], given: bytes, *, tells_seconds: bool
    ) -> tuple[bytes, bytes]:
        if self._clock() < self._silent_until:
            raise _silent(self._why_silent)
        program = shutil.which(command, path=self._path)
        if program is None:
            raise BackendMissing(
                f"cannot use Slurm: there is no {command} on this machine",
                remedy="run dibs where `sinfo` works, usually the cluster's login node",
            )
        if (configuration := self._environment.get("SLURM_CONF")) and not os.path.exists(configuration):
            # Slurm would look for it in the network, for longer than we wait.
            raise _not_set_up(f"its configuration {configuration} is not there")
        try:
            done = subprocess.run(
                [program, *arguments],
                input=given,
                capture_output=True,
                timeout=self._deadline,
                env=self._environment | ({"SLURM_TIME_FORMAT": "%s"} if tells_seconds else {}),
                cwd="/",
                start_new_session=True,  # a Ctrl-C is ours to handle
            )
        except subprocess.TimeoutExpired:
            raise self._no_answer(f"no answer within {self._deadline:g} seconds") from None
        except OSError as error:  # too many processes, or no memory for one more
            raise self._no_answer(f"cannot run {command}: {error.strerror}") from error
        if done.returncode == 0:
            self._pause = 0.0
            return done.stdout, done.stderr
        text = done.stderr.decode("utf-8", "replace").strip()
        if _NOT_SET_UP.search(text):
            raise _not_set_up(last_line(text))
        if _SILENT.search(text):
            raise self._no_answer(last_line(text))
        raise SlurmRefused(text)

    def _no_answer(self, why: str) -> BackendSilent:
        self._pause = min(max(_FIRST_PAUSE, self._pause * 2), _LONGEST_PAUSE)
        self._silent_until = self._clock() + self._pause
        self._why_silent = why
        return _silent(why)


def last_line(text: str) -> str:
    """What Slurm says at last, without saying who says it."""
    lines = [line for line in text.splitlines() if line.strip()] or ["it does not say why"]
    return _WHO_SAYS.sub("", lines[-1])[:300]


def _silent(why: str) -> BackendSilent:
    if "authentication" in why:
        why += "; does munged run here, with the cluster's key?"
    return BackendSilent(
        f"cannot reach Slurm's controller: {why}",
        remedy="the queue asks again by itself; `scontrol ping` shows more",
    )


def _not_set_up(why: str) -> BackendMissing:
    remedy = "run dibs where `sinfo` works, usually the cluster's login node; `dibs daemon restart` looks again"
    return BackendMissing(f"cannot use Slurm: it is not set up here: {why}", remedy=remedy)


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Nothing that changes what the commands do or say. Their jobs inherit it, and start clean too."""
    kept = {
        name: environment[name] for name in ("SLURM_CONF", "HOME", "USER", "LOGNAME", "TZ") if name in environment
    }
    return {"PATH": environment.get("PATH") or os.defpath, "LC_ALL": "C", **kept}


_MOST_CANCELS = 200  # jobs in one call of scancel
_CLOCK_COUNTS = 60.0  # seconds for which a look at the controller's clock is good


@dataclass(frozen=True, slots=True)
class Config:
    """What the controller is set up for."""

    kill_wait: float  # seconds between TERM and KILL
    largest_array: int
    has_accounts: bool  # the site counts usage for accounts


class Controller:
    """Questions that it has no reason to refuse: a refusal counts as no answer."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._config: Config | None = None
        self._pyxis: frozenset[str] | None = None
        self._ahead = 0.0
        self._told_at = -_CLOCK_COUNTS  # when it last told its time

    def version(self) -> str:
        """Empty where it does not tell."""
        return self._show_config().get("SLURM_VERSION", "")

    def config(self) -> Config:
        """Asked for once."""
        if self._config is None:
            found = self._show_config()
            accounts = found.get("AccountingStorageType", "").partition("/")[2] not in ("", "none")
            self._config = Config(
                has_accounts=accounts,
                kill_wait=float(_first_number(found.get("KillWait", ""), 30)),
                largest_array=max(1, _first_number(found.get("MaxArraySize", ""), 1001)),
            )
        return self._config

    def ahead(self) -> float:
        """Seconds by which its clock is before ours. Asked again from time to time: either may be set right."""
        if time.monotonic() - self._told_at >= _CLOCK_COUNTS:
            self._show_config()
        return self._ahead

    def pyxis(self) -> frozenset[str]:
        """The options of pyxis that `srun` takes; none where the site has no pyxis. Asked once."""
        if self._pyxis is None:
            try:
                said = self._commands.ask("srun", ["--help"]).decode("utf-8", "replace")
            except (SlurmRefused, BackendMissing):
                said = ""
            self._pyxis = frozenset(_OF_PYXIS.findall(said))
        return self._pyxis

    def began(self) -> float:
        """When it was started, in seconds since the epoch."""
        return float(_first_number(self._show_config().get("BOOT_TIME", ""), 0))

    def nodes(self) -> tuple[Node, ...]:
        """Every node that this user may see, with its cards."""
        return parse_nodes(self._ask("sinfo", ["-a", "-N", "-h", "-O", NODE_FORMAT]))

    def shards_per_gpu(self, many: Iterable[Resources]) -> int:
        """The fewest parts of a card on any node that has them; 0 where none is asked for or there are none."""
        if not any(wanted.wishes.share or wanted.wishes.vram for wanted in many):
            return 0
        cards = [(node.shards, sum(gpus.total for gpus in node.gpus)) for node in self.nodes()]
        return min((shards // total for shards, total in cards if shards and total), default=0)

    def partitions(self, wanted: Resources) -> tuple[Partition, ...]:
        """Those in which it may run."""
        found = parse_partitions(self._ask("scontrol", ["-a", "-o", "show", "partition"]))
        return chosen_partitions(found, dict(wanted.options).get("partition", ""))

    def queue(self) -> list[SqueueRow]:
        """All that this user has. `-a`: a partition may be hidden from those who do not use it."""
        asked = ["-h", "-a", "-r", "-t", "all", f"--user={os.getuid()}", "-O", squeue.FORMAT]
        return list(squeue.parse(self._ask("squeue", asked)))

    def default_account(self) -> str | None:
        """The account that is charged where a job names none; None where that is not known."""
        if not self.config().has_accounts:
            return ""
        with contextlib.suppress(SlurmRefused, BackendMissing, BackendSilent):
            asked = ["-nP", "show", "user", getpass.getuser(), "format=DefaultAccount"]
            answer = self._commands.ask("sacctmgr", asked, is_vital=False)
            return answer.decode("utf-8", "replace").strip() or None
        return None

    def with_parents(self, account: str) -> frozenset[str] | None:
        """This account and all that it is a part of; None where that is not known."""
        found = [account.lower()]
        if not self.config().has_accounts:
            return frozenset(found)
        try:
            asked = ["-nP", "show", "associations", "format=Account,ParentName"]
            lines = self._commands.ask("sacctmgr", asked, is_vital=False).decode("utf-8", "replace").splitlines()
        except (SlurmRefused, BackendMissing, BackendSilent):
            return None
        pairs = {(own, parent) for own, _, parent in (line.strip().partition("|") for line in lines)}
        while found[-1] != "root":
            parents = {parent for own, parent in pairs if own == found[-1] and parent}  # a user's has none
            if len(parents) != 1 or not parents.isdisjoint(found):
                return None  # not shown to us, or another one in each of several clusters
            found += parents
        return frozenset(found)

    def booked(self, numbers: Iterable[str]) -> list[SqueueRow]:
        """What Slurm's accounting has of jobs that it does not know any more; nothing where there is none."""
        try:
            answer = self._commands.ask("sacct", sacct.question(numbers), is_vital=False)
        except (SlurmRefused, BackendMissing, BackendSilent):
            return []
        return list(sacct.parse(answer))

    def scancel(self, how: list[str], addresses: list[str]) -> None:
        for start in range(0, len(addresses), _MOST_CANCELS):
            # A job that ended in between is no error of ours: who observes sees it.
            with contextlib.suppress(SlurmRefused):
                self._commands.ask("scancel", [*how, *addresses[start : start + _MOST_CANCELS]])

    def hold(self, addresses: Sequence[str], *, release: bool) -> None:
        """Keep these from starting, so that their owner may let them go, or let them go."""
        for start in range(0, len(addresses), _MOST_CANCELS):
            some = ",".join(addresses[start : start + _MOST_CANCELS])
            # One that started in between is no error of ours: who observes sees it.
            with contextlib.suppress(SlurmRefused):
                self._commands.ask("scontrol", ["release" if release else "uhold", some])

    def _show_config(self) -> dict[str, str]:
        asked_at = time.time()
        lines = self._ask("scontrol", ["show", "config"]).decode("utf-8", "replace").splitlines()
        self._ahead, self._told_at = _ahead(lines, asked_at, time.time()), time.monotonic()
        return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}

    def _ask(self, command: str, arguments: Sequence[str]) -> bytes:
        try:
            return self._commands.ask(command, arguments)
        except SlurmRefused as error:
            raise BackendSilent(
                f"cannot ask Slurm: {last_line(str(error))}", remedy="`scontrol ping` shows more"
            ) from None


def _ahead(lines: Iterable[str], asked_at: float, answered_at: float) -> float:
    """By how much its clock is before ours. It says in whole seconds when, in the meantime, it answered."""
    for line in lines:
        if (moment := line.removeprefix("Configuration data as of ")) != line and moment.isdecimal():
            least, most = float(moment) - answered_at, float(moment) + 1 - asked_at
            return 0.0 if least <= 0 <= most else (least + most) / 2
    return 0.0


def _first_number(text: str, default: int) -> int:
    word = text.split()[0] if text else ""
    return int(word) if word.isdecimal() else default
