"""Puts the concrete parts together. No other module chooses a probe, a lease folder or a backend."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dibs.errors import DibsError
from dibs.leases.leases import Leases, build_leases

if TYPE_CHECKING:
    from dibs.backends.protocol import Backend
    from dibs.backends.slurm.backend import SlurmBackend
    from dibs.engine.driver import Hooks
    from dibs.engine.engine import Engine, EngineLimits
    from dibs.engine.launch.browse import BrowsableFolders
    from dibs.engine.launch.launcher import Place
    from dibs.engine.launch.results import Results
    from dibs.engine.queue.notify import Notifier
    from dibs.engine.queue.queue import Queue
    from dibs.engine.remote.state import RemoteSystem
    from dibs.engine.remote.systems import RemoteSystems
    from dibs.engine.sweeps.manager import SweepManager
    from dibs.engine.watch.cards import Cards
    from dibs.engine.watch.health import Health
    from dibs.engine.watch.sharing_rules import SharingRules
    from dibs.gpus.probe import Probe
    from dibs.model.gpus import Pool
    from dibs.settings import Settings
    from dibs.store.journal import Journal
    from dibs.store.rebuild import RebuildReport
    from dibs.store.store import Store


def build_cards(
    root: str, pool: "Pool", *, respect_processes: bool = True, rules: "SharingRules | None" = None
) -> "Cards":
    """The books on a pool's cards, for the engine whose attempts are in `root`."""
    from dibs.engine.watch.cards import Cards
    from dibs.engine.watch.own_processes import is_of_a_running_job
    from dibs.engine.watch.sharing_rules import SharingRules
    from dibs.gpus.processes import attempt_folder_of, pid_is_alive

    def folder_of(pid: int) -> str | None:
        folder = attempt_folder_of(pid)
        return folder if folder is not None and folder.startswith(f"{root}/attempts/") else None

    return Cards(
        pool,
        is_ours=is_of_a_running_job,
        is_alive=pid_is_alive,
        folder_of=folder_of,
        respect_processes=respect_processes,
        rules=rules or SharingRules(),
    )


def build_place(
    environ: Mapping[str, str], *, root: str, run: str, workdir: str, log_limit: int | None = None
) -> "Place":
    from dibs import paths
    from dibs.engine.launch.launcher import Place

    umask = os.umask(0o077)
    os.umask(umask)
    return Place(
        root=root,
        boot_id=environ.get("DIBS_FAKE_BOOT_ID") or paths.boot_id(),
        run=run,
        umask=umask,
        workdir=workdir,
        log_limit=log_limit,
    )


def build_list_engine(
    environ: Mapping[str, str],
    *,
    place: "Place",
    cards: "Cards",
    results: "Results",
    hooks: "Hooks",
    behaviour: "EngineLimits",
) -> "Engine":
    """An engine over a run's list in the place's folder."""
    # Loaded here: `dibs gpus` needs only the leases and must answer at once.
    from dibs.backends.local import LocalBackend
    from dibs.engine.engine import Engine
    from dibs.store.recorder import Recorder
    from dibs.store.store import Store

    store = Store(f"{place.root}/store.db")
    return Engine(
        store=store,
        recorder=Recorder(store),
        backend=LocalBackend(place.root, hooks.add_reader, hooks.remove_reader),
        leases=build_leases(environ),
        cards=cards,
        results=results,
        place=place,
        behaviour=behaviour,
        announce=hooks.announce,
        ask_for_turn=hooks.ask_for_turn,
        reach=_fault_point(environ),
    )


def rebuild_store(queue: str) -> "RebuildReport":
    """Make the store in this folder again, from its journal and its attempts' folders."""
    from dibs.engine.watch.metering import stored_usage
    from dibs.store.rebuild import rebuild
    from dibs.supervise.folder import facts, read_spec

    return rebuild(queue, look=facts, spec_of=read_spec, now=time.time(), used=stored_usage)


BACKENDS = ("slurm",)  # beside this machine


def build_backend(name: str, environ: Mapping[str, str], settings: "Settings", root: str = "") -> "Backend":
    """Another system as a place where attempts run; `root` is the queue's own folder."""
    from dibs import paths
    from dibs.errors import BadInput

    if name not in BACKENDS:
        raise BadInput(f"there is no backend {name[:100]!r}", remedy=f"dibs knows local and {', '.join(BACKENDS)}")
    return _slurm(environ, settings, root or paths.queue_folder(environ))


def _slurm(environ: Mapping[str, str], settings: "Settings", root: str) -> "SlurmBackend":
    """The cluster that was named, else the one of `dibs cluster up`, else the one that Slurm finds itself."""
    from dibs.backends.slurm.backend import SlurmBackend
    from dibs.backends.slurm.controller import Commands
    from dibs.backends.slurm.root_mark import memory_in
    from dibs.backends.slurm.settings import SlurmSettings
    from dibs.cluster.saved import known_cluster

    there = settings.backends_slurm_root or root
    variables = dict(environ)
    ours: dict[str, Any] = {}
    conf = settings.backends_slurm_conf or environ.get("SLURM_CONF", "")
    if not conf and (cluster := known_cluster(environ)) is not None:
        conf = cluster.conf
        variables["PATH"] = f"{cluster.bin}:{environ.get('PATH') or os.defpath}"
        ours = {"python": cluster.python, "source": cluster.source}
        if cluster.is_shared:
            there = settings.backends_slurm_root or cluster.node_root
        else:
            ours |= {"ssh": cluster.ssh, "node_root": cluster.node_root, "destinations": cluster.destinations}
    if conf:
        variables["SLURM_CONF"] = conf
    for field in ("python", "source", "ssh", "node_root"):
        if value := getattr(settings, f"backends_slurm_{field}"):
            ours[field] = value
    return SlurmBackend(
        SlurmSettings(
            root=os.path.abspath(there),
            options=settings.backends_slurm_options,
            patience=settings.backends_slurm_patience,
            memory=memory_in(root),
            **ours,
        ),
        Commands(variables),
    )


def _remote_systems(
    environ: Mapping[str, str], settings: "Settings", root: str, place: "Place", mark: str
) -> "dict[str, RemoteSystem]":
    """The other systems that jobs of a queue may be handed to."""
    from dibs.backends.slurm.files import ROOT_SETTING
    from dibs.engine.remote.state import RemoteSystem

    backend = _slurm(environ, settings, root)
    shared = backend.settings.root
    if shared != place.root:
        shared += f"/{mark}"  # other queues may use it, and each of them has a job 1
    # Of earlier settings: their attempts are still there.
    earlier = [f"{one}/{mark}" for one in backend.roots if one != place.root]
    slurm = RemoteSystem(
        title="Slurm",
        backend=backend,
        place=replace(place, root=shared),
        earlier=tuple(replace(place, root=one) for one in earlier if one != shared),
        root_setting=ROOT_SETTING,
        most=settings.backends_slurm_most_jobs,
        every=settings.backends_slurm_every,
        is_wanted=is_set_up(environ, settings),
    )
    return {"slurm": slurm}


def is_set_up(environ: Mapping[str, str], settings: "Settings") -> bool:
    """Whether any setting is about Slurm."""
    from dibs.cluster.saved import known_cluster
    from dibs.settings import TABLE

    rows = [row for row in TABLE if row.name == "default_backend" or row.name.startswith("backends.slurm.")]
    is_said = any(getattr(settings, row.field) != row.value_by_default for row in rows)
    return is_said or known_cluster(environ) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltQueue:
    """The parts of a daemon, put together."""

    engine: "Engine"
    queue: "Queue"
    sweeping: "SweepManager"
    health: "Health"
    leases: Leases
    probe: "Probe | None"
    journal: "Journal"
    notifier: "Notifier | None"  # None where no channel is set up
    results: "BrowsableFolders"


def build_queue(
    environ: Mapping[str, str], *, root: str, hooks: "Hooks", settings: "Settings", log: Callable[[str], None]
) -> BuiltQueue:
    """An engine over the queue in `root`, with everything that a queue remembers and does beside it."""
    from dibs.backends.local import LocalBackend
    from dibs.engine.engine import Engine, EngineLimits
    from dibs.engine.launch.browse import BrowsableFolders
    from dibs.engine.machine import this_machine
    from dibs.engine.queue.explain import Explain
    from dibs.engine.queue.notify import Channels, Notifier
    from dibs.engine.queue.queue import Queue
    from dibs.engine.sweeps.manager import SweepManager
    from dibs.engine.watch.health import FailureJudge, Health
    from dibs.engine.watch.sharing_rules import sharing_rules
    from dibs.gpus.detect import find_probe
    from dibs.gpus.pool import resolve_pool
    from dibs.policy.failures import Limits
    from dibs.store.journal import NAME, Journal
    from dibs.store.recorder import Recorder
    from dibs.store.replay import catch_up, refuse_journal_without_store, shorten
    from dibs.store.store import Store

    refuse_journal_without_store(root)
    probe = find_probe(environ)
    browse = settings.results_folder or f"{os.path.dirname(root)}/results"
    results = BrowsableFolders("" if browse == "none" else os.path.abspath(browse))
    reach = _fault_point(environ)
    channels = Channels(
        command=settings.notify_command,
        webhook=settings.notify_webhook,
        apprise=settings.notify_apprise,
        on=settings.notify_on,
    )
    store = Store(f"{root}/store.db")
    journal = Journal(f"{root}/{NAME}")
    for sentence in catch_up(store, journal):
        log(sentence)
    if shorten(store, journal):
        log("rewrote the journal without the jobs that were cleaned away")
    recorder = Recorder(store, journal)
    place = build_place(environ, root=root, run="queue", workdir="/", log_limit=settings.log_limit)
    cards = build_cards(root, _queue_pool(store, environ, settings, probe, log), rules=sharing_rules(settings))
    judge = FailureJudge(cards)
    limits = Limits(
        quick_failures=settings.max_quick_failures,
        quick_seconds=settings.quick_seconds,
        gpu_failures=settings.gpu_failures,
    )
    engine = Engine(
        store=store,
        recorder=recorder,
        backend=LocalBackend(root, hooks.add_reader, hooks.remove_reader),
        leases=build_leases(environ),
        cards=cards,
        results=results,
        place=place,
        behaviour=EngineLimits(limits=limits, machine=this_machine()),
        judge=judge,
        remote=_build_remote(environ, settings, store, place, results, recorder.queue_mark(), hooks, reach, log),
        announce=hooks.announce,
        ask_for_turn=hooks.ask_for_turn,
        reach=reach,
    )
    first_test = None if settings.canary == "never" else settings.canary_after
    queue = Queue(
        engine, place, Explain(engine, time.time), lambda text, looks: resolve_pool(text, looks, environ)
    )
    return BuiltQueue(
        engine=engine,
        queue=queue,
        sweeping=SweepManager(engine, queue, results, reach=reach, log=log),
        health=Health(engine, judge, first_test, is_watched=probe is not None),
        leases=build_leases(environ),
        probe=probe,
        journal=journal,
        notifier=None if channels.are_none else Notifier(channels, log),
        results=results,
    )


def _queue_pool(
    store: "Store",
    environ: Mapping[str, str],
    settings: "Settings",
    probe: "Probe | None",
    log: Callable[[str], None],
) -> "Pool":
    """The cards that were last set, else those of the settings; none where they cannot be had now."""
    from dibs.gpus.pool import resolve_pool
    from dibs.model.gpus import Pool, parse_gpu_list

    text = store.queue.setting("pool") or settings.gpus
    parse_gpu_list(text)  # what cannot be meant is no reason to begin without a GPU
    try:
        missing: list[str] = []
        pool = resolve_pool(text, probe, environ, missing)
        if missing:
            log(f"begins without GPU {', '.join(missing)}: the driver does not show it")
        return pool
    except DibsError as error:
        # Jobs without a GPU can run, and `dibs gpus add` can name some: that is no reason not to begin.
        log(f"no GPU to begin with: {error.message}; {error.remedy}")
        return Pool(cards=())


def _build_remote(
    environ: Mapping[str, str],
    settings: "Settings",
    store: "Store",
    place: "Place",
    results: "Results",
    mark: str,
    hooks: "Hooks",
    reach: Callable[[str], None],
    log: Callable[[str], None],
) -> "RemoteSystems":
    from dibs.engine.remote.systems import RemoteSystems

    try:
        systems = _remote_systems(environ, settings, place.root, place, mark)
    except DibsError as error:
        log(f"begins without Slurm: {error.message}; {error.remedy}")  # this machine is worth more than that
        systems = {}
    return RemoteSystems(
        store=store,
        results=results,
        place=place,
        systems=systems,
        mark=mark,
        start_thread=hooks.start_thread,
        ask_for_turn=hooks.ask_for_turn,
        reach=reach,
    )


def _fault_point(environ: Mapping[str, str]) -> Callable[[str], None]:
    """`DIBS_FAULT=after-intent:3` kills this process the third time it reaches that point. For crash tests."""
    import signal

    from dibs.engine.engine import pass_point

    if "DIBS_FAULT" not in environ:
        return pass_point
    name, _, times = environ["DIBS_FAULT"].partition(":")
    left = int(times or 1)

    def reach(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reach
