"""A program whose memory on the card grows by a GiB in each half second. At its end it checks what it holds."""

import json
import sys
import time

import torch

_BLOCK = 2**28  # floats: a GiB
_STAYS = 8.0  # seconds


def main() -> None:
    blocks: list[torch.Tensor] = []
    for number in range(int(sys.argv[1])):
        blocks.append(torch.full((_BLOCK,), float(number), device="cuda"))
        _compute(blocks[0], 0.5)
    _compute(blocks[0], _STAYS)
    is_whole = all(float(block.mean()) == number for number, block in enumerate(blocks))
    print(json.dumps({"is_whole": is_whole, "gib": len(blocks)}), flush=True)


def _compute(block: torch.Tensor, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        block.mul_(1.0)
        torch.cuda.synchronize()
        time.sleep(0.005)


if __name__ == "__main__":
    main()
