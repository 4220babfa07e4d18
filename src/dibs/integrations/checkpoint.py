"""The signal of `--checkpoint-signal` in a training loop: remembered when it comes, obeyed between two steps."""

import atexit
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn


class CheckpointSignal:
    """Whether this job was asked to save its work, and where. Outside of such a job it is never asked."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Handle the signal from now on. Only the main thread can: elsewhere the signal keeps its meaning."""
        self.asked = False
        folder, number = environment.get("DIBS_CHECKPOINT_DIR"), environment.get("DIBS_CHECKPOINT_SIGNAL")
        self.folder = Path(folder) if folder else None
        if self.folder is None:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number = int(number) if number else int(signal.SIGUSR1)
        self.listen()
        # While the interpreter ends, which takes seconds after torch, its handlers are gone.
        atexit.register(self.ignore)

    def listen(self) -> None:
        """Handle the signal: there is, or will be, a training that can be saved."""
        self._handle(self._ask)

    def ignore(self) -> None:
        """Ignore the signal, as the training is over: a job that then ends well has succeeded."""
        self._handle(signal.SIG_IGN)

    def _handle(self, handler: "Callable[[int, FrameType | None], None] | signal.Handlers") -> None:
        if self.folder is not None and threading.current_thread() is threading.main_thread():
            signal.signal(self._number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def path(self, name: str) -> Path:
        """A path in the job's checkpoint folder. Only for a job that was asked."""
        assert self.folder is not None
        return self.folder / name

    def found(self, name: str) -> str | None:
        """What an earlier attempt of this job has saved under this name; None where there is nothing."""
        path = None if self.folder is None else self.folder / name
        return str(path) if path is not None and path.exists() else None

    def leave(self, what: str) -> NoReturn:
        """End the program with 0, after which the queue runs the job again."""
        sys.stderr.write(f"dibs: {what} is saved; the job goes on in its next attempt\n")
        raise SystemExit(0)


def put_in_place(new: Path, path: Path) -> None:
    """Give a file or folder that is complete its name, in place of an earlier one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    with suppress(FileNotFoundError):
        os.replace(new, path)
