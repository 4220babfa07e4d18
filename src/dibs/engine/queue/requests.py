"""Checks of a request by what else is in the queue, and by its other wishes."""

from dibs.errors import BadInput
from dibs.model.jobs import Checkpoint, Job, JobId, Request


def check_order(job: JobId, request: Request) -> None:
    """A job follows older ones only, so that there are no cycles."""
    if late := [needed.job for needed in request.after if needed.job >= job]:
        raise BadInput(f"job {job} cannot follow job {late[0]}", remedy="a job follows older ones")


def check_cards(job: Job, new: Request) -> None:
    """Raise BadInput for a wish for cards that Slurm would not be told, because a line of the script says it."""
    if not new.on or not new.on_options:
        return
    from dibs.model.slurm_options import OF_GPUS  # few jobs have any

    said = [f"--{name}={value}" for name, value in new.on_options if name in OF_GPUS]
    before, after = ((one.num_gpus, one.gpu_type, one.share, one.vram) for one in (job.request.wishes, new.wishes))
    if said and after != before:
        raise BadInput(
            f"cannot change the GPUs of job {job.id}: Slurm is told {' '.join(said)} as it is",
            remedy="that line of its script says how many: change it, and add the script again",
        )


def check_project(name: str) -> None:
    """A project is paused and listed by its name, so the name must be text: other bytes could not be typed."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"the project {name!r} is no UTF-8 text", remedy="choose a name of plain letters", field="project"
        ) from None


def check_checkpoint(checkpoint: Checkpoint, time_limit: float | None) -> None:
    if time_limit is None:
        raise BadInput(
            "a checkpoint signal comes before a time limit, and there is none", remedy="set one with -t"
        )
    if checkpoint.seconds >= time_limit:
        raise BadInput(
            f"the checkpoint signal would come {checkpoint.seconds:g} s before a limit of {time_limit:g} s",
            remedy="give the job more time with -t, or send the signal later",
        )
