"""The GPU time of attempts by week and project. Weeks begin on Monday at midnight of this machine's time zone."""

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime

from dibs.model.usage import Usage
from dibs.model.weeks import AttemptTime, Week, WeeklySum
from dibs.store.codec import read_usage
from dibs.store.listing import Span
from dibs.store.store import Store


def week_at(moment: float) -> Week:
    """The week of a moment, here."""
    return Week.of(date.fromtimestamp(moment))


def begin_of(week: Week) -> float:
    """Its first moment, here: a week in which the clocks change is an hour longer or shorter."""
    day = week.monday
    return datetime(day.year, day.month, day.day).timestamp()


def borders_of(first: Week, last: Week) -> list[float]:
    """The begins of these weeks, and the end of the last."""
    weeks = range((last.monday - first.monday).days // 7 + 2)
    return [begin_of(first.later(number)) for number in weeks]


def attempt_times(
    spans: Iterable[Span], now: float, running: Callable[[Span], Usage | None] = lambda span: None
) -> Iterator[AttemptTime]:
    """What attempts had of GPUs. `running`: what is measured so far of one that has not ended."""
    for span in spans:
        if gpus := span.gpu_count:
            usage = running(span) if span.ended_at is None else read_usage(span.usage)
            yield AttemptTime(
                project=span.project,
                begin=span.started_at,
                end=now if span.ended_at is None else span.ended_at,
                gpus=gpus,
                is_remote=bool(span.node),
                watt_hours=usage.energy if usage else None,
                load=usage.mean_load if usage else None,
                off_cards=span.off_cards(now),
            )


def keep_gpu_time(store: Store, jobs: Iterable[int], now: float) -> None:
    """Keep the GPU time of jobs that are about to be forgotten: what a report said of past weeks stays true."""
    times = list(attempt_times(store.listing.spans.of(list(jobs), 0.0, now), now))
    if not times:
        return
    first = week_at(min(one.begin for one in times))
    found = WeeklySum(borders_of(first, week_at(now)))
    found.add(times)
    for number, projects in enumerate(found.weeks):
        store.history.add_cleaned(str(first.later(number)), projects)
