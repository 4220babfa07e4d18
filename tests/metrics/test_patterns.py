"""Metrics in the logs of programs that report none."""

import time

import pytest

from dibs.errors import BadInput
from dibs.metrics.patterns import log_reader, read_common_formats, with_names


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "{'loss': 0.5, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 1.5}",
            {"loss": "0.5", "grad_norm": "1.2", "learning_rate": "5e-05", "step": "1.5"},
        ),
        (
            "100/100 [==============================] - 1s 2ms/step - loss: 0.12 - accuracy: 0.9 - val_loss: 1e-3",
            {"loss": "0.12", "accuracy": "0.9", "val_loss": "1e-3"},
        ),
        ("Epoch 3/10", {"step": "3", "steps": "10"}),
        (
            "Epoch 3: 100%|█████| 9/9 [00:01<00:00, 50.00it/s, v_num=0, train_loss=0.123]",
            {"train_loss": "0.123", "step": "3"},
        ),
        (
            " 45%|████▌     | 45/100 [00:10<00:12, 4.5it/s, loss=0.3]",
            {"loss": "0.3", "progress": "45%", "step": "45"},
        ),
        ("Epoch [3/10], Step [150/600], Loss: 0.3", {"Loss": "0.3", "step": "2.25", "steps": "10"}),
        (
            "epoch 3 | train loss 0.31 | val loss 0.4 | port: 8080",
            {"train_loss": "0.31", "val_loss": "0.4", "step": "3"},
        ),
        ("iter 100: loss 2.3456, time 12.34ms", {"loss": "2.3456", "step": "100"}),
        ("step 5 loss=nan", {"loss": "nan", "step": "5"}),
        ("Accuracy: 9800/10000", {}),
        ("listening on http://localhost:8080/loss/3", {}),
        ("", {}),
    ],
)
def test_auto_reads_what_common_programs_print(line, found):
    assert read_common_formats(line) == found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (r"loss: ([0-9.]+)", r"loss: (?P<loss>[0-9.]+)"),
        (r"\(loss\) (?:a|b) (\S+)", r"\(loss\) (?:a|b) (?P<loss>\S+)"),
        (r"(?P<loss>\S+) (\S+)", r"(?P<loss>\S+) (\S+)"),
        (r"loss [(] \S+", ""),
    ],
)
def test_the_only_group_of_an_expression_gets_the_name_of_the_metric(text, named):
    assert with_names(text, ["loss"]) == named
    assert with_names(r"x (\d)", ["val/loss"]) == ""


def test_no_line_takes_long():
    begin = time.perf_counter()
    for line in ("loss" * 20_000, "a=" * 40_000, "1.5 " * 20_000, "'" * 80_000, "epoch " * 15_000):
        read_common_formats(line)

    assert time.perf_counter() - begin < 2


def test_the_groups_of_an_expression_are_its_metrics():
    read = log_reader([r"L=(?P<loss>\S+)", r"at (?P<step>\d+) of (?P<steps>\d+)"])

    assert read("at 3 of 10: L=0.5") == {"loss": "0.5", "step": "3", "steps": "10"}
    assert read("nothing") == {}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"loss=(\S+)", "has a name"),
        ("loss=(", "unterminated"),
        (r"(?P<a>(\w+)+)x", "hours"),
        ("x" * 501, "500 letters"),
    ],
)
def test_an_expression_that_cannot_be_used_is_refused(pattern, words):
    with pytest.raises(BadInput, match=words):
        log_reader([pattern])
