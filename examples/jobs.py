"""Jobs from Python: `dibs run -f examples/jobs.py`. They are asked for one by one, as GPUs become free."""


def yielder():
    # Text is a line for the shell, just as in a file.
    for lr in (0.1, 0.03, 0.01):
        yield f"python3 examples/train.py --lr {lr} --epochs 2 --seconds 0.4"

    # A mapping has room for more.
    for seed in range(2):
        yield {
            "name": f"seed-{seed}",
            "command": ["python3", "examples/train.py", "--epochs", "2", "--seconds", "0.4"],
            "env": {"SEED": seed},
            "retries": 1,
            "time": "1m",
        }
