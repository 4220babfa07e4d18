"""The environment of new jobs whose caller has none of its own, such as the page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dibs.daemon.schemas.requests import Check, CheckSweep, NewJob, NewJobs, NewSweep
from dibs.errors import BadInput
from dibs.model.jobs import JobId

if TYPE_CHECKING:
    from dibs.daemon.app_state import Desk

DAEMON = "daemon"


def ground_of(desk: "Desk", body: NewJobs | Check | NewSweep | CheckSweep) -> tuple[Mapping[str, str], NewJob]:
    """What the jobs of a call stand on: their environment, and their defaults.

    Of a job that they are to be like come the environment, the folder and the umask: what `dibs add` took from
    the terminal it was called in. Its own variables (`env`) and its wishes do not come along.
    """
    environment, defaults = body.get("environment"), body.get("defaults", {})
    like = body.get("like")
    if like is None:
        return environment or {}, defaults
    if environment is not None:
        raise BadInput("it has both `environment` and `like`", remedy="leave one of them out")
    if like == DAEMON:
        return desk.environ, defaults
    job = desk.store.listing.row(JobId(int(like))).job
    inherited: NewJob = {"workdir": job.request.workdir}
    if job.request.umask is not None:
        inherited["umask"] = job.request.umask
    return desk.store.listing.environment(job.environment), {**inherited, **defaults}
