"""The real counterpart of fake_program.py, for a machine with a card: it counts its steps on the card."""

import argparse
import ctypes
import os
import time

_FLAGS_GLOBAL = 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ledger")
    parser.add_argument("--bytes", type=int, default=2**30, help="negative: all but so many of the free")
    parser.add_argument("--steps", type=int, default=0, help="end after so many")
    parser.add_argument("--managed", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--delay", action="append", default=[], help="ignored: a real driver takes its time")
    wishes = parser.parse_args()
    cuda = ctypes.CDLL("libcuda.so.1")

    def ask(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise SystemExit(f"{name} answers {code}")

    device, context, held = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    ask("cuInit", 0)
    ask("cuDeviceGet", ctypes.byref(device), 0)
    ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    ask("cuCtxSetCurrent", context)
    size = wishes.bytes
    if size < 0:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ask("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        size += free.value
    if wishes.managed:
        ask("cuMemAllocManaged", ctypes.byref(held), ctypes.c_size_t(size), _FLAGS_GLOBAL)
    else:
        ask("cuMemAlloc_v2", ctypes.byref(held), ctypes.c_size_t(size))
    ledger = os.open(wishes.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for _ in range(wishes.workers):
        parent = os.getpid()
        if os.fork() == 0:
            while os.getppid() == parent:
                time.sleep(0.05)
            os._exit(0)
    number = ctypes.c_uint(0)
    while True:
        # What it counts is on the card: a step that was lost there would show.
        ask("cuMemsetD32_v2", held, ctypes.c_uint(number.value + 1), ctypes.c_size_t(1024))
        ask("cuMemcpyDtoH_v2", ctypes.byref(number), held, ctypes.c_size_t(4))
        os.write(ledger, f"{number.value}\n".encode())
        if number.value == wishes.steps:
            return
        time.sleep(0.005)


if __name__ == "__main__":
    main()
