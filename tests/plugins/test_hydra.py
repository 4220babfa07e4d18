"""`--multirun hydra/launcher=dibs`: a real Hydra application, the real daemon, two declared GPUs."""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from stories.outside import Finished, Running, World, wait_until

APP = """
import json, os, pathlib, sys, time
import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

OmegaConf.register_new_resolver("twice", lambda number: 2 * number)

@hydra.main(version_base=None, config_path=".", config_name="config")
def train(config):
    place = HydraConfig.get()
    seen = {"num": place.job.num, "id": place.job.id, "mode": place.mode.name, "gpus": os.environ["DIBS_GPUS"]}
    pathlib.Path(place.runtime.output_dir, "seen.json").write_text(json.dumps(seen))
    if config.do == "raise":
        raise ValueError(f"x is {config.x}")
    if config.do == "die":
        os._exit(3)
    if config.do == "sleep":
        time.sleep(600)
    return config.x * config.scale

if __name__ == "__main__":
    train()
"""
# Two batches, the second made of what the first one gave back: what every sweeper that searches does.
SWEEPER = """
from dataclasses import dataclass
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

@dataclass
class ClimberConf:
    _target_: str = "hydra_plugins.climber.Climber"

ConfigStore.instance().store(group="hydra/sweeper", name="climber", node=ClimberConf)

class Climber(Sweeper):
    def setup(self, *, hydra_context, task_function, config):
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments):
        first = self.launcher.launch([["x=2"], ["x=5"]], initial_job_idx=0)
        best = max(done.return_value for done in first)
        [last] = self.launcher.launch([[f"x={best}"]], initial_job_idx=2)
        print("climbed to", last.return_value, "by", last.overrides)
"""


@pytest.fixture
def app(here: Path) -> Path:
    (here / "app.py").write_text(APP)
    (here / "config.yaml").write_text("x: 1\nscale: ${twice:5}\ndo: ''\n")
    return here


def start(queue: World, app: Path, *words: str, **more: Any) -> Running:
    line = ("--multirun", "hydra/launcher=dibs", *words)
    return queue.start(*line, program=(sys.executable, "app.py"), cwd=app, **more)


def run(queue: World, app: Path, *words: str, **more: Any) -> Finished:
    return start(queue, app, *words, **more).wait(120)


def latest(queue: World, count: int) -> list[dict[str, Any]]:
    """The jobs that were added last, in the order of their numbers."""
    return queue.client().page(order="newest", limit=count)["jobs"][::-1]


def test_each_job_of_a_multirun_is_a_job_of_the_queue_with_hydras_folder(queue: World, app: Path) -> None:
    client = queue.client()
    client.pause()
    added = len(list(client.jobs()))
    running = start(queue, app, "x=1,2", "hydra.launcher.project=folders", "hydra.launcher.array_parallelism=2")
    wait_until(lambda: len(list(client.jobs())) == added + 2, show=lambda: running.stderr)
    # What changes while they wait is no business of theirs: neither the file nor the clock.
    (app / "config.yaml").write_text("x: 7\nscale: 0\n")
    second = int(time.time())
    wait_until(lambda: int(time.time()) > second)
    client.unpause()
    ended = running.wait(120)

    assert ended.status == 0, ended
    jobs = latest(queue, 2)
    assert [(job["name"], job["command"], job["state"]) for job in jobs] == [
        ("app", "app x=1", "succeeded"),
        ("app", "app x=2", "succeeded"),
    ]
    assert [(job["array"]["task"], job["array"]["most"]) for job in jobs] == [(1, 2), (2, 2)]
    [sweep] = [path.parent for path in app.glob("multirun/*/*/multirun.yaml")]
    for number, job in enumerate(jobs):
        folder = sweep / str(number)
        assert yaml.safe_load((folder / ".hydra/overrides.yaml").read_text()) == [f"x={number + 1}"]
        assert yaml.safe_load((folder / ".hydra/config.yaml").read_text())["scale"] == "${twice:5}"
        assert (folder / "app.log").exists()
        assert json.loads((folder / "seen.json").read_text()) == {
            "num": number,
            "id": str(job["id"]),
            "mode": "MULTIRUN",
            "gpus": str(job["gpus"][0]),
        }
        assert f"#{number} : x={number + 1} : job {job['id']}" in ended.stdout
        assert job["words"][-2] == f"--train:{app / 'app.py'}"  # another application is of another shape


def test_a_sweeper_gets_what_the_functions_returned(queue: World, app: Path) -> None:
    (app / "hydra_plugins").mkdir()
    (app / "hydra_plugins" / "climber.py").write_text(SWEEPER)

    ended = run(queue, app, "hydra/sweeper=climber", env={"PYTHONPATH": str(app)})

    assert ended.status == 0, ended
    assert "climbed to 500 by ['x=50']" in ended.stdout
    [folder] = [path.parent for path in app.glob("multirun/*/*/2/seen.json")]
    assert yaml.safe_load((folder / ".hydra/overrides.yaml").read_text()) == ["x=50"]


def test_a_function_that_raises_is_reported_as_hydra_does_and_its_job_has_failed(queue: World, app: Path) -> None:
    ended = run(queue, app, "x=1,2", "do=raise")

    assert ended.status == 1
    assert "Error executing job with overrides: ['x=1', 'do=raise']" in ended.stderr
    assert "ValueError: x is 1" in ended.stderr
    assert [job["state"] for job in latest(queue, 2)] == ["failed", "failed"]
    assert "ValueError: x is 2" in queue.dibs("log", "--err", "@").stdout


def test_a_job_that_dies_is_told_of_in_a_sentence(queue: World, app: Path) -> None:
    ended = run(queue, app, "do=die")

    assert ended.status == 1
    [job] = latest(queue, 1)
    assert f"job {job['id']} (app) failed" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_wishes_stand_in_the_config_of_the_launcher(queue: World, app: Path) -> None:
    wishes = ["num_gpus=2", "time=2h", "priority=3", "project=vision", "tags=[a,b]", "only=[0,1]", "name=big"]
    wishes += ["+env.SEED=3", "mem=1G", "retries=1"]

    ended = run(queue, app, *(f"{'+' * word.startswith('+')}hydra.launcher.{word.lstrip('+')}" for word in wishes))

    assert ended.status == 0, ended
    [job] = latest(queue, 1)
    assert {
        key: job[key] for key in ("name", "num_gpus", "time_limit_seconds", "priority", "project", "tags")
    } == {
        "name": "big",
        "num_gpus": 2,
        "time_limit_seconds": 7200.0,
        "priority": 3,
        "project": "vision",
        "tags": ["a", "b"],
    }
    assert (job["env"], job["mem_bytes"], job["retries"], job["only"]) == ({"SEED": "3"}, 2**30, 1, ["0", "1"])


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("num_gpus=3", "it wants 3 GPUs, but only 2 may be used"),
        ("vram=lots", "cannot read 'lots' as vram"),
    ],
)
def test_a_wish_that_cannot_be_meant_is_refused_in_a_sentence(
    queue: World, app: Path, wish: str, said: str
) -> None:
    before = sorted((queue.state / "queue" / "calls").glob("*"))

    ended = run(queue, app, f"hydra.launcher.{wish}")

    assert ended.status == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted((queue.state / "queue" / "calls").glob("*")) == before


def test_who_interrupts_leaves_the_jobs_and_is_told_how_to_end_them(queue: World, app: Path) -> None:
    running = start(queue, app, "x=1,2", "do=sleep")
    wait_until(lambda: len(list(app.glob("multirun/*/*/*/seen.json"))) == 2, show=lambda: running.stderr)
    first, last = (job["id"] for job in latest(queue, 2))

    running.signal(signal.SIGINT)
    ended = running.wait()

    assert ended.status != 0
    assert f"the jobs go on; to end them: dibs kill {first}-{last}" in ended.stdout
    assert [job["state"] for job in latest(queue, 2)] == ["running", "running"]
    assert queue.dibs("kill", f"{first}-{last}").status == 0
    queue.wait_for(first, last)


# -- the sweeper -------------------------------------------------------------------------------------------

SEARCHED = """
import hydra

@hydra.main(version_base=None, config_path=".", config_name="config")
def train(config):
    if config.do == "raise":
        raise ValueError("this cannot be trained")
    if config.do == "text":
        return "good"
    return (config.x - 3) ** 2 + config.model.layers

if __name__ == "__main__":
    train()
"""
CONFIG = """
defaults: [{model: small}, _self_]
x: 1
lr: 1
do: ''
hydra:
  sweeper:
    params: {lr: "tag(log, interval(1e-5, 0.1))", x: "range(0, 3)"}
"""


@pytest.fixture
def searched(here: Path) -> Path:
    (here / "app.py").write_text(SEARCHED)
    (here / "config.yaml").write_text(CONFIG)
    (here / "model").mkdir()
    for name, layers in (("small", 1), ("large", 5)):
        (here / "model" / f"{name}.yaml").write_text(f"layers: {layers}\n")
    return here


def search(queue: World, app: Path, *words: str) -> Finished:
    line = ("--multirun", "hydra/sweeper=dibs", *words)
    return queue.start(*line, program=(sys.executable, "app.py"), cwd=app).wait(120)


def test_the_sweeper_searches_ranges_and_config_groups_with_todays_optuna(queue: World, searched: Path) -> None:
    words = ["model=glob(*)", "x=range(0,7)", "hydra.sweeper.n_trials=6", "hydra.sweeper.seed=1"]

    ended = search(queue, searched, *words, "hydra/launcher=dibs", "hydra.launcher.num_gpus=0")

    assert ended.status == 0, ended
    [folder] = [path.parent for path in searched.glob("multirun/*/*/optimization_results.yaml")]
    found = yaml.safe_load((folder / "optimization_results.yaml").read_text())
    best = found["best_evaluated_params"]
    assert set(best) == {"lr", "x", "model"} and best["model"] in ("small", "large")
    assert found["best_value"] == (best["x"] - 3) ** 2 + {"small": 1, "large": 5}[best["model"]]
    tried = [yaml.safe_load((folder / str(number) / ".hydra/config.yaml").read_text()) for number in range(6)]
    assert min((one["x"] - 3) ** 2 + one["model"]["layers"] for one in tried) == found["best_value"]
    assert all(1e-5 <= one["lr"] <= 0.1 for one in tried)
    jobs = latest(queue, 6)
    assert {job["state"] for job in jobs} == {"succeeded"} and "model=" in jobs[0]["command"]
    # Each result is told when it is there.
    assert all(f" : job {job['id']}" in ended.stdout for job in jobs) and "best parameters" in ended.stdout


@pytest.mark.parametrize(("do", "said"), [("raise", "this cannot be trained"), ("text", "'good', not a number")])
def test_a_search_whose_first_trials_fail_ends_with_a_sentence(
    queue: World, searched: Path, do: str, said: str
) -> None:
    ended = search(queue, searched, f"do={do}", "hydra.sweeper.n_jobs=1", "hydra.sweeper.n_trials=9")

    assert ended.status == 1
    assert "the first 3 trials failed" in ended.stderr and said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_study_that_is_kept_goes_on(queue: World, searched: Path) -> None:
    kept = (
        "hydra.sweeper.storage=sqlite:///study.db",
        "hydra.sweeper.study_name=mine",
        "hydra.sweeper.n_trials=1",
    )

    first, second = search(queue, searched, *kept), search(queue, searched, *kept, "hydra.sweeper.sampler=random")

    assert (first.status, second.status) == (0, 0), (first, second)
    import optuna

    study = optuna.load_study(study_name="mine", storage=f"sqlite:///{searched}/study.db")
    assert len(study.trials) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hydra.sweeper.params=null"], "there is nothing to search"),
        (["hydra.sweeper.sampler=magic"], "there are tpe, gp, cmaes, qmc, nsgaii, random"),
        (["hydra.sweeper.direction=up"], "cannot make the study"),
        (["hydra.sweeper.n_jobs=0"], "whole numbers from 1"),
        (["x=tag(log,interval(0,1))"], "cannot search x=tag(log,interval(0,1))"),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused_in_a_sentence(
    queue: World, searched: Path, words: list[str], said: str
) -> None:
    ended = search(queue, searched, *words)

    assert ended.status == 1
    assert said in ended.stderr and "Traceback" not in ended.stderr, ended.stderr
