"""Where the metrics of a job's attempts are."""

from dibs.engine.launch.results import Results
from dibs.metrics.attempt import MetricSources
from dibs.metrics.wandb_file import run_of
from dibs.model.jobs import Job


def sources_of(job: Job, results: Results, folder: str, began: float, *, has_events: bool = True) -> MetricSources:
    """Where an attempt's metrics are. Files of other tools are searched on this machine only."""
    run, where = run_of(dict(job.request.env), job.request.workdir)
    return MetricSources(
        folder=folder,
        began=began,
        logs=results.streams(job, folder),
        patterns=job.request.metric_patterns,
        workdir="" if job.request.on or not has_events else job.request.workdir,
        wandb_run=run,
        wandb_dir=where,
    )
