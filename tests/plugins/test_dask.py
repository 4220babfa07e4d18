"""Graphs of dask, whose tasks are jobs of the queue: `dask.compute(..., scheduler=executor)`."""

import os
from pathlib import Path

import pytest

import dibs

dask = pytest.importorskip("dask", reason="pip install dask")


def where(number: int) -> tuple[int, str]:
    return number + 1, os.environ["DIBS_JOB_ID"]


def total(parts: list[tuple[int, str]]) -> tuple[int, int]:
    return sum(number for number, _ in parts), len({job for _, job in parts})


def fail(parts: object) -> None:
    raise ValueError("this task fails")


def test_each_task_of_a_graph_is_a_job_and_what_one_raises_is_raised(here: Path) -> None:
    parts = [dask.delayed(where)(number) for number in range(2)]

    with dibs.Executor(num_gpus=0) as executor:
        assert dask.delayed(total)(parts).compute(scheduler=executor) == (3, 2)
        with pytest.raises(ValueError, match="this task fails"):
            dask.delayed(fail)(1).compute(scheduler=executor)
