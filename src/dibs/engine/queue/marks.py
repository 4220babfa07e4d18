"""Pauses, drains and quarantines, inside a change of the engine."""

from dibs.engine.engine import Change
from dibs.model.records import Mark, MarkCleared, MarkSet
from dibs.policy.breakers import fresh_for


def set_mark(change: Change, mark: Mark) -> None:
    change.record(MarkSet(mark))
    change.next.set_mark(mark)


def clear_mark(change: Change, subject: str) -> bool:
    """Take a mark away, or end a card's rest; False where there is neither."""
    state = change.next
    kind, _, name = subject.partition(" ")
    is_resting = kind == "gpu" and name in state.resting
    if subject not in state.marks and not is_resting:
        return False
    change.record(MarkCleared(subject, was_set=subject in state.marks))
    state.clear_mark(subject)
    if is_resting:
        state.resting = {key: why for key, why in state.resting.items() if key != name}
    if kind == "gpu":  # who gives a card back wants it to be tried again
        state.breakers = fresh_for(state.breakers, name)
    return True
