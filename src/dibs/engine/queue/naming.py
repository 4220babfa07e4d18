"""Cards that jobs name: by number in their owner's words, by UUID in ours."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dibs.model.gpus import declared_key
from dibs.model.jobs import Request, Wishes
from dibs.model.pool import Pool


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


def _keys(ids: Iterable[str], pool: Pool) -> tuple[str, ...]:
    keys = (key for one in ids for key in _of_one(one, pool))
    return tuple(dict.fromkeys(keys))


def _of_one(gpu_id: str, pool: Pool) -> list[str]:
    """What it means in this pool; as it is where it means nothing yet: the pool may grow."""
    if not gpu_id[:1].isdigit():
        return [gpu_id]
    gpus = [card.gpu for card in pool.cards if card.gpu.is_called(gpu_id)]
    return [gpu.number if gpu.key == declared_key(gpu.index) else gpu.key for gpu in gpus] or [gpu_id]
