"""The machine that this process runs on."""

import os

from dibs.model.gpus import Machine


def this_machine() -> Machine:
    return Machine(len(os.sched_getaffinity(0)), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
