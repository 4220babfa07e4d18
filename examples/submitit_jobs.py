"""Functions as jobs of the queue, in the words of submitit: only `cluster="dibs"` is new.

    python examples/submitit_jobs.py

Nothing is computed. It wants `pip install 'dibs[submitit]'`.
"""

import os
import sys

import submitit


def train(lr: float) -> str:
    return f"lr {lr:g} on GPU {os.environ['CUDA_VISIBLE_DEVICES']} as job {submitit.JobEnvironment().job_id}"


def main() -> None:
    executor = submitit.AutoExecutor(folder=sys.argv[1] if len(sys.argv) > 1 else "submitit_log", cluster="dibs")
    executor.update_parameters(name="train", gpus_per_node=1, timeout_min=10, dibs_priority=5)
    jobs = executor.map_array(train, [0.1, 0.01, 0.001])
    for job in jobs:
        print(job.result())


if __name__ == "__main__":
    main()
