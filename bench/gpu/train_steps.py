"""A training whose every loss is written down, to compare an interrupted run with an undisturbed one.

`python train_steps.py STEPS HELD_GIB LOSSES`: fixed seeds and deterministic kernels, so that two runs are equal to
the last bit. HELD_GIB are held beside it, for suspensions that have something to move.
"""

import os
import sys

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch


def main() -> None:
    steps, held_gib, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    held = torch.full((int(held_gib * 2**28),), 1.0, device="cuda")
    layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.Dropout(0.1)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with open(path, "w") as losses:
        for step in range(steps):
            x = torch.randn(256, 1024, device="cuda")
            for _ in range(20):  # about the length of a real step
                loss = (model(x) - x.roll(1, 1)).square().mean() * held[step]
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.write(f"{step} {loss.item().hex()}\n")
            losses.flush()
    assert float(held.sum(dtype=torch.float64)) == held.numel(), "what was held has changed"
    print("done", flush=True)


main()
