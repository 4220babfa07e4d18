"""Requests of jobs: in the form in which the queue keeps them, and checked for what can never be."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dibs.errors import BadInput
from dibs.model.gpus import Pool, declared_key
from dibs.model.jobs import Job, JobId, Request, Wishes
from dibs.policy.shapes import with_shape


def with_shapes(requests: Sequence[Request], code: Mapping[str, Any] | None = None) -> Sequence[Request]:
    """The same, with the shapes of those that want `--vram auto`; jobs of one list share their wishes still."""
    if not any(request.wishes.shape for request in requests):
        return requests
    copy, original = (str((code or {}).get(name) or "") for name in ("snapshot", "root"))
    wishes: dict[Wishes, Wishes] = {}
    found = []
    for request in requests:
        shaped = with_shape(request, copy=copy, original=original)
        found.append(replace(shaped, wishes=wishes.setdefault(shaped.wishes, shaped.wishes)))
    return found


def by_uuid(requests: Sequence[Request], pool: Pool) -> Sequence[Request]:
    """The same, with the UUIDs of cards instead of numbers: after a reboot a number may mean another card.

    Jobs of one list share their wishes still. A card that was only declared has nothing but its number.
    """
    if not any(request.wishes.only or request.wishes.prefer for request in requests):
        return requests
    known: dict[Wishes, Wishes] = {}
    found = []
    for request in requests:
        wishes = request.wishes
        if wishes not in known:
            known[wishes] = replace(wishes, only=_keys(wishes.only, pool), prefer=_keys(wishes.prefer, pool))
        found.append(replace(request, wishes=known[wishes]))
    return found


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


def check_checkpoint(request: Request) -> None:
    if request.checkpoint is None:
        return
    if request.time_limit is None:
        raise BadInput(
            "a checkpoint signal comes before a time limit, and there is none", remedy="set one with -t"
        )
    if request.checkpoint.seconds >= request.time_limit:
        raise BadInput(
            f"the checkpoint signal would come {request.checkpoint.seconds:g} s before a limit of"
            f" {request.time_limit:g} s",
            remedy="give the job more time with -t, or send the signal later",
        )


def _keys(ids: Iterable[str], pool: Pool) -> tuple[str, ...]:
    keys = (key for one in ids for key in _keys_of_one(one, pool))
    return tuple(dict.fromkeys(keys))


def _keys_of_one(gpu_id: str, pool: Pool) -> list[str]:
    """What it means in this pool; as it is where it means nothing yet: the pool may grow."""
    if not gpu_id[:1].isdigit():
        return [gpu_id]
    gpus = [card.gpu for card in pool.cards if card.gpu.is_called(gpu_id)]
    return [gpu.number if gpu.key == declared_key(gpu.index) else gpu.key for gpu in gpus] or [gpu_id]
