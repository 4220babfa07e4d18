"""Inside a job: the multirun's state as it was, and Hydra's own way to run one job of it."""

import os
from dataclasses import dataclass
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


@dataclass(frozen=True)
class MultirunJob:
    """One job of a multirun. What its function raises is raised here too, so that the queue sees it fail."""

    func: TaskFunction
    context: HydraContext
    state: Any  # of Hydra's singletons, where the multirun was started

    def __call__(self, config: DictConfig) -> JobReturn:
        setup_globals()
        Singleton.set_state(self.state)
        with open_dict(config):
            config.hydra.job.id = os.environ["DIBS_JOB_ID"]
        done = run_job(
            hydra_context=self.context,
            task_function=self.func,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        _ = done.return_value
        return done
