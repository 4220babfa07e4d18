"""What `hydra.sweeper` holds with `hydra/sweeper=dibs`. The words are those of hydra-optuna-sweeper."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore


@dataclass
class DibsSweeperConf:
    """The search; the wishes of its jobs stand in `hydra.launcher`."""

    _target_: str = "hydra_plugins.dibs_sweeper.sweeper.DibsSweeper"
    n_trials: int = 20
    n_jobs: int = 2  # how many trials at a time
    direction: Any = "minimize"  # or maximize; a list where the function returns several numbers
    sampler: str = "tpe"
    seed: int | None = None
    study_name: str | None = None
    storage: str | None = None  # where the study is kept, to go on with it; without it in memory
    params: dict[str, Any] | None = field(default_factory=dict)  # lr: tag(log, interval(1e-5, 0.1))


ConfigStore.instance().store(group="hydra/sweeper", name="dibs", node=DibsSweeperConf, provider="dibs")
