"""Traces and machines for the simulator, in few words."""

from fractions import Fraction

from hypothesis import strategies as st

from dibs.model.jobs import ArrayTask, Command, Dependency, Job, JobId, Request, Wishes
from dibs.simulate.machine import Arrival, SimulatedMachine

GIB = 1024**3
SHARES = [None, None, Fraction(1, 2), Fraction(1, 3), Fraction(3, 4)]


def comes(
    number: int,
    at: float = 0.0,
    seconds: float = 100.0,
    gpus: int = 1,
    *,
    share: str | None = None,
    vram: int | None = None,
    limit: float | None = None,
    grace: float = 0.0,
    project: str = "",
    priority: int = 0,
    cpus: int | None = None,
    only: tuple[str, ...] = (),
    after: tuple[int, ...] = (),
    begin: float | None = None,
    most: int | None = None,
) -> Arrival:
    """A job with this number; memory is in GiB, `most` is of the one array there is."""
    wishes = Wishes(
        num_gpus=gpus,
        share=None if share is None else Fraction(share),
        vram=None if vram is None else vram * GIB,
        cpus=cpus,
        only=only,
    )
    request = Request(
        command=Command.exact(["true"]),
        wishes=wishes,
        time_limit=limit,
        grace=grace,
        project=project,
        priority=priority,
        after=tuple(Dependency(JobId(one)) for one in after),
        begin=begin,
        array=None if most is None else ArrayTask(JobId(7), 0, most),
    )
    return Arrival(job=Job(id=JobId(number), request=request), queued_at=at, seconds=seconds)


@st.composite
def machines(draw):
    return SimulatedMachine(
        num_gpus=draw(st.integers(1, 4)),
        gpu_memory=draw(st.sampled_from([None, 24 * GIB])),
        slots=draw(st.integers(1, 2)),
        cpus=draw(st.sampled_from([None, 4])),
    )


@st.composite
def traces(draw, most=25):
    found, at = [], 0.0
    for number in range(1, draw(st.integers(1, most)) + 1):
        at += draw(st.sampled_from([0.0, 0.0, 5.0, 30.0])) if found else 0.0
        share = draw(st.sampled_from(SHARES))
        found.append(
            comes(
                number,
                at,
                draw(st.sampled_from([0.0, 10.0, 25.0, 60.0, 200.0])),
                draw(st.sampled_from([1, 1, 1, 2, 3, 0])),
                share=None if share is None else str(share),
                vram=draw(st.sampled_from([None, None, 6, 15, 30])),
                limit=draw(st.sampled_from([None, 20.0, 60.0, 100.0])),
                grace=draw(st.sampled_from([0.0, 10.0])),
                project=draw(st.sampled_from(["", "a", "b"])),
                priority=draw(st.sampled_from([0, 0, 0, 1])),
                cpus=draw(st.sampled_from([None, None, 2, 8])),
                only=draw(st.sampled_from([(), (), ("0",), ("9",)])),
                after=draw(st.sampled_from([(), (), (number - 1,)])) if number > 1 else (),
                begin=draw(st.sampled_from([None, None, 40.0])),
                most=draw(st.sampled_from([None, None, 1, 2])),
            )
        )
    return found
