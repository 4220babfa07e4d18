"""dibs gives every command its GPU."""

# Kept almost empty on purpose: the zygote imports this package before it forks a supervisor per job,
# so every name added here is paid for by every job. What Python programs use comes when it is asked for.

TYPE_CHECKING = False  # not typing's: importing it costs more than all the rest
if TYPE_CHECKING:
    from dibs.api.ask_and_tell import ask_and_tell
    from dibs.api.decorator import job
    from dibs.api.errors import JobFailed
    from dibs.api.executor import Executor
    from dibs.api.gpu import gpu
    from dibs.api.job import Job, job_by_id, jobs
    from dibs.api.report import report
    from dibs.api.submit import submit
    from dibs.api.sweep import sweep, sweep_by_id
    from dibs.errors import BadInput, DibsError, NoDaemon, NoGpu, NoGpuNow, NoSuchJob
    from dibs.plugins.optuna_loop import optimize as optimize  # not in __all__: it wants optuna
    from dibs.version import __version__

__all__ = [
    "BadInput",
    "DibsError",
    "Executor",
    "Job",
    "JobFailed",
    "NoDaemon",
    "NoGpu",
    "NoGpuNow",
    "NoSuchJob",
    "__version__",
    "ask_and_tell",
    "gpu",
    "job",
    "job_by_id",
    "jobs",
    "report",
    "submit",
    "sweep",
    "sweep_by_id",
]

_PLACES = {
    **dict.fromkeys(("BadInput", "DibsError", "NoDaemon", "NoGpu", "NoGpuNow", "NoSuchJob"), "dibs.errors"),
    **dict.fromkeys(("Job", "job_by_id", "jobs"), "dibs.api.job"),
    "Executor": "dibs.api.executor",
    "JobFailed": "dibs.api.errors",
    "__version__": "dibs.version",
    "ask_and_tell": "dibs.api.ask_and_tell",
    "gpu": "dibs.api.gpu",
    "job": "dibs.api.decorator",
    "optimize": "dibs.plugins.optuna_loop",
    "report": "dibs.api.report",
    "submit": "dibs.api.submit",
    **dict.fromkeys(("sweep", "sweep_by_id"), "dibs.api.sweep"),
}


if not TYPE_CHECKING:  # who checks types sees the names above, and misses those that are not there

    def __getattr__(name: str) -> object:
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(f"module 'dibs' has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(place), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
