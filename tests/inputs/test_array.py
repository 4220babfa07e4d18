"""Arrays as Slurm writes them."""

import pytest

from dibs.errors import BadInput
from dibs.inputs.array import parse_array


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
