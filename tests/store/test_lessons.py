"""What was learned is kept, bounded, and taken back with its turn."""

import pytest

from dibs.model.usage import Lesson
from dibs.store.lessons import LessonTable
from dibs.store.store import Store

SHAPE = "/net/train.py --lr"
ODD = "/net \udcff\n/train.py"


def test_a_lesson_is_there_after_a_restart(path):
    store = Store(path)
    with store.turn():
        store.lessons.put(SHAPE, "H200", Lesson(peak_vram=9, peak_mem=8, cpus=1.5, runs=2, needs_card=True), 5.0)
        store.lessons.put(ODD, "H200", Lesson(peak_vram=3), 6.0)
    store.close()

    store = Store(path)

    assert store.lessons.of(SHAPE) == {
        (SHAPE, "H200"): Lesson(peak_vram=9, peak_mem=8, cpus=1.5, runs=2, needs_card=True)
    }
    assert store.lessons.of(ODD) == {(ODD, "H200"): Lesson(peak_vram=3)}
    assert [(row.gpu, row.at) for row in store.lessons.all()] == [("H200", 6.0), ("H200", 5.0)]
    store.close()


def test_a_turn_that_fails_teaches_nothing(store):
    with store.turn():
        store.lessons.put(SHAPE, "H200", Lesson(peak_vram=1), 1.0)

    with pytest.raises(ZeroDivisionError), store.turn():
        store.lessons.put(SHAPE, "H200", Lesson(peak_vram=2), 2.0)
        raise ZeroDivisionError

    assert store.lessons.of(SHAPE) == {(SHAPE, "H200"): Lesson(peak_vram=1)}


def test_one_shape_is_forgotten_or_all(store):
    with store.turn():
        for shape in ("a", "b"):
            for gpu in ("H200", "A100"):
                store.lessons.put(shape, gpu, Lesson(peak_vram=1), 1.0)

        assert store.lessons.forget("a") == 2
        assert (store.lessons.of("a"), len(store.lessons.of("b"))) == ({}, 2)
        assert store.lessons.forget() == 2


def test_the_oldest_are_forgotten_when_there_are_too_many(store):
    lessons = LessonTable(store._db, store._ask, most_rows=3)
    with store.turn():
        for number in range(5):
            lessons.put(f"shape {number}", "H200", Lesson(peak_vram=1), float(number))

    assert [row.shape for row in lessons.all()] == ["shape 4", "shape 3", "shape 2"]
    assert lessons.of("shape 0") == {}
