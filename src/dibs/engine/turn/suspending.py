"""Who may be suspended in a turn, for whom and for want of memory, and who goes on: what the policy is asked."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from dibs.engine.turn.state import NextState, OpenAttempt, memory_to_fill, not_after
from dibs.model.gpus import Card
from dibs.model.jobs import State
from dibs.model.suspensions import Rung, SuspensionPhase, too_much_to_move
from dibs.model.usage import Lesson, Lessons
from dibs.policy.fitting import first_lesson, is_known, obstacle_of, with_margin
from dibs.policy.relief import Tenant, room_beside, spare, why_not_back
from dibs.policy.shapes import shape_of_job
from dibs.policy.snapshot import WHOLE, PreemptibleJob, SuspendedJob

if TYPE_CHECKING:
    from dibs.engine.turn.facts import TurnFacts

_GROWS_FOR = 120.0  # seconds in which a job is watched closely as long as it is not steady
NOT_OF_NVIDIA = "its GPU is not one of NVIDIA's"  # why the driver cannot suspend it


def preemptible_jobs(state: NextState, facts: "TurnFacts", now: float) -> Iterable[PreemptibleJob]:
    """What runs here and may be suspended for another job, or is being suspended already."""
    room = memory_to_fill(facts.memory_available, state.open.values())
    rules = facts.suspend_rules
    for key, one in state.open.items():
        suspension, job, claims, ends_at = one.suspension, one.job, one.attempt.claims, one.ends_at
        if suspension is not None and suspension.phase is SuspensionPhase.SUSPENDING:
            size, since = suspension.held_bytes, suspension.began_at
            yield PreemptibleJob(key, job, claims, size, since, ends_at)
        elif suspension is not None and suspension.is_saving(job.request.checkpoint, now):
            yield PreemptibleJob(key, job, claims, 0, suspension.ended_at, ends_at, rung=Rung.CHECKPOINT)
        elif facts.may_suspend and _may_be_suspended(one, facts) and key[0] not in state.stopping:
            size = sum(facts.held.get(key, {}).values())
            why_not = _why_not_by_driver(one, facts)
            saves = bool(why_not) and job.request.checkpoint is not None and not _was_refused(one)
            yield PreemptibleJob(
                key,
                job,
                claims,
                0 if saves else size,
                ends_at=ends_at,
                why_not="" if saves else why_not or too_much_to_move(size, room),
                rung=Rung.CHECKPOINT if saves else Rung.CUDA,
                # What starts in this very turn has no process yet that could be asked.
                yields_to_urgent=key in facts.held and rules.lets_urgent_jobs_pass(job.request),
                takes_turns=not saves and rules.takes_turns(job.request),
                turn_began=not_after(now, one.turn_began),
            )


def _may_be_suspended(one: OpenAttempt, facts: "TurnFacts") -> bool:
    return one.job.state is State.RUNNING and facts.suspend_rules.lets_others_pass(one.job.request)


def _was_refused(one: OpenAttempt) -> bool:
    """Whether it cannot be suspended in any way: in a container, or as the last try has shown."""
    suspension = one.suspension
    return bool(one.job.request.image) or (
        suspension is not None and suspension.is_over and bool(suspension.why_not)
    )


def _why_not_by_driver(one: OpenAttempt, facts: "TurnFacts") -> str:
    """Why the driver cannot suspend a preemptible job, as far as that is known; empty where it may be able to."""
    if one.job.request.image:
        return "it runs in a container"
    if one.suspension is not None and _was_refused(one):
        return one.suspension.why_not
    if facts.why_no_driver:
        return facts.why_no_driver
    if one.is_on_amd:
        return NOT_OF_NVIDIA
    obstacle = obstacle_of(one.job.request, shape_of_job(one.job.request), facts.lessons)
    return f"jobs of its shape {obstacle.phrase}" if obstacle else ""


def suspended_jobs(state: NextState, facts: "TurnFacts", now: float) -> list[SuspendedJob]:
    """What stands still and goes on as soon as there is room."""
    return [
        SuspendedJob(
            one.attempt.key,
            one.job,
            one.attempt.claims if one.suspension.frees_cards else (),  # it has kept them otherwise
            one.suspension.held_bytes if one.suspension.frees_cards else 0,
            one.suspension.held if one.suspension.frees_cards else {},
            _not_yet(one, state, facts),
            not_after(now, one.suspension.suspended_at or one.suspension.began_at),
            _beside(one, state, facts),
        )
        for one in state.open.values()
        if one.suspension is not None
        and one.is_suspended
        and one.suspension.resumes
        and one.job.id not in state.stopping
    ]


# -- the safety net of packing ----------------------------------------------------------------------------


def can_relieve(one: OpenAttempt, facts: "TurnFacts", room: int | None) -> bool:
    """Whether this attempt could be suspended before its card runs out of memory; `room` is in the machine's."""
    request = one.job.request
    if request.wishes.num_gpus != 1 or request.preemptible is False or _why_not_by_driver(one, facts):
        return False
    return not too_much_to_move(sum(facts.held.get(one.attempt.key, {}).values()), room)


def first_lessons(
    known: Lessons, facts: "TurnFacts", open_attempts: Collection[OpenAttempt]
) -> dict[tuple[str, str], Lesson]:
    """What is booked for shapes of which the first ones have begun to use a card, and still grow."""
    room = memory_to_fill(facts.memory_available, open_attempts)
    peaks: dict[tuple[str, str], list[int]] = {}
    for one in open_attempts:
        wishes, usage = one.job.request.wishes, facts.usages.get(one.attempt.key)
        if not wishes.shape or wishes.vram is not None or usage is None or not usage.peak_vram:
            continue
        if can_relieve(one, facts, room):
            for name in facts.board.models(one.attempt.claims):
                peaks.setdefault((wishes.shape, name), []).append(usage.peak_vram)
    found = {}
    for (shape, name), seen in peaks.items():
        total = min(card.gpu.memory_total or 0 for card in facts.board.pool.cards if card.gpu.name == name)
        if lesson := first_lesson(known.get((shape, name)), seen, total):
            found[shape, name] = lesson
    return found


def relieved_cards(state: NextState, facts: "TurnFacts") -> set[str]:
    """The cards that jobs of unknown size have begun to use, and one of them can leave."""
    room = memory_to_fill(facts.memory_available, state.open.values())
    return {
        claim.gpu
        for key, one in state.open.items()
        if one.job.state is State.RUNNING
        and _shares_card(one)
        and _is_of_unknown_size(one, facts)
        and (usage := facts.usages.get(key)) is not None
        and usage.peak_vram
        and can_relieve(one, facts, room)
        for claim in one.attempt.claims
    }


def _shares_card(one: OpenAttempt) -> bool:
    return any(claim.share < WHOLE for claim in one.attempt.claims)


def _is_of_unknown_size(one: OpenAttempt, facts: "TurnFacts") -> bool:
    """Whether no job of its shape has shown yet that it may need as much as this one has."""
    wishes = one.job.request.wishes
    if not wishes.shape or wishes.share is not None:
        return False
    usage = facts.usages.get(one.attempt.key)
    peak = (usage.peak_vram or 0) if usage is not None else 0
    known = (facts.lessons.get((wishes.shape, name)) for name in facts.board.models(one.attempt.claims))
    return not any(lesson and is_known(lesson) and peak <= with_margin(lesson.peak_vram) for lesson in known)


def needs_guard(state: NextState, facts: "TurnFacts") -> bool:
    """Whether a card must be watched closely: jobs share it, or will, whose need is unknown and may be large."""
    for one in state.open.values():
        if one.job.state is not State.RUNNING or not (_shares_card(one) or state.waiting.count):
            continue
        if not _is_of_unknown_size(one, facts):
            continue
        usage = facts.usages.get(one.attempt.key)
        may_grow = usage is None or (not usage.is_steady and usage.seconds < _GROWS_FOR)
        cards = [facts.board.pool.card(claim.gpu) for claim in one.attempt.claims]
        if may_grow or any(_is_nearly_full(card, facts) for card in cards if card):
            return True
    return False


def _is_nearly_full(card: Card, facts: "TurnFacts") -> bool:
    seen = facts.board.cards.get(card.gpu.key)
    free = None if seen is None else seen.memory_free
    return free is not None and free < 4 * spare(card.gpu.memory_total or 0)


def tenants_of(card: str, state: NextState, facts: "TurnFacts") -> list[Tenant]:
    """Who holds a part of this card or is about to, as the policy looks at it."""
    found = []
    room = memory_to_fill(facts.memory_available, state.open.values())
    for key, one in state.open.items():
        if one.job.state is State.SUSPENDED and not one.is_moving:
            continue
        if all(claim.gpu != card for claim in one.attempt.claims):
            continue
        moves = one.suspension if one.is_moving else None
        found.append(
            Tenant(
                key=key,
                since=one.attempt.opened_at,
                held=_held_on(card, one, facts),
                grows=facts.grows.get(key, 0.0),
                may_leave=moves is None
                and key[0] not in state.stopping
                and _shares_card(one)
                and _is_of_unknown_size(one, facts)
                and can_relieve(one, facts, room),
                is_leaving=moves is not None and moves.phase is SuspensionPhase.SUSPENDING,
                comes_back=moves is not None and moves.phase is SuspensionPhase.RESUMING,
            )
        )
    return found


def _held_on(card: str, one: OpenAttempt, facts: "TurnFacts") -> int:
    """Bytes; what it has booked, where it is measured and the driver does not tell whose memory is whose."""
    moves = one.suspension if one.is_moving else None
    held = (facts.held.get(one.attempt.key, {}) if moves is None else moves.held).get(card)
    if held is None and one.attempt.key in facts.usages:
        held = sum(claim.vram for claim in one.attempt.claims if claim.gpu == card)
    return held or 0


def _not_yet(one: OpenAttempt, state: NextState, facts: "TurnFacts") -> str:
    """Why a suspended attempt is not resumed now, whatever room there is."""
    if one.suspension is not None and one.attempt.key in facts.tried_lately:
        return one.suspension.why_not
    return why_not_back(
        usage.is_steady if (usage := facts.usages.get(other.attempt.key)) else False
        for other in _beside_it(one, state, facts)
        if _is_of_unknown_size(other, facts)
    )


def _beside(one: OpenAttempt, state: NextState, facts: "TurnFacts") -> dict[str, int]:
    others = len(_beside_it(one, state, facts))
    cards = (facts.board.pool.card(claim.gpu) for claim in one.attempt.claims)
    return {card.gpu.key: room_beside(card.gpu.memory_total or 0, others) for card in cards if card and others}


def _beside_it(one: OpenAttempt, state: NextState, facts: "TurnFacts") -> list[OpenAttempt]:
    """Who holds the cards of a suspended attempt of unknown size, whose need may grow there again."""
    if not (_shares_card(one) and _is_of_unknown_size(one, facts)):
        return []
    cards = {claim.gpu for claim in one.attempt.claims}
    return [
        other
        for other in state.open.values()
        if other is not one and any(claim.gpu in cards for claim in other.held_claims)
    ]
