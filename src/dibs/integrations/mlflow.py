"""For MLflow, which finds it by its entry point: a run carries the attempt that began it as a tag.

So dibs knows which of the runs in a folder are whose.
"""

import os

from mlflow.tracking.context.abstract_context import RunContextProvider

_METRICS = "DIBS_METRICS"  # a file in the attempt's folder


class DibsRunContext(RunContextProvider):
    """The tags `dibs.attempt` and `dibs.job` of a run."""

    def in_context(self) -> bool:
        return bool(os.environ.get(_METRICS))

    def tags(self) -> dict[str, str]:
        return {
            "dibs.attempt": os.path.dirname(os.environ[_METRICS]),
            "dibs.job": os.environ.get("DIBS_JOB_ID", ""),
        }
