"""`model.fit(..., callbacks=[DibsCallback()])` for Keras 3: metrics, progress and the checkpoint signal."""

import re
from pathlib import Path
from typing import Any

from dibs.api.report import report
from dibs.integrations.checkpoint import CheckpointSignal, put_in_place

try:
    from keras.callbacks import Callback
except ImportError as error:
    raise ImportError(
        f"dibs.integrations.keras needs Keras 3, which cannot be imported ({error}): pip install keras"
    ) from None

_SAVED = re.compile(r"keras-epoch-(\d+)\.weights\.h5", re.ASCII)
_resumed: set[Path] = set()  # checkpoint folders of which a fit of this process went on, or which had nothing


class DibsCallback(Callback):
    """Reports the numbers of each epoch, and leaves after the checkpoint signal.

    The next attempt restores the weights and the optimizer, in a model that is built and compiled: in its first
    `fit` only, as later ones train other models, or go on with this one.
    `model.fit(..., initial_epoch=callback.initial_epoch)` repeats the epoch in which the last attempt was.
    """

    def __init__(self) -> None:
        super().__init__()
        self._signal = CheckpointSignal()
        self._epoch = 0

    @property
    def initial_epoch(self) -> int:
        """The epoch in which the last attempt of this job saved; 0 in its first."""
        saved = self._saved()
        found = _SAVED.fullmatch(saved.name) if saved else None
        return int(found[1]) if found else 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._signal.listen()
        folder = self._signal.folder
        if folder is None or folder in _resumed:
            return
        _resumed.add(folder)
        if saved := self._saved():
            optimizer = self.model.optimizer
            if optimizer is not None and not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            self.model.load_weights(saved)

    def on_train_end(self, logs: Any = None) -> None:
        self._signal.ignore()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch + 1
        epochs = self.params.get("epochs")
        report({**(logs or {}), **({"steps": epochs} if epochs else {})}, step=epoch + 1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._signal.asked:
            earlier = self._saved()
            path = self._signal.path(f"keras-epoch-{self._epoch}.weights.h5")
            new = self._signal.path("new.weights.h5")
            self.model.save_weights(new, overwrite=True)
            put_in_place(new, path)
            if earlier is not None and earlier != path:
                earlier.unlink(missing_ok=True)
            self._signal.leave(f"epoch {self._epoch + 1}")

    def _saved(self) -> Path | None:
        """What was saved last."""
        folder = self._signal.folder
        found = [path for path in folder.iterdir() if _SAVED.fullmatch(path.name)] if folder else []
        return max(found, key=lambda path: path.stat().st_mtime, default=None)
