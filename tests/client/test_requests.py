"""What travels to the daemon is what was asked for: the two sides read and write the same keys."""

from dataclasses import fields, replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dibs.client.adding import difference
from dibs.daemon.schemas.requests import requests_of
from dibs.model.fields import BY_KEY
from dibs.model.jobs import NOTHING, After, ArrayTask, Checkpoint, Command, Dependency, JobId, Request, Wishes

TEXT = st.sampled_from(["", "a", "é \udcff", "x'y\"z"])
COMMANDS = st.builds(
    Command.line, st.sampled_from(["echo hi", "é \udcff"]), st.sampled_from(["bash", "zsh"])
) | st.builds(Command.exact, st.lists(st.sampled_from(["prog", "-c", "a b"]), min_size=1, max_size=4))
WISHES = st.builds(
    Wishes,
    num_gpus=st.integers(0, 4),
    share=st.none() | st.sampled_from([Fraction(1, 3), Fraction(1, 2)]),
    vram=st.none() | st.integers(1, 2**40),
    only=st.sampled_from([(), ("0",), ("0", "1")]),
    prefer=st.sampled_from([(), ("1",)]),
    gpu_type=TEXT,
    cpus=st.none() | st.integers(1, 8),
    mem=st.none() | st.integers(1, 2**40),
)
REQUESTS = st.builds(
    Request,
    command=COMMANDS,
    wishes=WISHES,
    name=TEXT,
    workdir=st.sampled_from(["", "/", "/é \udcff"]),
    env=st.sampled_from([(), (("A", "1"), ("B", "\udcff"))]),
    priority=st.integers(-9, 9),
    retries=st.integers(0, 3),
    restartable=st.booleans(),
    bind=st.booleans(),
    time_limit=st.none() | st.floats(1, 1e6),
    grace=st.floats(0, 100),
    project=TEXT,
    tags=st.sampled_from([(), ("a", "b")]),
    umask=st.none() | st.integers(0, 0o777),
    output=st.sampled_from(["", "/out/%j"]),
    after=st.sampled_from([(), (Dependency(JobId(1)), Dependency(JobId(2), After.FAIL))]),
    begin=st.none() | st.integers(0, 2**31).map(float),
    hold=st.booleans(),
    array=st.none() | st.builds(ArrayTask, st.just(JobId(0)), st.integers(0, 9), st.none() | st.integers(1, 4)),
    retry_on=st.sampled_from([(), ("exit code", "lost")]),
    checkpoint=st.none() | st.builds(Checkpoint, st.integers(1, 64), st.floats(1, 100)),
    notify=st.sampled_from(["", "end", "failure"]),
    once=TEXT,
    warm=st.sampled_from([(), ("torch",), ("torch", "a.b_c")]),
)


@given(REQUESTS, REQUESTS)
def test_the_daemon_reads_what_the_client_wrote(request, defaults):
    defaults = replace(defaults, command=NOTHING.command)
    sent = difference(defaults, NOTHING)

    [read] = requests_of([difference(request, defaults)], sent, {})

    assert read == request


def test_every_wish_can_travel():
    assert {field.name for field in BY_KEY.values()} == {
        field.name for shape in (Wishes, Request) for field in fields(shape)
    } - {"command", "wishes"}
