"""`with dibs.gpu(num_gpus=1) as g:` leases GPUs for this process, without a daemon."""

import os
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dibs.errors import BadInput, DibsError

if TYPE_CHECKING:
    from dibs.api.gpu_leasing import LeasedGpus

_DRIVER = "libcuda.so.1"
_NOT_INITIALISED = 3  # CUDA_ERROR_NOT_INITIALIZED


class CudaHasStarted(DibsError):
    """CUDA reads once which GPUs a process may use, and has done so already."""

    code = "cuda-has-started"


class GpuLease:
    """GPUs that are leased for this process during the block; `ids` are their numbers.

    CUDA_VISIBLE_DEVICES and similar variables are set in `os.environ` during the block, for this process and its
    children. The lease ends with the block or with the process.
    """

    def __init__(
        self,
        wishes: Mapping[str, Any],
        *,
        gpus: str | None = None,
        wait: bool | float = True,
        name: str = "",
    ) -> None:
        from dibs.api.wishes import read_wishes

        self._wishes = read_wishes(wishes).wishes
        if not self._wishes.num_gpus:
            raise BadInput("cannot lease 0 GPUs", remedy="num_gpus is 1 or more")
        self._gpus = gpus
        self._seconds = _seconds(wait)
        self._name = name or _program()
        self._lent: LeasedGpus | None = None
        self._inner = ""  # the lease folder for programs that this process starts
        self._before: dict[str, str | None] = {}
        self._pid = 0

    def __repr__(self) -> str:
        return f"<dibs.gpu: {', '.join(map(str, self.ids)) or 'none'}>"

    @property
    def ids(self) -> Sequence[int | str]:
        """The numbers of the GPUs as the machine counts them, of a part `0:1`; none outside of the block."""
        if self._lent is None:
            return ()
        return tuple(claim.index if claim.part is None else claim.number for claim in self._lent.claims)

    def __enter__(self) -> "GpuLease":
        return self.take()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def take(self) -> "GpuLease":
        """Lease the GPUs now, without a `with`. `release` returns them."""
        global _current
        from dataclasses import replace

        from dibs.api.gpu_leasing import borrow
        from dibs.model.gpus import gpu_environment

        with _turn:
            if _current is not None:
                ids = ", ".join(map(str, _current.ids))
                raise BadInput(
                    f"this process has leased GPU {ids} already" if ids else "this process waits for GPUs already",
                    remedy="a process has one set of GPUs: lease as many as it needs at once",
                )
            _current = self
        try:
            wishes = self._wishes
            if cuda_has_started():
                wishes = replace(wishes, only=self._cards_of_cuda())
            inner = _inner_leases()
            # It may wait for hours, so without the lock: other threads get an error at once.
            lent = borrow(wishes, gpus=self._gpus, label=self._name, environ=os.environ, seconds=self._seconds)
            with _turn:
                self._lent, self._inner, self._pid = lent, inner, os.getpid()
                self._set({**gpu_environment(lent.claims), **_leasing_in(inner)})
        except BaseException:
            _current = None
            raise
        return self

    def release(self) -> None:
        """Return the GPUs and restore the environment. In a fork the lease of the parent continues."""
        global _current, _cards_of_cuda
        with _turn:
            lent, self._lent = self._lent, None
            if lent is None:
                return
            if self._pid == os.getpid():
                if cuda_has_started():
                    _cards_of_cuda = tuple(claim.gpu for claim in lent.claims)
                shutil.rmtree(self._inner, ignore_errors=True)
                self._restore()
                _current = None
            lent.close()

    def _cards_of_cuda(self) -> tuple[str, ...]:
        """The cards that CUDA has seen in this process in an earlier block: it can use only those."""
        if len(_cards_of_cuda) == self._wishes.num_gpus:
            return _cards_of_cuda
        raise CudaHasStarted(
            "cannot lease a GPU for this process: CUDA has started in it, and ignores GPUs leased later",
            remedy="lease it before the first use of a GPU, or restart the notebook's kernel",
        )

    def _set(self, values: Mapping[str, str]) -> None:
        self._before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)

    def _restore(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def gpu(
    num_gpus: int = 1,
    *,
    wait: bool | float = True,
    gpus: str | None = None,
    name: str = "",
    vram: int | str | None = None,
    share: float | str | None = None,
    only: str | int | Sequence[int | str] | None = None,
    prefer: str | int | Sequence[int | str] | None = None,
    gpu_type: str | None = None,
) -> GpuLease:
    """Lease GPUs for this process: `with dibs.gpu() as g: ...`.

    It waits until they are free; with `wait=False`, or after `wait` seconds, it raises NoGpuNow. `gpus` are those
    that may be used, as in `dibs run --gpus`; without it the setting `gpus` says it.
    """
    wishes = {
        "num_gpus": num_gpus,
        "vram": vram,
        "share": share,
        "only": only,
        "prefer": prefer,
        "gpu_type": gpu_type,
    }
    return GpuLease(wishes, gpus=gpus, wait=wait, name=name)


def cuda_has_started() -> bool:
    """Whether this process has initialised CUDA, with torch or any other library."""
    torch = sys.modules.get("torch")
    if torch is not None:
        try:
            if torch.cuda.is_initialized():
                return True
        except Exception:  # a partly imported torch, or one without CUDA
            pass
    return _driver_has_started()


def _driver_has_started() -> bool:
    """Whether cuInit was called, which reads the environment; `torch.cuda.is_available` calls it."""
    import ctypes

    try:
        driver = ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)  # do not load it only for this
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALISED)
    except (OSError, AttributeError):
        return False


def _seconds(wait: object) -> float | None:
    """The longest wait in seconds; None: no limit."""
    if wait is True:
        return None
    if not isinstance(wait, int | float) or not wait >= 0:
        raise BadInput(f"cannot read {wait!r:.60} as wait", remedy="it is True, False, or seconds")
    return float(wait)


def _inner_leases() -> str:
    """A new private folder name."""
    from dibs.paths import make_private, state_folder

    root = make_private(f"{make_private(state_folder(os.environ))}/lent")
    return f"{root}/{os.getpid()}-{os.urandom(8).hex()}"


def _leasing_in(folder: str) -> Mapping[str, str]:
    """Variables for leases inside the block, which are taken from the GPUs held here, as inside a job."""
    from dibs.paths import OUTER_LEASES

    outer = os.environ.get(OUTER_LEASES) or os.environ.get("DIBS_LEASES", "")
    return {"DIBS_LEASES": folder, OUTER_LEASES: outer}


def _program() -> str:
    """The name of the holder that other users see."""
    return os.path.basename(getattr(sys.modules.get("__main__"), "__file__", None) or "python")


_turn = threading.RLock()
_current: GpuLease | None = None
_cards_of_cuda: tuple[str, ...] = ()  # the keys of the cards that CUDA has seen in this process


def _before_fork() -> None:
    _turn.acquire()  # so that no other thread takes or returns GPUs during the fork
    if _current is not None and _current._lent is not None:
        _current._lent.pause()


def _after_fork() -> None:
    if _current is not None and _current._lent is not None:
        _current._lent.resume()
    _turn.release()


def _begin_anew() -> None:
    """A fork leases for itself, from the GPUs of its parent."""
    global _turn, _current
    _turn, _current = threading.RLock(), None


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_begin_anew)
