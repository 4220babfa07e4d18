"""Where the concrete parts meet. Nobody else chooses a probe, a lease folder or a backend."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dibs.leases.folder import lease_folder
from dibs.leases.leases import Leases
from dibs.leases.who import user_name

if TYPE_CHECKING:
    from dibs.engine.engine import Engine
    from dibs.engine.hooks import Hooks
    from dibs.engine.results import Results
    from dibs.model.pool import Pool


def build_leases(environ: Mapping[str, str]) -> Leases:
    uid = os.geteuid()
    return Leases(lease_folder(environ), uid=uid, user=user_name(uid) or f"uid {uid}")


def build_engine(
    environ: Mapping[str, str],
    *,
    root: str,
    run: str,
    workdir: str,
    pool: "Pool",
    results: "Results",
    hooks: "Hooks",
    respect_processes: bool = True,
) -> "Engine":
    """An engine over a store in `root`."""
    # Loaded here: `dibs gpus` needs only the leases and must answer at once.
    from dibs import paths
    from dibs.backends.local import LocalBackend
    from dibs.engine.cards import Cards
    from dibs.engine.engine import Engine
    from dibs.engine.place import Place
    from dibs.gpus.foreign import dibs_job_of, pid_is_alive
    from dibs.store.store import Store

    umask = os.umask(0o077)
    os.umask(umask)
    return Engine(
        store=Store(f"{root}/store.db"),
        backend=LocalBackend(root, hooks.add_reader, hooks.remove_reader),
        leases=build_leases(environ),
        cards=Cards(
            pool,
            is_ours=lambda pid: dibs_job_of(pid) is not None,
            is_alive=pid_is_alive,
            respect_processes=respect_processes,
        ),
        results=results,
        place=Place(
            root=root,
            boot_id=environ.get("DIBS_FAKE_BOOT_ID") or paths.boot_id(),
            run=run,
            umask=umask,
            workdir=workdir,
        ),
        announce=hooks.announce,
        ask_for_turn=hooks.ask_for_turn,
        reach=_fault_point(environ.get("DIBS_FAULT", "")),
    )


def _fault_point(spec: str) -> Callable[[str], None]:
    """`DIBS_FAULT=after-intent:3` kills this process the third time it reaches that point. For crash tests."""
    if not spec:
        return lambda point: None
    import signal

    name, _, times = spec.partition(":")
    left = int(times or 1)

    def reach(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reach
