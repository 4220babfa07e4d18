"""Command lines that run Python, taken apart: what can be forked instead of started, and why the rest cannot.

Standard library only.
"""

import os
import re
from dataclasses import dataclass

from dibs.supervise.command import plain_words

SCRIPT, MODULE, CODE = "script", "module", "code"

_INTERPRETER = re.compile(rb"python(3(\.[0-9]+)?)?")
# They mean the same in a process that was started with them before. Those that are missing leave out the place
# where we take hold (-E, -I, -S), talk while modules are imported (-v), or ask for something else (-i, -V).
_FLAGS = re.compile(rb"-[uOBsPbq]+")
_OPTIONS = re.compile(rb"(dev|faulthandler|no_debug_ranges|utf8(=[01])?|(int_max_str_digits|pycache_prefix)=.+)")
# One command without anything that a shell looks at, apart from quotes around what it leaves alone.
_PIECE = rb"""[A-Za-z0-9_./:,@%+=-]|'[^'\n]*'|"[^"$`\\!\n]*\""""
_QUOTED = re.compile(rb"[A-Za-z0-9_./][A-Za-z0-9_./:,@%+-]*(?:[ \t]+(?:" + _PIECE + rb")+)*[ \t]*")
_WORD = re.compile(rb"(?:" + _PIECE + rb")+")
_SHELLS = (b"bash", b"/bin/bash", b"/usr/bin/bash", b"sh", b"/bin/sh", b"/usr/bin/sh")

_NO_PYTHON = "its command is no `python SCRIPT`, `python -m MODULE` or `python -c CODE`"


@dataclass(frozen=True, slots=True)
class PythonLine:
    """A command that runs Python."""

    interpreter: bytes
    flags: tuple[bytes, ...]
    kind: str
    target: bytes  # a path, a module's name or code
    arguments: tuple[bytes, ...]
    by_shell: bool  # it is a line for a shell, which has nothing to do but start it

    @property
    def argv(self) -> list[bytes]:
        """`sys.argv` before anything ran."""
        first = {SCRIPT: self.target, MODULE: b"-m", CODE: b"-c"}[self.kind]
        return [first, *self.arguments]

    @property
    def words(self) -> list[bytes]:
        """The whole command."""
        option = {SCRIPT: [], MODULE: [b"-m"], CODE: [b"-c"]}[self.kind]
        return [self.interpreter, *self.flags, *option, self.target, *self.arguments]

    @property
    def imports_from(self) -> bytes:
        """Which folder stands first in `sys.path`: that of the script as it is written, or the one it runs in."""
        return {SCRIPT: os.path.dirname(self.target), MODULE: b"-m", CODE: b"-c"}[self.kind]


def read_line(words: list[bytes]) -> PythonLine | str:
    """The command taken apart, or a sentence that says why it is started afresh."""
    by_shell = len(words) == 3 and words[1] == b"-c" and words[0] in _SHELLS
    if by_shell:
        found = plain_words(words) or _quoted_words(words[2])
        if found is None:
            return "its line needs a shell"
        words = found
    if not _INTERPRETER.fullmatch(os.path.basename(words[0])):
        return _NO_PYTHON
    flags: list[bytes] = []
    rest = words[1:]
    while rest and rest[0].startswith(b"-") and rest[0] not in (b"-m", b"-c"):
        size = 2 if rest[0] in (b"-W", b"-X") else 1
        if len(rest) <= size or not _is_harmless(rest[:size]):
            return f"its Python has the option {os.fsdecode(rest[0][:20])}"
        flags += rest[:size]
        rest = rest[size:]
    kind = {b"-m": MODULE, b"-c": CODE}.get(rest[0], SCRIPT) if rest else ""
    rest = rest if kind == SCRIPT else rest[1:]
    if not rest or not rest[0]:
        return _NO_PYTHON
    return PythonLine(words[0], tuple(flags), kind, rest[0], tuple(rest[1:]), by_shell)


def _is_harmless(option: list[bytes]) -> bool:
    if option[0] == b"-X":
        return _OPTIONS.fullmatch(option[1]) is not None
    return option[0] == b"-W" or _FLAGS.fullmatch(option[0]) is not None


def _quoted_words(line: bytes) -> list[bytes] | None:
    """The words of a line in which only quotes have a meaning."""
    if not _QUOTED.fullmatch(line):
        return None
    return [re.sub(rb"""'([^']*)'|"([^"]*)\"""", rb"\1\2", word) for word in _WORD.findall(line)]
