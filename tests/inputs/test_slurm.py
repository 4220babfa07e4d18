"""Slurm's spellings in our words."""

import pytest

from dibs.errors import BadInput
from dibs.inputs.slurm import parse_array, parse_gres, translate_options


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["--gres=gpu:2"], ["--num-gpus", "2"]),
        (["--gres", "gpu:h200:2"], ["--num-gpus", "2", "--gpu-type", "h200"]),
        (["--gres=gpu"], ["--num-gpus", "1"]),
        (["--gpus-per-node=a100:4"], ["--num-gpus", "4", "--gpu-type", "a100"]),
        (["--job-name", "x"], ["--name", "x"]),
        (["--job-name=x=y"], ["--name", "x=y"]),
        (["--dependency=afterok:1:2,afterany:3"], ["--after", "1,2", "--after-any", "3"]),
        (["--dependency", "afternotok:4_"], ["--after-fail", "4_"]),
        (["-n", "2", "--", "x", "--gres=gpu:2"], ["-n", "2", "--", "x", "--gres=gpu:2"]),
    ],
)
def test_words(words, ours):
    assert translate_options(words) == ours


@pytest.mark.parametrize(
    "words", [["--gres"], ["--gres=gpu:-1"], ["--gres=gpu:1.5"], ["--gres=tpu:1"], ["--dependency=after:1"]]
)
def test_what_cannot_be_meant_is_refused(words):
    with pytest.raises(BadInput):
        translate_options(words)


def test_of_several_resources_the_gpus_are_counted_and_the_rest_is_named():
    assert parse_gres("gpu:1,shm:2,gres/gpu:a100:2") == (3, "a100", ["shm:2"])


@pytest.mark.parametrize(
    ("text", "numbers", "most"),
    [
        ("1-4", (1, 2, 3, 4), None),
        ("1-16%4", tuple(range(1, 17)), 4),
        ("1,3,5-9:2", (1, 3, 5, 7, 9), None),
        ("0", (0,), None),
        ("3,1,3", (1, 3), None),
        (" 0-10:5%1", (0, 5, 10), 1),
        ("0-4999", tuple(range(5000)), None),
    ],
)
def test_tasks(text, numbers, most):
    tasks = parse_array(text)

    assert (tasks.numbers, tasks.most) == (numbers, most)


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "4-1", "1-4%0", "1-4%", "1-4%x", "1--2", "1-9:0", "1,,2", "٣"]
)
def test_what_is_no_array_is_refused(text):
    with pytest.raises(BadInput, match="as an array"):
        parse_array(text)


@pytest.mark.parametrize("text", ["0-999999999", "0-5000", "0-3000,5000-9000"])
def test_too_many_tasks_are_refused_before_they_are_written_out(text):
    with pytest.raises(BadInput, match="more than 5000 tasks"):
        parse_array(text)
