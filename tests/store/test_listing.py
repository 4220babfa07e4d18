"""Jobs by text and in other orders, found a range of numbers at a time."""

import pytest

from dibs.model.jobs import Outcome, State
from dibs.store.listing import Filter
from dibs.store.store import Store
from store.builders import a_request, run, submit


def found(store: Store, order: str = "newest", **wanted) -> list[int]:
    first, last = store.listing.bounds()
    return [job for job, _ in store.listing.scan(Filter(**wanted), order, first, last)]


def add(store: Store, command: str, **more) -> int:
    """As the daemon adds them: with their project beside the request."""
    with store.turn():
        key = store.keep_environment({"HOME": "/"})
        job = store.submit(a_request(command, **more), key, 0.0)[0]
        store.queue.change(job)
    return job.id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRAIN", [3, 1]),
        ("vision", [2]),
        ("resnet", [3]),
        ("50%", [4]),
        ("5_%", []),
        ("_", [5]),
        ('say "hi"', [5]),
        ("\\n", [5]),
        ("über", [6]),
        ("ÜBER", [6]),
        ("ubER", []),
        ("2", [2]),
        ("shown", []),  # a word of the row, not of the job
        ("workdir", []),
        ("Ablation", [4]),
        ("größe", [4]),
        ("nothing like it", []),
    ],
)
def test_text_is_looked_for_in_name_command_project_and_tags(store: Store, text: str, expected: list[int]):
    add(store, "python train.py")
    add(store, "sleep 1", project="Vision")
    add(store, "python Train.py", name="ResNet")
    add(store, "echo 50%", workdir="/elsewhere", tags=("ablation", "Größe"))
    add(store, r'printf a_b\n say "hi"')
    add(store, "echo Über", name="x")

    assert found(store, text=text) == expected


def test_text_that_is_no_utf8_is_looked_for_too(store: Store):
    add(store, "cat caf\udce9.txt")
    add(store, "cat cafe.txt")

    assert found(store, text="CAF\udce9") == [1]


def test_a_damaged_row_is_passed_over_in_a_search(store: Store):
    add(store, "echo é")
    with store.turn():
        store._db.execute("update jobs set request = 'no \\u json' where id = 1")

    assert found(store, text="é") == []


def test_text_goes_with_the_other_filters(store: Store):
    first, second, third = submit(store, "a 1", "a 2", "b 3")
    run(store, second, Outcome(exit_code=0, seconds=4.0))

    assert found(store, text="a", states=(State.QUEUED,)) == [first.id]
    assert found(store, text="a", ranges=((second.id, third.id),)) == [second.id]
    assert found(store, "ended", text="a") == [second.id]
    assert found(store, "turn") == [third.id, first.id]


def test_each_order_has_what_it_sorts_by(store: Store):
    _, second = submit(store, "a", "b", name="n", priority=3)
    run(store, second, Outcome(exit_code=0, seconds=4.0))
    add(store, "c")

    def keys(order: str) -> list[object]:
        return [key for _, key in store.listing.scan(Filter(), order, 1, 9)]

    assert keys("name") == [None, "n", "n"]
    assert keys("seconds") == [None, 4.0, None]
    assert keys("priority") == [(0, 3.0), (-3, 2.0), (-3, 1.0)]
    assert keys("state") == ["queued", "succeeded", "queued"]


def test_rows_come_in_the_order_that_was_asked_for(store: Store):
    submit(store, "a", "b", "c")

    assert [row.job.id for row in store.listing.rows([3, 99, 1])] == [3, 1]


def test_bounds_know_what_is_missing(store: Store):
    assert store.listing.bounds() == (1, 0)
    submit(store, "a", "b", "c", "d")
    with store.turn():
        store._db.execute("delete from jobs where id in (1, 3)")

    assert store.listing.bounds() == (2, 4)
    assert store.listing.bounds(below=4) == (2, 2)
    assert store.listing.bounds(below=2) == (1, 0)
