"""Starting an attempt on this machine: where its files are, what its shim is told, its descriptors."""

import json
import os
import random
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from errno import EAGAIN, EDQUOT, EIO, EMFILE, ENFILE, ENOENT, ENOMEM, ENOSPC, EROFS
from typing import Any

from dibs.backends.local import LocalBackend, is_free_port, ref_of
from dibs.backends.protocol import NOT_ATTACHED, AttachedStreams, LocalInputs, Submission
from dibs.dataclass import dataclass
from dibs.engine.launch.containers import AttemptContainers
from dibs.engine.launch.lease_keeper import LeaseKeeper
from dibs.engine.launch.results import Results
from dibs.engine.launch.slurm_variables import SUBMIT_DIR, TaskHost, slurm_variables
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.engine.watch.cards import Cards
from dibs.files import error_with_path, replace_file
from dibs.leases.lockers import user_name
from dibs.model.events import Event, Started, Trouble
from dibs.model.gpus import gpu_environment
from dibs.model.jobs import Attempt, Job, JobId
from dibs.model.sweeps import WANDB_PARAMETERS
from dibs.paths import OUTER_LEASES


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """An engine's folder and whatever of its surroundings a job inherits."""

    root: str  # attempts/, environments/ and control/ live here
    boot_id: (
        str  # which run of the machine, and which mount of the root: what was not synced is trusted in one only
    )
    run: str  # the run's name, for DIBS_RUN
    umask: int
    workdir: str  # the caller's folder
    leases: str = ""  # DIBS_LEASES of the engine, or of what is around the job in which it runs
    log_limit: int | None = None  # bytes kept of each of a job's streams

    def attempt_folder(self, job: JobId, number: int) -> str:
        # A thousand in a folder: listing one stays quick with a million jobs.
        return f"{self.root}/attempts/{job // 1000}/{job}.{number}"

    def highest_number(self) -> int:
        """The highest number of a job that has a folder here; 0 where none has."""
        return max(_highest_in(f"{self.root}/{kind}") for kind in ("attempts", "checkpoints"))

    def home_of(self, attempt: Attempt) -> "Place | None":
        """The place in which an attempt has its folder, here or elsewhere; None where it is none that we give."""
        inside = self.attempt_folder(attempt.job, attempt.number).removeprefix(self.root)
        found = replace(self, root=attempt.folder.removesuffix(inside))
        is_whole = found.attempt_folder(attempt.job, attempt.number) == attempt.folder
        return found if is_whole and found.root == os.path.abspath(found.root) else None

    def checkpoint_folder(self, job: JobId) -> str:
        """The same for every attempt of a job."""
        return f"{self.root}/checkpoints/{job // 1000}/{job}"

    def keep_environment(self, key: str, environment: Mapping[str, str]) -> None:
        """Write an environment down for the shims, once, for our eyes only."""
        path = self.environment_path(key)
        if os.path.exists(path):
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        replace_file(path, json.dumps(dict(environment)))

    def spec(
        self,
        job: Job,
        attempt: Attempt,
        stdout: str,
        stderr: str,
        *,
        port: int | None = None,
        cpus: Sequence[int] = (),
    ) -> dict[str, Any]:
        """What a shim needs to know to run an attempt: on these CPUs, with a port for its processes to meet."""
        request = job.request
        env = {
            # Another system tells its jobs itself which cards they have.
            **({} if attempt.backend else gpu_environment(attempt.claims)),
            "DIBS_JOB_ID": str(job.id),
            "DIBS_JOB_NAME": request.name,
            "DIBS_ATTEMPT": str(attempt.number),
            "DIBS_RUN": self.run,
            "DIBS_METRICS": f"{attempt.folder}/metrics",
            # Inside a job the pool is that job's own claims: its leases are a world of their own.
            "DIBS_LEASES": f"{attempt.folder}/leases",
            OUTER_LEASES: self.leases,  # for `dibs gpus`
            **dict(request.env),
        }
        if request.array is not None:
            env["DIBS_ARRAY_ID"] = str(request.array.array)
            env["DIBS_ARRAY_TASK_ID"] = str(request.array.task)
        if SUBMIT_DIR in env and not attempt.backend:
            machine = TaskHost(os.uname().nodename, os.cpu_count() or 1, os.getuid(), user_name(os.getuid()))
            env = slurm_variables(job, attempt, env, machine) | env
        if request.has_checkpoint_folder:
            env["DIBS_CHECKPOINT_DIR"] = self.checkpoint_folder(job.id)
        if request.checkpoint is not None:
            env["DIBS_CHECKPOINT_SIGNAL"] = str(int(request.checkpoint.signal))
        if request.workdir:
            env["PWD"] = os.path.join(self.workdir, request.workdir)
        more: dict[str, Any] = {"cpus": list(cpus)} if cpus else {}
        if "\n" in (parameters := env.get(WANDB_PARAMETERS, "")):  # the text for a file, not its path
            env[WANDB_PARAMETERS] = f"{attempt.folder}/wandb-sweep.yaml"
            more["files"] = {WANDB_PARAMETERS: parameters}
        if request.warm:
            # What is the same for all attempts that may come from one warm process. Our own variables are not:
            # they tell one job from another.
            lasting = {name: value for name, value in request.env if not name.startswith(("DIBS_", "WANDB_"))}
            if "PWD" in env:
                lasting.setdefault("PWD", env["PWD"])
            more["warm"] = {"modules": request.warm, "env": lasting}
        if attempt.backend:
            more["name"] = request.name
        if attempt.backend and request.image:  # the other system decides how its nodes run it
            more["image"] = {
                "name": request.image,
                "engine": request.container_engine,
                "mounts": request.mounts,
                "has_cards": request.wishes.num_gpus > 0,
            }
        if port is not None:
            env.setdefault("MASTER_PORT", str(port))
            more["unless_set"] = {"MASTER_ADDR": "127.0.0.1"}
        return {
            "v": 1,
            "job": job.id,
            "attempt": attempt.number,
            "opened_at": attempt.opened_at,
            "words": request.command.words,
            "workdir": os.path.join(self.workdir, request.workdir),
            "umask": self.umask if request.umask is None else request.umask,
            "environment": self.environment_path(job.environment),
            "env": env,
            **more,
            "stdout": stdout,
            "stderr": stderr,
            "time_limit": request.time_limit,
            "grace": request.grace,
            "checkpoint": None
            if request.checkpoint is None
            else (request.checkpoint.signal, request.checkpoint.seconds),
            # A file that the user named is not shortened.
            "log_limit": None if request.output or request.error else self.log_limit,
        }

    def environment_path(self, key: str) -> str:
        return f"{self.root}/environments/{key}.json"


def _highest_in(folder: str) -> int:
    """Of folders `N/JOB...`, a thousand jobs in each: only the last that is not empty is read."""
    for thousand in sorted(map(int, filter(str.isdecimal, _names_in(folder))), reverse=True):
        names = (name.partition(".")[0] for name in _names_in(f"{folder}/{thousand}"))
        jobs = [int(name) for name in names if name.isdecimal() and int(name) // 1000 == thousand]
        if jobs:
            return max(jobs)
    return 0


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


# Below the ports that the kernel gives to outgoing connections, so that none of those takes one between our look
# and the job's own start; and without 29500, PyTorch's default.
_PORTS = range(20_000, 29_000)


# Errors of a folder that cannot be made now: nothing is recorded, and it is tried again.
_PASSING = frozenset({EAGAIN, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS})


@dataclass(frozen=True, slots=True)
class _Prepared:
    spec: dict[str, Any]
    stdout: str
    stderr: str
    events: Sequence[Event]  # to be announced with its start
    files: Mapping[str, str] = field(default_factory=dict)  # written before its start


class AttemptLauncher:
    """Prepares attempts, and submits them to the backend of this machine."""

    def __init__(
        self,
        *,
        place: Place,
        backend: LocalBackend,
        leases: LeaseKeeper,
        cards: Cards,
        results: Results,
        containers: AttemptContainers,
        settle_soon: Callable[[Key], None],
        reach: Callable[[str], None],
    ) -> None:
        self._place = place
        self._backend = backend
        self._leases = leases
        self._cards = cards
        self._results = results
        self._containers = containers
        self._settle_soon = settle_soon
        self._reach = reach
        self._ports = Ports()
        self._attached: dict[JobId, AttachedStreams] = {}
        self._prepared: dict[Key, _Prepared] = {}  # of the turn at hand
        self._has_warned = False  # that the CPUs near the cards are not known

    def attach(self, job: JobId, attached: AttachedStreams) -> None:
        """Connect a job's command to these descriptors of `dibs run`."""
        self._attached[job] = attached

    def detach(self, job: JobId) -> None:
        self._attached.pop(job, None)

    def prepare(self, begun: Iterable[OpenAttempt], running: Mapping[Key, OpenAttempt]) -> str:
        """Make the folders and blank records of attempts that are about to be recorded; else say what is wrong.

        A folder that is already there does not stop the turn: the attempt may have run, and that is found out and
        recorded when it is launched.
        """
        for one in begun:
            job, attempt = one.job, one.attempt
            stdout, stderr = self._results.streams(job, attempt.folder)
            events: list[Event] = []
            spec = self._spec(one, stdout, stderr, running, events)
            prepared = self._prepared[attempt.key] = _Prepared(spec, stdout, stderr, events)
            if job.request.image:
                made = self._containers.prepare(one, spec, self._attached.get(job.id, NOT_ATTACHED))
                spec = made.spec
                self._prepared[attempt.key] = replace(prepared, spec=spec, files=made.files)
            try:
                self._backend.prepare(Submission(ref=ref_of(attempt), spec=spec))
            except OSError as error:
                if error.errno in _PASSING:
                    self.close_prepared()
                    return f"cannot start job {job.label}: {error_with_path(error)}"
        return ""

    def close_prepared(self) -> None:
        """The turn is over, or was not recorded: close what was prepared and not launched."""
        self._prepared.clear()
        self._backend.close_prepared()

    def launch(self, one: OpenAttempt) -> list[Event]:
        """Start an attempt that was prepared. OSError: nothing was started."""
        job, attempt = one.job, one.attempt
        prepared = self._prepared.pop(attempt.key)
        if job.request.has_checkpoint_folder:
            folder = self._place.checkpoint_folder(job.id)
            if job.request.continues_another and not os.path.isdir(folder):
                raise OSError(ENOENT, "it has no copy of the checkpoint that it is to continue")
            os.makedirs(folder, mode=0o700, exist_ok=True)
        for path, text in prepared.files.items():
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            replace_file(path, text, sync=False)
        self._results.begin(job, attempt)
        submission = Submission(
            ref=ref_of(attempt),
            spec=prepared.spec,
            local=LocalInputs(
                lambda: self._settle_soon(attempt.key),
                self._leases.descriptors(attempt),
                self._attached.get(job.id, NOT_ATTACHED),
            ),
        )
        if why_not := self._backend.submit([submission]).put_off.get(submission.ref):
            raise OSError(why_not)
        self._reach("after-launch")
        return [*prepared.events, Started(job, attempt, prepared.stdout, prepared.stderr)]

    def _spec(
        self, one: OpenAttempt, stdout: str, stderr: str, running: Mapping[Key, OpenAttempt], events: list[Event]
    ) -> dict[str, Any]:
        job, attempt = one.job, one.attempt
        port = self._ports.give(attempt.key, running) if len(attempt.claims) > 1 else None
        cpus: Sequence[int] = ()
        if job.request.bind and attempt.claims:
            cpus = self._cards.cpus_near(attempt.claims)
            if not cpus and not self._has_warned:  # once: it holds for every job of this machine
                self._has_warned = True
                sentence = f"job {job.label} is not bound: it is not known which CPUs are near its GPUs"
                events.append(Trouble(sentence))
        return self._place.spec(job, attempt, stdout, stderr, port=port, cpus=cpus)


class Ports:
    """Remembers which port was given to which attempt: it may start to listen much later."""

    def __init__(self) -> None:
        self._given: dict[Key, int] = {}

    def give(self, attempt: Key, running: Container[Key]) -> int | None:
        """A port that is free and that no running attempt was given; None where there is none."""
        self._given = {key: port for key, port in self._given.items() if key in running and key != attempt}
        taken = set(self._given.values())
        # By chance: another engine, which knows nothing of ours, may look in the same moment.
        for port in random.sample(_PORTS, len(_PORTS)):
            if port not in taken and is_free_port(port):
                self._given[attempt] = port
                return port
        return None
