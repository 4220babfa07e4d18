"""Where a job may run, and what makes no sense there."""

from dataclasses import replace

import pytest

from dibs.errors import BadInput
from dibs.inputs.checks import check_place
from dibs.model.jobs import Command, Request, Wishes
from dibs.model.places import parse_place
from dibs.model.slurm_options import OPTIONS, Use

HERE = Request(command=Command.line("true"))
THERE = replace(HERE, on="slurm")
AT_A_SITE = [name for name, use in OPTIONS.items() if use is Use.SITE and name != "exclude"]


@pytest.mark.parametrize(
    "request_",
    [
        HERE,
        THERE,
        replace(HERE, bind=True, warm=("torch",), wishes=Wishes(only=("0",), shape="x")),
        replace(THERE, on_options=tuple((name, "a-b,c[1-3]&d|e") for name in AT_A_SITE)),
        replace(
            THERE, wishes=Wishes(vram=1, num_gpus=2, gpu_type="h200", cpus=3, mem=4), retries=2, time_limit=60
        ),
    ],
)
def test_what_makes_sense_is_let_through(request_):
    check_place(request_)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (replace(HERE, on_options=(("qos", "x"),)), "cannot use qos for a job that runs on this machine"),
        (replace(THERE, wishes=Wishes(only=("0",))), "cannot ask Slurm for a GPU by its number"),
        (replace(THERE, wishes=Wishes(prefer=("0",))), "cannot ask Slurm for a GPU by its number"),
        (replace(THERE, wishes=Wishes(shape="train.py")), "cannot learn on Slurm how much GPU memory"),
        (replace(THERE, warm=("torch",)), "cannot keep a warm process on Slurm"),
        (replace(THERE, bind=True), "cannot choose the CPUs of a job on Slurm"),
        (replace(THERE, on_options=(("wrap", "x"),)), "cannot tell Slurm about 'wrap'"),
        (replace(THERE, on_options=(("qos", "a b"),)), "cannot give Slurm 'a b' as qos"),
        (replace(THERE, on_options=(("qos", ""),)), "cannot give Slurm '' as qos"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(request_, sentence):
    with pytest.raises(BadInput) as refusal:
        check_place(request_)

    assert refusal.value.message.startswith(sentence)
    assert refusal.value.remedy


def test_a_place_that_there_is_not_is_answered_with_those_there_are():
    with pytest.raises(BadInput) as refusal:
        parse_place("elsewhere")

    assert (refusal.value.message, refusal.value.remedy) == (
        "cannot run anything on 'elsewhere'",
        "there are local, slurm",
    )
