"""Slurm's spellings in our words."""

import pytest

from dibs.errors import BadInput
from dibs.inputs.slurm import in_our_words, parse_gres


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
    assert in_our_words(words) == ours


@pytest.mark.parametrize(
    "words", [["--gres"], ["--gres=gpu:-1"], ["--gres=gpu:1.5"], ["--gres=tpu:1"], ["--dependency=after:1"]]
)
def test_what_cannot_be_meant_is_refused(words):
    with pytest.raises(BadInput):
        in_our_words(words)


def test_of_several_resources_the_gpus_are_counted_and_the_rest_is_named():
    assert parse_gres("gpu:1,shm:2,gres/gpu:a100:2") == (3, "a100", ["shm:2"])
