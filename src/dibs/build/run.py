"""The engine of `dibs run` and its parts, which a queue has too."""

import os
from collections.abc import Callable, Mapping

from dibs import paths
from dibs.backends.local import LocalBackend
from dibs.engine.driver import Hooks
from dibs.engine.engine import Engine, EngineLimits, pass_point
from dibs.engine.launch.launcher import Place
from dibs.engine.launch.results import Results
from dibs.engine.watch.cards import Cards
from dibs.engine.watch.own_processes import attempt_of, is_of_a_running_job
from dibs.engine.watch.sharing_rules import SharingRules
from dibs.gpus.processes import pid_is_alive
from dibs.leases.leases import build_leases
from dibs.model.gpus import Pool
from dibs.store.recorder import Recorder
from dibs.store.store import Store
from dibs.supervise.launcher import Zygote


def build_cards(
    root: str, pool: Pool, *, respect_processes: bool = True, rules: SharingRules | None = None
) -> Cards:
    """The books on a pool's cards, for the engine whose attempts are in `root`."""

    def folder_of(pid: int) -> str | None:
        folder = attempt_of(pid)
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
) -> Place:
    umask = os.umask(0o077)
    os.umask(umask)
    return Place(
        root=root,
        boot_id=f"{environ.get('DIBS_FAKE_BOOT_ID') or paths.boot_id()} {paths.mount_id(root)}",
        run=run,
        umask=umask,
        workdir=workdir,
        leases=environ.get(paths.OUTER_LEASES, environ.get("DIBS_LEASES", "")),
        log_limit=log_limit,
    )


def build_list_engine(
    environ: Mapping[str, str],
    *,
    place: Place,
    cards: Cards,
    results: Results,
    hooks: Hooks,
    limits: EngineLimits,
    zygote: Zygote | None = None,
) -> Engine:
    """An engine over a run's list in the place's folder, with the zygote that was started early, if one was."""
    store = Store(f"{place.root}/store.db", is_list=True)
    return Engine(
        store=store,
        recorder=Recorder(store),
        backend=LocalBackend(place.root, hooks.add_reader, hooks.remove_reader, zygote),
        leases=build_leases(environ),
        cards=cards,
        results=results,
        place=place,
        limits=limits,
        announce=hooks.announce,
        ask_for_turn=hooks.ask_for_turn,
        start_thread=hooks.start_thread,
        reach=named_points(environ),
    )


def named_points(environ: Mapping[str, str]) -> Callable[[str], None]:
    """What is called at the named points of an engine."""
    if "DIBS_FAULT" in environ:
        from dibs.fault_points import fault_point  # for crash tests

        return fault_point(environ) or pass_point
    return pass_point
