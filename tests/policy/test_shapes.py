"""The shape of a job: script and names, not values."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model.jobs import Command, Request, Wishes
from dibs.policy.shapes import shape_of, with_shape

HOME = "/data/ann"
TRAIN = "/data/ann/train.py --bs --lr"


def line(text: str) -> tuple[str, ...]:
    return ("bash", "-c", text)


@pytest.mark.parametrize(
    "words",
    [
        ("python", "train.py", "--lr", "0.1", "--bs", "64"),
        ("python", "train.py", "--bs=64", "--lr=0.3"),
        ("/usr/bin/python3.11", "-u", "-W", "ignore", "./train.py", "--lr", "-0.1", "--bs=1"),
        line("python train.py --lr 0.1 --bs 64"),
        line("SEED=3 CUDA_LAUNCH_BLOCKING=1 python train.py --lr 0.1 --bs 64 > log.txt 2>&1"),
        line("source venv/bin/activate && python train.py \\\n  --lr 0.1 \\\n  --bs 64  # the usual"),
        line("cd /data && cd ann && python train.py --lr '0.1' --bs \"64\""),
        line("uv run --with torch python train.py --lr 1 --bs 2"),
        line("nice -n 10 timeout 2h env A=b python train.py --lr 1 --bs 2"),
        line("conda run -n net python train.py --lr 1 --bs 2"),
        line("torchrun --nproc_per_node 2 train.py --lr 1 --bs 2"),
        line("accelerate launch --config_file a.yaml train.py --lr 1 --bs 2"),
        ("python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py", "--lr", "1", "--bs", "2"),
        line("bash -c 'python train.py --lr 1 --bs 2'"),
        line("for s in 1 2 3; do python train.py --lr $s --bs 2; done"),
    ],
)
def test_the_same_program_with_other_values_is_one_shape(words):
    assert shape_of(words, HOME) == TRAIN


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (("python", "-m", "net.train", "--lr", "1"), "/data/ann -m net.train --lr"),
        (("python", "main.py", "train", "--lr", "1"), "/data/ann/main.py train --lr"),
        (("python", "main.py", "evaluate", "--lr", "1"), "/data/ann/main.py evaluate --lr"),
        (("python", "fit.py", "0.1", "64"), "/data/ann/fit.py +2"),
        (("python", "fit.py", "model=big", "+opt.lr=0.1"), "/data/ann/fit.py +opt.lr= model="),
        (("python", "fit.py", "--batch_size", "3"), "/data/ann/fit.py --batch-size"),
        (("python", "fit.py", "-b64"), "/data/ann/fit.py -b"),
        (("./fit", "--lr", "1"), "/data/ann/fit --lr"),
        (("fit", "--lr", "1"), "fit --lr"),
        (("julia", "--threads=4", "fit.jl", "3"), "/data/ann/fit.jl +1"),
        (line("python prepare.py && python fit.py --lr 1"), "/data/ann/prepare.py; /data/ann/fit.py --lr"),
        (line("python $CODE/fit.py --lr 1"), "$CODE/fit.py --lr"),
        (line("sleep 3"), "sleep +1"),
    ],
)
def test_what_makes_a_shape(words, shape):
    assert shape_of(words, HOME) == shape


def test_the_same_script_in_another_folder_is_another_program():
    assert shape_of(("python", "train.py"), "/a") != shape_of(("python", "train.py"), "/b")


def test_only_a_job_with_vram_auto_gets_a_shape():
    plain = Request(command=Command.line("python train.py --lr 1"), workdir=HOME)

    assert with_shape(plain) is plain
    assert with_shape(replace(plain, wishes=Wishes(shape="auto"))).wishes.shape == "/data/ann/train.py --lr"


def test_a_shape_is_made_anew_when_the_command_is_another():
    request = Request(command=Command.line("python other.py"), workdir=HOME, wishes=Wishes(shape=TRAIN))

    assert with_shape(request).wishes.shape == "/data/ann/other.py"


def test_on_more_cards_it_is_another_shape():
    request = Request(command=Command.line("python a.py"), workdir=HOME, wishes=Wishes(shape="auto", num_gpus=4))

    assert with_shape(request).wishes.shape == "/data/ann/a.py on 4 GPUs"


def test_a_copy_of_the_code_has_the_shape_of_the_code():
    request = Request(
        command=Command.line("python train.py"), workdir="/state/code/3f/net", wishes=Wishes(shape="auto")
    )

    shaped = with_shape(request, copy="/state/code/3f", original="/data/ann")

    assert shaped.wishes.shape == "/data/ann/net/train.py"


def test_a_shape_is_never_long_and_long_ones_differ():
    shapes = {
        with_shape(
            Request(command=Command.exact(["python", "a.py", *(f"--{n}{i:04}x" for i in range(300))]), wishes=W)
        ).wishes.shape
        for n in "ab"
        for W in [Wishes(shape="auto")]
    }

    assert len(shapes) == 2
    assert all(len(shape) < 500 for shape in shapes)


@given(st.text(max_size=200), st.sampled_from(["", "python ", "cd x && ", "nice ", "A=b ", "torchrun "]))
def test_any_line_has_a_shape(text, before):
    shape = with_shape(Request(command=Command.line(before + text), wishes=Wishes(shape="auto"))).wishes.shape

    assert shape
