"""`dibs sweep`: what is asked of the daemon, what is chosen by default, and what is refused."""

import json
import os

import pytest

LINE = "python train.py --lr {lr} --bs {bs}"
SPACE = ("-p", "lr", "1e-4..1e-1:log", "-p", "bs", "32", "64")
FINITE = ("-p", "lr", "0.1", "0.01", "-p", "bs", "32", "64")


@pytest.fixture
def swept(daemon, typed):
    """The spec that reached the daemon."""

    def run(*words):
        done = typed("sweep", *words)
        assert done.status == 0, done.stderr
        return daemon.bodies()[-1]["spec"]

    return run


def test_the_issues_own_line_is_an_adaptive_search(daemon, typed):
    done = typed("sweep", LINE, *SPACE, "--samples", "40", "--metric", "val_loss", "--goal", "min", "--seed", "5")

    spec = daemon.bodies()[-1]["spec"]
    assert (done.status, done.stdout) == (0, "added sweep 1: 12 trials\n")
    assert (
        done.stderr == "dibs: adaptive (tpe, seed 5) for the lowest val_loss (--method and --seed change that)\n"
    )
    assert spec["command"] == LINE
    assert [(one["name"], one.get("scale"), one.get("values")) for one in spec["parameters"]] == [
        ("lr", "log", None),
        ("bs", None, ["32", "64"]),
    ]
    assert (spec["samples"], spec["method"], spec["metrics"]) == (
        40,
        "adaptive",
        [{"name": "val_loss", "goal": "min"}],
    )


def test_words_behind_the_dashes_are_a_command_too(swept):
    spec = swept(*FINITE, "--", "python", "train.py", "--lr", "{lr}", "--bs={bs}")

    assert spec["words"] == ["python", "train.py", "--lr", "{lr}", "--bs={bs}"]
    assert "command" not in spec


def test_one_word_behind_the_dashes_is_a_line(swept):
    assert swept(*FINITE, "--", f"{LINE} | tee log")["command"] == f"{LINE} | tee log"


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ([*FINITE], "grid"),
        ([*FINITE, "--metric", "loss"], "grid"),
        (["-p", "lr", "1..3", "-p", "bs", "0..1:0.5"], "grid"),
        ([*FINITE, "--samples", "3"], "random"),
        ([*SPACE, "--samples", "3"], "random"),
        ([*FINITE, "--samples", "3", "--shuffle"], "grid"),
        ([*FINITE, "--samples", "3", "--metric", "loss"], "adaptive"),
        ([*SPACE, "--samples", "3", "--metric", "loss", "--method", "random"], "random"),
        ([*SPACE, "--samples", "3", "--metric", "loss", "--sampler", "qmc"], "adaptive"),
    ],
)
def test_how_it_is_searched_where_nobody_said(swept, words, method):
    assert swept(LINE, *words)["method"] == method


def test_a_seed_is_made_up_where_chance_has_a_say_and_it_is_told(daemon, typed):
    first, second = (typed("sweep", LINE, *SPACE, "--samples", "3").stderr for _ in range(2))

    seeds = [body["spec"]["seed"] for body in daemon.bodies()]
    assert f"random (seed {seeds[0]})" in first and f"random (seed {seeds[1]})" in second
    assert seeds[0] != seeds[1]


def test_of_a_grid_in_order_the_seed_is_of_no_account(typed, daemon):
    plain, shuffled = typed("sweep", LINE, *FINITE), typed("sweep", LINE, *FINITE, "--shuffle")

    assert plain.stderr == "dibs: grid (--method changes that)\n"
    assert "(--method and --seed change that)" in shuffled.stderr


@pytest.mark.parametrize("condition", [["--where", "bs > 32"], ["-p", "m", "1", "2", "if", "bs=32"]])
def test_a_grid_of_which_conditions_leave_some_out_has_up_to_so_many_trials(typed, daemon, condition):
    line = f"{LINE} --m {{m}}" if "-p" in condition else LINE

    told, checked = (typed("sweep", line, *FINITE, *condition, *more) for more in ([], ["--dry-run"]))

    assert told.stdout == "added sweep 1: up to 12 trials\n"
    assert "up to 12 trials: grid" in checked.stdout and "and up to 10 more" in checked.stdout


def test_who_has_one_file_for_all_results_is_told_that_trials_run_one_by_one(typed, daemon):
    shared = typed("sweep", LINE, *FINITE, "--metric", "loss", "--result-file", "r.json")
    own = typed("sweep", LINE, *FINITE, "--metric", "loss", "--result-file", "r-%j.json")

    assert [body["spec"]["parallel"] for body in daemon.bodies()] == [1, None]
    assert "one trial at a time, as all write r.json" in shared.stderr and "one trial" not in own.stderr


def test_who_says_everything_is_told_nothing(typed, daemon):
    done = typed("sweep", LINE, *SPACE, "--samples", "3", "--method", "random", "--seed", "1")

    assert done.stderr == ""


def test_a_range_from_0_to_1_in_whole_numbers_is_most_likely_a_slip_and_told_of(typed, daemon):
    slip = typed("sweep", "echo {x} {n}", "-p", "x", "0..1", "-p", "n", "1..8")
    meant = typed("sweep", "echo {x}", "-p", "x", "0.0..1.0", "--samples", "3")

    assert "dibs: x is 0 or 1" in slip.stderr and "n is" not in slip.stderr
    assert "0 or 1" not in meant.stderr


def test_every_option_of_the_search_arrives(swept):
    spec = swept(
        *[LINE, *SPACE, "--samples", "9", "--method", "adaptive", "--sampler", "gp", "--seed", "3", "-J", "lr"],
        *["--metric", "acc:max", "--where", "bs < 64", "--where", "lr < 1", "--prune", "hyperband"],
        *["--prune-after", "4", "--parallel", "8", "--reuse", "--from-log", r"acc=(\S+)", "--shell", "sh"],
    )

    expected = {
        "sampler": "gp",
        "seed": 3,
        "name": "lr",
        "metrics": [{"name": "acc", "goal": "max"}],
        "where": ["bs < 64", "lr < 1"],
        "pruner": "hyperband",
        "prune_after": 4,
        "parallel": 8,
        "reuse": True,
        "results": {"from": "log", "pattern": r"acc=(\S+)", "path": ""},
        "shell": "sh",
    }
    assert {key: spec[key] for key in expected} == expected


def test_several_metrics_have_goals_of_their_own(swept):
    spec = swept(LINE, *SPACE, "--samples", "9", "--metric", "acc:max", "--metric", "seconds", "--goal", "min")

    assert spec["metrics"] == [{"name": "acc", "goal": "max"}, {"name": "seconds", "goal": "min"}]


def test_the_wishes_of_add_are_those_of_every_trial(daemon, typed, tmp_path):
    typed(
        *["sweep", LINE, *FINITE, "-n", "2", "--vram", "auto:8G", "-t", "2h", "--grace", "30s", "--priority", "3"],
        *["-P", "vision", "--tag", "a", "--retries", "1", "--env", "A=b", "-C", str(tmp_path), "--only", "0,1"],
        *["--gpu-type", "h200", "-J", "lr"],
    )

    body = daemon.bodies()[-1]
    expected = {
        "num_gpus": 2,
        "vram": "auto",
        "vram_bytes": 8 << 30,
        "time_limit_seconds": 7200.0,
        "grace_seconds": 30.0,
        "priority": 3,
        "project": "vision",
        "tags": ["a"],
        "retries": 1,
        "env": {"A": "b"},
        "workdir": str(tmp_path),
        "only": ["0", "1"],
        "gpu_type": "h200",
    }
    assert {key: body["defaults"][key] for key in expected} == expected
    assert "command" not in body["defaults"] and body["environment"]["PATH"] == os.environ["PATH"]


def test_quiet_prints_the_number_and_json_an_object(daemon, typed):
    quiet, told = typed("sweep", LINE, *FINITE, "-q"), typed("sweep", LINE, *FINITE, "--json", "-q")

    assert (quiet.stdout, quiet.stderr) == ("1\n", "")
    assert json.loads(told.stdout) == {"id": 2, "is_new": True, "size": 12, "method": "grid", "seed": 0}


def test_a_dry_run_shows_the_first_commands_and_begins_nothing(daemon, typed):
    done = typed("sweep", LINE, *FINITE, "--dry-run")

    assert done.stdout.splitlines() == [
        "12 trials: grid",
        "  python train.py --lr 0.1",
        "  python train.py --lr 0.2",
        "  … and 10 more",
    ]
    assert [path for _, path, _, _ in daemon.calls if path.startswith("/v1/sweeps")] == ["/v1/sweeps/check"]
    assert daemon.sweeps == {}


def test_a_dry_run_of_an_adaptive_search_promises_no_points(daemon, typed):
    done = typed("sweep", LINE, *SPACE, "--samples", "12", "--metric", "loss", "--seed", "3", "--dry-run")

    assert done.stdout.splitlines()[:3] == [
        "12 trials: adaptive (tpe, seed 3) for the lowest loss",
        "  what is tried depends on the results; it may be",
        "  python train.py --lr 0.1",
    ]


def test_a_dry_run_shows_no_more_commands_than_there_are_trials(daemon, typed):
    daemon.checked = {"size": 1, "commands": ["one", "two"], "left_out": 0, "reused": []}

    done = typed("sweep", LINE, *FINITE, "--samples", "1", "--seed", "3", "--dry-run")

    assert done.stdout == "1 trial: random (seed 3)\n  one\n"


def test_a_dry_run_that_left_points_out_says_how_many_there_may_be(daemon, typed):
    daemon.checked = {"size": 100, "commands": ["one"], "left_out": 9, "reused": []}

    done = typed("sweep", LINE, *FINITE, "--where", "bs > 32", "--dry-run")

    assert done.stdout == "up to 91 trials: grid\n  one\n  … and up to 90 more\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "there is no command"),
        (["--"], "there is no command behind --"),
        ([*FINITE], "there is no command"),
        (["-p", "lr", "0.1", "python train.py --lr {lr}"], "there is no command"),
        (["python", "train.py", *FINITE], "cannot use 'train.py' here"),
        ([LINE, *FINITE, "--", "true"], "a command in front of --"),
        ([LINE], "there is no parameter"),
        ([LINE, *SPACE], "lr is a range with no end of values in it"),
        ([LINE, *FINITE, "-p", "lr", "3"], "the parameter lr is given twice"),
        ([LINE, *FINITE, "-p", "x", "1"], "x is not in the command"),
        ([LINE, "-p", "lr", "1..0", "-p", "bs", "1"], "the range of lr begins at 1 and ends before it"),
        ([LINE, "-p", "lr", "0..1:log", "-p", "bs", "1"], "logarithm"),
        ([LINE, *FINITE, "--where", "__import__('os')"], "cannot use the condition"),
        ([LINE, *FINITE, "--where", "width < 3"], "width"),
        ([LINE, *FINITE, "--goal", "max"], "--goal is for --metric"),
        (
            [LINE, *FINITE, "--method", "random", "--sampler", "gp", "--samples", "2"],
            "--sampler is for an adaptive",
        ),
        ([LINE, *FINITE, "--method", "random", "--shuffle", "--samples", "2"], "--shuffle is for a grid"),
        ([LINE, *FINITE, "--metric", "a", "--from-log", "a=(.*)", "--result-file", "x"], "both given"),
        ([LINE, *FINITE, "--metric", "a", "--from-log", "("], "expression"),
        ([LINE, *FINITE, "--prune", "median"], "metric"),
        ([LINE, *FINITE, "--samples", "0"], "cannot read '0' as a number"),
        ([LINE, *FINITE, "-J", "17"], "cannot call a sweep '17'"),
        (["nowhere.yaml"], "cannot read nowhere.yaml"),
        (["."], "there is no parameter"),
        (["sohw", "3"], "sohw is no file, and nothing that is done to sweeps"),
        ([LINE, *FINITE, "--prune-after", "3", "--metric", "loss"], "--prune-after is for --prune"),
        (
            [LINE, *FINITE, "--where", "lr < 0.05", "--where", "lr > 0.05"],
            "no point fulfils lr < 0.05 and lr > 0.05",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_one_sentence_and_nothing_is_asked(daemon, typed, words, sentence):
    done = typed("sweep", *words)

    assert (done.status, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("dibs: error: ") and sentence in first, first
    assert len(rest) == 1
    assert daemon.calls == []


def test_a_word_that_is_a_verb_is_a_command_behind_the_dashes(swept):
    spec = swept("-p", "x", "1", "2", "--", "show", "{x}")

    assert spec["words"] == ["show", "{x}"]


def test_an_unknown_option_is_told_with_the_way_to_the_help(daemon, typed):
    done = typed("sweep", LINE, *FINITE, "--sample", "3")

    assert done.status == 2
    assert "`dibs sweep --help` shows what it takes" in done.stderr


def test_the_daemons_refusal_reaches_the_person(daemon, typed):
    daemon.refusal = (400, "bad-input", "it wants 64 GPUs, this machine has 2")

    done = typed("sweep", LINE, *FINITE, "-n", "64")

    assert done.status == 2
    assert "it wants 64 GPUs, this machine has 2" in done.stderr
