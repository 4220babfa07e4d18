"""What `dibs doctor` checks: one function for each part, one sentence for each finding."""

import os
import resource
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dibs import paths
from dibs.backends.slurm.backend import SlurmBackend
from dibs.build.slurm import build_backend, is_set_up
from dibs.cli import systemd
from dibs.client.client import Client
from dibs.client.connection import NoAnswer, NotListening
from dibs.client.starting import lock_is_held
from dibs.dataclass import dataclass
from dibs.errors import DibsError
from dibs.gpus.cuda_checkpoint import suspending_in_words
from dibs.gpus.detect import find_probe
from dibs.gpus.probe import answer_within
from dibs.leases.folder import lease_folder
from dibs.model.units import show_size
from dibs.settings import find_settings, load_settings
from dibs.store import journal
from dibs.store.file import SCHEMA_VERSION, inspect_store
from dibs.version import __version__

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_LITTLE_DISK, _TOO_LITTLE_DISK = 1024**3, 64 * 1024**2  # bytes
_FEW_INODES, _TOO_FEW_INODES = 10_000, 500
_DRIVER_SECONDS = 5.0
_SLOW_DRIVER = 1.0  # seconds
_ANSWER_SECONDS = 1.0  # of the daemon
_FEW_FILES = 256
_FEW_PROCESSES = 200
_SYSTEMD = "/run/systemd/system"  # exists where systemd is the init
_SLURM_CONF = "/etc/slurm/slurm.conf"  # where Slurm's own programs look for its settings


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one thing, and what to do about it."""

    state: str
    sentence: str
    remedy: str = ""
    name: str = ""


Environ = Mapping[str, str]
Check = Callable[[Environ], list[Finding]]


def check_up(environ: Environ, checks: Iterable[tuple[str, Check]] | None = None) -> list[Finding]:
    """Every finding, in order. Whatever goes wrong in one check is that check's finding."""
    findings: list[Finding] = []
    for name, check in checks or CHECKS:
        try:
            findings += [replace(found, name=name) for found in check(environ)]
        except DibsError as error:
            findings.append(Finding(PROBLEM, error.message, error.remedy, name))
        except OSError as error:
            findings.append(
                Finding(
                    PROBLEM, f"it cannot be checked: {error}", "check its owner, and the output of `dmesg`", name
                )
            )
    return findings


def check_settings(environ: Environ) -> list[Finding]:
    changed = [one.setting.name for one in find_settings(environ) if one.source != "default"]
    return [Finding(OK, f"{', '.join(changed)} set" if changed else "none is set: all have their defaults")]


def check_state_folder(environ: Environ) -> list[Finding]:
    folder = paths.state_folder(environ)
    found: list[Finding] = []
    wanted = environ.get("XDG_STATE_HOME") or (f"{environ['HOME']}/.local/state" if environ.get("HOME") else "")
    if not environ.get("DIBS_STATE") and wanted and (kind := paths.network_file_system(wanted)):
        found.append(
            Finding(OK, f"{wanted} is on {kind}, where locks cannot be trusted, so {folder} is used instead")
        )
    try:
        seen = os.lstat(folder)
    except FileNotFoundError:
        return [*found, Finding(OK, f"{folder} is not there yet; the first job makes it")]
    if not stat.S_ISDIR(seen.st_mode):
        return [*found, Finding(PROBLEM, f"{folder} is no folder", "remove it, or set DIBS_STATE to another")]
    if seen.st_uid != os.geteuid():
        return [
            *found,
            Finding(PROBLEM, f"{folder} belongs to uid {seen.st_uid}", "set DIBS_STATE to a folder of your own"),
        ]
    if stat.S_IMODE(seen.st_mode) & 0o077:
        return [*found, Finding(PROBLEM, f"other users may read {folder}", f"`chmod 700 {folder}`")]
    if kind := paths.network_file_system(folder):
        return [
            *found,
            Finding(
                PROBLEM,
                f"{folder} is on {kind}, where locks cannot be trusted",
                f"set DIBS_STATE to a folder on a local disk, for example {paths.local_folder()}",
            ),
        ]
    return [*found, Finding(OK, f"{folder} is yours alone, on {paths.file_system(folder) or 'a local disk'}")]


def check_disk(environ: Environ) -> list[Finding]:
    folder = paths.state_folder(environ)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    seen = os.statvfs(folder)
    free = seen.f_bavail * seen.f_frsize
    remedy = "`dibs clean` removes old jobs and their output"
    found: list[Finding] = []
    if free < _LITTLE_DISK:
        state = PROBLEM if free < _TOO_LITTLE_DISK else WARNING
        found.append(Finding(state, f"only {show_size(free)} are free in {folder}", remedy))
    # Some file systems make inodes as they need them, and count none.
    if seen.f_files and seen.f_favail < _FEW_INODES:
        state = PROBLEM if seen.f_favail < _TOO_FEW_INODES else WARNING
        found.append(Finding(state, f"only {seen.f_favail} more files can be made in {folder}", remedy))
    return found or [Finding(OK, f"{show_size(free)} are free in {folder}")]


def check_store(environ: Environ) -> list[Finding]:
    queue = paths.queue_folder(environ)
    path = f"{queue}/store.db"
    if not os.path.lexists(path):
        if _size(_journal_path(environ)):
            return [Finding(PROBLEM, f"{path} is gone, but its journal is there", _REBUILD)]
        return [Finding(OK, "there is none yet; the first job makes it")]
    if lock_is_held(queue):
        return [Finding(OK, f"{path} is in use by the daemon, which checked it when it started")]
    looked = inspect_store(path)
    if "locked" in looked.problem:
        return [Finding(OK, f"{path} is in use")]
    if looked.is_damaged:
        return [Finding(PROBLEM, f"{path} cannot be used: {looked.problem}", _REBUILD)]
    if looked.problem:
        remedy = "see whether its disk is full (`df -h`) and who owns it, and ask again; a rebuild is not needed"
        return [Finding(PROBLEM, f"{path} cannot be checked now: {looked.problem}", remedy)]
    if looked.version != SCHEMA_VERSION:
        return [
            Finding(
                PROBLEM,
                f"another version of dibs wrote {path}"
                f" (its schema is {looked.version}, this version needs {SCHEMA_VERSION})",
                "use that version again",
            )
        ]
    size = "" if looked.is_complete else "; it is too large to check every page now"
    return [Finding(OK, f"{path} is whole, with {looked.jobs} jobs (schema {looked.version}){size}")]


def check_journal(environ: Environ) -> list[Finding]:
    path = _journal_path(environ)
    if not os.path.lexists(path):
        if os.path.lexists(f"{paths.queue_folder(environ)}/store.db"):
            return [
                Finding(
                    WARNING, f"{path} is missing: the store could not be made again", "keep a backup of the store"
                )
            ]
        return [Finding(OK, "there is none yet; the first job makes it")]
    damaged = lines = 0
    for line in journal.read(path):
        lines += 1
        damaged += line.body is None and not line.is_torn
    if damaged:
        remedy = "the store is not touched by this; if it is ever rebuilt, what these lines say will be missing"
        return [Finding(WARNING, f"{damaged} of {lines} lines in {path} are damaged", remedy)]
    return [Finding(OK, f"{lines} lines, all readable")]


def check_daemon(environ: Environ) -> list[Finding]:
    queue, socket = paths.queue_folder(environ), paths.socket_path(environ)
    is_held = lock_is_held(queue)
    client = Client(socket, patience=_ANSWER_SECONDS)
    try:
        status = client.status()
    except NotListening:
        return _not_listening(queue, socket, is_held)
    except NoAnswer:
        sentence = f"it does not answer within {_ANSWER_SECONDS:g} second at {socket}"
        return [Finding(PROBLEM, sentence, "`dibs daemon restart` leaves the jobs alone")]
    finally:
        client.close()
    sentence = f"version {status['version']} answers at {socket} (pid {status['pid']})"
    if status["version"] != __version__:
        return [
            Finding(
                WARNING, f"{sentence}, but this is {__version__}", "`dibs daemon restart` leaves the jobs alone"
            )
        ]
    return [Finding(OK, sentence)]


def check_leases(environ: Environ) -> list[Finding]:
    folder = lease_folder(environ)
    seen = os.stat(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        return [
            Finding(
                PROBLEM, f"{folder} cannot be written to", "ask an admin, or set DIBS_LEASES to another folder"
            )
        ]
    if seen.st_mode & stat.S_ISVTX:
        return [Finding(OK, f"{folder} is shared with all users of this machine")]
    remedy = "unset DIBS_LEASES to share the GPUs of this machine with its other users"
    return [Finding(WARNING, f"{folder} is yours alone: other users do not see which GPUs you hold", remedy)]


def check_driver(environ: Environ) -> list[Finding]:
    begun = time.monotonic()
    probe = find_probe(environ)
    if probe is None:
        return [Finding(WARNING, "there is no GPU driver here", "name GPUs yourself: `dibs run --gpus 0,1`")]
    reading = answer_within(probe.read, _DRIVER_SECONDS)
    seconds = time.monotonic() - begun
    cards = len(reading.gpus)
    sentence = f"{cards} GPU{'s' if cards != 1 else ''}, answered in {seconds:.2f} seconds"
    suspending = Finding(OK, suspending_in_words(environ))
    if seconds > _SLOW_DRIVER:
        return [Finding(WARNING, sentence, "`nvidia-smi -pm 1` (as root) keeps the driver awake"), suspending]
    return [Finding(OK, sentence), suspending]


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


def check_login(
    environ: Environ, *, running: str = _SYSTEMD, logind: Sequence[str] = systemd.LOGIND_FILES
) -> list[Finding]:
    """Whether the daemon outlives its user's login."""
    if not os.path.isdir(running):
        return [Finding(OK, "there is no systemd here that would end the daemon at logout")]
    found = []
    if systemd.kills_user_processes(logind):
        found.append(
            Finding(
                WARNING,
                "this machine ends all processes of a user at logout (KillUserProcesses), the daemon among them",
                "`loginctl enable-linger`, then `dibs daemon install`",
            )
        )
    linger, version = systemd.lingers(environ), systemd.version(environ)
    if linger and version == systemd.IGNORES_LINGER:
        found.append(
            Finding(
                WARNING,
                f"systemd {version} may end your services at the last logout though linger is on (systemd#43361)",
                "start it with `dibs daemon start`, not as a user service, or ask an admin for a system unit",
            )
        )
    known = {True: "linger is on", False: "linger is off", None: "whether linger is on is not known"}[linger]
    return found or [Finding(OK, f"{known}, and processes may outlive a login")]


def _cluster(environ: Environ, source: str) -> list[Finding]:
    """Whether the hosts of `dibs cluster up` have this dibs; this machine has a copy of what they were given."""
    from dibs.cluster.install import other_source
    from dibs.cluster.saved import known_cluster

    cluster = known_cluster(environ)
    if cluster is None or source != cluster.source:
        return []
    try:
        with open(f"{source}/version") as file:
            mark = file.read(200)
    except OSError:
        mark = ""
    if other_source(mark):
        return [Finding(WARNING, "the cluster has another version of dibs than this one", "`dibs cluster up`")]
    return []


def check_slurm(environ: Environ) -> list[Finding]:
    """Nothing where there is none. What is wrong with one thing hides no other."""
    settings = load_settings(environ)
    is_wanted = is_set_up(environ, settings)
    if not is_wanted and not os.path.isfile(environ.get("SLURM_CONF", _SLURM_CONF)):
        return []
    backend = build_backend("slurm", environ, settings)
    assert isinstance(backend, SlurmBackend)
    slurm = backend.settings
    has_package = os.path.isfile(f"{slurm.source}/dibs/__init__.py")
    files = [
        _file("python", slurm.python, os.access(slurm.python, os.X_OK), "it cannot be executed"),
        _file("source", slurm.source, has_package, "the package dibs is not in it"),
    ]
    return [
        _answers(backend.version, is_wanted),
        _root(slurm.root, is_fetched=bool(slurm.ssh)),
        *([] if slurm.ssh else files),
        *_cluster(environ, slurm.source),
    ]


def _answers(version: Callable[[], str], is_wanted: bool) -> Finding:
    try:
        found = version()
    except DibsError as error:
        return Finding(PROBLEM if is_wanted else WARNING, error.message, error.remedy)
    return Finding(OK, f"its controller answers{f', version {found}' if found else ''}")


def _root(root: str, *, is_fetched: bool) -> Finding:
    """The folder that jobs over there write to."""
    remedy = "`dibs config set backends.slurm.root FOLDER`, where FOLDER is one that all nodes see"
    nearest = root
    while not os.path.isdir(nearest) and nearest != os.path.dirname(nearest):
        nearest = os.path.dirname(nearest)
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(PROBLEM, f"backends.slurm.root: {nearest} cannot be written to", remedy)
    if is_fetched:
        return Finding(OK, f"backends.slurm.root: {root} can be written to; the nodes' files are fetched over ssh")
    if kind := paths.network_file_system(root):
        return Finding(OK, f"backends.slurm.root: {root} can be written to, and is shared by {kind}")
    on = paths.file_system(nearest) or "a local disk"
    return Finding(WARNING, f"backends.slurm.root: {root} is on {on}, which other machines may not see", remedy)


def _file(name: str, path: str, is_good: bool, why: str) -> Finding:
    """What the nodes need under the same path as this machine."""
    if is_good:
        return Finding(OK, f"backends.slurm.{name}: {path} is there; the nodes need it too")
    return Finding(WARNING, f"backends.slurm.{name}: {path}: {why} here", "see that every node has it there")


_REBUILD = "`dibs doctor --rebuild` makes it again from the journal and the attempts; the old one is kept"


def _not_listening(queue: str, socket: str, is_held: bool) -> list[Finding]:
    if is_held:
        return [
            Finding(
                PROBLEM,
                f"one is there (pid {_pid_in(f'{queue}/lock')}), but does not listen at {socket}",
                "`dibs daemon log` shows why; `dibs daemon restart` leaves the jobs alone",
            )
        ]
    if os.path.lexists(socket):
        return [
            Finding(
                OK, f"none runs; {socket} was left behind by one that was killed, and the next one replaces it"
            )
        ]
    folder = os.path.dirname(socket)
    if os.path.lexists(folder) and not paths.is_private(folder):
        return [
            Finding(PROBLEM, f"other users may read {folder}, where its socket would be", f"`chmod 700 {folder}`")
        ]
    return [Finding(OK, "none runs; the first command that needs one starts it")]


def _journal_path(environ: Environ) -> str:
    return f"{paths.queue_folder(environ)}/journal.jsonl"


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _pid_in(path: str) -> str:
    try:
        with open(path) as file:
            text = file.read(20).strip()
    except (OSError, ValueError):
        text = ""
    return text if text.isdigit() else "?"


def _shown(limit: int) -> str:
    return "any number of" if limit < 0 else str(limit)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("settings", check_settings),
    ("state folder", check_state_folder),
    ("disk", check_disk),
    ("store", check_store),
    ("journal", check_journal),
    ("daemon", check_daemon),
    ("leases", check_leases),
    ("GPU driver", check_driver),
    ("Slurm", check_slurm),
    ("limits", check_limits),
    ("login", check_login),
)
