"""The keywords of a job. Made from src/dibs/model/fields.py by `make bless`: change the table, not this."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from dibs.api.job import Job


class JobKeywords(TypedDict, total=False):
    """What may be said of a job, each as `dibs add` takes it; what is left out is as it is there."""

    num_gpus: int  # How many GPUs each job wants.
    only: int | str | Sequence[int | str]  # Use these GPUs only, and wait for them.
    prefer: int | str | Sequence[int | str]  # GPUs to take first when they are free.
    share: float | str  # The part of a GPU each job books: 0.5 or 1/3.
    vram: int | str  # GPU memory each job books: 12G, or auto for what similar jobs needed.
    gpu_type: str  # A part of the card's name: h200.
    cpus: int  # CPUs each job books.
    mem: int | str  # Memory of the machine each job books.
    bind: bool  # Keep each job to the CPUs near its GPUs.
    warm: str | Sequence[str]  # Fork Python jobs from a process that has imported these: torch,numpy.
    time: float | str  # Longest time of a job: 2h, 90s.
    grace: float | str  # Time between TERM and KILL.
    priority: int  # Higher goes first.
    urgent: bool  # Suspend preemptible jobs if no GPU is free.
    preemptible: bool  # Whether an urgent job may suspend it.
    no_cuda_ipc: bool  # Its processes share no GPU memory by CUDA IPC: several may be suspended.
    name: str  # What the jobs are called.
    project: str  # What they belong to; projects take turns.
    tags: str | Sequence[str]  # A word to find them by; may be given again.
    after: "Job | int | str | Sequence[Job | int | str]"  # Start when these have succeeded: 12,13 · @ · a name.
    after_any: "Job | int | str | Sequence[Job | int | str]"  # Start when these are over, however they ended.
    after_fail: "Job | int | str | Sequence[Job | int | str]"  # Start when these have failed.
    begin: str | datetime  # Not before: 22:00 · '2026-12-01 08:00' · +2h · tomorrow.
    retries: int  # Try a failed job again, with growing pauses.
    retry_on: str | Sequence[str]  # Try again only after these: gpu-oom,lost,exit-code.
    restartable: bool  # May run again when its end was not seen, as after a power cut.
    checkpoint_signal: str  # USR1@60: a signal before the time limit, then queue it again.
    hold: bool  # Wait until `dibs release`.
    once: str  # No second job is added with this key.
    env: Mapping[str, str | int | float]  # A variable for the jobs; may be given again.
    workdir: "str | os.PathLike[str]"  # Run the jobs in this folder.
    output: "str | os.PathLike[str]"  # Their output goes here; %j is the number, %a the task.
    error: "str | os.PathLike[str]"  # Their stderr goes here, apart from the rest of the output.
    image: str  # Run the jobs in a container of this image.
    container_engine: str  # What runs it (default: the setting container_engine).
    mounts: str | Sequence[str]  # A folder for it, SRC[:DST][:ro]; may be given again.
    image_pull: str  # When the image is pulled (default: missing).
    notify: str  # Notify you at its end, only at a failure, or never.
    metric_pattern: str | Sequence[str]  # Find metrics in their output: 'loss=(?P<loss>\S+)', or auto.
    on: str  # Run here, or on Slurm (default: the setting default_backend).
    partition: str  # The partition it waits in.
    account: str  # The account that is charged.
    qos: str  # The quality of service.
    constraint: str  # What its node must have.
    reservation: str  # Slurm's --reservation.
    exclude: str  # Slurm's --exclude.
    nodelist: str  # Slurm's --nodelist.
    licenses: str  # Slurm's --licenses.
    mail_user: str  # Slurm's --mail-user.
    mail_type: str  # Slurm's --mail-type.
