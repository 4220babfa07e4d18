"""Store and journal side by side: written in one turn, and when one has forgotten the other tells it again."""

import os

from dibs.errors import StoreUnusable
from dibs.model.jobs import JobId
from dibs.store.journal import NAME, Journal, Position, read
from dibs.store.recorder import POSITION, remember_position
from dibs.store.replay import Replay
from dibs.store.store import Store

_LARGEST = 64 * 1024**2  # bytes; a smaller one is in nobody's way


def catch_up(store: Store, book: Journal) -> list[str]:
    """Tell the store what its journal says beyond what it remembers; return what could not be told.

    A daemon that was killed between journal and commit leaves one turn that nobody was told of; taking it in does
    no harm. A log that was deleted, or an old copy that was put back, takes acknowledged turns away: here they are
    again. A store and a journal that do not belong together are refused.
    """
    complaints: list[str] = []
    start = _place_to_begin(store, book)
    with store.turn():
        replay = Replay(store, complaints.append)
        for line in read(book.path, start):
            if line.body is not None:
                replay.tell(line.number, line.body)
            else:
                complaints.append(f"line {line.number} after byte {start} of the journal is damaged")
        remember_position(store, book)
    return complaints


def shorten(store: Store, book: Journal, *, largest: int = _LARGEST) -> bool:
    """Write the journal anew where most of what it tells is about jobs that were cleaned away; say whether it was.

    It takes a second for a hundred thousand jobs, so it is for the start of a daemon, when nobody waits yet.
    """
    there = sum(store.counts().values())
    if book.size <= largest or 2 * there > store.queue.next_number():
        return False
    book.compact(lambda number: bool(store.listing.states([JobId(number)])))
    with store.turn():
        remember_position(store, book)
    return True


def refuse_to_begin_anew(folder: str) -> None:
    """Refuse a folder whose store is gone while its journal is not: a new store would give numbers twice."""
    try:
        is_used = os.path.getsize(f"{folder}/{NAME}") > 0
    except OSError:
        return
    if is_used and not os.path.exists(f"{folder}/store.db"):
        raise StoreUnusable(
            f"cannot find {folder}/store.db, but a journal of its jobs is there",
            remedy="take the store back from a backup, or let `dibs doctor --rebuild` make it again",
        )


def _place_to_begin(store: Store, book: Journal) -> int:
    remembered = store.queue.setting(POSITION)
    if remembered is None and store.queue.next_number() > 1:
        return book.size  # it is older than this memory: what it says itself must do
    known = Position("", 0) if remembered is None else Position.parse(remembered)
    if known.id == book.position.id:
        return min(known.size, book.size)  # the end of a journal may be lost in a power cut; the store's is not
    if known == book.position_before:
        return book.size  # it was compacted, and then the machine stopped
    raise StoreUnusable(
        f"cannot use {store.path}: its journal is of another time",
        remedy="take both back from one backup, or let `dibs doctor --rebuild` make the store again",
    )
