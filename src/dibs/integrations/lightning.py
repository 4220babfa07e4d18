"""`Trainer(callbacks=[DibsCallback()])` for Lightning: its metrics and progress, and the checkpoint signal."""

import math
import sys
from typing import Any

from dibs.api.report import report
from dibs.integrations.checkpoint import CheckpointSignal, put_in_place

try:
    # Both names exist, and programs use one of them.
    if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        try:
            from lightning.pytorch import Callback
        except ModuleNotFoundError as error:
            if error.name not in ("lightning", "lightning.pytorch"):
                raise
            from pytorch_lightning import Callback
except ImportError as error:
    raise ImportError(
        f"dibs.integrations.lightning needs Lightning, which cannot be imported ({error}): pip install lightning"
    ) from None

_NAME = "lightning.ckpt"


class DibsCallback(Callback):
    """Reports what the module logs, each time that Lightning logs, and leaves after the checkpoint signal.

    `trainer.fit(model, ckpt_path=callback.checkpoint)` goes on where the last attempt of the job was.
    """

    def __init__(self) -> None:
        self._signal = CheckpointSignal()
        self._last_step = 0

    @property
    def checkpoint(self) -> str | None:
        """What an earlier attempt of this job has saved; None in its first."""
        return self._signal.found(_NAME)

    def on_train_start(self, *_: Any) -> None:
        self._signal.listen()

    def on_train_end(self, *_: Any) -> None:
        self._signal.ignore()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        step = trainer.global_step
        every = trainer.log_every_n_steps  # 0: the steps are not logged
        if every and step % every == 0 and step != self._last_step:
            self._last_step = step  # a step may take several batches
            self._report(trainer, trainer.logged_metrics)
        # The signal reaches one process, and at another step than the others. In a job only, as all wait.
        if self._signal.folder and trainer.strategy.reduce_boolean_decision(self._signal.asked, all=False):
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        self._report(trainer, trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        if not trainer.sanity_checking:
            self._report(trainer, trainer.callback_metrics)

    def on_test_end(self, trainer: Any, *_: Any) -> None:
        self._report(trainer, trainer.callback_metrics)

    def _report(self, trainer: Any, metrics: Any) -> None:
        if not trainer.is_global_zero or not trainer.global_step:
            return
        found = {name: value for name, value in metrics.items() if name != "step"}
        steps = trainer.estimated_stepping_batches if trainer.training else math.inf
        if math.isfinite(steps):
            found["steps"] = int(steps)
        if found:
            report(found, step=trainer.global_step)

    def _save(self, trainer: Any) -> None:
        path = self._signal.path(_NAME)
        new = path.with_name(f"new.{path.name}")
        trainer.save_checkpoint(new)
        if trainer.is_global_zero:
            put_in_place(new, path)
        trainer.strategy.barrier()
        self._signal.leave(f"step {trainer.global_step}")
