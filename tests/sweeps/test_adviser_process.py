"""The adviser as a process: real Optuna, real lines, and kill -9 between any two of them."""

import os
import random
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from dibs.sweeps.conditions import Condition
from dibs.sweeps.space import Choice, Range
from dibs.sweeps.spec import Metric, spec_object
from stories.outside import wait_until
from sweeps.adviser_child import STUDY, Child, Search, a_spec, ended, loss


@pytest.fixture
def start(tmp_path):
    """Starts children, and sees that none stays."""
    children = []

    def begin(spec, folder=tmp_path / "a study's folder"):
        children.append(Child(folder, spec))
        return children[-1]

    yield begin
    for child in children:
        child.kill()


def the_study(child):
    """The study as any other program sees it that opens the file."""
    backend = optuna.storages.journal.JournalFileBackend(str(child.journal))
    return optuna.load_study(study_name=STUDY, storage=optuna.storages.JournalStorage(backend))


def search(child, trials):
    """Ask and tell one after another; the points."""
    points = []
    for _ in range(trials):
        (asked,) = child.ask()
        child.tell(asked["number"], loss(asked["point"]))
        points.append(asked["point"])
    return points


def test_a_search_killed_after_every_message_tries_the_same_points(tmp_path):
    spec = a_spec(where=("x * width < 100",))
    straight, killed = Search(tmp_path / "straight", spec), Search(tmp_path / "killed", spec)

    for _ in straight.messages(20):
        pass
    for _ in killed.messages(20):
        killed.kill()
    for each in (straight, killed):
        each.child.kill()

    assert killed.points == straight.points
    assert len({tuple(point.values()) for point in straight.points}) == 20


@pytest.mark.parametrize("sampler", ["cmaes", "qmc", "gp"])
def test_other_samplers_also_go_on_as_if_nothing_had_been(start, tmp_path, sampler):
    if sampler == "gp":
        pytest.importorskip("torch")
    spec = a_spec(sampler=sampler)
    points = search(open_child(start, spec, tmp_path / "straight"), 16)

    killed = open_child(start, spec, tmp_path / "killed")
    seen = search(killed, 8)
    (asked,) = killed.ask()
    killed.kill()
    again = start(spec, tmp_path / "killed")
    known = dict(enumerate(seen)) | {8: asked["point"]}
    again.open(known)
    again.tell(8, loss(asked["point"]))

    assert [*seen, asked["point"], *search(again, 7)] == points
    assert len({point["x"] for point in points}) == 16


def test_another_seed_tries_other_points(start, tmp_path):
    first, other = (search(open_child(start, a_spec(seed=seed), tmp_path / f"seed {seed}"), 3) for seed in (1, 2))

    assert not {point["x"] for point in first} & {point["x"] for point in other}


def test_a_kill_in_the_middle_of_an_answer_loses_no_trial_and_repeats_none(start, tmp_path):
    spec, chance = a_spec(), random.Random(5)
    straight = search(open_child(start, spec, tmp_path / "straight"), 15)

    known, told, kills = {}, [], 0
    child = start(spec)
    left_over = child.open()
    while len(told) < 15:
        for asked in left_over or child_answers(child, "ask", chance, count=1):
            known[asked["number"]] = asked["point"]
        left_over = []
        for number in sorted(known.keys() - {each["number"] for each in told}):
            told.append(ended(number, loss(known[number])))
            child_answers(child, "tell", chance, **told[-1])
        if child.process.poll() is not None:
            kills += 1
            child = start(spec)
            left_over = child.open(known, told)

    assert [known[number] for number in sorted(known)] == straight
    assert kills > 3


def child_answers(child, act, chance, **message):
    """What it answers, unless it is killed before: then nothing."""
    if child.process.poll() is not None:
        return []
    child.send(do=act, **message)
    if chance.random() < 0.5:
        return child.hear().get("trials", [])
    time.sleep(chance.random() * 0.01)  # somewhere in the middle of its work
    child.kill()
    return []


def test_what_was_asked_and_never_recorded_comes_first_after_a_crash(start):
    child = open_child(start, a_spec())
    recorded, lost, also_lost = child.ask(3)
    child.kill()

    again = start(a_spec())
    left_over = again.open({recorded["number"]: recorded["point"]})

    assert left_over == [lost, also_lost]
    assert again.ask()[0]["number"] == 3


def test_what_ended_while_no_adviser_ran_is_told_at_the_next_opening(start):
    child = open_child(start, a_spec())
    first, second = child.ask(2)
    child.kill()

    again = start(a_spec())
    known = {each["number"]: each["point"] for each in (first, second)}
    again.open(known, [ended(0, 0.25, steps=[(1, 0.5)]), ended(1, state="failed")])

    complete, failed = the_study(again).trials
    assert (complete.value, complete.intermediate_values) == (0.25, {1: 0.5})
    assert failed.state == TrialState.FAIL


@pytest.mark.parametrize("end", [b'{"op_code":4,"wor', b"\0\0\0\0", b'\0\0\n{"op'], ids=["half", "zeros", "both"])
def test_a_torn_line_at_the_end_of_the_journal_is_cut(start, tmp_path, end):
    spec = a_spec()
    points = search(open_child(start, spec, tmp_path / "straight"), 4)
    child = open_child(start, spec)
    known = dict(enumerate(search(child, 3)))
    child.kill()
    whole = child.journal.read_bytes()
    child.journal.write_bytes(whole + end)

    again = start(spec)
    again.open(known)

    assert child.journal.read_bytes() == whole
    assert search(again, 1) == points[3:]
    assert len(the_study(again).trials) == 4


def test_the_lock_of_a_killed_writer_blocks_no_other(start):
    child = open_child(start, a_spec())
    child.ask()
    child.kill()
    os.symlink(child.journal, f"{child.journal}.lock")

    again = start(a_spec())

    assert [each["number"] for each in again.open()] == [0]
    assert again.ask()[0]["number"] == 1


def test_a_second_adviser_waits_until_the_first_has_ended(start):
    first, second = open_child(start, a_spec()), start(a_spec())
    second.send_open()
    wait_until(lambda: waits_for_a_lock(second), show=lambda: Path("/proc/locks").read_text())

    asked = first.ask()
    first.leave()

    assert second.hear()["left_over"] == asked


def waits_for_a_lock(child):
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in words and str(child.process.pid) in words for words in lines)


def test_an_adviser_ends_with_its_input(start):
    child = open_child(start, a_spec())

    assert child.leave() == 0


def test_every_point_fulfils_the_conditions_and_the_study_holds_nothing_else(start):
    where = "x * width < 0.5 and (optimizer != 'sgd' or momentum > 0.8)"
    spec = a_spec(where=(where,))
    child = open_child(start, spec)

    points = search(child, 25)

    assert all(Condition(where, spec.names).holds(point) for point in points)
    assert [trial.state for trial in the_study(child).trials] == [TrialState.COMPLETE] * 25


def test_a_parameter_that_is_not_wanted_is_neither_drawn_nor_written(start):
    child = open_child(start, a_spec())

    points = search(child, 20)

    trials = the_study(child).trials
    assert [point["momentum"] is not None for point in points] == [p["optimizer"] == "sgd" for p in points]
    assert [("momentum" in trial.params) for trial in trials] == [p["optimizer"] == "sgd" for p in points]
    assert {point["optimizer"] for point in points} == {"sgd", "adam", None}


def test_conditions_that_no_point_fulfils_are_told_in_a_sentence(start):
    child = open_child(start, a_spec(where=("round(x, 2) == 0.001",)))

    answer = child.say(do="ask", count=1)

    assert answer["error"] == "cannot find a point to try: of 5000 drawn, none fulfils round(x, 2) == 0.001"
    assert the_study(child).trials == []


def test_a_rare_corner_is_found_at_random_where_the_sampler_does_not(start):
    spec = a_spec(parameters=(Range("x", 0, 1), Range("y", 0, 1)), where=("x > 0.98 and y > 0.9",))
    child = open_child(start, spec)

    (asked,) = child.ask()

    assert float(asked["point"]["x"]) > 0.98


def test_optuna_keeps_what_it_drew_and_the_command_gets_few_digits(start):
    spec = a_spec(
        parameters=(
            Range("lr", 1e-5, 1e-1, "log"),
            Range("drop", 0, 1, step=0.1),
            Range("layers", 2, 12, is_integer=True, step=2),
            Choice("fixed", ("only",)),
        )
    )
    child = open_child(start, spec)

    points = [asked["point"] for asked in child.ask(30)]

    for point, trial in zip(points, the_study(child).trials, strict=True):
        assert point["lr"] == spec.parameters[0].text(trial.params["lr"])
        assert len(point["lr"].replace(".", "").lstrip("0").partition("e")[0]) <= 6
        assert point["drop"] in [f"{place / 10:g}" for place in range(11)]
        assert int(point["layers"]) == trial.params["layers"] in (2, 4, 6, 8, 10, 12)
        assert trial.user_attrs["point"] == point


def test_other_programs_read_the_study_while_the_adviser_runs(start):
    child = open_child(start, a_spec(metrics=(Metric("accuracy", "max"),)))
    first, second = child.ask(2)
    child.tell(first["number"], 0.5)

    study = the_study(child)

    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert study.metric_names == ["accuracy"]
    assert study.best_value == 0.5
    assert study.trials[second["number"]].state == TrialState.RUNNING


def test_a_note_written_by_another_program_is_kept(start):
    child = open_child(start, a_spec())
    child.ask()

    the_study(child).set_user_attr("note", "looks good")
    child.ask()

    study = the_study(child)
    assert (study.user_attrs, len(study.trials)) == ({"note": "looks good"}, 2)


def test_tpe_comes_closer_than_chance(start, tmp_path):
    adaptive = search(open_child(start, a_spec(), tmp_path / "adaptive"), 60)

    late = sorted(map(loss, adaptive[30:]))
    early = sorted(map(loss, adaptive[:10]))
    assert late[15] < early[5] / 2  # the medians


def test_a_trial_that_still_runs_has_a_say_in_the_next_one(start, tmp_path):
    """One that failed has none. So beside it the next point is another than beside one that runs."""
    following = []
    for state in ("failed", "running"):
        child = open_child(start, a_spec(), tmp_path / state)
        search(child, 15)
        (asked,) = child.ask()
        if state == "failed":
            child.tell(asked["number"], state=state)
        following += child.ask()

    assert following[0]["number"] == following[1]["number"]
    assert following[0]["point"] != following[1]["point"]


def test_a_small_space_is_tried_whole_before_anything_twice(start):
    spec = a_spec(parameters=(Choice("a", ("1", "2")), Choice("b", ("1", "2", None))))
    child = open_child(start, spec)

    points = []
    for _ in range(6):
        (asked,) = child.ask()
        child.tell(asked["number"], float(asked["point"]["a"]))
        points.append(tuple(asked["point"].values()))
    (more,) = child.ask()

    assert len(set(points)) == 6
    assert tuple(more["point"].values()) in points


def test_where_all_that_is_allowed_was_tried_it_is_tried_again(start):
    many = tuple(str(number) for number in range(20))
    child = open_child(
        start, a_spec(parameters=(Choice("a", many), Choice("b", many)), where=("a == 1 and b == 1",))
    )

    points = [asked["point"] for asked in child.ask(2)]

    assert points == [{"a": "1", "b": "1"}] * 2


@pytest.mark.parametrize("sampler", ["tpe", "qmc", "nsga2"])
def test_a_search_for_several_metrics_finds_a_front(start, sampler):
    spec = a_spec(
        parameters=(Range("x", -5, 5), Choice("kind", ("a", "b"))),
        metrics=(Metric("loss"), Metric("speed", "max")),
        sampler=sampler,
    )
    child = open_child(start, spec)

    for _ in range(25):
        (asked,) = child.ask()
        x = float(asked["point"]["x"])
        child.tell(asked["number"], x**2, x - (asked["point"]["kind"] == "b"))

    front = the_study(child).best_trials
    assert len(front) > 1
    assert all(trial.params["x"] >= -0.5 for trial in front)


@pytest.mark.parametrize("pruner", ["halving", "hyperband", "median"])
def test_a_trial_far_behind_is_pruned_and_not_too_early(start, pruner):
    child = open_child(start, a_spec(pruner=pruner, prune_after=3))
    decisions = {}
    for place, asked in enumerate(child.ask(24)):
        is_bad = place >= 12
        decisions[place] = []
        for step in range(1, 10):
            decisions[place].append(child.report(asked["number"], step, 10 / step + 1000 * is_bad))
            if decisions[place][-1]:
                child.tell(asked["number"], state="pruned")
                break
        else:
            child.tell(asked["number"], 1.0)

    good = [decisions[place] for place in range(12)]
    bad = [decisions[place] for place in range(12, 24)]
    assert not any(any(each) for each in good)
    assert not any(any(each[:2]) for each in bad)
    assert sum(any(each) for each in bad) >= 6
    pruned = [trial for trial in the_study(child).trials if trial.state == TrialState.PRUNED]
    assert all(trial.value == trial.intermediate_values[trial.last_step] for trial in pruned)


@pytest.mark.parametrize("pruner", ["halving", "hyperband"])
@pytest.mark.parametrize("factor", [2, 5])
def test_trials_are_compared_again_after_so_many_times_the_steps(start, pruner, factor):
    child = open_child(start, a_spec(pruner=pruner, prune_factor=factor))
    pruned_at = []
    for place, asked in enumerate(child.ask(40)):
        for step in range(1, 17):
            fell_behind = place >= 20 and step > 1
            if child.report(asked["number"], step, 1000 if fell_behind else 0.5):
                child.tell(asked["number"], state="pruned")
                pruned_at.append(step)
                break
        else:
            child.tell(asked["number"], 0.5)

    assert min(pruned_at) == factor


def test_hyperband_whose_length_is_known_prunes_before_a_trial_is_complete(start):
    child = open_child(start, a_spec(pruner="hyperband", steps=9))

    asked = child.ask(12)
    pruned = [[child.report(one["number"], 1, place) for place, one in enumerate(asked)]]

    assert any(pruned[0])


def test_bohb_learns_from_the_trials_of_its_own_bracket_and_goes_on_after_a_kill(start, tmp_path):
    """Two searches, of which one is killed, draw the same points; tpe draws others when there are results."""
    points = {}
    for name, changes in (("whole", {}), ("killed", {}), ("tpe", {"sampler": "tpe"})):
        spec = a_spec(**{"sampler": "bohb", "pruner": "hyperband", "steps": 9, **changes})
        child = open_child(start, spec, tmp_path / name)
        points[name] = []
        for place in range(30):
            if name == "killed" and place == 25:
                child.kill()
                child = start(spec, tmp_path / name)
                child.open()
            (asked,) = child.ask()
            points[name].append(asked["point"])
            child.report(asked["number"], 1, loss(asked["point"]))
            child.tell(asked["number"], loss(asked["point"]))

    assert points["whole"] == points["killed"]
    assert points["whole"][:5] == points["tpe"][:5] and points["whole"] != points["tpe"]


def test_a_grid_can_be_pruned_too(start):
    spec = a_spec(
        method="grid",
        samples=None,
        pruner="median",
        parameters=(Choice("a", ("1", "2")), Range("b", 0, 5, is_integer=True, when="a == 1")),
    )
    child = open_child(start, spec)
    for place in range(6):
        number = child.say(do="begin", point={"a": "1", "b": str(place)})["number"]
        child.report(number, 1, 0.5)
        child.tell(number, 0.5)

    last = child.say(do="begin", point={"a": "2", "b": None})["number"]

    assert child.report(last, 1, 9.0)
    assert [trial.params for trial in the_study(child).trials[-2:]] == [{"a": "1", "b": 5}, {"a": "2"}]


def test_what_was_told_twice_or_reported_late_changes_nothing(start):
    child = open_child(start, a_spec(pruner="median"))
    child.ask()
    child.report(0, 1, 0.5)
    child.report(0, 1, 0.7)
    child.tell(0, 0.25)

    child.tell(0, 0.25)
    is_pruned = child.report(0, 2, 99)

    (trial,) = the_study(child).trials
    assert (trial.value, trial.intermediate_values, is_pruned) == (0.25, {1: 0.5}, False)


@pytest.mark.parametrize("sampler", ["tpe", "qmc", "cmaes"])
@pytest.mark.parametrize("is_integer", [True, False])
def test_steps_on_a_log_scale_are_told_to_the_study_as_they_were_run(start, sampler, is_integer):
    size = Range("size", 8, 132, "log", is_integer, 4 if is_integer else 2.5)
    spec = a_spec(parameters=(size, Range("x", -5, 5)), sampler=sampler)
    child = open_child(start, spec)

    for _ in range(12):
        (asked,) = child.ask()
        child.tell(asked["number"], abs(float(asked["point"]["size"]) - 40))

    trials = the_study(child).trials
    allowed = {size.value_at(place) for place in range(size.count)}
    assert {trial.user_attrs["point"]["size"] for trial in trials} <= allowed
    assert all(trial.params["size"] == float(trial.user_attrs["point"]["size"]) for trial in trials)
    assert len({trial.distributions["size"] for trial in trials}) == 1


def test_steps_on_a_log_scale_are_each_tried_once(start):
    spec = a_spec(parameters=(Range("size", 8, 64, "log", True, 8),), samples=8)
    child = open_child(start, spec)

    sizes = []
    for _ in range(8):
        (asked,) = child.ask()
        child.tell(asked["number"], 1.0)
        sizes.append(asked["point"]["size"])

    assert sorted(map(int, sizes)) == [8, 16, 24, 32, 40, 48, 56, 64]


def test_a_failed_trial_that_succeeds_at_its_second_attempt_counts(start):
    child = open_child(start, a_spec())
    (asked,) = child.ask()
    child.tell(0, state="failed")
    child.report(0, 1, 0.5)
    child.tell(0, 0.25)
    child.kill()

    again = start(a_spec())
    left_over = again.open({0: asked["point"]}, [ended(0, 0.25, steps=[(1, 0.5)])])

    failed, complete = the_study(again).trials
    assert (left_over, failed.state, complete.value) == ([], TrialState.FAIL, 0.25)
    assert (complete.params, complete.intermediate_values) == (failed.params, {1: 0.5})


def test_a_second_attempt_that_a_crash_interrupts_is_no_unknown_trial(start):
    child = open_child(start, a_spec())
    (asked,) = child.ask()
    child.tell(0, state="failed")
    child.report(0, 1, 0.5)
    child.kill()

    again = start(a_spec())

    assert again.open({0: asked["point"]}) == []


def test_a_lost_journal_is_written_again_from_what_the_store_knows(start):
    child = open_child(start, a_spec())
    known = dict(enumerate(search(child, 3)))
    (running,) = child.ask()
    child.kill()
    before = the_study(child).trials
    child.journal.unlink()
    over = [ended(number, loss(known[number])) for number in (0, 2)]
    del known[1]  # it was never the store's

    again = start(a_spec())
    left_over = again.open(known | {3: running["point"]}, over)

    after = the_study(again).trials
    assert left_over == []
    assert [trial.state for trial in after] == [
        TrialState.COMPLETE,
        TrialState.FAIL,
        TrialState.COMPLETE,
        TrialState.RUNNING,
    ]
    assert (after[0].value, after[2].value) == (before[0].value, before[2].value)
    assert after[0].distributions == before[0].distributions
    assert again.ask()[0]["number"] == 4


def test_a_result_that_is_none_is_refused_with_a_sentence(start):
    child = open_child(start, a_spec())
    child.ask()

    answer = child.tell(0, 1.0, 2.0)

    assert answer["error"] == "cannot record the outcome of trial 0: it needs one number for each metric"


@pytest.mark.parametrize("goal", ["min", "max"])
@pytest.mark.parametrize("others", [(), (Metric("seconds"),)], ids=["one metric", "two metrics"])
def test_importance_tells_what_matters_for_the_first_metric(start, goal, others):
    spec = a_spec(parameters=(Range("x", -5, 5), Range("y", -5, 5)), metrics=(Metric("loss", goal), *others))
    chance = random.Random(1)
    points = [{"x": f"{chance.uniform(-5, 5):.4g}", "y": f"{chance.uniform(-5, 5):.4g}"} for _ in range(60)]

    answer = importance(start(spec), spec, points, lambda x, y: [x, *(y for _ in others)])

    shares = {each["name"]: each["value"] for each in answer["importance"]}
    assert list(shares) == ["x", "y"]
    assert shares["x"] > 0.7
    assert sum(shares.values()) == pytest.approx(1)
    assert answer["why"] == ""


@pytest.mark.parametrize(("goal", "first"), [("min", "x"), ("max", "y")])
@pytest.mark.parametrize("others", [(), (Metric("seconds"),)], ids=["one metric", "two metrics"])
def test_what_matters_is_what_the_best_trials_have_in_common(start, goal, first, others):
    """Here the low results are told apart by x, and the high ones by y."""
    spec = a_spec(parameters=(Range("x", -5, 5), Range("y", -5, 5)), metrics=(Metric("loss", goal), *others))
    chance = random.Random(1)
    points = [{"x": f"{chance.uniform(-5, 5):.4g}", "y": f"{chance.uniform(-5, 5):.4g}"} for _ in range(200)]

    answer = importance(start(spec), spec, points, lambda x, y: [x if x < 0 else 10 + y, *(1.0 for _ in others)])

    assert answer["importance"][0]["name"] == first


@pytest.mark.parametrize(
    ("count", "worth", "why"),
    [
        (3, lambda x, y: [x], "importance needs 4 complete trials, and there are 3"),
        (5, lambda x, y: [1.0], "every trial came to the same value, so no parameter matters yet"),
    ],
)
def test_where_nothing_can_be_said_about_importance_it_says_why(start, count, worth, why):
    spec = a_spec(parameters=(Range("x", 0, 9), Range("y", 0, 9)))
    points = [{"x": str(place), "y": "1"} for place in range(count)]

    assert importance(start(spec), spec, points, worth) == {"importance": [], "why": why}


def importance(child, spec, points, worth):
    trials = [{"point": point, "values": worth(*map(float, point.values()))} for point in points]
    return child.say(do="importance_of", spec=spec_object(spec), trials=trials)


def test_parameters_with_one_value_matter_to_nothing(start):
    spec = a_spec(method="grid", samples=None, parameters=(Choice("a", ("1",)), Choice("b", ("1",))))

    values = iter(range(5))

    answer = importance(start(spec), spec, [{"a": "1", "b": "1"}] * 5, lambda a, b: [next(values)])

    assert answer == {"importance": [], "why": "every parameter has one value only"}


def test_importance_of_choices(start):
    spec = a_spec(method="grid", samples=None, parameters=(Choice("a", ("1", "2", "3")), Choice("b", ("1", "2"))))
    points = [{"a": a, "b": b} for a in "123" for b in "12"]

    answer = importance(start(spec), spec, points, lambda a, b: [a])

    assert [each["name"] for each in answer["importance"]] == ["a", "b"]


def test_a_gaussian_process_searches_where_torch_is_installed(start):
    pytest.importorskip("torch")
    child = open_child(start, a_spec(sampler="gp"))

    points = search(child, 14)

    assert min(map(loss, points[10:])) < sorted(map(loss, points[:10]))[5]


def open_child(start, spec, *folder):
    """A child that stands at the beginning of its study."""
    child = start(spec, *folder)
    assert child.open() == []
    return child
