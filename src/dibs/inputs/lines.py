"""Job lists as lines of text: a file, or a pipe that may never end.

One line is one job. Blank lines and lines that begin with `#` are skipped, a `\\` at the end joins the next
line, a block between `<<<` and `>>>` is one job of many lines, `[num_gpus=2 time=2h]` in front sets wishes,
and a JSON object is a job with all its words. Joining knows nothing of quotes: text with a `\\` at the end of
a quoted line belongs in a block.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO

from dibs.errors import BadInput
from dibs.inputs.checks import check_request
from dibs.inputs.entry import Entry, refuse
from dibs.inputs.jsonline import parse_object
from dibs.inputs.prefix import has_prefix, split_prefix
from dibs.inputs.wishes import apply_wishes, job_from
from dibs.model.jobs import Command, Request
from dibs.model.values import changed

LONGEST_JOB = 1024**2  # characters; far above what Linux starts, far below what hurts
_LONGEST_LINE = 4 * LONGEST_JOB + 4  # bytes; one character more than the longest job, in any script
_BLANK = " \t\r\v\f"
_OPEN, _CLOSE = "<<<", ">>>"
# A line that is a command and nothing else: no wishes, block, JSON, comment, joined line or Windows' end of line.
_PLAIN = re.compile(r"([^\s#\[{<>\ufeff\0\\][^\0\n]{0,4000}(?<![\\\r]))\n?")
_LONGEST_PLAIN = 4 * 4001  # bytes, in any script


def parse_lines(
    lines: Iterable[str],
    defaults: Request,
    shell: str = "bash",
    *,
    name: str = "stdin",
    environment_size: int = 0,
) -> Iterator[Entry]:
    """The entries of lines, each as soon as its last line is there. Lines come with their newlines."""
    parser = LineParser(defaults, shell, name=name, environment_size=environment_size)
    for line in lines:
        if entry := parser.feed(line):
            yield entry
    if entry := parser.close():
        yield entry


def parse_lines_quickly(
    lines: Iterable[str],
    defaults: Request,
    shell: str = "bash",
    *,
    name: str = "stdin",
    environment_size: int = 0,
) -> Iterator[Entry | str]:
    """The same entries, but a line that only names a command, with no wish of its own, stays the text it is.

    A list of a hundred thousand such lines is read in a tenth of the time.
    """
    parser = LineParser(defaults, shell, name=name, environment_size=environment_size)
    try:
        check_request(replace(defaults, command=Command.line("x" * _LONGEST_PLAIN, shell)), environment_size)
        plain = _PLAIN.fullmatch
    except BadInput:  # hardly anything can start with this environment: look at every line
        plain = re.compile(r"(?!)").fullmatch
    for line in lines:
        if (found := plain(line)) and parser.is_between_jobs:
            parser.skip()
            yield found[1]
        elif entry := parser.feed(line):
            yield entry
    if entry := parser.close():
        yield entry


def text_lines(stream: BinaryIO) -> Iterator[str]:
    """The stream's lines with their newlines. Bytes that are no UTF-8 pass through as surrogates.

    What goes beyond the longest job is dropped: a file without newlines must not fill the memory.
    """
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            while rest := stream.readline(_LONGEST_LINE):
                if rest.endswith(b"\n"):
                    line += b"\n"
                    break
        yield line.decode("utf-8", "surrogateescape")


class LineParser:
    """The grammar as a machine: feed it lines, and each may complete one entry."""

    def __init__(
        self, defaults: Request, shell: str = "bash", *, name: str = "stdin", environment_size: int = 0
    ) -> None:
        self._defaults, self._shell = defaults, shell
        self._name, self._environment_size = name, environment_size
        self._number = 0  # of the line at hand
        self._began = 0  # the line where the entry at hand began
        self._joining = _Text()
        self._block: _Block | None = None

    @property
    def is_between_jobs(self) -> bool:
        """Whether the next line begins something new."""
        return self._block is None and self._joining.is_empty

    def skip(self) -> None:
        """Count a line that somebody else took."""
        self._number += 1

    def feed(self, line: str) -> Entry | None:
        """Take the next line, with its newline unless it is an unfinished last one."""
        self._number += 1
        if self._number == 1:
            line = line.removeprefix("\ufeff")
        text = line.removesuffix("\n")
        if self._block is not None:
            return self._feed_block(self._block, text)
        has_return = text.endswith("\r")
        text = text.removesuffix("\r")
        if self._joining.is_empty:
            if _is_nothing(text):
                return None
            self._began = self._number
        if line.endswith("\n") and _is_continued(text):
            self._joining.add(text[:-1])
            return None
        self._joining.add(text)
        whole, self._joining = self._joining, _Text()
        return None if _is_nothing(whole.text) else self._take(whole, has_return)

    def close(self) -> Entry | None:
        """Take the end of the input."""
        if self._block is not None:
            error = BadInput("the block that begins here has no end", remedy=f"end it with a line {_CLOSE}")
            return refuse(_OPEN, error, self._where)
        if self._joining.is_empty:
            return None
        whole, self._joining = self._joining, _Text()
        return None if _is_nothing(whole.text) else self._take(whole, has_return=False)

    @property
    def _where(self) -> str:
        return f"{self._name}:{self._began}"

    def _take(self, whole: "_Text", has_return: bool) -> Entry | None:
        text = whole.text.lstrip(_BLANK)
        try:
            whole.check()
            wishes, body = split_prefix(text)
            request = apply_wishes(self._defaults, wishes, self._shell) if wishes else self._defaults
            if body.strip(_BLANK) == _OPEN:
                self._block = _Block(request, has_return)
                return None
            if body.strip(_BLANK) == _CLOSE:
                raise BadInput(f"{_CLOSE} ends a block, and none is open", remedy=f"begin one with a line {_OPEN}")
            return self._checked(self._job(request, body))
        except BadInput as error:
            if has_prefix(text) and text.rstrip(_BLANK).endswith(_OPEN):
                # The lines of the block are still one job, and must not run one by one.
                self._block = _Block(error, has_return)
                return None
            return refuse(text, error, self._where)

    def _feed_block(self, block: "_Block", line: str) -> Entry | None:
        if line.strip(_BLANK) != _CLOSE:
            block.add(line)
            return None
        self._block = None
        try:
            if isinstance(block.request, BadInput):
                raise block.request
            block.text.check()
            request = replace(block.request, command=Command.line(block.text.text, self._shell))
            return self._checked(request)
        except BadInput as error:
            return refuse(block.text.text, error, self._where)

    def _job(self, request: Request, body: str) -> Request:
        if (mapping := parse_object(body)) is not None:
            return job_from(mapping, request, self._shell)
        return changed(request, command=Command.line(body, self._shell))

    def _checked(self, request: Request) -> Request:
        check_request(request, self._environment_size)
        return request


class _Text:
    """Text that grows piece by piece, but never beyond what a job may have."""

    def __init__(self, separator: str = "") -> None:
        self._pieces: list[str] = []
        self._separator = separator
        self._size = 0

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    @property
    def text(self) -> str:
        return self._separator.join(self._pieces)

    def add(self, piece: str) -> None:
        self._size += len(piece) + len(self._separator)
        if self._size <= LONGEST_JOB or self.is_empty:
            self._pieces.append(piece)

    def check(self) -> None:
        if self._size > LONGEST_JOB:
            raise BadInput(
                f"the job has more than {LONGEST_JOB} characters", remedy="put it into a script and run that"
            )


class _Block:
    """A job of many lines that is being read; where its wishes were bad, what was wrong with them."""

    def __init__(self, request: Request | BadInput, drops_returns: bool) -> None:
        self.request = request
        self.text = _Text("\n")
        # Inside, the text is kept exactly, unless the `<<<` line showed that the file comes from Windows.
        self._drops_returns = drops_returns

    def add(self, line: str) -> None:
        self.text.add(line.removesuffix("\r") if self._drops_returns else line)


def _is_nothing(text: str) -> bool:
    text = text.lstrip(_BLANK)
    return not text or text.startswith("#")


def _is_continued(text: str) -> bool:
    # `\\\\` at the end is an escaped backslash, not a joined line.
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1
