"""What an attempt is called by other systems."""

from dibs.model.jobs import Job


def key_of(mark: str, job: Job) -> str:
    """The queue's mark and the job's number, or the array's with the element."""
    array = job.request.array
    return f"{mark}-{job.id}" if array is None else f"{mark}-{array.array}_{array.task}"
