"""The launcher: every job of a multirun is a job of the queue, and comes back with what its function returned."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.errors import CompactHydraException, HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

# To import it is to register it; Hydra 1.4 imports this module alone.
from hydra_plugins.dibs_launcher.config import DibsLauncherConf as DibsLauncherConf
from hydra_plugins.dibs_launcher.inside import MultirunJob

if TYPE_CHECKING:
    from dibs.api.job import Job
    from dibs.errors import DibsError

log = logging.getLogger(__name__)


class BegunJob(NamedTuple):
    """A job of a multirun that is in the queue."""

    number: int  # in the multirun
    job: "Job"
    config: DictConfig


class DibsLauncher(Launcher):
    """Puts the jobs of a multirun into the queue and waits for them.

    Who interrupts it leaves them there: it is told how they are ended.
    """

    def __init__(self, array_parallelism: int | None = None, **wishes: Any) -> None:
        self._most = array_parallelism  # jobs of one multirun at once
        self._wishes = {
            word: OmegaConf.to_container(wish) if OmegaConf.is_config(wish) else wish
            for word, wish in wishes.items()
        }
        self._context: HydraContext | None = None
        self._function: TaskFunction | None = None
        self._config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._context, self._function, self._config = hydra_context, task_function, config

    def begin(self, overrides: Sequence[str], number: int) -> BegunJob:
        """Put one job into the queue, for a sweeper that waits for each by itself, after `make_ready`."""
        config = self._composed(overrides, number)
        [job] = self._add([config], [" ".join(filter_overrides(overrides))])
        return BegunJob(number, job, config)

    def finish(self, one: BegunJob) -> JobReturn:
        """What a job that is over gave back."""
        return _result(one.job, one.config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        self.make_ready()
        configs = [
            self._composed(overrides, number) for number, overrides in enumerate(job_overrides, initial_job_idx)
        ]
        shown = [" ".join(filter_overrides(overrides)) for overrides in job_overrides]
        jobs = self._add(configs, shown)
        log.info(f"dibs has {len(jobs)} jobs in its queue")
        for number, (job, overrides) in enumerate(zip(jobs, shown, strict=True), initial_job_idx):
            log.info(f"\t#{number} : {overrides} : job {job.id}")
        return _wait(jobs, configs)

    def make_ready(self) -> None:
        """Set up Hydra's log and the folder of the multirun."""
        assert self._config is not None
        setup_globals()
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        Path(self._config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)

    def _composed(self, overrides: Sequence[str], number: int) -> DictConfig:
        """The job's config as it is now: who edits a file while the job waits does not change it."""
        assert self._config is not None and self._context is not None
        config = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(config):
            config.hydra.job.num = number
        return config

    def _add(self, configs: Sequence[DictConfig], shown: Sequence[str]) -> "list[Job]":
        """All of them, or none."""
        from dibs.api.call_submitter import CallSubmitter
        from dibs.errors import DibsError
        from dibs.plugins.shipping import ship

        assert self._config is not None and self._context is not None and self._function is not None
        name = self._wishes.get("name") or self._config.hydra.job.name
        commands = [f"{name} {overrides}".rstrip() for overrides in shown]
        run = MultirunJob(self._function, self._context, Singleton.get_state())
        try:
            calls = CallSubmitter({**self._wishes, "name": name}, most=self._most)
            return ship(run, configs, commands, calls)
        except DibsError as error:
            raise _told(error) from error


def _wait(jobs: "Sequence[Job]", configs: Sequence[DictConfig]) -> list[JobReturn]:
    try:
        for job in jobs:
            job.wait()
    except KeyboardInterrupt:
        log.warning(f"the jobs go on; to end them: dibs kill {jobs[0].id}-{jobs[-1].id}")
        raise
    return [_result(job, config) for job, config in zip(jobs, configs, strict=True)]


def _result(job: "Job", config: DictConfig) -> JobReturn:
    """What the job gave back; a failure is for the sweeper to find, as with Hydra's own launchers."""
    from dibs.errors import DibsError
    from dibs.plugins.shipping import collect

    try:
        done: JobReturn = collect(job)
        return done
    except Exception as error:
        done = JobReturn(
            overrides=OmegaConf.to_container(config.hydra.overrides.task),  # type: ignore[arg-type]
            cfg=OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]),
            hydra_cfg=OmegaConf.masked_copy(config, ["hydra"]),
            task_name=config.hydra.job.name,
            status=JobStatus.FAILED,
        )
        done.return_value = _told(error) if isinstance(error, DibsError) else error.with_traceback(None)
        return done


def _told(error: "DibsError") -> HydraException:
    """Hydra prints this one as it is, without a traceback."""
    return CompactHydraException("\n".join(filter(None, (str(error), error.remedy))))
