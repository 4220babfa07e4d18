"""`with dibs.gpu(num_gpus=1) as g:` GPUs for this very process, without a daemon."""

import os
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dibs.errors import BadInput, DibsError

if TYPE_CHECKING:
    from dibs.api.lending import Lent

_DRIVER = "libcuda.so.1"
_NOT_INITIALISED = 3  # CUDA_ERROR_NOT_INITIALIZED


class CudaHasStarted(DibsError):
    """CUDA looks once which GPUs a process may use, and has done so already."""

    code = "cuda-has-started"


class GpuLease:
    """GPUs that are leased for this process while the block lasts; `ids` are their numbers.

    CUDA_VISIBLE_DEVICES and its like are set in `os.environ` meanwhile, for this process and for those that it
    starts. The lease ends with the block, and with the process however it ends.
    """

    def __init__(
        self,
        wishes: Mapping[str, Any],
        *,
        gpus: str = "auto",
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
        self._lent: Lent | None = None
        self._inner = ""  # where others lease of what we hold
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
        """Lease the GPUs now, without a `with`. `release` gives them back."""
        global _current
        from dataclasses import replace

        from dibs.api.lending import borrow
        from dibs.model.claims import gpu_environment

        with _turn:
            if _current is not None:
                ids = ", ".join(map(str, _current.ids))
                raise BadInput(
                    f"this process has leased GPU {ids} already" if ids else "this process waits for GPUs already",
                    remedy="all of a process sees the same GPUs: ask for as many as it needs at once",
                )
            _current = self
        try:
            wishes = self._wishes
            if cuda_has_started():
                wishes = replace(wishes, only=self._cards_of_cuda())
            inner = _inner_leases()
            # It may wait for hours: not with the lock, other threads are told so at once.
            lent = borrow(wishes, gpus=self._gpus, label=self._name, environ=os.environ, seconds=self._seconds)
            with _turn:
                self._lent, self._inner, self._pid = lent, inner, os.getpid()
                self._set({**gpu_environment(lent.claims), **_leasing_in(inner)})
        except BaseException:
            _current = None
            raise
        return self

    def release(self) -> None:
        """Give the GPUs back, and the environment its old values. In a fork the parent's lease goes on."""
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
            lent.lease.close()

    def _cards_of_cuda(self) -> tuple[str, ...]:
        """The cards that CUDA sees in this process since an earlier block: only those are of any use."""
        if len(_cards_of_cuda) == self._wishes.num_gpus:
            return _cards_of_cuda
        raise CudaHasStarted(
            "cannot lease a GPU for this process: CUDA has started in it already, and would not look again",
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
    gpus: str = "auto",
    name: str = "",
    vram: int | str | None = None,
    share: float | str | None = None,
    only: str | int | Sequence[int | str] | None = None,
    prefer: str | int | Sequence[int | str] | None = None,
    gpu_type: str | None = None,
) -> GpuLease:
    """Lease GPUs for this process: `with dibs.gpu() as g: ...`.

    It waits for its turn; with `wait=False`, or after so many seconds, NoGpuNow is raised instead. `gpus` are
    those that may be used, as in `dibs run --gpus`.
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
    """Whether this process uses a GPU already, by torch or by anything else."""
    torch = sys.modules.get("torch")
    if torch is not None:
        try:
            if torch.cuda.is_initialized():
                return True
        except Exception:  # one that is half imported, or built without CUDA
            pass
    return _driver_has_started()


def _driver_has_started() -> bool:
    """Whether cuInit was called, which looks at the environment: `torch.cuda.is_available` does so already."""
    import ctypes

    try:
        driver = ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)  # never load it for that
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALISED)
    except (OSError, AttributeError):
        return False


def _seconds(wait: object) -> float | None:
    """How long somebody waits at most; None: for as long as it takes."""
    if wait is True:
        return None
    if not isinstance(wait, int | float) or not wait >= 0:
        raise BadInput(f"cannot read {wait!r:.60} as wait", remedy="it is True, False, or seconds")
    return float(wait)


def _inner_leases() -> str:
    """A folder that is not there yet, and is ours."""
    from dibs.paths import make_private, state_folder

    root = make_private(f"{make_private(state_folder(os.environ))}/lent")
    return f"{root}/{os.getpid()}-{os.urandom(8).hex()}"


def _leasing_in(folder: str) -> Mapping[str, str]:
    """Whoever leases in the block leases of what we hold: a world of its own, as inside a job."""
    from dibs.client.starting import OUTER_LEASES

    outer = os.environ.get(OUTER_LEASES) or os.environ.get("DIBS_LEASES", "")
    return {"DIBS_LEASES": folder, OUTER_LEASES: outer}


def _program() -> str:
    """What others see as the holder's name."""
    return os.path.basename(getattr(sys.modules.get("__main__"), "__file__", None) or "python")


_turn = threading.RLock()
_current: GpuLease | None = None
_cards_of_cuda: tuple[str, ...] = ()  # what CUDA has seen in this process, by their keys


def _begin_anew() -> None:
    """A fork leases for itself: of what its parent has."""
    global _turn, _current
    _turn, _current = threading.RLock(), None


os.register_at_fork(after_in_child=_begin_anew)
