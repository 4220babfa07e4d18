"""Where the metrics of a job's attempts are, and the last of them."""

import os
import time
from collections.abc import Mapping

from dibs.dataclass import dataclass
from dibs.engine.launch.results import Results
from dibs.metrics.attempt import METRICS_FILE, AttemptMetrics, MetricSources, last_numbers
from dibs.metrics.wandb_file import run_of
from dibs.model.jobs import Job

_READ_FOR = 5.0  # seconds, one attempt
_LONG = 30.0  # seconds that an attempt ran; event files of shorter ones are not searched


@dataclass(frozen=True, slots=True)
class Ran:
    """Where and when an attempt ran."""

    folder: str
    began: float
    ended_at: float
    is_whole: bool  # it was not killed, so that its last line counts without an end


def sources_of(
    job: Job, results: Results, folder: str, began: float, *, node: str = "", has_events: bool = True
) -> MetricSources:
    """Where an attempt's metrics are. Files of other tools are searched on this machine only."""
    run, where = run_of(dict(job.request.env), job.request.workdir)
    return MetricSources(
        folder=folder,
        began=began,
        logs=results.streams(job, folder, node),
        patterns=job.request.metric_patterns,
        workdir="" if job.request.on or not has_events else job.request.workdir,
        wandb_run=run,
        wandb_dir=where,
    )


def numbers_of(job: Job, ran: Ran, results: Results) -> Mapping[str, float | None]:
    """What an attempt reported last under each name. Blocks on the disk."""
    is_long = ran.ended_at - ran.began >= _LONG
    sources = sources_of(job, results, ran.folder, ran.began, has_events=is_long)
    may_be_elsewhere = is_long or sources.patterns or sources.wandb_run
    if not may_be_elsewhere and not _has_content(f"{ran.folder}/{METRICS_FILE}"):
        return {}
    metrics = AttemptMetrics(sources)
    metrics.look(time.monotonic() + _READ_FOR, ended=ran.ended_at, is_whole=ran.is_whole)
    return last_numbers(metrics)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path, follow_symlinks=False).st_size > 0
    except OSError:
        return False
