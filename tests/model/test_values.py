"""Copies of frozen values."""

from dataclasses import replace

import pytest

from dibs.model.jobs import Command, Job, JobId, Request, State
from dibs.model.values import changed


def test_it_does_what_replace_does():
    request = Request(command=Command.line("train"), name="a", retries=3)
    job = Job(id=JobId(7), request=request, rank=1.5)

    assert changed(job, state=State.RUNNING, attempts=2) == replace(job, state=State.RUNNING, attempts=2)
    assert changed(request, command=Command.line("b")) == replace(request, command=Command.line("b"))
    assert job.state is State.QUEUED


def test_a_field_that_is_not_there_is_an_error():
    with pytest.raises(AttributeError):
        changed(Job(id=JobId(7), request=Request(command=Command.line("train"))), stat=State.RUNNING)
