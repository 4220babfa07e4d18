"""Everything that one attempt has reported: its file of measurements, its log, and files of other tools.

Looking again reads only what is new. Everything here blocks on the disk, and is called in a worker thread.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dibs.dataclass import dataclass
from dibs.metrics.files import GrowingFile
from dibs.metrics.lines import LineSplitter, line_text, read_line
from dibs.metrics.patterns import log_reader
from dibs.metrics.scalar import ScalarFile
from dibs.metrics.search import MOST_FILES, FileSearch, find_scalar_files, open_scalar_file
from dibs.metrics.series import MOST_SERIES, MetricSeries, MetricTable
from dibs.model.units import show_size
from dibs.supervise.folder import mark_of

METRICS_FILE = "metrics"  # in the attempt's folder; the path in DIBS_METRICS
_LONGEST_TAG = 100
_SEARCH_EVERY = 10.0  # seconds between two searches for files of other tools, while the attempt runs


@dataclass(frozen=True, slots=True)
class LineFile:
    """A file whose lines may hold metrics."""

    path: str
    read: Callable[[str], Mapping[str, object] | None]
    ends: tuple[bytes, ...] = (b"\n",)  # of a line; a progress bar goes back to the beginning of its line

    def split(self, data: bytes) -> list[bytes]:
        for other in self.ends[1:]:
            data = data.replace(other, self.ends[0])
        return data.split(self.ends[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricSources:
    """Where the metrics of one attempt are."""

    folder: str  # the attempt's
    began: float  # seconds since the epoch
    logs: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()  # that find metrics in the logs
    workdir: str = ""  # where files of other tools are searched; empty: nowhere
    wandb_run: str = ""  # the id of its run, where the job was given one ...
    wandb_dir: str = ""  # ... and the folder that has W&B's folder

    def line_files(self) -> list[LineFile]:
        """The file of measurements first."""
        found = [LineFile(f"{self.folder}/{METRICS_FILE}", read_line)]
        if self.patterns:
            read = log_reader(self.patterns)
            found += [LineFile(path, read, (b"\n", b"\r")) for path in dict.fromkeys(self.logs)]
        return found


class FoundSeries(NamedTuple):
    name: str
    source: str  # metrics, log, tensorboard, wandb or mlflow
    series: MetricSeries


class AttemptMetrics:
    """The series of one attempt, as of the last look."""

    def __init__(self, sources: MetricSources) -> None:
        self.sources = sources
        self._lines = [_LineSource(file, sources.began) for file in sources.line_files()]
        self._files: dict[str, ScalarFile] = {}  # of other tools, by path
        self._tables: dict[str, dict[str, MetricTable]] = {}  # of these files, by kind and folder
        self._has_all_files = True
        self._searched_at: float | None = None
        self._is_searched_for_good = False

    def look(self, deadline: float, *, ended: float | None, is_whole: bool) -> None:
        """Read what is new, until a moment of the monotonic clock.

        `ended`: when the attempt ended; `is_whole`: it was not killed, so a last line without an end counts.
        """
        for source in self._lines:
            source.look(deadline, is_whole=ended is not None and is_whole)
        if self.sources.workdir:
            self._search(ended)
        for file in self._files.values():
            table = self._tables.setdefault(file.kind, {}).setdefault(file.folder, MetricTable())
            for scalar in file.scalars(deadline):
                step = None if scalar.step is None else float(scalar.step)
                table.add(scalar.tag[:_LONGEST_TAG], step, scalar.at, scalar.value)

    @property
    def is_complete(self) -> bool:
        """Whether everything was read that there was at the last look."""
        return all(source.file.is_read for source in self._lines) and all(
            file.is_read for file in self._files.values()
        )

    @property
    def size(self) -> int:
        """How many series are kept."""
        return sum(len(table.series) for table in self._all_tables())

    def series(self) -> list[FoundSeries]:
        """In the order of their sources. A name that two sources have is that of the first."""
        found: dict[str, FoundSeries] = {}
        for number, source in enumerate(self._lines):
            kind = "log" if number else "metrics"
            for name, series in source.table.series.items():
                found.setdefault(name, FoundSeries(name, kind, series))
        for kind, tables in self._tables.items():
            for folder, prefix in _prefixes(list(tables)).items():
                for tag, series in {**tables[folder].series, **self._finals(kind, folder)}.items():
                    found.setdefault(f"{prefix}{tag}", FoundSeries(f"{prefix}{tag}", kind, series))
        return list(found.values())[:MOST_SERIES]

    def _finals(self, kind: str, folder: str) -> Mapping[str, MetricSeries]:
        """What the files of one folder say once and for all."""
        told = MetricTable()
        for file in self._files.values():
            for scalar in file.finals() if (file.kind, file.folder) == (kind, folder) else ():
                told.add(scalar.tag[:_LONGEST_TAG], None, scalar.at, scalar.value)
        return told.series

    def _all_tables(self) -> list[MetricTable]:
        others = (table for tables in self._tables.values() for table in tables.values())
        return [*(source.table for source in self._lines), *others]

    def notes(self) -> list[str]:
        """What was left out, one sentence each."""
        tables = self._all_tables()
        names = {name for table in tables for name in table.series} | {
            one for table in tables for one in table.left_out
        }
        notes = []
        if len(names) > MOST_SERIES:
            notes.append(
                f"only the first {MOST_SERIES} names are kept: {min(names - self._names())} is not among them"
            )
        for source in self._lines:
            if source.file.skipped:
                size = show_size(source.file.skipped)
                notes.append(f"the first {size} of {os.path.basename(source.file.path)} were skipped")
        if not self._has_all_files:
            notes.append(
                f"files of TensorBoard, W&B or MLflow may be missing: the newest {MOST_FILES} found are read"
            )
        return notes

    def _names(self) -> set[str]:
        return {one.name for one in self.series()}

    def _search(self, ended: float | None) -> None:
        now = time.monotonic()
        if self._is_searched_for_good or (
            ended is None and self._searched_at is not None and now - self._searched_at < _SEARCH_EVERY
        ):
            return
        self._searched_at, self._is_searched_for_good = now, ended is not None
        sources = self.sources
        search = FileSearch(sources.workdir, sources.began, ended, mark_of(sources.folder), sources.wandb_run)
        found = [find_scalar_files(search)]
        if sources.wandb_run and sources.wandb_dir != sources.workdir:
            found.append(find_scalar_files(search._replace(root=sources.wandb_dir)))
        self._has_all_files = all(one.is_all for one in found)
        for path in (path for one in found for path in reversed(one.paths)):
            if path not in self._files and len(self._files) < MOST_FILES:
                self._files[path] = open_scalar_file(path)


def last_numbers(metrics: AttemptMetrics) -> dict[str, float | None]:
    """The last of every number; None: it is not finite."""
    return {one.name: one.series.summary().last for one in metrics.series()}


class _LineSource:
    def __init__(self, file: LineFile, began: float) -> None:
        self.file = GrowingFile(file.path, began)
        self.table = MetricTable()
        self._read = file.read
        self._ends = file.ends
        self._splitter = LineSplitter(file.ends)

    def look(self, deadline: float, *, is_whole: bool) -> None:
        begun, before = self.file.times_begun, self.file.at
        for piece in self.file.pieces(deadline):
            if self.file.times_begun != begun:  # the file was replaced
                begun, before = self.file.times_begun, self.file.began
                self.table, self._splitter = MetricTable(), LineSplitter(self._ends)
            self._take(self._splitter.feed(piece), before, self.file.at)
            before = self.file.at
        if is_whole and self.file.is_read:
            self._take(self._splitter.finish(), before, before)

    def _take(self, lines: Sequence[bytes], since: float, until: float) -> None:
        for number, line in enumerate(lines, 1):
            if told := self._read(line_text(line)):
                self.table.take(told, since + (until - since) * number / len(lines))


def _prefixes(folders: Sequence[str]) -> dict[str, str]:
    """What distinguishes the folders of event files: empty where there is one, else `train/`, `validation/`."""
    if len(folders) < 2:
        return dict.fromkeys(folders, "")
    shared = os.path.commonpath(folders)
    return {folder: f"{os.path.relpath(folder, shared)}/".removeprefix("./") for folder in sorted(folders)}
