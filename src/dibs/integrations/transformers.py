"""`Trainer(..., callbacks=[DibsCallback()])` for transformers: metrics, progress and the checkpoint signal."""

from pathlib import Path
from typing import Any

from dibs.api.report import report
from dibs.integrations.checkpoint import CheckpointSignal, put_in_place

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        f"dibs.integrations.transformers needs transformers, which cannot be imported ({error}): "
        "pip install transformers"
    ) from None

_NAME = "transformers"  # a file with the path of the checkpoint, which is in the trainer's output folder


class DibsCallback(TrainerCallback):
    """Reports what the trainer logs, and leaves after the checkpoint signal when the trainer has saved.

    `trainer.train(resume_from_checkpoint=callback.checkpoint)` goes on where the last attempt of the job was.
    """

    def __init__(self) -> None:
        self._signal = CheckpointSignal()
        self._is_leaving = False

    @property
    def checkpoint(self) -> str | None:
        """What an earlier attempt of this job has saved last; None in its first."""
        named = self._signal.found(_NAME)
        folder = Path(named).read_text() if named else ""
        return folder if folder and Path(folder).is_dir() else None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._signal.listen()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._signal.ignore()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        found = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        if found:
            steps = {"steps": state.max_steps} if state.max_steps > 0 else {}
            report({**found, **steps}, step=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self._signal.folder and _any_asked(self._signal.asked, args):
            self._is_leaving = control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._signal.folder and state.is_world_process_zero:
            # Not the newest in the output folder: that may be of another job.
            new = self._signal.path(f"new.{_NAME}")
            new.write_text(str(Path(args.output_dir, f"checkpoint-{state.global_step}").absolute()))
            put_in_place(new, self._signal.path(_NAME))
        if self._is_leaving:
            self._signal.leave(f"step {state.global_step}")


def _any_asked(asked: bool, args: Any) -> bool:
    """Whether one of the trainer's processes was: the signal reaches them at different steps."""
    if args.world_size < 2:
        return asked
    import torch

    decision = torch.tensor(int(asked), device=args.device)
    torch.distributed.all_reduce(decision, op=torch.distributed.ReduceOp.MAX)
    return bool(decision.item())
