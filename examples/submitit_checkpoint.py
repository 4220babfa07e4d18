"""A function that is saved before its time limit, queued again, and goes on where it was.

    python examples/submitit_checkpoint.py

It counts to eleven in steps of a fifth of a second, and is told after two seconds to save itself.
"""

import os
import sys
import time

import submitit


class Count(submitit.helpers.Checkpointable):
    """`checkpoint` of Checkpointable ships the object as it is at the signal, `step` included."""

    def __init__(self) -> None:
        self.step = 0

    def __call__(self, last: int) -> str:
        while self.step < last:
            time.sleep(0.2)
            self.step += 1
        return f"{self.step} steps, attempt {os.environ['DIBS_ATTEMPT']}"


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else "submitit_log"
    executor = submitit.AutoExecutor(folder=folder, cluster="dibs", dibs_max_num_timeout=10)
    executor.update_parameters(dibs_timeout_min=3 / 60, dibs_checkpoint_seconds=1)
    print(executor.submit(Count(), 11).result())


if __name__ == "__main__":
    main()
