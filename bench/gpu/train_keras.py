"""A Keras training with the callback, on torch: a small network on made-up numbers.

Keras begins the interrupted epoch again, so an interrupted training is not the same to the last digit.
"""

import argparse
import os
import time

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy
from train_common import device, print_result, repeatable, say_that_it_begins

from dibs.integrations.keras import DibsCallback

EPOCHS = 6


class Rows(keras.utils.PyDataset):
    def __init__(self, batches: int) -> None:
        super().__init__()
        self._batches = batches
        self._rows = numpy.random.default_rng(1).normal(size=(2048, 16)).astype("float32")

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, place: int):  # type: ignore[no-untyped-def]
        time.sleep(0.01)  # as a loader that reads files: the training can be interrupted by hand
        chosen = numpy.random.default_rng(place).integers(0, 2048, 64)
        return self._rows[chosen], self._rows[chosen].sum(axis=1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps

    repeatable()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.layers.Input((16,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse")
    callback = DibsCallback()
    rows = Rows(steps // EPOCHS)
    say_that_it_begins()
    found = model.fit(
        rows, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[callback], initial_epoch=callback.initial_epoch
    )
    weights = model.layers[0].kernel.value
    assert weights.device.type == device()
    print_result(model, int(model.optimizer.iterations), found.history["loss"][-1], weights.device)


if __name__ == "__main__":
    main()
