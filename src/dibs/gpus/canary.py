"""Tests the first GPU that CUDA shows: writes patterns to its memory and reads them back.

Runs as a separate program, because a failing GPU may hang or kill the process that uses it. Exits with 0 when the
GPU passes, with 1 and a sentence when it fails, and with 3 when it cannot be tested. Needs only the standard
library and the driver's own library.
"""

import ctypes
import sys
from array import array
from collections.abc import Callable

_LIBRARY = "libcuda.so.1"
_SIZE = 64 * 1024**2  # bytes
_MEMSET = 0xA5
_STUB_LIBRARY = 34  # CUDA_ERROR_STUB_LIBRARY: there is no driver behind it


class CanaryFailed(Exception):
    """The GPU did not do what it was asked for."""


class CannotTest(Exception):
    """There is no CUDA driver here."""


def main() -> int:
    try:
        check(_driver())
    except CannotTest as error:
        print(f"there is nothing to test it with: {error}")
        return 3
    except CanaryFailed as error:
        print(error)
        return 1
    return 0


def check(call: Callable[..., None]) -> None:
    """Write two patterns to the GPU and read them back. `call(name, ...)` raises CanaryFailed."""
    device, context, place = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(_SIZE))
    back = ctypes.create_string_buffer(_SIZE)

    call("cuMemsetD8_v2", place, ctypes.c_ubyte(_MEMSET), ctypes.c_size_t(_SIZE))
    _compare(call, place, back, bytes([_MEMSET]) * _SIZE)

    written = array("I", range(_SIZE // 4)).tobytes()
    call("cuMemcpyHtoD_v2", place, written, ctypes.c_size_t(_SIZE))
    _compare(call, place, back, written)

    call("cuMemFree_v2", place)
    call("cuCtxSynchronize")
    call("cuDevicePrimaryCtxRelease_v2", device)


def _compare(
    call: Callable[..., None], place: ctypes.c_uint64, back: "ctypes.Array[ctypes.c_char]", written: bytes
) -> None:
    call("cuMemcpyDtoH_v2", back, place, ctypes.c_size_t(_SIZE))
    if back.raw != written:
        # As whole numbers: byte by byte it takes seconds, in which the card is kept from its next job.
        difference = int.from_bytes(back.raw, "little") ^ int.from_bytes(written, "little")
        wrong = _SIZE - difference.to_bytes(_SIZE, "little").count(0)
        raise CanaryFailed(f"of {_SIZE} bytes that were written to its memory {wrong} came back wrong")


def _driver() -> Callable[..., None]:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise CannotTest(f"{_LIBRARY} cannot be loaded") from None

    def call(name: str, *arguments: object) -> None:
        status = getattr(library, name)(*arguments)
        if status == _STUB_LIBRARY:
            raise CannotTest("there is no driver behind its library")
        if status:
            raise CanaryFailed(f"{name.removesuffix('_v2')} says {_error(library, status)}")

    return call


def _error(library: ctypes.CDLL, status: int) -> str:
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(status, ctypes.byref(name))
    library.cuGetErrorString(status, ctypes.byref(text))
    return f"{(name.value or b'error').decode()} ({(text.value or str(status).encode()).decode()})"


if __name__ == "__main__":
    sys.exit(main())
