"""Job lists as lines of text: a file, or a pipe that may never end.

One line is one job. Blank lines and lines that begin with `#` are skipped, a `\\` at the end joins the next
line, a block between `<<<` and `>>>` is one job of many lines, `[num_gpus=2 time=2h]` in front sets fields, and a
JSON object is a job with all its fields. Lines are joined regardless of quotes: a quoted line that ends with `\\`
belongs in a block.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO, NoReturn

from dibs.errors import BadInput
from dibs.inputs.checks import check_request
from dibs.inputs.entries import Entry, refuse
from dibs.inputs.wishes import ONLY_IN_MAPPINGS, apply_wishes, job_from
from dibs.model.jobs import Command, Request, changed

LONGEST_JOB = 1024**2  # characters; far more than Linux can start
_LONGEST_LINE = 4 * LONGEST_JOB + 4  # bytes; one character more than the longest job, in any script
_BLANK = " \t\r\v\f"
_OPEN, _CLOSE = "<<<", ">>>"
# A line that is only a command: no prefix, block, JSON, comment, joined line or CR at its end.
_PLAIN = re.compile(r"([^\s#\[{<>\ufeff\0\\][^\0\n]{0,4000}(?<![\\\r]))\n?")
_LONGEST_PLAIN = 4 * 4001  # bytes, in any script
# Bash's own test has a blank there, `[ -f x ]`, so it stays a command.
_PREFIX_START = re.compile(r"\[[A-Za-z_][A-Za-z0-9_-]*=")
_PREFIX = re.compile(r"""\[((?:[^]'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")*)\]""", re.DOTALL)
# `{ "a"; }` is a group of commands in a shell; a quoted key and a colon are not.
_JSON_START = re.compile(r'\{\s*"[^"]*"\s*:')


def parse_lines(
    lines: Iterable[str],
    defaults: Request,
    shell: str = "bash",
    *,
    name: str = "stdin",
    environment_size: int = 0,
    has_fields: bool = True,
) -> Iterator[Entry]:
    """The entries of lines, each as soon as its last line is read. Lines end with their newlines.

    Without `has_fields`, `[...]` in front and JSON objects are part of the command.
    """
    parser = LineParser(defaults, shell, name=name, environment_size=environment_size, has_fields=has_fields)
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
    """The same entries, except that a line that is only a command is yielded as text.

    A list of a hundred thousand such lines is read in a tenth of the time.
    """
    parser = LineParser(defaults, shell, name=name, environment_size=environment_size)
    try:
        check_request(replace(defaults, command=Command.line("x" * _LONGEST_PLAIN, shell)), environment_size)
        plain = _PLAIN.fullmatch
    except BadInput:  # the environment is so large that every line must be checked
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
    """The stream's lines with their newlines. Bytes that are not UTF-8 become surrogates.

    The rest of a line beyond the longest job is dropped: a file without newlines must not fill the memory.
    """
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            while rest := stream.readline(_LONGEST_LINE):
                if rest.endswith(b"\n"):
                    line += b"\n"
                    break
        yield line.decode("utf-8", "surrogateescape")


class LineParser:
    """A parser that is fed line by line; each line may complete one entry."""

    def __init__(
        self,
        defaults: Request,
        shell: str = "bash",
        *,
        name: str = "stdin",
        environment_size: int = 0,
        has_fields: bool = True,
    ) -> None:
        self._defaults, self._shell = defaults, shell
        self._has_fields = has_fields
        self._name, self._environment_size = name, environment_size
        self._number = 0  # of the current line
        self._began = 0  # the first line of the current entry
        self._joining = _Text()
        self._block: _Block | None = None

    @property
    def is_between_jobs(self) -> bool:
        """Whether the next line begins a new entry."""
        return self._block is None and self._joining.is_empty

    def skip(self) -> None:
        """Count a line that the caller has handled."""
        self._number += 1

    def feed(self, line: str) -> Entry | None:
        """Take the next line, with its newline unless it is the last one and has none."""
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
            wishes, body = split_prefix(text) if self._has_fields else ({}, text)
            request = apply_wishes(self._defaults, wishes, self._shell) if wishes else self._defaults
            if body.strip(_BLANK) == _OPEN:
                self._block = _Block(request, has_return)
                return None
            if body.strip(_BLANK) == _CLOSE:
                raise BadInput(f"{_CLOSE} ends a block, and none is open", remedy=f"begin one with a line {_OPEN}")
            return self._checked(self._job(request, body))
        except BadInput as error:
            if self._has_fields and has_prefix(text) and text.rstrip(_BLANK).endswith(_OPEN):
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
        if self._has_fields and (mapping := parse_object(body)) is not None:
            return job_from(mapping, request, self._shell)
        return changed(request, command=Command.line(body, self._shell))

    def _checked(self, request: Request) -> Request:
        check_request(request, self._environment_size)
        return request


class _Text:
    """Text that grows piece by piece, up to the longest job."""

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
    """A job of many lines that is being read, or the error of its prefix."""

    def __init__(self, request: Request | BadInput, drops_returns: bool) -> None:
        self.request = request
        self.text = _Text("\n")
        # The text is kept exactly, unless the `<<<` line ends with CR, as in a file from Windows.
        self._drops_returns = drops_returns

    def add(self, line: str) -> None:
        self.text.add(line.removesuffix("\r") if self._drops_returns else line)


def _is_nothing(text: str) -> bool:
    text = text.lstrip(_BLANK)
    return not text or text.startswith("#")


def _is_continued(text: str) -> bool:
    # `\\\\` at the end is an escaped backslash, not a joined line.
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def has_prefix(text: str) -> bool:
    """Whether the line begins with `[word=`, valid or not."""
    return _PREFIX_START.match(text) is not None


def split_prefix(text: str) -> tuple[dict[str, str], str]:
    """The fields of `[num_gpus=2 vram=18G name='my run'] python train.py`, and the line without them."""
    if not has_prefix(text):
        return {}, text
    whole = _PREFIX.match(text)
    if not whole:
        raise BadInput("the wishes in front have no ] at their end", remedy="write them like [num_gpus=2] command")
    wishes: dict[str, str] = {}
    for part in shlex.split(whole[1]):
        word, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"cannot read {part!r} as a wish", remedy="write it like num_gpus=2; quote blanks")
        if word in wishes:
            raise BadInput(f"the wish {word} is given twice", remedy="keep one of them")
        if word in ONLY_IN_MAPPINGS:
            raise BadInput(f"{word} cannot stand in [...]", remedy="write the job as a JSON line")
        wishes[word] = value
    return wishes, text[whole.end() :].lstrip(" \t")


def parse_object(text: str) -> dict[str, object] | None:
    """The JSON object on this line; None where the line is a command such as `{ a; b; }`."""
    if not text.startswith("{"):
        return None
    try:
        found: dict[str, object] = json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if not _JSON_START.match(text):
            return None
        raise BadInput(
            f"cannot read the line as JSON: {error.msg} at column {error.colno}",
            remedy='write it like {"command": "python train.py", "num_gpus": 2}',
        ) from error
    except RecursionError as error:
        raise BadInput("the JSON is nested too deeply", remedy="a job has no deeper parts than env") from error
    except ValueError as error:  # Python's limit on the digits of an integer
        raise BadInput("the JSON has a number that is too long", remedy="write it as text") from error
    return found


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twin, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise BadInput(f"the JSON has the key {twin[:100]!r} twice", remedy="keep one of them")
    return found


def _no_constant(text: str) -> NoReturn:
    raise BadInput(f"{text} is not JSON", remedy="write a number")
