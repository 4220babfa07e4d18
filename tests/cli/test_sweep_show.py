"""`dibs sweep ls`, `show`, `best` and `results`: what people and programs read about a sweep."""

import csv
import io
import json

import pytest

from cli.fake_daemon import a_sweep, a_trial

TRIALS = (a_trial(0), a_trial(1, values=[0.25]), a_trial(2, "failed"), a_trial(3, "pruned"), a_trial(4, "open"))


@pytest.fixture
def sweep(daemon):
    daemon.sweeps[3] = a_sweep(3, trials=TRIALS, name="lr", journal="/state/a b/optuna.journal")
    return daemon.sweeps[3]


def test_the_list_says_how_far_each_is_and_what_was_found(daemon, typed):
    daemon.sweeps = {
        1: a_sweep(1, "finished", TRIALS[:2]),
        2: a_sweep(2, "held", TRIALS[2:3], name="lr", why="its first trials ended alike: exit code 1", size=None),
    }

    lines = typed("sweep", "ls").stdout.splitlines()

    assert lines[0].split() == ["sweep", "state", "name", "trials", "failed", "best", "command"]
    assert lines[1].split()[:6] == ["2", "held", "lr", "1/?", "1", "-"]
    assert lines[2].strip() == "its first trials ended alike: exit code 1"
    assert lines[3].split()[:5] == ["1", "finished", "-", "2/2", "0"]
    assert "loss 0 (trial 0)" in lines[3] and "python train.py --lr {lr}" in lines[3]


def test_a_state_filters_the_list_and_json_has_whole_sweeps(daemon, typed):
    daemon.sweeps = {1: a_sweep(1, "finished"), 2: a_sweep(2)}

    done = typed("sweep", "ls", "--state", "finished", "--json")

    assert [one["id"] for one in json.loads(done.stdout)["sweeps"]] == [1]


def test_where_there_is_no_sweep_the_list_says_how_to_make_one(daemon, typed):
    done = typed("sweep", "ls")

    assert (done.status, done.stdout) == (0, "")
    assert "dibs sweep --help" in done.stderr


def test_show_has_leaders_importance_the_best_command_and_the_failed(daemon, sweep, typed):
    daemon.importance = {"importance": [{"name": "opt", "value": 0.2}, {"name": "lr", "value": 0.8}], "why": ""}

    said = typed("sweep", "show").stdout

    assert said.startswith("sweep 3 (lr)\n")
    assert "2 complete, 1 pruned, 1 failed, 1 under way of 10" in said
    assert "adaptive (tpe, seed 7) for the lowest loss" in said
    rows = [line.split() for line in said.splitlines() if line.strip()[:2].strip().isdigit()]
    assert [row[:4] for row in rows[:2]] == [["0", "0", "0.0", "adam"], ["1", "0.25", "0.1", "adam"]]
    assert said.index("lr    80%  ███") < said.index("opt   20%  ███")
    assert "    python train.py --lr 0.0 --opt adam\n" in said
    assert "    trial 2: job 102 failed with exit code 1\n" in said
    assert "optuna-dashboard '/state/a b/optuna.journal'" in said


def test_what_cannot_be_told_yet_is_said_in_one_sentence(daemon, sweep, typed):
    daemon.importance = {"importance": [], "why": "what mattered is known after ten trials"}

    assert "what mattered is known after ten trials" in typed("sweep", "show", "lr").stdout


def test_where_nothing_has_a_result_nothing_is_said_about_what_mattered(daemon, typed):
    daemon.sweeps[3] = a_sweep(3, "held", (a_trial(0, "failed"),))
    daemon.importance = {"importance": [], "why": "importance needs 4 complete trials, and there are 0"}

    said = typed("sweep", "show").stdout

    assert "1 failed" in said and "importance" not in said


def test_show_as_json_is_the_sweep_with_its_leaders(daemon, sweep, typed):
    told = json.loads(typed("sweep", "show", "3", "--json").stdout)

    assert (told["id"], [trial["number"] for trial in told["leaders"]]) == (3, [0, 1])
    assert told["importance"] == []


def test_best_prints_the_command_on_stdout_and_its_result_beside(daemon, sweep, typed):
    done = typed("sweep", "best", "lr")

    assert done.stdout == "python train.py --lr 0.0 --opt adam\n"
    assert done.stderr == "loss 0 (trial 0 of sweep 3 (lr), job 100)\n"


def test_best_of_several_metrics_is_every_trial_that_no_other_beats(daemon, sweep, typed):
    sweep["spec"] = {**sweep["spec"], "metrics": [{"name": "loss"}, {"name": "seconds"}]}
    sweep["best"] = [a_trial(0, values=[0.1, 20.0]), a_trial(1, values=[0.2, 10.0])]

    done = typed("sweep", "best")

    assert done.stdout.splitlines() == [trial["command"] for trial in sweep["best"]]
    assert "loss 0.1, seconds 20" in done.stderr


def test_without_a_result_there_is_no_best(daemon, typed):
    daemon.sweeps[1] = a_sweep(1)

    done = typed("sweep", "best")

    assert (done.status, done.stdout) == (1, "")
    assert "there is no best trial of sweep 1: no trial has a result yet" in done.stderr
    assert json.loads(typed("sweep", "best", "--json").stdout) == {"sweep": 1, "best": []}


def test_of_a_sweep_without_a_metric_the_first_trials_are_shown(daemon, sweep, typed):
    sweep |= {"metrics": [], "spec": {**sweep["spec"], "metrics": []}, "best": []}

    said = typed("sweep", "show", "--limit", "1").stdout

    assert "\n  0      0.0  adam" in said and "what mattered" not in said
    assert "names no metric" in typed("sweep", "best").stderr


def test_results_are_all_trials_with_why_they_failed(daemon, sweep, typed):
    lines = typed("sweep", "results").stdout.splitlines()

    assert lines[0].split() == ["trial", "loss", "lr", "opt", "time", "job", "state"]
    assert len(lines) == 6
    assert lines[3].split()[:4] == ["2", "-", "0.2", "adam"]
    assert lines[3].endswith("failed: job 102 failed with exit code 1")


def test_a_state_is_not_said_twice(daemon, typed):
    why = "pruned at step 9: others had a better loss than 3 by then"
    daemon.sweeps[1] = a_sweep(1, trials=(a_trial(0, "pruned", why=why),))

    assert typed("sweep", "results").stdout.splitlines()[1].endswith(f"  {why}")


def test_every_reported_number_is_in_the_table_the_csv_and_the_json(daemon, typed):
    reported = {"loss": 0.0, "val/acc": 0.75}
    daemon.sweeps[1] = a_sweep(1, trials=(a_trial(0, reported=reported), a_trial(1, "open", reported={"n": None})))

    lines = typed("sweep", "results").stdout.splitlines()
    first, second = csv.DictReader(io.StringIO(typed("sweep", "results", "--csv").stdout))
    told = json.loads(typed("sweep", "results", "--json").stdout)["trials"]

    assert [line.split()[:5] for line in lines] == [
        ["trial", "loss", "val/acc", "n", "lr"],
        ["0", "0", "0.75", "-", "0.0"],
        ["1", "-", "-", "nan", "0.1"],
    ]
    assert (first["loss"], first["val/acc"], second["val/acc"], second["n"]) == ("0.0", "0.75", "", "nan")
    assert [trial["reported"] for trial in told] == [reported, {"n": None}]


def test_a_sweep_without_a_metric_shows_what_was_reported(daemon, typed):
    daemon.sweeps[1] = a_sweep(1, trials=(a_trial(0, values=None, reported={"acc": 0.5}),), metrics=[])
    daemon.sweeps[1]["spec"]["metrics"] = []

    assert typed("sweep", "results").stdout.split()[:3] == ["trial", "acc", "lr"]
    assert "trial  acc" in typed("sweep", "show").stdout


def test_by_step_every_kept_point_of_every_trial_is_printed(daemon, typed):
    daemon.sweeps[1] = a_sweep(1, trials=(a_trial(0), a_trial(1, "open")))
    daemon.series = {101: [{"name": "acc", "steps": [1, 2], "at_seconds": [0.5, 1.5], "values": [0.25, 0.5]}]}

    assert typed("sweep", "results", "--by-step", "--csv").stdout.splitlines() == [
        "trial,job,name,step,at_seconds,value",
        "1,101,acc,1,0.5,0.25",
        "1,101,acc,2,1.5,0.5",
    ]
    told = json.loads(typed("sweep", "results", "--by-step", "--json").stdout)
    assert told[1] == {"trial": 1, "job": 101, "name": "acc", "step": 2, "at_seconds": 1.5, "value": 0.5}


def test_by_step_a_trial_that_ran_and_one_that_took_its_result_have_both_its_points(daemon, typed):
    ran, took = a_trial(0), a_trial(1, "reused", job=None, reused_from=100)
    daemon.sweeps[1] = a_sweep(1, trials=(ran, took))
    daemon.series = {100: [{"name": "acc", "steps": [1], "at_seconds": [0.5], "values": [0.25]}]}

    assert typed("sweep", "results", "--by-step", "--csv").stdout.splitlines()[1:] == [
        "0,100,acc,1,0.5,0.25",
        "1,100,acc,1,0.5,0.25",
    ]


def test_csv_survives_every_letter_and_a_name_that_is_taken(daemon, typed):
    nasty = 'a "b", \n=c'
    point = {"state": nasty, "lr": None}
    daemon.sweeps[1] = a_sweep(1, trials=(a_trial(0, point=point, values=[1e-7]), a_trial(1, "open", point=point)))
    daemon.sweeps[1]["spec"]["parameters"] = [
        {"name": "state", "values": [nasty]},
        {"name": "lr", "values": [None]},
    ]

    said = typed("sweep", "results", "--csv").stdout

    first, second = csv.DictReader(io.StringIO(said))
    assert (first["trial"], first["state"], first["param.state"], first["lr"]) == ("0", "complete", nasty, "")
    assert (float(first["loss"]), second["loss"]) == (1e-7, "")


def test_json_has_every_trial_of_many_pages(daemon, typed):
    daemon.sweeps[1] = a_sweep(1, trials=tuple(a_trial(number) for number in range(2500)))

    told = json.loads(typed("sweep", "results", "--json", "--sort", "best").stdout)

    assert [trial["number"] for trial in told["trials"]] == list(range(2500))
    assert len(daemon.queries("/v1/sweeps/1/trials")) == 3


def test_csv_and_json_exclude_each_other(daemon, sweep, typed):
    assert typed("sweep", "results", "--csv", "--json").status == 2


def test_what_a_trial_wrote_cannot_command_the_terminal(daemon, typed):
    evil = "\x1b[2Jgone\n"
    trial = a_trial(0, "failed", why=evil, point={"lr": evil, "opt": evil})
    daemon.sweeps[1] = a_sweep(1, trials=(trial,), name=evil, why=evil)

    for words in (["show"], ["results"], ["ls"]):
        assert "\x1b" not in typed("sweep", *words).stdout


@pytest.mark.parametrize("verb", ["show", "best", "results", "wait", "stop", "hold", "resume"])
def test_a_sweep_that_is_not_there_is_one_sentence(daemon, typed, verb):
    done = typed("sweep", verb, "9")

    assert done.status == 1
    assert done.stderr.splitlines()[0] == "dibs: error: cannot find sweep 9"


def test_a_point_that_is_repeated_is_shown_by_its_mean_and_spread(daemon, typed):
    point = {"lr": "0.1", "seed": "1"}
    first = a_trial(1, point=point, values=[0.25], repeat_of=1, means=[0.3125], spreads=[0.04321])
    daemon.sweeps[1] = a_sweep(1, trials=(first, a_trial(2, point={**point, "seed": "2"}, repeat_of=1)))
    daemon.sweeps[1]["spec"] |= {"over": "seed", "repeat": 2}

    said = typed("sweep", "show").stdout
    rows = list(csv.DictReader(io.StringIO(typed("sweep", "results", "--csv").stdout)))

    assert "1      0.3125 ± 0.043  0.1" in said and "each point 2 times" in said
    assert [(row["seed"], row["repeat_of"], row["mean.loss"], row["spread.loss"]) for row in rows] == [
        ("1", "1", "0.3125", "0.04321"),
        ("2", "1", "", ""),
    ]


def test_the_csv_of_a_population_tells_what_each_trial_goes_on_from(daemon, typed):
    daemon.sweeps[1] = a_sweep(1, trials=(a_trial(1), a_trial(2, continues=1)))
    daemon.sweeps[1]["spec"]["method"] = "population"

    rows = list(csv.DictReader(io.StringIO(typed("sweep", "results", "--csv").stdout)))

    assert [row["continues"] for row in rows] == ["", "1"]
