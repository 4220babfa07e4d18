"""Functions over the GPUs of this machine: `python examples/python_functions.py`. It runs anywhere in seconds."""

import os
import time
from concurrent.futures import as_completed

import dibs


def train(lr: float, epochs: int = 3) -> dict[str, float]:
    """Stands for a training. It runs in a job of its own, with a GPU of its own."""
    loss = 1.0
    for epoch in range(epochs):
        time.sleep(0.05)
        loss *= 1 - min(lr, 0.9)
        print(f"epoch {epoch}: loss {loss:.3f} on GPU {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
        dibs.report(loss=loss, step=epoch)
    if lr > 0.5:
        raise ValueError(f"lr {lr} is too high")
    return {"lr": lr, "loss": loss}


def main() -> None:
    with dibs.Executor(num_gpus=1, time="10m", project="example") as executor:
        futures = [executor.submit(train, lr) for lr in (0.05, 0.1, 0.3, 0.6)]
        for future in as_completed(futures):
            try:
                print(f"job {future.job.id}:", future.result())
            except ValueError as error:  # raised in the job, with its traceback
                print(f"job {future.job.id} failed: {error}; it said {future.job.log(stream='stderr', lines=1)!r}")
        best = min(executor.map(train, (0.1, 0.2, 0.4)), key=lambda found: found["loss"])
    print("the best:", best)


if __name__ == "__main__":
    main()
