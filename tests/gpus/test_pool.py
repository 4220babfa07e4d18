"""From the words after `--gpus` to a pool."""

import re
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from dibs.errors import BadInput, DibsError, NoGpu
from dibs.gpus.fake import FakeProbe
from dibs.gpus.pool import read_pool_file, resolve_pool
from dibs.gpus.probe import ProbeFailed
from dibs.model.gpus import Pool, Reading, declared_key

# Four cards: GPU-3f2a..., GPU-3f77..., GPU-a1..., GPU-b2...
FOUR_CARDS = FakeProbe(str(Path(__file__).parent.parent / "data" / "readings" / "four_cards.json"))
KEYS = [seen.gpu.key for seen in FOUR_CARDS.read().gpus]
NO_DRIVER = None


class EmptyProbe:
    """A driver whose cards are all lost."""

    def read(self):
        return Reading(at=datetime(2026, 11, 15, tzinfo=UTC))


class SickProbe:
    def read(self):
        raise ProbeFailed("cannot ask the driver: it is sick")


def numbers(pool):
    return [card.gpu.index for card in pool.cards]


def slots(pool):
    return {card.gpu.index: card.slots for card in pool.cards}


def groups(pool):
    return [[pool.card(key).gpu.index for key in group] for group in pool.groups]


@pytest.mark.parametrize("text", ["auto", "all", " auto "])
def test_auto_is_every_card_the_driver_shows_busy_ones_too(text):
    pool = resolve_pool(text, FOUR_CARDS, {})

    assert slots(pool) == {0: 1, 1: 1, 2: 1, 3: 1}
    assert [card.gpu.key for card in pool.cards] == KEYS
    assert pool.groups == ()


def test_named_cards_come_in_the_order_they_are_named():
    pool = resolve_pool("2, 0", FOUR_CARDS, {})

    assert [card.gpu.key for card in pool.cards] == [KEYS[2], KEYS[0]]


@pytest.mark.parametrize("text", ["GPU-3f2a", "GPU-3f2a9b10-0000-4000-8000-000000000000"])
def test_a_card_may_be_named_by_its_uuid_or_a_beginning_of_it_that_fits_no_other(text):
    pool = resolve_pool(text, FOUR_CARDS, {})

    assert numbers(pool) == [0]


@pytest.mark.parametrize(
    ("text", "counts", "grouped"),
    [
        ("0,0,1", {0: 2, 1: 1}, []),
        ("0,GPU-3f2a,1", {0: 2, 1: 1}, []),  # one card by two names
        ("0+1,3+2", {0: 1, 1: 1, 3: 1, 2: 1}, [[0, 1], [3, 2]]),
        ("0+1,2,2", {0: 1, 1: 1, 2: 2}, [[0, 1], [2]]),  # beside groups a card alone is a group of one
        ("0+1,0+1", {0: 2, 1: 2}, [[0, 1]]),
        ("0+1,1+0", {0: 2, 1: 2}, [[0, 1]]),
        ("0+1,GPU-3f2a+1", {0: 2, 1: 2}, [[0, 1]]),
    ],
)
def test_what_is_repeated_has_slots_and_groups_are_kept_together(text, counts, grouped):
    pool = resolve_pool(text, FOUR_CARDS, {})

    assert (slots(pool), groups(pool)) == (counts, grouped)
    assert all(card.slot_share == Fraction(1, card.slots) for card in pool.cards)


IN_A_JOB, INHERITED = "DIBS_GPUS", "CUDA_VISIBLE_DEVICES"
ALL_HIDDEN = "CUDA_VISIBLE_DEVICES.*hides all GPUs"


@pytest.mark.parametrize(
    ("texts", "probe", "environ", "kind", "words"),
    [
        (["GPU-3f"], FOUR_CARDS, {}, BadInput, f"{KEYS[0]}.*{KEYS[1]}"),  # the beginning of both
        (["99", "0,4", "GPU-cc", "1+7"], FOUR_CARDS, {}, BadInput, "this machine has GPUs 0, 1, 2, 3$"),
        (["MIG-1234"], FOUR_CARDS, {}, BadInput, "MIG"),
        (["-1", "a b", "0,,1", "0+", ",", "1.5", "cuda0"], FOUR_CARDS, {}, BadInput, ""),
        (["0+1,1", "1,0+1", "0+1,1+2", "0+1+2,1+0"], FOUR_CARDS, {}, BadInput, "both in"),
        (["0+0", "1+0+GPU-3f2a"], FOUR_CARDS, {}, BadInput, "twice"),
        (["GPU-3f2a"], NO_DRIVER, {}, BadInput, "without a driver"),
        (["auto"], EmptyProbe(), {}, NoGpu, "the driver shows none"),
        (["0"], EmptyProbe(), {}, BadInput, "^cannot find GPU 0: the driver shows none that works$"),
        *(
            (texts, probe, environ, kind, words)
            for probe in (FOUR_CARDS, NO_DRIVER)
            for texts, environ, kind, words in [
                (["0"], {IN_A_JOB: "1,2"}, BadInput, "^cannot use GPU 0: DIBS_GPUS=1,2 leaves only GPUs 1, 2$"),
                (["auto", "0"], {IN_A_JOB: "", INHERITED: ""}, NoGpu, "inside a job of dibs that was given none"),
                (
                    ["1,3"],
                    {INHERITED: "1,2"},
                    BadInput,
                    "^cannot use GPU 3: CUDA_VISIBLE_DEVICES=1,2 leaves only GPUs 1, 2$",
                ),
                *((["auto", "0"], {INHERITED: shown}, NoGpu, ALL_HIDDEN) for shown in ("", " ", "-1", "-1,0")),
            ]
        ),
        (
            ["auto"],
            FOUR_CARDS,
            {IN_A_JOB: "0", INHERITED: "2"},
            NoGpu,
            "^cannot use a GPU: CUDA_VISIBLE_DEVICES=2 leaves none of GPU 0$",
        ),
        *(
            (["auto"], FOUR_CARDS, {INHERITED: shown}, NoGpu, f"_DEVICES={shown} names none of GPUs 0, 1, 2, 3")
            for shown in ("7", "NoDevFiles", "MIG-1234", "GPU-3f")
        ),
        (["0"], NO_DRIVER, {INHERITED: "GPU-3f2a"}, NoGpu, "without a driver"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence_with_a_remedy(texts, probe, environ, kind, words):
    for text in texts:
        with pytest.raises(DibsError) as caught:
            resolve_pool(text, probe, environ)
        assert type(caught.value) is kind
        assert re.search(words, caught.value.message)
        assert "\n" not in caught.value.message
        assert caught.value.remedy


@pytest.mark.parametrize("probe", [FOUR_CARDS, NO_DRIVER, SickProbe()])
def test_empty_text_is_an_empty_pool(probe):
    pool = resolve_pool(" ", probe, {"CUDA_VISIBLE_DEVICES": ""})

    assert pool == Pool(cards=())


def test_without_a_driver_numbers_are_believed():
    pool = resolve_pool("0,0,7", NO_DRIVER, {})

    assert [(card.gpu.key, card.slots) for card in pool.cards] == [("index-0", 2), ("index-7", 1)]
    assert all(card.gpu.key == declared_key(card.gpu.index) for card in pool.cards)


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": "0,1"}])
def test_without_a_driver_auto_finds_nothing_and_says_what_to_do(environ):
    with pytest.raises(NoGpu) as caught:
        resolve_pool("auto", NO_DRIVER, environ)

    assert "no driver of NVIDIA or AMD" in caught.value.message
    assert "--gpus 0,1" in caught.value.remedy


def test_a_sick_driver_is_reported_as_it_is():
    probe = SickProbe()

    with pytest.raises(ProbeFailed) as caught:
        resolve_pool("auto", probe, {})

    assert caught.value.message == "cannot ask the driver: it is sick"


def test_inside_a_dibs_job_without_a_driver_auto_is_what_the_job_was_given():
    pool = resolve_pool("auto", NO_DRIVER, {"DIBS_GPUS": "3,1", "CUDA_VISIBLE_DEVICES": "3,1"})

    assert [card.gpu.key for card in pool.cards] == ["index-3", "index-1"]


@pytest.mark.parametrize(
    ("visible", "left"),
    [
        ("1,2", [1, 2]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-3f77,GPU-a1", [1, 2]),
        ("GPU-3f77,0", [1, 0]),
        ("0,9,1", [0]),  # CUDA stops at the first id that is wrong
        ("0,-1,1", [0]),
        ("0,,1", [0]),
        ("2,GPU-3f,0", [2]),  # an ambiguous id is wrong
        ("1,1", [1]),
    ],
)
def test_auto_is_what_an_inherited_list_shows(visible, left):
    pool = resolve_pool("auto", FOUR_CARDS, {"CUDA_VISIBLE_DEVICES": visible})

    assert numbers(pool) == left


def test_cards_inside_an_inherited_list_may_be_named():
    pool = resolve_pool("2,2,1", FOUR_CARDS, {"CUDA_VISIBLE_DEVICES": "1,2"})

    assert slots(pool) == {2: 2, 1: 1}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("0,1,2", "0,1,2"),
        ("0 1\t2\n", "0,1,2"),
        ("0\n0\n1\n", "0,0,1"),
        ("# the big ones\n0, 1 # and a small one\n\n2,\n", "0,1,2"),
        ("0+1\n2 + 3\n", "0+1,2+3"),
        ("GPU-3f2a 1\r\n", "GPU-3f2a,1"),
        ("auto\n", "auto"),
        ("", ""),
        ("\n # none tonight\n,\n", ""),
    ],
)
def test_a_gpu_file_holds_ids_between_commas_blanks_and_newlines(tmp_path, content, text):
    path = tmp_path / "my gpus"
    path.write_text(content)

    read = read_pool_file(str(path))

    assert read == text


def test_a_missing_gpu_file_is_refused(tmp_path):
    path = str(tmp_path / "nothing")

    with pytest.raises(BadInput) as caught:
        read_pool_file(path)

    assert caught.value.message == f"cannot read the GPU file {path}: No such file or directory"


def test_a_gpu_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe0")

    with pytest.raises(BadInput) as caught:
        read_pool_file(str(path))

    assert caught.value.message.endswith("it is not text")
