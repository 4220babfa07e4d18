"""A Hydra application whose multirun places its jobs on GPUs.

    python examples/hydra_app/train.py --multirun hydra/launcher=dibs lr=0.1,0.01,0.001 width=8,16

Nothing in this file knows about dibs, and nothing is computed. It wants `pip install 'dibs[hydra]'`.
"""

import logging
import math
import os

import hydra
from omegaconf import DictConfig

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def train(config: DictConfig) -> float:
    """The loss: 0 at a learning rate of 0.01 with 16 units."""
    loss = math.log10(config.lr / 0.01) ** 2 + (math.log2(config.width) - 4) ** 2
    log.info(
        "GPU %s, lr %g, width %d: loss %.3f",
        os.environ.get("CUDA_VISIBLE_DEVICES", "(not set)"),
        config.lr,
        config.width,
        loss,
    )
    return loss


if __name__ == "__main__":
    train()
