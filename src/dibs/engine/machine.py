"""The machine that this process runs on."""

import os

from dibs.model.gpus import Machine


def this_machine() -> Machine:
    return Machine(len(os.sched_getaffinity(0)), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def memory_available() -> int | None:
    """Bytes that new programs can have without swapping; None where the kernel does not tell."""
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
