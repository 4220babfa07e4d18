"""The wish words mean the same from Python, from JSON and from a prefix."""

from datetime import datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.inputs.wishes import WORDS, apply_wishes, job_from, parse_begin
from dibs.model.jobs import Command, Request

DEFAULTS = Request(command=Command.exact(["true"]), env=(("A", "old"), ("B", "b")))

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ({"num_gpus": "2"}, {"num_gpus": 2}),
        ({"vram": "18"}, {"vram": 18}),
        ({"vram": "18G"}, {"vram": 18}),
        ({"share": "0.25"}, {"share": 0.25}),
        ({"share": "1/3"}, {"share": Fraction(1, 3)}),
        ({"time": "45"}, {"time": 45}),
        ({"time": "45m"}, {"time": 45}),
        ({"only": "0,1"}, {"only": [0, "1"]}),
        ({"prefer": "3"}, {"prefer": 3}),
        ({"priority": "-2"}, {"priority": -2}),
        ({"restartable": "yes"}, {"restartable": True}),
        ({"env": {"N": "1"}}, {"env": {"N": 1}}),
        ({"cpus": "4"}, {"cpus": 4}),
        ({"mem": "64"}, {"mem": 64}),
        ({"tags": "a,b"}, {"tags": ["a", "b"]}),
    ],
)
def test_text_and_numbers_mean_the_same(text, number):
    assert apply_wishes(DEFAULTS, text) == apply_wishes(DEFAULTS, number) != DEFAULTS


def test_vram_may_be_learned_and_a_size_takes_that_back():
    learned = apply_wishes(DEFAULTS, {"vram": "auto"})
    guessed = apply_wishes(learned, {"vram": "auto:12G"})
    fixed = apply_wishes(guessed, {"vram": "8G"})

    assert (learned.wishes.vram, learned.wishes.shape) == (None, "auto")
    assert (guessed.wishes.vram, guessed.wishes.shape) == (12 * 1024**3, "auto")
    assert (fixed.wishes.vram, fixed.wishes.shape) == (8 * 1024**3, "")


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ({"time_limit_seconds": 5400}, {"time": "1h30m"}),
        ({"grace_seconds": 30.0}, {"grace": "30s"}),
        ({"mem_bytes": 4 << 30}, {"mem": "4G"}),
        ({"vram_bytes": 1 << 30}, {"vram": "1G"}),
        ({"vram_bytes": 1 << 30, "vram": "auto"}, {"vram": "auto:1G"}),
        ({"vram": "auto", "vram_bytes": 1 << 30}, {"vram": "auto:1G"}),
        ({"retry_on": ["lost", "gpu-oom"]}, {"retry_on": "lost,gpu-oom"}),
    ],
)
def test_a_key_with_its_unit_and_a_word_mean_the_same(key, word):
    assert apply_wishes(DEFAULTS, key) == apply_wishes(DEFAULTS, word) != DEFAULTS


@pytest.mark.parametrize("wrong", [True, "1G", 0, -1, 1.5, float("nan"), [1]])
def test_a_key_with_its_unit_takes_a_number_only(wrong):
    with pytest.raises(BadInput, match="as vram_bytes"):
        apply_wishes(DEFAULTS, {"vram_bytes": wrong})


@pytest.mark.parametrize(
    "mapping",
    [{"time": "2h", "time_limit_seconds": 1}, {"vram_bytes": 1, "vram": "1G"}, {"mem_bytes": 1, "mem": 2}],
)
def test_a_word_and_its_key_are_not_given_together(mapping):
    with pytest.raises(BadInput, match="are both given"):
        apply_wishes(DEFAULTS, mapping)


def test_variables_are_laid_over_those_of_the_defaults():
    job = apply_wishes(DEFAULTS, {"env": {"A": "new", "C": "c"}})

    assert dict(job.env) == {"A": "new", "B": "b", "C": "c"}


@given(st.dictionaries(st.sampled_from(WORDS) | st.text(), ANYTHING, max_size=4))
def test_anything_else_is_refused_in_one_sentence(mapping):
    try:
        job = apply_wishes(DEFAULTS, mapping)
    except BadInput as refusal:
        assert refusal.remedy
        assert len(refusal.message) < 300
    else:
        assert set(mapping) <= set(WORDS)
        assert job.wishes.num_gpus >= 0


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("num-gpus", "num_gpus"),
        ("gpus", "num_gpus"),
        ("retry", "retries"),
        ("cmd", "command"),
        ("colour", "dibs knows"),
    ],
)
def test_a_word_that_is_nearly_right_is_answered_with_the_right_one(word, near):
    with pytest.raises(BadInput) as refusal:
        apply_wishes(DEFAULTS, {word: "1"})

    assert near in refusal.value.remedy


def test_where_a_job_runs_is_a_wish_and_so_is_what_slurm_is_told():
    mapping = {
        "command": "true",
        "on": "slurm",
        "partition": "gpu",
        "account": "lab",
        "mail_user": "ann@example.org",
    }

    job = job_from(mapping, DEFAULTS)

    assert job.on == "slurm"
    assert dict(job.on_options) == {"partition": "gpu", "account": "lab", "mail-user": "ann@example.org"}


def test_what_slurm_is_told_is_laid_over_the_defaults_and_gone_for_a_job_that_runs_here():
    defaults = apply_wishes(DEFAULTS, {"on": "slurm", "partition": "gpu", "qos": "low"})

    there, here = apply_wishes(defaults, {"qos": "high"}), apply_wishes(defaults, {"on": "local"})

    assert (there.on, dict(there.on_options)) == ("slurm", {"partition": "gpu", "qos": "high"})
    assert (here.on, here.on_options) == ("local", ())


@pytest.mark.parametrize(
    ("mapping", "sentence"),
    [
        ({"on": "elsewhere"}, "cannot run anything on 'elsewhere'"),
        ({"partition": "a b"}, "cannot give Slurm 'a b'"),
    ],
)
def test_a_place_that_there_is_not_is_refused(mapping, sentence):
    with pytest.raises(BadInput, match=sentence):
        apply_wishes(DEFAULTS, mapping)


NOON = datetime(2026, 11, 15, 12, 0, 0, 500)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("22:00", datetime(2026, 11, 15, 22)),
        ("9:30", datetime(2026, 11, 16, 9, 30)),
        ("12:00", datetime(2026, 11, 16, 12)),
        ("23:59:59", datetime(2026, 11, 15, 23, 59, 59)),
        ("2026-12-01 08:00", datetime(2026, 12, 1, 8)),
        ("2026-12-01T08:00:30", datetime(2026, 12, 1, 8, 0, 30)),
        ("2026-12-01", datetime(2026, 12, 1)),
        ("+2h", NOON + timedelta(hours=2)),
        ("+90", NOON + timedelta(minutes=90)),
        ("now+60", NOON + timedelta(seconds=60)),
        ("now+1hour", NOON + timedelta(hours=1)),
        ("now", NOON),
        ("tomorrow", datetime(2026, 11, 16)),
        ("Midnight", datetime(2026, 11, 16)),
        ("noon", datetime(2026, 11, 16, 12)),
    ],
)
def test_moments(text, moment):
    assert parse_begin(text, NOON) == moment.timestamp()


def test_a_moment_with_a_zone_is_that_moment():
    assert parse_begin("2026-12-01T08:00:00Z", NOON) == 1796112000


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "12:60", "+", "+x", "now-1h", "2026-13-01", "nowhere", "+1e300h", "8", "12:0"]
)
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(BadInput, match="as a time to begin"):
        parse_begin(text, NOON)


@pytest.mark.parametrize("text", ["2020-01-01", "2026-11-15 11:58", "2026-11-15", "2026-11-13T10:00:00Z"])
def test_a_moment_that_is_over_is_refused(text):
    with pytest.raises(BadInput, match="is over") as refusal:
        parse_begin(text, NOON)

    assert "leave it out" in refusal.value.remedy


def test_the_minute_that_runs_is_not_over():
    assert parse_begin("2026-11-15 12:00", NOON + timedelta(seconds=50)) == datetime(2026, 11, 15, 12).timestamp()


@pytest.mark.parametrize("text", ["9999-12-31", "9999-12-31T23:59:59Z", "2126-01-01"])
def test_a_moment_too_far_in_the_future_is_refused(text):
    with pytest.raises(BadInput, match="ten years"):
        parse_begin(text, NOON)
