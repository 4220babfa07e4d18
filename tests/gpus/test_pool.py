"""From the words after `--gpus` to a pool."""

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


def refusal(kind, text, probe=FOUR_CARDS, environ=None):
    """The sentence by which the words are refused: one line, with something to try."""
    with pytest.raises(DibsError) as caught:
        resolve_pool(text, probe, environ or {})
    assert type(caught.value) is kind
    assert "\n" not in caught.value.message
    assert caught.value.remedy
    return caught.value.message


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


def test_the_beginning_of_two_uuids_is_refused():
    sentence = refusal(BadInput, "GPU-3f")

    assert KEYS[0] in sentence
    assert KEYS[1] in sentence


@pytest.mark.parametrize("text", ["99", "0,4", "GPU-cc", "1+7"])
def test_an_unknown_card_is_refused_with_those_there_are(text):
    sentence = refusal(BadInput, text)

    assert sentence.endswith("this machine has GPUs 0, 1, 2, 3")


def test_a_part_of_a_card_is_refused_as_such():
    sentence = refusal(BadInput, "MIG-1234")

    assert "MIG" in sentence


@pytest.mark.parametrize("text", ["-1", "a b", "0,,1", "0+", ",", "1.5", "cuda0"])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(BadInput):
        resolve_pool(text, FOUR_CARDS, {})


def test_a_repeated_id_gives_slots():
    pool = resolve_pool("0,0,1", FOUR_CARDS, {})

    assert slots(pool) == {0: 2, 1: 1}
    assert pool.cards[0].slot_share == Fraction(1, 2)
    assert pool.groups == ()


def test_a_card_named_by_number_and_by_uuid_is_one_card_with_two_slots():
    pool = resolve_pool("0,GPU-3f2a,1", FOUR_CARDS, {})

    assert slots(pool) == {0: 2, 1: 1}


def test_groups_are_kept_together():
    pool = resolve_pool("0+1,3+2", FOUR_CARDS, {})

    assert groups(pool) == [[0, 1], [3, 2]]
    assert slots(pool) == {0: 1, 1: 1, 3: 1, 2: 1}


def test_a_card_alone_beside_groups_is_a_group_of_one():
    pool = resolve_pool("0+1,2,2", FOUR_CARDS, {})

    assert groups(pool) == [[0, 1], [2]]
    assert slots(pool) == {0: 1, 1: 1, 2: 2}


@pytest.mark.parametrize("text", ["0+1,0+1", "0+1,1+0", "0+1,GPU-3f2a+1"])
def test_a_group_repeated_whole_has_slots(text):
    pool = resolve_pool(text, FOUR_CARDS, {})

    assert groups(pool) == [[0, 1]]
    assert slots(pool) == {0: 2, 1: 2}


@pytest.mark.parametrize("text", ["0+1,1", "1,0+1", "0+1,1+2", "0+1+2,1+0"])
def test_a_card_in_two_different_groups_is_refused(text):
    sentence = refusal(BadInput, text)

    assert "both in" in sentence


@pytest.mark.parametrize("text", ["0+0", "1+0+GPU-3f2a"])
def test_a_card_twice_in_one_group_is_refused(text):
    sentence = refusal(BadInput, text)

    assert "twice" in sentence


@pytest.mark.parametrize("probe", [FOUR_CARDS, NO_DRIVER, SickProbe()])
def test_empty_text_is_an_empty_pool(probe):
    pool = resolve_pool(" ", probe, {"CUDA_VISIBLE_DEVICES": ""})

    assert pool == Pool(cards=())


def test_without_a_driver_numbers_are_believed():
    pool = resolve_pool("0,0,7", NO_DRIVER, {})

    assert [(card.gpu.key, card.slots) for card in pool.cards] == [("index-0", 2), ("index-7", 1)]
    assert all(card.gpu.key == declared_key(card.gpu.index) for card in pool.cards)


def test_without_a_driver_a_uuid_is_refused():
    sentence = refusal(BadInput, "GPU-3f2a", NO_DRIVER)

    assert "without a driver" in sentence


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": "0,1"}])
def test_without_a_driver_auto_finds_nothing_and_says_what_to_do(environ):
    with pytest.raises(NoGpu) as caught:
        resolve_pool("auto", NO_DRIVER, environ)

    assert "no driver of NVIDIA or AMD" in caught.value.message
    assert "--gpus 0,1" in caught.value.remedy


def test_a_driver_whose_cards_are_all_lost_is_told_apart_from_no_driver():
    sentence = refusal(NoGpu, "auto", EmptyProbe())

    assert "the driver shows none" in sentence


def test_a_number_on_a_driver_whose_cards_are_all_lost_is_refused():
    sentence = refusal(BadInput, "0", EmptyProbe())

    assert sentence == "cannot find GPU 0: the driver shows none that works"


def test_a_sick_driver_is_reported_as_it_is():
    probe = SickProbe()

    with pytest.raises(ProbeFailed) as caught:
        resolve_pool("auto", probe, {})

    assert caught.value.message == "cannot ask the driver: it is sick"


def test_inside_a_dibs_job_without_a_driver_auto_is_what_the_job_was_given():
    pool = resolve_pool("auto", NO_DRIVER, {"DIBS_GPUS": "3,1", "CUDA_VISIBLE_DEVICES": "3,1"})

    assert [card.gpu.key for card in pool.cards] == ["index-3", "index-1"]


@pytest.mark.parametrize("probe", [FOUR_CARDS, NO_DRIVER])
def test_inside_a_dibs_job_the_pool_is_what_the_job_was_given(probe):
    sentence = refusal(BadInput, "0", probe, {"DIBS_GPUS": "1,2"})

    assert sentence == "cannot use GPU 0: DIBS_GPUS=1,2 leaves only GPUs 1, 2"


@pytest.mark.parametrize("text", ["auto", "0"])
@pytest.mark.parametrize("probe", [FOUR_CARDS, NO_DRIVER])
def test_inside_a_dibs_job_for_no_gpu_there_is_none(probe, text):
    sentence = refusal(NoGpu, text, probe, {"DIBS_GPUS": "", "CUDA_VISIBLE_DEVICES": ""})

    assert "inside a job of dibs that was given none" in sentence


def test_limits_that_exclude_each_other_leave_nothing():
    sentence = refusal(NoGpu, "auto", FOUR_CARDS, {"DIBS_GPUS": "0", "CUDA_VISIBLE_DEVICES": "2"})

    assert sentence == "cannot use a GPU: CUDA_VISIBLE_DEVICES=2 leaves none of GPU 0"


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


@pytest.mark.parametrize("probe", [FOUR_CARDS, NO_DRIVER])
def test_a_card_outside_an_inherited_list_is_refused(probe):
    sentence = refusal(BadInput, "1,3", probe, {"CUDA_VISIBLE_DEVICES": "1,2"})

    assert sentence == "cannot use GPU 3: CUDA_VISIBLE_DEVICES=1,2 leaves only GPUs 1, 2"


@pytest.mark.parametrize("text", ["auto", "0"])
@pytest.mark.parametrize("visible", ["", " ", "-1", "-1,0"])
@pytest.mark.parametrize("probe", [FOUR_CARDS, NO_DRIVER])
def test_an_inherited_list_that_hides_all_says_so(probe, visible, text):
    sentence = refusal(NoGpu, text, probe, {"CUDA_VISIBLE_DEVICES": visible})

    assert "CUDA_VISIBLE_DEVICES" in sentence
    assert "hides all GPUs" in sentence


@pytest.mark.parametrize("visible", ["7", "NoDevFiles", "MIG-1234", "GPU-3f"])
def test_an_inherited_list_of_none_of_our_cards_says_which_there_are(visible):
    sentence = refusal(NoGpu, "auto", FOUR_CARDS, {"CUDA_VISIBLE_DEVICES": visible})

    assert f"CUDA_VISIBLE_DEVICES={visible} names none of GPUs 0, 1, 2, 3" in sentence


def test_an_inherited_uuid_cannot_be_followed_without_a_driver():
    sentence = refusal(NoGpu, "0", NO_DRIVER, {"CUDA_VISIBLE_DEVICES": "GPU-3f2a"})

    assert "without a driver" in sentence


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
