"""Every GPU of this machine with its claims, as `dibs gpus`, the page and the seed tools show it."""

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction

from dibs.dataclass import dataclass
from dibs.engine.watch.own_processes import attempt_of, is_of_a_running_job, record_in_time
from dibs.gpus.processes import DEFAULT_BUSY_RULES, BusyRules, foreign_processes, pid_is_alive
from dibs.leases.files import WAY_OUT, Holder, in_words, overbooking
from dibs.leases.leases import LeaseTable
from dibs.model.gpus import GpuProcess, GpuReading, Reading
from dibs.model.units import show_gpu

_DECLARED = "index-"
_MOST_UNSEEN = 64  # cards that only claims name: a hostile user could make a table of thousands
_LONGEST_INDEX = 4  # digits


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """One GPU with its holders. `index` is None for a claim on a card that the driver does not show."""

    key: str
    index: int | None
    part: int | None = None
    seen: GpuReading | None = None  # None where there is no reading
    holders: tuple[Holder, ...] = ()
    suspended: tuple[Holder, ...] = ()  # jobs that stand still: they have nothing of it until they resume
    waiting: tuple[Holder, ...] = ()
    foreign: tuple[GpuProcess, ...] = ()  # processes that use it without a lease
    is_gone: bool = False  # the driver answers, and does not show it any more
    guarded_by: str = ""  # which process keeps it from being leased: "process 12 of eve keeps ... locked"

    @property
    def number(self) -> str | None:
        """As it is written: `0`, or `0:1` for a part of a card."""
        return None if self.index is None else show_gpu(self.index, self.part)

    @property
    def place(self) -> tuple[bool, int, int, str]:
        """The order in which they are shown: those without a number last."""
        return self.index is None, self.index or 0, self.part or 0, self.key

    @property
    def state(self) -> str:
        """`free`, `partly held`, `held`, `busy` (processes without a lease), `stale`, `lost` or `missing`."""
        if self.seen is not None and self.seen.state != "ok":
            return str(self.seen.state)
        if self.guarded_by or sum((holder.share for holder in self.holders), Fraction()) >= 1:
            return "held"
        if self.holders:
            return "partly held"
        if self.is_gone:
            return "missing"
        return "busy" if self.foreign else "free"


def survey(
    reading: Reading | None,
    leases: LeaseTable,
    *,
    user: str,
    rules: BusyRules | None = None,
) -> list[GpuUse]:
    """The cards that the driver shows, and those that are known only from a claim.

    `user` is the calling user: only for their own processes is it certain which belong to a job. The rules say
    which other processes count.
    """
    seen = {one.gpu.key: one for one in reading.gpus} if reading else {}
    claims = _by_gpu(leases.holders)
    folders = {holder.folder for holder in leases.holders if holder.folder}
    wishes = _by_gpu(leases.waiting)
    guarded = {key for key in leases.guarded_by if key in seen or _declared_index(key) is not None}
    unseen = [key for key in {**claims, **wishes, **dict.fromkeys(guarded)} if key not in seen]
    uses = []
    for key in [*seen, *unseen[:_MOST_UNSEEN]]:
        card, here = seen.get(key), claims.get(key, [])
        uses.append(
            GpuUse(
                key=key,
                index=card.gpu.index if card else _declared_index(key),
                part=card.gpu.part if card else None,
                seen=card,
                is_gone=reading is not None and card is None and not key.startswith(_DECLARED),
                holders=tuple(holder for holder in here if holder.share),
                suspended=tuple(holder for holder in here if not holder.share),
                waiting=tuple(sorted(wishes.get(key, []), key=lambda wish: wish.since)),
                foreign=_without_claim(card, here, folders, user, rules) if card else (),
                guarded_by=leases.guarded_by.get(key, ""),
            )
        )
    return sorted(uses, key=lambda use: use.place)


def unseen(key: str, number: str | None, *, is_asked: bool) -> GpuUse:
    """A card of the queue that the driver does not show: gone, unless it was declared or there is no reading.

    `number` is `0`, or `0:1` for a part of a card.
    """
    index, _, part = (number or "").partition(":")
    return GpuUse(
        key=key,
        index=int(index) if index else None,
        part=int(part) if part else None,
        is_gone=is_asked and not key.startswith(_DECLARED),
    )


def pid_of(holder: Holder) -> int:
    """The pid of the holder's command; of the process that took the claim where the command's is not known.

    Only in this user's folders: another user's claim could name any file.
    """
    if holder.uid == os.geteuid() and holder.folder:
        with suppress(TimeoutError):
            record = record_in_time(holder.folder) or {}
            if isinstance(pid := record.get("pid"), int):
                return pid
    return holder.pid


def _by_gpu(holders: Iterable[Holder]) -> dict[str, list[Holder]]:
    found: dict[str, list[Holder]] = {}
    for holder in holders:
        found.setdefault(holder.gpu, []).append(holder)
    return found


def _declared_index(key: str) -> int | None:
    number = key.removeprefix(_DECLARED)
    is_number = number.isascii() and number.isdigit() and len(number) <= _LONGEST_INDEX
    return int(number) if key.startswith(_DECLARED) and is_number else None


def _without_claim(
    card: GpuReading, holders: Sequence[Holder], folders: Collection[str], user: str, rules: BusyRules | None
) -> tuple[GpuProcess, ...]:
    """Processes without a claim. A user with a claim on the card is assumed to compute within it.

    `folders` are those of all attempts that hold a card. A job that is among them, but not here, was not given
    this card. One that is not among them runs inside another, which holds the card for it.
    """
    here = {holder.folder for holder in holders}

    def is_ours(pid: int) -> bool:
        is_astray = (folder := attempt_of(pid)) in folders and folder not in here
        return not is_astray and is_of_a_running_job(pid, here)

    claimers = {holder.user for holder in holders} - {user}
    foreign = foreign_processes(card, is_ours, pid_is_alive, rules or DEFAULT_BUSY_RULES)
    return tuple(process for process in foreign if process.user not in claimers)


@dataclass(frozen=True, slots=True)
class GpuStanding:
    """A state, and sentences about it; they are empty where there is nothing to explain."""

    state: str
    why: str = ""
    remedy: str = ""

    @property
    def is_trouble(self) -> bool:
        """Whether it stays unused until a user acts."""
        return bool(self.remedy) and self.state != "busy"


def standing(
    use: GpuUse, mark: str = "", why_marked: str = "", prospect: str = "", *, silent: str = ""
) -> GpuStanding:
    """`mark` is the queue's mark on the card, `prospect` how it comes back where that is known.

    `silent` is why the driver does not answer.
    """
    label = use.number or use.key
    if mark:
        return GpuStanding(mark, why_marked, prospect or f"`dibs gpus undrain {label}` uses it again")
    if silent:
        return GpuStanding("silent", silent, _ASK_THE_DRIVER)
    if use.state == "stale":
        return GpuStanding("stale", "it does not answer; what is shown was seen before", _ASK_THE_DRIVER)
    if use.state == "lost":
        reset = "a reset of the card or a restart of the machine may bring it back"
        return GpuStanding("lost", "it does not answer any more; what is shown was seen before", reset)
    if use.state == "missing":
        return GpuStanding("missing", "the driver does not show it any more", _ASK_THE_DRIVER)
    if sentence := overbooking(use.holders):
        return GpuStanding(use.state, f"it {sentence}", "nothing more starts there until one of them has ended")
    if use.guarded_by:
        return GpuStanding(use.state, use.guarded_by, WAY_OUT)
    if locked := [holder for holder in use.holders if holder.file_of]:
        return GpuStanding(use.state, f"it is held by {' and '.join(in_words(locked))}", WAY_OUT)
    if use.state == "busy":
        names = "; ".join(process.shown for process in use.foreign[:3])
        return GpuStanding("busy", f"used without a lease ({names})", "it is used when these processes have ended")
    return GpuStanding(use.state)


_ASK_THE_DRIVER = "`nvidia-smi` or `amd-smi` and `dmesg` may tell more"
