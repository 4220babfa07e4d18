"""joblib's `Parallel` in the queue: import this, then `joblib.parallel_config(backend="dibs")`."""

import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from dibs.api.executor import Executor, JobFuture
from dibs.dataclass import dataclass
from dibs.errors import DibsError

try:
    from joblib import register_parallel_backend
    from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase
except ImportError as error:
    raise ImportError(f"dibs.integrations.joblib needs joblib ({error}): pip install 'dibs[joblib]'") from None


class DibsBackend(AutoBatchingMixin, ParallelBackendBase):
    """Each batch of calls is a job, and `n_jobs` of them run at once. Quick calls are put together by joblib.

    `parallel_config(backend="dibs", n_jobs=4, num_gpus=1)` takes the keywords of `dibs.Executor`.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, nesting_level: int | None = None, **wishes: Any) -> None:
        super().__init__(nesting_level=nesting_level)
        self._wishes = wishes
        self._executor = Executor(**wishes)  # refuses what cannot be read at once
        self._futures: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        cpus = os.cpu_count() or 1
        return cpus if n_jobs is None else n_jobs if n_jobs > 0 else max(1, cpus + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        self.parallel = parallel
        number = self.effective_n_jobs(n_jobs)
        self._executor = Executor(number, **self._wishes)
        return number

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None
    ) -> Future[Any]:
        future = self._executor.submit(_Batch(func))
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def terminate(self) -> None:
        self._executor.shutdown(wait=False)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        left = list(self._futures)
        self._executor.shutdown(wait=False, cancel_futures=True)
        for future in left:
            if isinstance(future, JobFuture) and not future.done():
                with suppress(DibsError):
                    future.job.cancel()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Calls of one job, which is called like the first of them."""

    calls: Any  # joblib's BatchedCalls

    @property
    def func(self) -> Any:
        return self.calls.items[0][0]

    def __call__(self) -> Any:
        return self.calls()


register_parallel_backend("dibs", DibsBackend)
