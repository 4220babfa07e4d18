"""A small real training run: a convolutional network on made-up pictures, which the processor prepares.

Like most small runs it leaves a large card idle for much of the time.
"""

import argparse
import json
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    arguments = parser.parse_args()

    import torch
    from torch import nn

    torch.set_num_threads(1)  # several of these share the processors
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    ).cuda()
    optimiser = torch.optim.SGD(net.parameters(), lr=arguments.lr, momentum=0.9)
    pictures = torch.randint(0, 256, (4096, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(0, 10, (4096,))
    begin = time.perf_counter()
    for _ in range(arguments.steps):
        chosen = torch.randint(0, len(pictures), (arguments.batch,))
        batch = pictures[chosen].float().div(255).sub(0.5)
        if torch.rand(()) < 0.5:
            batch = batch.flip(3)
        loss = nn.functional.cross_entropy(net(batch.cuda()), labels[chosen].cuda())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        loss.item()  # as people do, to print it
    found = {
        "seconds": round(time.perf_counter() - begin, 2),
        "loss": round(loss.item(), 3),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
