"""A pretend training: a few epochs, a falling loss, nothing computed and nothing written.

Standard library only, and any Python 3, so that it runs wherever dibs does.
"""

import argparse
import os
import random
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.1, help="how fast the loss falls")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long it all takes")
    parser.add_argument(
        "--fail",
        choices=["never", "first", "always"],
        default="never",
        help="end with an error half way: in every attempt, or only in the first one (by DIBS_ATTEMPT)",
    )
    options = parser.parse_args()

    attempt = int(os.environ.get("DIBS_ATTEMPT") or 1)
    fails = options.fail == "always" or (options.fail == "first" and attempt == 1)
    print(f"GPU {os.environ.get('CUDA_VISIBLE_DEVICES', '(not set)')}, lr {options.lr:g}", flush=True)
    chance = random.Random(options.lr)  # the same numbers each time
    loss = 2.3
    for epoch in range(1, options.epochs + 1):
        if fails and epoch > options.epochs // 2:
            sys.exit("RuntimeError: loss is nan, and nobody knows why")
        time.sleep(options.seconds / options.epochs)
        loss *= 1 - min(0.6, 1.5 * options.lr**0.5) * chance.uniform(0.6, 1.0)
        print(f"epoch {epoch}/{options.epochs}  loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
