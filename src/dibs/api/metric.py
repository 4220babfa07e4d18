"""What a job reported of itself in the file that DIBS_METRICS names, read once it has succeeded."""

from typing import TYPE_CHECKING

from dibs.sweeps.results import MetricsReader

if TYPE_CHECKING:
    from dibs.api.job import Job


def last_value(job: "Job", name: str) -> float:
    """The last number that its last attempt reported under a name; a JobFailed where there is none of use."""
    reader = MetricsReader([name])
    try:
        with open(f"{job.about['folder']}/metrics", "rb") as file:
            while piece := file.read(1 << 20):
                reader.feed(piece)
        reader.finish()
    except FileNotFoundError:
        pass  # it has reported nothing at all: said below
    found = reader.result()
    if found.values is None:
        raise job.failure(f"job {job.id} has told no {name}: {found.problem}")
    return found.values[0]
