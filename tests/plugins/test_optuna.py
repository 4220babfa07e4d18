"""A user's own study: its trials as jobs of the queue, and commands that are asked and told about."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState

import dibs
from stories.outside import World, wait_until


@pytest.fixture
def study(here: Path) -> Iterator[optuna.Study]:
    """By a path that is relative: jobs run in the folder of the script."""
    storage = JournalStorage(JournalFileBackend("study.journal"))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield optuna.create_study(study_name="mine", storage=storage)
    optuna.logging.set_verbosity(optuna.logging.INFO)


def test_every_trial_is_a_job_with_its_gpu_and_the_study_knows_what_came_of_it(
    queue: World, study: optuna.Study
) -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", -10, 10)
        trial.set_user_attr("gpu", int(os.environ["DIBS_GPUS"]))
        trial.set_user_attr("job", int(os.environ["DIBS_JOB_ID"]))
        return x**2

    dibs.optimize(study, objective, n_trials=2, name="squares")
    dibs.optimize(study, objective, n_trials=2, parallel=2, name="squares")

    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 4
    assert [trial.value for trial in study.trials] == [trial.params["x"] ** 2 for trial in study.trials]
    assert len({trial.params["x"] for trial in study.trials}) == 4  # each draws for itself
    jobs = [queue.client().job(trial.user_attrs["job"]) for trial in study.trials]
    assert [(job["name"], job["command"]) for job in jobs] == [
        ("squares", f"trial {number} of mine") for number in range(4)
    ]
    assert [job["gpus"] for job in jobs] == [[trial.user_attrs["gpu"]] for trial in study.trials]


def test_a_pruned_trial_is_pruned_and_its_job_has_not_failed(queue: World, here: Path) -> None:
    study = optuna.create_study(storage="sqlite:///study.db", pruner=optuna.pruners.ThresholdPruner(upper=1))

    def objective(trial: optuna.Trial) -> float:
        for step in range(3):
            trial.report(float(step), step)
            if trial.should_prune():
                raise optuna.TrialPruned(f"at step {step}")
        return 0.0

    dibs.optimize(study, objective, n_trials=1, project="pruned")

    [trial] = study.trials
    assert (trial.state, trial.intermediate_values) == (TrialState.PRUNED, {0: 0.0, 1: 1.0, 2: 2.0})
    assert [job["state"] for job in queue.client().jobs(project="pruned")] == ["succeeded"]


def test_an_exception_fails_its_trial_and_is_raised_unless_it_is_caught(queue: World, study: optuna.Study) -> None:
    def objective(trial: optuna.Trial) -> float:
        raise ZeroDivisionError(f"in trial {trial.number}")

    dibs.optimize(study, objective, n_trials=1, catch=ZeroDivisionError, project="failing")
    with pytest.raises(ZeroDivisionError, match="in trial 1"):
        dibs.optimize(study, objective, n_trials=1, project="failing")

    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 2
    assert [job["state"] for job in queue.client().jobs(project="failing")] == ["failed"] * 2


def test_a_job_that_dies_fails_its_trial(study: optuna.Study) -> None:
    with pytest.raises(dibs.JobFailed, match="exit code 3"):
        dibs.optimize(study, lambda trial: os._exit(3), n_trials=1)

    assert [trial.state for trial in study.trials] == [TrialState.FAIL]


def test_optunas_own_ways_to_stop_work(study: optuna.Study) -> None:
    study.sampler = optuna.samplers.GridSampler({"x": [1, 2]})

    dibs.optimize(study, lambda trial: trial.suggest_int("x", 1, 2), parallel=1)  # until the grid is done
    dibs.optimize(study, lambda trial: 0.0, callbacks=[MaxTrialsCallback(3)])

    assert sorted(trial.value for trial in study.trials) == [0.0, 1.0, 2.0]


def test_a_study_in_memory_is_refused_with_a_way_out(here: Path) -> None:
    with pytest.raises(dibs.BadInput, match="a study in memory") as refused:
        dibs.optimize(optuna.create_study(), lambda trial: 0.0, n_trials=1)

    assert "sqlite:///" in refused.value.remedy


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"num_gpus": 9}, "9"),
        ({"vram": "many"}, "many"),
        ({"n_jobs": 2, "parallel": 3}, "n_jobs"),
        ({"n_jobs": 0}, "0 trials at once"),
        ({"after": "nobody"}, "nobody"),
        ({"objective": "has a lock"}, "pickled"),
    ],
)
def test_what_cannot_run_is_refused_before_the_study_is_asked(
    study: optuna.Study, wishes: dict[str, object], sentence: str
) -> None:
    objective = Unsendable() if wishes.pop("objective", None) else (lambda trial: 0.0)

    with pytest.raises(dibs.DibsError, match=sentence):
        dibs.optimize(study, objective, n_trials=1, **wishes)  # type: ignore[arg-type]

    assert study.trials == []


class Unsendable:
    """An objective that holds something no other process can have."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, trial: optuna.Trial) -> float:
        return 0.0


def test_n_jobs_is_optunas_word_for_parallel_and_minus_one_is_no_limit_but_the_gpus(study: optuna.Study) -> None:
    def both(trial: optuna.Trial) -> float:
        (mine, other) = (trial.number, 1 - trial.number)
        Path(f"here-{mine}").touch()
        while not Path(f"here-{other}").exists():
            time.sleep(0.02)
        return 0.0

    dibs.optimize(study, both, n_trials=2, n_jobs=-1, num_gpus=0, time="60s")

    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2


def test_a_warm_trial_of_a_database_imports_nothing_of_optuna_itself(here: Path) -> None:
    study = optuna.create_study(storage="sqlite:///study.db")

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        imported = list(sys.modules)  # in their order; the last that is warm was named by us
        later = {name.partition(".")[0] for name in imported[imported.index("colorsys") :]}
        trial.set_user_attr("later", sorted(later & {"optuna", "sqlalchemy", "alembic", "numpy", "cloudpickle"}))
        return x

    dibs.optimize(study, objective, n_trials=1, num_gpus=0, warm="colorsys")

    [trial] = study.trials
    assert trial.user_attrs["later"] == []


def test_an_interrupt_ends_the_trials_that_run(queue: World, here: Path, study: optuna.Study) -> None:
    (here / "script.py").write_text(
        "import time, optuna, dibs\n"
        "study = optuna.load_study(study_name='mine', storage=optuna.storages.JournalStorage(\n"
        "    optuna.storages.journal.JournalFileBackend('study.journal')))\n"
        "def objective(trial):\n"
        "    open(f'began-{trial.number}', 'w').close()\n"
        "    time.sleep(600)\n"
        "dibs.optimize(study, objective, n_trials=4, parallel=2, project='interrupted')\n"
    )
    running = queue.start(program=(sys.executable, "script.py"), cwd=here)
    wait_until(lambda: len(list(here.glob("began-*"))) == 2, show=lambda: running.stderr)

    running.signal(signal.SIGINT)
    ended = running.wait()

    assert ended.status != 0
    assert "KeyboardInterrupt" in ended.stderr
    assert [job["state"] for job in queue.client().jobs(project="interrupted")] == ["cancelled"] * 2
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 2


def test_who_does_not_hear_interrupts_keeps_its_trials(study: optuna.Study) -> None:
    script = os.getpid()

    def interrupts(trial: optuna.Trial) -> float:
        os.kill(script, signal.SIGINT)
        time.sleep(1)  # long enough to be ended by whoever heard it
        return 1.0

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what goes on in the background
    try:
        dibs.optimize(study, interrupts, n_trials=1)
    finally:
        signal.signal(signal.SIGINT, before)

    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE]


def test_a_study_in_memory_asks_and_tells_about_commands(here: Path) -> None:
    study = optuna.create_study()
    asked = [study.ask() for _ in range(2)]
    commands = [f'echo val_loss={trial.suggest_float("x", 0, 1)} >> "$DIBS_METRICS"' for trial in asked]
    jobs = [dibs.submit(command) for command in commands]

    for trial, job in zip(asked, jobs, strict=True):
        study.tell(trial, job.metric("val_loss"))

    assert [trial.value for trial in study.trials] == [trial.params["x"] for trial in study.trials]


def test_the_metric_of_a_job_is_the_last_one_that_it_reported(here: Path) -> None:
    several = dibs.submit('for i in 1 2 3; do echo "loss=$i.5 step=$i" >> "$DIBS_METRICS"; done')
    nonsense = dibs.submit('echo loss=nan >> "$DIBS_METRICS"')
    silent, failed = dibs.submit("true"), dibs.submit("exit 4")

    assert several.metric("loss") == 3.5
    for job, why in (
        (several, "accuracy was not reported"),
        (silent, "was not reported"),
        (failed, "exit code 4"),
    ):
        with pytest.raises(dibs.JobFailed, match=why):
            job.metric("accuracy")
    with pytest.raises(dibs.JobFailed, match="loss is nan"):
        nonsense.metric("loss")
