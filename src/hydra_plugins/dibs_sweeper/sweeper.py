"""The sweeper: asks an Optuna study for points, keeps `n_jobs` of them in the queue, and tells it each result."""

import logging
import queue
import threading
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import CompactHydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.dibs_launcher.launcher import BegunJob, DibsLauncher
from hydra_plugins.dibs_sweeper.config import DibsSweeperConf as DibsSweeperConf
from hydra_plugins.dibs_sweeper.space import chosen_overrides, split_overrides

if TYPE_CHECKING:
    import optuna

log = logging.getLogger(__name__)

_ALL_FAILED = 3  # the first trials, after which a search ends whose every trial fails
_SAMPLERS = {
    "tpe": "TPESampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "qmc": "QMCSampler",
    "nsgaii": "NSGAIISampler",
    "random": "RandomSampler",
}


class DibsSweeper(Sweeper):
    """Searches the ranges of a multirun, with every trial as a job of the queue."""

    def __init__(
        self,
        *,
        n_trials: int,
        n_jobs: int,
        direction: Any,
        sampler: str,
        seed: int | None,
        study_name: str | None,
        storage: str | None,
        params: Any,
    ) -> None:
        if n_trials < 1 or n_jobs < 1:
            raise CompactHydraException("hydra.sweeper.n_trials and n_jobs are whole numbers from 1")
        if sampler not in _SAMPLERS:
            raise CompactHydraException(f"hydra.sweeper.sampler is {sampler!r}; there are {', '.join(_SAMPLERS)}")
        self._n_trials, self._n_jobs = n_trials, n_jobs
        directions = OmegaConf.to_container(direction) if OmegaConf.is_config(direction) else [direction]
        self._directions: Any = [str(one) for one in directions]  # type: ignore[union-attr]
        self._sampler, self._seed = sampler, seed
        self._study_name, self._storage = study_name, storage
        self._params = dict(params or {})
        self._config: DictConfig | None = None
        self._launcher: DibsLauncher | None = None
        self._context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._config, self._context = config, hydra_context
        target = config.hydra.launcher._target_
        if target.endswith(".BasicLauncher"):  # none was chosen
            self._launcher = DibsLauncher()
            self._launcher.setup(hydra_context=hydra_context, task_function=task_function, config=config)
            return
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        if not isinstance(launcher, DibsLauncher):
            raise CompactHydraException(
                f"hydra/sweeper=dibs places its trials with hydra/launcher=dibs, not with {target}"
            )
        self._launcher = launcher

    def sweep(self, arguments: list[str]) -> None:
        assert self._config is not None and self._context is not None
        study = self._study()
        given = [f"{key}={value}" for key, value in self._params.items()]
        parser = OverridesParser.create(config_loader=self._context.config_loader)
        # What was typed takes the place of what the config has.
        by_key = {one.get_key_element(): one for one in parser.parse_overrides([*given, *arguments])}
        space, fixed = split_overrides(by_key.values())
        if not space:
            raise CompactHydraException(
                "there is nothing to search: write lr=interval(0.01,0.1), layers=range(1,8) or model=choice(a,b)"
            )
        folder = Path(self._config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self._config, folder / "multirun.yaml")
        try:
            _Search(study, space, fixed, self._launcher, self._n_trials, self._n_jobs).run()
        finally:
            _save_results(study, folder / "optimization_results.yaml")

    def _study(self) -> "optuna.Study":
        try:
            import optuna
        except ImportError:
            raise CompactHydraException(
                "hydra/sweeper=dibs needs Optuna: pip install 'dibs[hydra,sweeps]'"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = getattr(optuna.samplers, _SAMPLERS[self._sampler])
        more = {"constant_liar": True} if self._sampler == "tpe" else {}  # trials that run count, too
        try:
            return optuna.create_study(
                study_name=self._study_name,
                storage=self._storage,
                sampler=sampler(seed=self._seed, **more),
                directions=self._directions,
                load_if_exists=True,
            )
        except ValueError as error:
            raise CompactHydraException(f"cannot make the study: {error}") from None


class _Search:
    def __init__(
        self, study: Any, space: Any, fixed: Any, launcher: "DibsLauncher | None", n_trials: int, n_jobs: int
    ) -> None:
        assert launcher is not None
        self._study, self._space, self._fixed, self._launcher = study, space, fixed, launcher
        self._n_trials, self._n_jobs = n_trials, n_jobs
        self._ended: queue.SimpleQueue[tuple[BegunJob, Any]] = queue.SimpleQueue()
        self._open: list[BegunJob] = []
        self._failed = self._has_result = 0

    def run(self) -> None:
        self._launcher.make_ready()
        begun = 0
        try:
            while begun < self._n_trials or self._open:
                while begun < self._n_trials and len(self._open) < self._n_jobs:
                    self._begin(begun)
                    begun += 1
                self._end(*self._ended.get())
        except KeyboardInterrupt:
            numbers = " ".join(str(one.job.id) for one in self._open)
            log.warning(f"the trials that run go on; to end them: dibs kill {numbers}")
            raise
        if not self._has_result:
            raise CompactHydraException("no trial has a result")

    def _begin(self, number: int) -> None:
        trial = self._study.ask(self._space)
        overrides = chosen_overrides(self._space, trial.params)
        one = self._launcher.begin([*self._fixed, *overrides], number)
        self._open.append(one)
        log.info(f"\t#{number} : {' '.join(overrides)} : job {one.job.id}")
        # A daemon, so that Ctrl-C need not wait for it.
        threading.Thread(target=self._wait, args=(one, trial), daemon=True).start()

    def _wait(self, one: BegunJob, trial: Any) -> None:
        try:
            one.job.wait()
        finally:
            self._ended.put((one, trial))

    def _end(self, one: BegunJob, trial: Any) -> None:
        self._open.remove(one)
        done = self._launcher.finish(one)
        values, problem = _values(done, len(self._study.directions))
        if values is not None:
            self._study.tell(trial, values)
            self._has_result += 1
            best = f", best {self._study.best_value:g}" if len(values) == 1 else ""
            log.info(f"\t#{one.number} : {' '.join(f'{value:g}' for value in values)}{best} : job {one.job.id}")
            return
        from optuna.trial import TrialState

        is_pruned = type(problem).__name__ == "TrialPruned"
        self._study.tell(trial, state=TrialState.PRUNED if is_pruned else TrialState.FAIL)
        self._failed += not is_pruned
        log.warning(f"\t#{one.number} : {'pruned' if is_pruned else f'failed: {problem}'} : job {one.job.id}")
        if self._failed >= _ALL_FAILED and not self._has_result:
            raise CompactHydraException(
                f"the first {self._failed} trials failed; `dibs log {one.job.id}` shows the last one: {problem}"
            )


def _values(done: JobReturn, count: int) -> tuple[list[float] | None, Any]:
    """The numbers that the function returned, or why there are none."""
    try:
        found = done.return_value
    except Exception as error:
        return None, error
    values = list(found) if isinstance(found, Sequence) and not isinstance(found, str) else [found]
    values = [value.item() if hasattr(value, "item") else value for value in values]
    if len(values) != count or not all(isinstance(value, Real) and value == value for value in values):
        what = "a number" if count == 1 else f"{count} numbers"
        return None, f"the function returned {found!r:.60}, not {what}"
    return [float(value) for value in values], None


def _save_results(study: "optuna.Study", path: Path) -> None:
    """The best, in the words of hydra-optuna-sweeper."""
    if len(study.directions) == 1:
        if not any(trial.values for trial in study.get_trials(deepcopy=False)):
            return
        found: dict[str, Any] = {
            "name": "optuna",
            "best_evaluated_params": study.best_params,
            "best_value": study.best_value,
        }
        log.info(f"best parameters: {study.best_params}")
        log.info(f"best value: {study.best_value:g}")
    else:
        front = [{"params": trial.params, "values": list(trial.values)} for trial in study.best_trials]
        found = {"name": "optuna", "solutions": front}
        log.info(f"{len(front)} trials are on the front")
    OmegaConf.save(OmegaConf.create(found), path)
