"""The shape of a job: its script and the names of its arguments, without their values.

Jobs of one shape are the same program with other numbers, so what one used shows what the next will need
(`--vram auto`). Wrappers, variables and the order of the arguments do not matter; what cannot be parsed is left as
it is, and then the shape is only narrower than it could be.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dibs.model.jobs import Request, Wishes
from dibs.model.units import AUTO

_LONGEST = 400  # characters; a longer one is its beginning and a checksum
# The patterns below are compiled when they are used: a run without `--vram auto` does not pay for them.


def with_shape(request: Request, folder: str = "/", *, copy: str = "", original: str = "") -> Request:
    """The request with the shape of its command, where it wants `--vram auto`; `folder` is the caller's.

    Code that runs in a copy (`--snapshot`) has the shape of the code that was copied from `original`.
    """
    wishes = request.wishes
    if not wishes.shape:
        return request
    shape = shape_of(request.command.words, _place(request.workdir, folder))
    if copy and original:
        shape = shape.replace(copy, original)
    return replace(request, wishes=replace(wishes, shape=_short(shape + _on_gpus(wishes.num_gpus))))


def with_shapes(requests: Sequence[Request], code: Mapping[str, Any] | None = None) -> Sequence[Request]:
    """The same, with the shapes of those that want `--vram auto`; jobs of one list share their wishes still."""
    copy, original = (str((code or {}).get(name) or "") for name in ("snapshot", "root"))
    wishes: dict[Wishes, Wishes] = {}
    found = []
    for request in requests:
        if request.wishes.shape:
            shaped = with_shape(request, copy=copy, original=original)
            request = replace(shaped, wishes=wishes.setdefault(shaped.wishes, shaped.wishes))
        found.append(request)
    return found


def shape_of_job(request: Request) -> str:
    """The shape of a job in a queue, also where it does not want `--vram auto`; empty where it has none."""
    return request.wishes.shape or _shape_beside(request.command.words, request.workdir, request.wishes.num_gpus)


@lru_cache(256)  # every plan asks about the jobs that may be suspended
def _shape_beside(words: tuple[str, ...], folder: str, num_gpus: int) -> str:
    shape = shape_of(words, folder)
    return "" if shape == AUTO else _short(shape + _on_gpus(num_gpus))


def _on_gpus(num_gpus: int) -> str:
    return "" if num_gpus == 1 else f" on {num_gpus} GPUs"  # the more cards, the less on each


def shape_of(words: Sequence[str], folder: str = "/") -> str:
    """`/data/ann/net/train.py --bs --lr`, for words that are executed in this folder."""
    works: list[str] = []
    prepares: list[str] = []
    for simple in _simple_commands(words):
        if simple[0] in ("cd", "pushd") and len(simple) > 1:
            folder = _place(simple[1], folder)
        elif command := _unwrapped(simple):
            (prepares if command[0] in _PREPARES else works).append(_shape_of_one(command, folder))
    return "; ".join(works or prepares) or AUTO


# -- from a line to its commands ---------------------------------------------------------------------------

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_RUNS_A_LINE = r"-[a-z]*c"
# A quoted or plain piece of a word, an operator between commands, or a redirection with its target.
_PIECES = (
    r"""(?P<blank>[ \t]+)|(?P<comment>(?<![^\s;&|])\#[^\n]*)|(?P<joined>\\\n)"""
    r"""|(?P<redirection>[0-9]*(?:&>>?|[<>]{1,3}&?|>\|)[ \t]*[^\s;&|<>()]*)"""
    r"""|(?P<operator>[;&|()\n]+|(?<!\S)[{}!](?!\S))"""
    r"""|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)|(?P<plain>[^\s'"\\;&|<>()]+)"""
    r"""|(?P<odd>.)"""
)
_ASSIGNMENT = r"[A-Za-z_][A-Za-z0-9_]*\+?="
# Preparations of a line: they use no GPU memory.
_PREPARES = frozenset(
    {"source", ".", "export", "set", "unset", "ulimit", "umask", "module", "conda", "mamba", "echo", "printf"}
    | {"sleep", "mkdir", "true", ":", "test", "[", "[[", "popd", "wait", "exit", "trap", "date", "hostname"}
    | {"for", "done", "fi", "case", "esac"}
)
_BEFORE_COMMANDS = frozenset({"do", "then", "else", "if", "elif", "while", "until"})


def _simple_commands(words: Sequence[str]) -> Iterator[list[str]]:
    """The commands of which a job consists, each without the variables that are set for it."""
    for command in _parts_of_line(words[2]) if _is_line(words) else [list(words)]:
        while command and (command[0] in _BEFORE_COMMANDS or re.match(_ASSIGNMENT, command[0])):
            command = command[1:]
        if command:
            yield command


def _is_line(words: Sequence[str]) -> bool:
    """Whether a shell is to read its third word."""
    is_shell = len(words) > 2 and _name(words[0]) in _SHELLS
    return is_shell and re.fullmatch(_RUNS_A_LINE, words[1]) is not None


def _parts_of_line(line: str) -> Iterator[list[str]]:
    command: list[str] = []
    word: str | None = None
    for piece in re.finditer(_PIECES, line, re.DOTALL):
        kind = piece.lastgroup
        if kind in ("single", "double", "escaped", "plain", "odd"):
            word = (word or "") + piece[kind]
            continue
        if word is not None:
            command.append(word)
            word = None
        if kind == "operator" and command:
            yield command
            command = []
    if word is not None:
        command.append(word)
    if command:
        yield command


# -- from a command to its shape ---------------------------------------------------------------------------

# Programs that run the words behind their own options, and which of those options take a word.
_WRAPPERS: dict[str, frozenset[str]] = {
    "env": frozenset({"-u", "-C", "-S"}),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n"}),
    "chrt": frozenset(),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "time": frozenset({"-f", "-o"}),
    "exec": frozenset(),
    "command": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "timeout": frozenset({"-k", "-s"}),
    "taskset": frozenset({"-p"}),
    "numactl": frozenset({"-N", "-m", "-C", "-i", "-p"}),
    "xvfb-run": frozenset({"-s", "-n"}),
    "srun": frozenset({"-n", "-c", "-N", "-G", "-p"}),
    "mpirun": frozenset({"-n", "-np", "--np"}),
    "mpiexec": frozenset({"-n", "-np"}),
    "uv run": frozenset({"--with", "--python", "-p", "--extra", "--group", "--project", "--directory"}),
    "poetry run": frozenset(),
    "pdm run": frozenset(),
    "pipenv run": frozenset(),
    "hatch run": frozenset(),
    "pixi run": frozenset({"-e"}),
    "conda run": frozenset({"-n", "-p"}),
    "mamba run": frozenset({"-n", "-p"}),
}
_ONE_WORD_FIRST = frozenset({"timeout", "taskset", "chrt"})  # `timeout 10m COMMAND`
# Programs that start a script for each card. Their own options are not part of the shape.
_LAUNCHERS = frozenset(
    {"torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch"}
)
_LAUNCHER_MODULES = {"accelerate.commands.launch": "accelerate"}
_PYTHON = r"(?:python|pypy|ipython)[0-9.]*"
_PYTHON_TAKES = frozenset({"-X", "-W", "--check-hash-based-pycs"})
_INTERPRETERS = frozenset({"julia", "Rscript", "R", "node", "perl", "ruby", "lua", "octave", *_SHELLS})
_SCRIPT = r".*\.(?:py|ipynb|sh|jl|R|r|js|lua|pl|rb|m)"

_NAMED = r"[+~]{0,2}[A-Za-z_][\w./@-]*="  # `model=big`, `+trainer.gpus=1`
_OPTION = r"-{1,2}[A-Za-z_]"
_WITH_NUMBER = r"(-[A-Za-z])[0-9.]+"  # `-b64`
_VERB = r"[A-Za-z][A-Za-z_-]*"


def _shape_of_one(words: Sequence[str], folder: str) -> str:
    if _is_line(words):
        return shape_of(words, folder)
    program, rest = _name(words[0]), list(words[1:])
    if re.fullmatch(_PYTHON, program):
        return _shape_of_python(rest, folder)
    if program in _LAUNCHERS:
        return _shape_of_launched(rest, folder)
    if program in _INTERPRETERS:
        script = next((place for place, word in enumerate(rest) if not word.startswith("-")), None)
        return program if script is None else _shape(_place(rest[script], folder), rest[script + 1 :])
    return _shape(_place(words[0], folder) if "/" in words[0] else words[0], rest)


def _unwrapped(words: Sequence[str]) -> Sequence[str]:
    """The words without `nice`, `uv run`, `timeout 10m` and their like in front."""
    while words:
        name = _name(words[0])
        if (both := " ".join((name, *words[1:2]))) in _WRAPPERS:
            name = both
        if name not in _WRAPPERS:
            return words
        words = _behind_options(words[name.count(" ") + 1 :], _WRAPPERS[name])
        words = words[name in _ONE_WORD_FIRST :]
        while words and re.match(_ASSIGNMENT, words[0]):
            words = words[1:]
    return words


def _behind_options(words: Sequence[str], taking: frozenset[str]) -> Sequence[str]:
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "--":
            return words[place + 1 :]
        place += 1 + (words[place] in taking)
    return words[place:]


def _shape_of_python(words: list[str], folder: str) -> str:
    place = 0
    while place < len(words):
        word = words[place]
        if word in ("-m", "-c") and place + 1 < len(words):
            named, rest = words[place + 1], words[place + 2 :]
            if word == "-c":
                return _shape(f"python -c {named}", rest)
            if _LAUNCHER_MODULES.get(named, named) in _LAUNCHERS:
                return _shape_of_launched(rest, folder)
            return _shape(f"{folder} -m {named}", rest)  # two projects may have a module of one name
        if not word.startswith("-") or word == "-":
            return _shape(_place(word, folder), words[place + 1 :])
        place += 1 + (word in _PYTHON_TAKES)
    return "python"


def _shape_of_launched(words: list[str], folder: str) -> str:
    """`torchrun --nproc-per-node 2 train.py --lr 1`: it is not known which of its options take a word."""
    for place, word in enumerate(words):
        if word in ("-m", "--module") and place + 1 < len(words):
            return _shape(f"{folder} -m {words[place + 1]}", words[place + 2 :])
        if re.fullmatch(_SCRIPT, word):
            return _shape(_place(word, folder), words[place + 1 :])
    return _shape("launched", words)


def _shape(script: str, arguments: Sequence[str]) -> str:
    """The script, a verb (`main.py train`), the names in order, and how many values have none."""
    arguments = list(arguments)
    verb = ""
    if arguments and re.fullmatch(_VERB, arguments[0]):
        verb = arguments.pop(0)
    names: set[str] = set()
    values = 0
    may_take = False  # the word before is an option that may take this one
    for word in arguments:
        if re.match(_OPTION, word):
            name, equals, _ = word.partition("=")
            if found := re.fullmatch(_WITH_NUMBER, name):
                name = found[1]
            names.add(name.replace("_", "-"))
            may_take = not equals
        elif re.match(_NAMED, word):
            names.add(word.partition("=")[0] + "=")
            may_take = False
        elif may_take or word == "--":
            may_take = False
        else:
            values += 1
    return " ".join([script, *([verb] if verb else []), *sorted(names), *([f"+{values}"] if values else [])])


def _place(path: str, folder: str) -> str:
    if path.startswith(("$", "~", "`")):  # the shell expands it
        return path
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{folder}/{path}").split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", ".", ".."):
            parts.append(part)
    return "/" + "/".join(parts)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _short(shape: str) -> str:
    if len(shape) <= _LONGEST:
        return shape
    import hashlib  # 2 ms, rarely needed

    digest = hashlib.blake2b(shape.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{shape[:_LONGEST]}… {digest}"
