"""A pretend training whose best settings are known: the Branin function, a landscape with three lowest places.

It is 0.397887 at (-3.142, 12.275), (3.142, 2.275) and (9.425, 2.475), and nowhere lower. Like a loss it comes down
to its value in a few steps, and it is told to dibs after each, so that bad settings can be given up early.

Standard library only, and any Python 3: dibs sweep examples/sweep_branin.yaml
"""

import argparse
import math
import os
import time


def branin(x, y):
    bent = y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6
    return bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--x", type=float, required=True, help="from -5 to 10")
    parser.add_argument("--y", type=float, required=True, help="from 0 to 15")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.5, help="how long it all takes")
    options = parser.parse_args()

    for step in range(1, options.steps + 1):
        time.sleep(options.seconds / options.steps)
        loss = branin(options.x, options.y) + 20 * (0.5**step - 0.5**options.steps)
        print(f"step {step}/{options.steps}  loss {loss:.5f}", flush=True)
        # Any language can do this: it is a line in a file. Outside of dibs there is no such file.
        with open(os.environ.get("DIBS_METRICS", os.devnull), "a") as metrics:
            metrics.write(f"loss={loss:.6f} step={step}\n")


if __name__ == "__main__":
    main()
