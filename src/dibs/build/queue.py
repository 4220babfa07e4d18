"""The queue of a daemon: its engine, everything beside it, and its store made again."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dibs.backends.local import LocalBackend
from dibs.backends.slurm.files import ROOT_SETTING
from dibs.build.run import build_cards, build_place, named_points
from dibs.build.slurm import build_slurm, is_set_up
from dibs.dataclass import dataclass
from dibs.engine.driver import Hooks
from dibs.engine.engine import Engine, EngineLimits
from dibs.engine.launch.browse import BrowsableFolders
from dibs.engine.launch.launcher import Place
from dibs.engine.launch.results import Results
from dibs.engine.machine import this_machine
from dibs.engine.queue.explain import Explain
from dibs.engine.queue.notify import Channels, Notifier
from dibs.engine.queue.queue import Queue
from dibs.engine.remote.state import RemoteSystem
from dibs.engine.remote.systems import RemoteSystems
from dibs.engine.sweeps.manager import SweepManager
from dibs.engine.watch.health import FailureJudge, Health
from dibs.engine.watch.metering import stored_usage
from dibs.engine.watch.sharing_rules import sharing_rules
from dibs.errors import DibsError
from dibs.gpus.detect import find_probe
from dibs.gpus.pool import resolve_pool
from dibs.gpus.probe import Probe
from dibs.leases.leases import Leases, build_leases
from dibs.model.gpus import Pool, parse_gpu_list
from dibs.policy.outcomes import Limits
from dibs.policy.snapshot import SuspendRules
from dibs.settings import Settings
from dibs.store.journal import NAME, Journal
from dibs.store.rebuild import RebuildReport, rebuild
from dibs.store.recorder import Recorder
from dibs.store.replay import catch_up, refuse_journal_without_store, shorten
from dibs.store.store import Store
from dibs.supervise.folder import facts, read_spec

if TYPE_CHECKING:
    from dibs.engine.launch.suspensions import Helpers


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltQueue:
    """The parts of a daemon, put together."""

    engine: Engine
    queue: Queue
    sweeping: SweepManager
    health: Health
    leases: Leases
    probe: Probe | None
    journal: Journal
    notifier: Notifier | None  # None where no channel is set up
    results: BrowsableFolders


def build_queue(
    environ: Mapping[str, str], *, root: str, hooks: Hooks, settings: Settings, log: Callable[[str], None]
) -> BuiltQueue:
    """An engine over the queue in `root`, with everything that a queue remembers and does beside it."""
    refuse_journal_without_store(root)
    probe = find_probe(environ)
    browse = settings.results_folder or f"{os.path.dirname(root)}/results"
    results = BrowsableFolders("" if browse == "none" else os.path.abspath(browse))
    reach = named_points(environ)
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
        limits=EngineLimits(
            stop_rules=limits,
            machine=this_machine(),
            suspend_rules=SuspendRules(
                preemptible=settings.preemptible,
                slice=settings.slice,
                yields_to_others=settings.yield_to_others,
            ),
        ),
        judge=judge,
        remote=_build_remote(environ, settings, store, place, results, recorder.queue_mark(), hooks, reach, log),
        announce=hooks.announce,
        ask_for_turn=hooks.ask_for_turn,
        start_thread=hooks.start_thread,
        find_helpers=lambda: _helpers(hooks, environ),
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


def _helpers(hooks: Hooks, environ: Mapping[str, str]) -> "Helpers":
    from dibs.supervise.suspension import Suspender  # few jobs are suspended

    return Suspender(hooks.add_reader, hooks.remove_reader, environ)


def rebuild_store(queue: str) -> RebuildReport:
    """Make the store in this folder again, from its journal and its attempts' folders."""
    return rebuild(queue, look=facts, spec_of=read_spec, now=time.time(), used=stored_usage)


def _queue_pool(
    store: Store,
    environ: Mapping[str, str],
    settings: Settings,
    probe: Probe | None,
    log: Callable[[str], None],
) -> Pool:
    """The cards that were last set, else those of the settings; none where they cannot be had now."""
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
    settings: Settings,
    store: Store,
    place: Place,
    results: Results,
    mark: str,
    hooks: Hooks,
    reach: Callable[[str], None],
    log: Callable[[str], None],
) -> RemoteSystems:
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


def _remote_systems(
    environ: Mapping[str, str], settings: Settings, root: str, place: Place, mark: str
) -> dict[str, RemoteSystem]:
    """The other systems that jobs of a queue may be handed to."""
    backend = build_slurm(environ, settings, root)
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
        why_no_image=backend.why_no_image,
    )
    return {"slurm": slurm}
