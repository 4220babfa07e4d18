"""What `hydra.launcher` holds with `hydra/launcher=dibs`: the wishes of every job of a multirun."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore


@dataclass
class DibsLauncherConf:
    """The words of `dibs add`. What is null is left to the queue."""

    _target_: str = "hydra_plugins.dibs_launcher.launcher.DibsLauncher"
    num_gpus: int = 1
    vram: str | None = None  # 12G, auto
    share: str | None = None
    gpu_type: str | None = None
    only: Any = None  # [0,1]
    prefer: Any = None
    cpus: int | None = None
    mem: str | None = None
    bind: bool | None = None
    time: str | None = None  # 2h; a number is minutes
    grace: str | None = None
    priority: int | None = None
    name: str | None = "${hydra.job.name}"
    project: str | None = None
    tags: Any = None  # [a,b]
    env: dict[str, str] = field(default_factory=dict)
    retries: int | None = None
    retry_on: Any = None  # [gpu-oom,lost]
    restartable: bool | None = None
    after: Any = None  # numbers of jobs
    begin: str | None = None
    notify: str | None = None
    warm: Any = None  # [torch]


ConfigStore.instance().store(group="hydra/launcher", name="dibs", node=DibsLauncherConf, provider="dibs")
