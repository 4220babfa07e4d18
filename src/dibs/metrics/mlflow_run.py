"""The metrics of one run in MLflow's file store, `mlruns/EXPERIMENT/RUN/metrics/`, without MLflow.

Each metric is a file by its name, in folders where the name has slashes. A line of it is the time in milliseconds,
the value and the step.
"""

import math
import os
import re
from collections.abc import Iterator

from dibs.metrics.files import GrowingFile
from dibs.metrics.lines import LineSplitter, line_text, read_number
from dibs.metrics.scalar import Scalar
from dibs.metrics.series import MOST_SERIES
from dibs.supervise.folder import open_own_file

RUN_TAG = "dibs.attempt"  # of runs that were begun where dibs is installed: the attempt's folder
_RUN = re.compile(r"[0-9a-f]{32}")
_BEGUN = re.compile(rb"^start_time: (\d{12,14})$", re.MULTILINE)
_MOST_READ = 16 * 1024  # bytes of a small file
_DEEPEST = 4


class MlflowRun:
    """One run's folder of metrics, read on line by line."""

    kind = "mlflow"

    def __init__(self, path: str) -> None:
        self.folder = path
        self._files: dict[str, tuple[GrowingFile, LineSplitter]] = {}  # by the metric's name

    @property
    def is_read(self) -> bool:
        """To its end, as it was at the last look."""
        return all(file.is_read for file, _ in self._files.values())

    def scalars(self, deadline: float) -> Iterator[Scalar]:
        """The new ones, until a moment of the monotonic clock."""
        self._find(self.folder, "")
        for name, (file, splitter) in self._files.items():
            for piece in file.pieces(deadline):
                for line in splitter.feed(piece):
                    at, value, step = [*map(read_number, line_text(line).split()), None, None, None][:3]
                    if at is not None and math.isfinite(at) and value is not None:
                        yield Scalar(name, _whole(step), at / 1000, value)

    def finals(self) -> Iterator[Scalar]:
        """None: every number has a step."""
        return iter(())

    def _find(self, folder: str, above: str) -> None:
        if above.count("/") >= _DEEPEST:
            return
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            name = f"{above}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                self._find(entry.path, f"{name}/")
            elif name not in self._files and len(self._files) <= MOST_SERIES:
                self._files[name] = GrowingFile(entry.path), LineSplitter()


def run_begun(folder: str) -> tuple[float, str] | None:
    """When the run of this folder was begun, and the attempt that it names, if any; None where it is no run."""
    if not _RUN.fullmatch(os.path.basename(folder)):
        return None
    found = _BEGUN.search(_content(f"{folder}/meta.yaml"))
    if found is None:
        return None
    return int(found[1]) / 1000, _content(f"{folder}/tags/{RUN_TAG}").decode("utf-8", "surrogateescape").strip()


def _whole(step: float | None) -> int | None:
    return int(step) if step is not None and math.isfinite(step) else None


def _content(path: str) -> bytes:
    try:
        with open(open_own_file(path), "rb") as file:
            return file.read(_MOST_READ)
    except OSError:
        return b""
