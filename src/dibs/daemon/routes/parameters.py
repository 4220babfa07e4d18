"""What several routes read from a request: job numbers, an attempt, and the environment of new jobs."""

from collections.abc import Mapping

from dibs.daemon.app_state import AppState
from dibs.daemon.schemas.requests import Check, CheckSweep, NewJob, NewJobs, NewSweepBody
from dibs.errors import BadInput
from dibs.model.jobs import JobId
from dibs.model.ranges import parse_ranges
from dibs.store.listing import Listing
from dibs.store.rows import AttemptRow

_DAEMON = "daemon"


def environment_and_defaults(
    app: AppState, body: NewJobs | Check | NewSweepBody | CheckSweep
) -> tuple[Mapping[str, str], NewJob]:
    """The environment and the defaults of the new jobs in a request.

    A client that has no environment of its own, such as the page, names another job with `like`. The environment,
    the folder and the umask of that job are used: what `dibs add` took from the terminal it was called in. Its own
    variables (`env`) and its other fields are not used.
    """
    environment, defaults = body.get("environment"), body.get("defaults", {})
    like = body.get("like")
    if like is None:
        return environment or {}, defaults
    if environment is not None:
        raise BadInput("it has both `environment` and `like`", remedy="leave one of them out")
    if like == _DAEMON:
        return app.environ, defaults
    job = app.store.listing.row(JobId(int(like))).job
    inherited: NewJob = {"workdir": job.request.workdir}
    if job.request.umask is not None:
        inherited["umask"] = job.request.umask
    return app.store.listing.environment(job.environment), {**inherited, **defaults}


def find_attempt(listing: Listing, job: JobId, number: int | None) -> AttemptRow | None:
    """An attempt of a job, the last one if no number is given; None if the job has had no attempt."""
    found = {one.attempt.number: one for one in listing.attempts(job)}
    if number is not None and number not in found:
        raise BadInput(f"job {job} has no attempt {number}", remedy=f"it has had {len(found)}")
    return found.get(number or max(found, default=0))


def ranges(text: str) -> tuple[tuple[int, int], ...]:
    """`1-5,8` as ranges that include both ends."""
    try:
        found = parse_ranges(text) if text else []
    except ValueError as error:
        raise BadInput(f"cannot read {str(error)[:40]!r} as job numbers", remedy="write them like 1-5,8") from None
    if len(found) > 500:
        raise BadInput(f"{len(found)} ranges of jobs are too many", remedy="ask for at most 500 at once")
    return tuple((one.start, one.stop - 1) for one in found)


def numbers(text: str, most: int) -> list[JobId]:
    """`1-5,8` as numbers, each once."""
    spans = ranges(text)
    if sum(max(0, last - first + 1) for first, last in spans) > most:
        raise BadInput(f"these are more than {most} jobs", remedy=f"ask for at most {most} at once")
    return list(dict.fromkeys(JobId(number) for first, last in spans for number in range(first, last + 1)))
