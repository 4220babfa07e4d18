"""The GPUs of this machine as this process sees them, and ending the jobs that hold them. It needs no daemon."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from dibs.engine.watch.survey import GpuUse, pid_of, survey
from dibs.errors import BadInput, DibsError
from dibs.gpus.detect import find_probe
from dibs.gpus.probe import ProbeFailed, answer_within
from dibs.gpus.processes import BusyRules
from dibs.leases.files import Holder
from dibs.leases.folder import outside
from dibs.leases.leases import Leases, build_leases
from dibs.leases.lockers import user_name
from dibs.model.gpus import declared_key
from dibs.settings import load_settings
from dibs.supervise import folder

_LOOK_EVERY = 0.05  # seconds between two looks at a job that was asked to end
_SAY_AFTER = 1.0  # seconds of waiting


class GpuSurvey(NamedTuple):
    """Every GPU with its reading and its claims, and what could not be looked at."""

    uses: list[GpuUse]
    failure: ProbeFailed | None  # why the driver could not be asked
    too_many: str  # "FOLDER: it has more than ... lease files"; empty where all were looked at


def survey_gpus(environ: Mapping[str, str], *, energy: bool = False) -> GpuSurvey:
    """The GPUs now."""
    reading, failure = None, None
    if probe := find_probe(environ):
        try:
            reading = answer_within(partial(probe.read, energy=energy))
        except ProbeFailed as error:
            failure = error
    leases, settings = build_leases(outside(environ)), load_settings(environ)
    rules = BusyRules(settings.respect_graphics, settings.ignore_memory)
    user = user_name(os.geteuid())
    table = leases.look()
    return GpuSurvey(survey(reading, table, user=user, rules=rules), failure, table.too_many)


def find_gpu(gpu_id: str, uses: Sequence[GpuUse]) -> list[GpuUse]:
    """The GPU with this number or UUID, or the parts of a divided card.

    Without a driver, a number that has no claim is a free GPU.
    """
    is_number = gpu_id.isascii() and gpu_id.isdigit() and len(gpu_id) <= 4
    if is_number:
        found = [use for use in uses if use.index == int(gpu_id)]
    elif gpu_id[:1].isdigit():
        found = [use for use in uses if use.number == gpu_id]
    else:
        found = [use for use in uses if gpu_id and use.key.startswith(gpu_id)]
    if len(found) == 1 or (found and is_number):
        return found
    if found:
        keys = ", ".join(use.key for use in found)
        raise BadInput(f"cannot tell which GPU {gpu_id!r} means: {keys}", remedy="write more of the UUID")
    if is_number and not any(use.seen for use in uses):
        return [GpuUse(key=declared_key(int(gpu_id)), index=int(gpu_id))]
    raise BadInput(f"cannot find GPU {gpu_id}", remedy="`dibs gpus` shows them")


def end_job(environ: Mapping[str, str], holder: Holder, say: Callable[[str], None]) -> None:
    """Ask the holder's job to end, and return when its claim on this GPU is gone."""
    leases = build_leases(outside(environ))
    is_told = bool(holder.folder) and folder.tell(holder.folder, "stop")
    say_at = time.monotonic() + _SAY_AFTER
    while _still_holds(leases, holder):
        if not is_told:
            raise DibsError(
                f"cannot reach the supervisor of job {holder.job or '?'}, which still holds the GPU",
                remedy=f"`kill {pid_of(holder)}` ends it; the GPU is free when its last process has ended",
            )
        if time.monotonic() > say_at:
            say(f"waiting for job {holder.job} to end; it is killed after its grace period")
            say_at = float("inf")
        time.sleep(_LOOK_EVERY)


def _still_holds(leases: Leases, holder: Holder) -> bool:
    """Whether this attempt has its claim; the GPU may have been given to the next job at once."""
    return any(
        (one.gpu, one.folder, one.since) == (holder.gpu, holder.folder, holder.since) for one in leases.holders()
    )
