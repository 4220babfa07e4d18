"""`dibs simulate`: tables for people, JSON for programs, and one sentence for what cannot be meant."""

import json

import pytest

from dibs.cli.simulate import _KINDS
from dibs.simulate.trace import KINDS

LINES = "".join(
    json.dumps({"queued_at": at, "seconds": 60, "num_gpus": gpus, "project": project}) + "\n"
    for at, gpus, project in [(0, 1, "a"), (5, 2, "b"), (6, 1, "a"), (7, 9, "b")]
)


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_text(LINES)
    return str(file)


def test_waits_use_and_what_never_ran_are_shown(typed, trace):
    done = typed("simulate", trace, "-n", "2", "--no-plot")

    assert done.status == 0
    assert done.stdout.splitlines() == [
        "4 jobs on 2 GPUs: dibs",
        "",
        "waited  jobs  median  mean   95 %   99 %  longest  fair part",
        "all        3     55s   56s  1m54s  1m54s    1m54s",
        "a          2    0.0s   57s  1m54s  1m54s    1m54s     62.9 %",
        "b          1     55s   55s    55s    55s      55s    137.1 %",
        "1 GPU      2    0.0s   57s  1m54s  1m54s    1m54s",
        "2 GPUs     1     55s   55s    55s    55s      55s",
        "",
        "use of the GPUs   50.0 % until the last job came, 66.7 % until the end",
        "first to last     3m00s",
        "fairness          0.879 over 1m55s in which projects competed",
        "never ran: 1 job: it wants 9 GPUs, but only 2 may be used (GPU 0, 1)",
    ]


def test_the_picture_is_as_wide_as_a_page_and_without_colours_in_a_pipe(typed, trace):
    lines = typed("simulate", trace, "-n", "2").stdout.splitlines()

    picture = lines[lines.index("   GPUs held") :]
    assert picture[1].startswith("2 ┤") and "█" in picture[1]
    assert picture[-1].split() == ["0", "45s", "1m30s", "2m15s", "3m00s"]
    assert max(map(len, lines)) == 80
    assert "\x1b" not in "".join(lines)


def test_two_ways_stand_side_by_side(typed):
    done = typed("simulate", "--make", "halves", "--jobs", "80", "--alone", "--compare")

    rows = [line.split("  ") for line in done.stdout.splitlines()]
    assert ["dibs", "no packing"] in [[cell.strip() for cell in row if cell] for row in rows]
    assert sum(line.strip().startswith("GPUs held") for line in done.stdout.splitlines()) == 2


def test_json_tells_it_all(typed, trace):
    told = json.loads(typed("simulate", trace, "-n", "2", "--no-turns", "--compare", "--json").stdout)

    assert told["trace"] == {"jobs": 4, "left_out": 0, "seconds": 7.0}
    assert told["machine"]["num_gpus"] == 2
    assert [(one["name"], one["without"]) for one in told["results"]] == [("dibs", []), ("no turns", ["turns"])]
    first = told["results"][0]
    assert first["waits"] == {
        "jobs": 3,
        "mean_seconds": 56.3333,
        "median_seconds": 55.0,
        "p95_seconds": 114.0,
        "p99_seconds": 114.0,
        "longest_seconds": 114.0,
    }
    assert first["never"] == [{"why": "it wants 9 GPUs, but only 2 may be used (GPU 0, 1)", "jobs": 1}]
    assert len(first["series"]["held_gpus"]) == len(first["series"]["waiting_jobs"]) == 100


def test_a_made_trace_can_be_kept_and_gives_the_same_again(typed, tmp_path):
    file = str(tmp_path / "made.jsonl")

    made = typed("simulate", "--make", "day", "--jobs", "50", "--seed", "7", "--save", file)
    again = typed("simulate", file)

    assert made.stdout == again.stdout


def test_what_was_recorded_stands_beside_what_was_simulated(typed, tmp_path):
    past = {"queued_at": "2026-11-15T09:00:00.000Z", "started_at": "2026-11-15T09:01:00.000Z", "seconds": 30.0}
    recorded = [{"state": "succeeded", **past}, {"state": "failed", **past}, {"state": "queued"}]
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(f"{json.dumps(one)}\n" for one in recorded))

    done = typed("simulate", str(file), "-n", "1", "--no-plot")

    assert done.stderr == "dibs: left out 1 recorded job without an end\n"
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["all", "2", "0.0s", "15s", "30s", "30s", "30s"] in rows
    assert ["as", "recorded", "2", "1m00s", "1m00s", "1m00s", "1m00s", "1m00s"] in rows


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name one trace"),
        (["x.jsonl", "--make", "day"], "name one trace"),
        (["x.jsonl"], "cannot read 'x.jsonl': No such file or directory"),
        (["x.jsonl", "--seed", "1"], "--seed is for --make"),
        (["--make", "day", "--compare"], "there is nothing to compare"),
        (["--make", "night"], "is not one of"),
        (["--make", "day", "--gpu-memory", "much"], "cannot read 'much' as a size"),
        (["--make", "day", "--save", "/"], "cannot write '/': Is a directory"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence_with_a_remedy(typed, words, said):
    done = typed("simulate", *words)

    assert done.status in (1, 2) and done.stdout == ""
    assert said in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 2


def test_the_kinds_of_made_traces_are_those_that_there_are():
    assert tuple(KINDS) == _KINDS
