"""A Lightning training with the callback: a small convolutional network on made-up pictures."""

import argparse
import time

import pytorch_lightning as L
import torch
from torch import nn
from train_common import device, print_result, repeatable, say_that_it_begins

from dibs.integrations.lightning import DibsCallback

EPOCHS = 3


class Pictures:
    """Batches that go on in the middle of an epoch, as Lightning asks of a loader for that."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._next = 0
        generator = torch.Generator().manual_seed(1)
        self._pictures = torch.rand(2048, 3, 16, 16, generator=generator)
        self._labels = (self._pictures.mean(dim=(1, 2, 3)) * 400).long() % 10

    def __len__(self) -> int:
        return self._batches

    def __iter__(self):  # type: ignore[no-untyped-def]
        first, self._next = self._next, 0
        for place in range(first, self._batches):
            chosen = torch.randint(0, 2048, (64,), generator=torch.Generator().manual_seed(place))
            self._next = (place + 1) % self._batches
            time.sleep(0.01)  # as a loader that reads files: the training can be interrupted by hand
            yield self._pictures[chosen], self._labels[chosen]

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._next = state["next"]


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 64, 10),
        )

    def training_step(self, batch, place):  # type: ignore[no-untyped-def]
        pictures, labels = batch
        loss = nn.functional.cross_entropy(self.net(pictures), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        optimizer = torch.optim.Adam(self.parameters(), 1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps

    repeatable()
    callback = DibsCallback()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        callbacks=[callback],
        log_every_n_steps=10,
        accelerator="gpu" if device() == "cuda" else "cpu",
        devices=1,
        **quiet,
    )
    net = Net()
    say_that_it_begins()
    trainer.fit(net, Pictures(steps // EPOCHS), ckpt_path=callback.checkpoint)
    print_result(net, trainer.global_step, float(trainer.callback_metrics["loss"]), trainer.strategy.root_device)


if __name__ == "__main__":
    main()
