"""What the options of a call say of its jobs: a request, the changes of `dibs edit`, the jobs that come first."""

import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from dibs.cli.field_options import NONE
from dibs.cli.output import one_line
from dibs.errors import BadInput
from dibs.inputs.checks import check_output, check_variable_name
from dibs.model.fields import BY_KEY, Field, Kind, Verb, fields_of
from dibs.model.jobs import NOTHING, After, Command, Dependency, JobId, Request, to_json, with_values

if TYPE_CHECKING:
    from dibs.sweeps.grid import Grid

ALL = ""  # instead of a variable's name: all that the job has
_FOR_A_SHELL = frozenset(" \t|&;<>()$`\\\"'*?[]#~%\n")


def request_of(options: Mapping[str, Any], verb: Verb, base: Request) -> Request:
    """What every job of this call has in common: `base`, with what the options say."""
    values = _values(options, verb)
    said = list(given(options, verb))
    told = tuple((field.slurm_word, value) for field, value in said if field.kind is Kind.SYSTEM_OPTION)
    for field, value in said:
        if field.kind is Kind.VARIABLES:
            values[field.name] = tuple(_variables(value).items())
    request = with_values(base, {**values, "on_options": told} if told else values)
    for name in ("output", "error"):
        if path := getattr(request, name):
            path = os.path.join(request.workdir, path)
            check_output(path)
            request = with_values(request, {name: path})
    if request.checkpoint is not None:
        from dibs.inputs.wishes import check_checkpoint

        check_checkpoint(request)
    return request


def queue_request_of(options: Mapping[str, Any], verb: Verb) -> Request:
    """The same for the queue, where the folder and the umask are those of now."""
    workdir = _here() if options["workdir"] is None else ""
    return request_of(options, verb, replace(NOTHING, workdir=workdir, umask=_umask()))


def changes_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What `dibs edit` is to change, as the keys of the API; variables and Slurm's options are `merges_of`."""
    values = _values(options, Verb.EDIT)
    for name in ("output", "error"):
        if values.get(name):
            check_output(values[name])
            values[name] = os.path.abspath(values[name])
    return {key: to_json(field, values[field.name]) for key, field in BY_KEY.items() if field.name in values}


def merges_of(options: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """What is laid over what a job has, by the keys of the API; None takes one away, or ALL."""
    found: dict[str, dict[str, str | None]] = {}
    for field, value in given(options, Verb.EDIT):
        if field.kind is Kind.SYSTEM_OPTION:
            told = None if value == NONE else value
            found.setdefault("on_options", {})[field.slurm_word] = told
        elif field.kind is Kind.VARIABLES:
            merged: dict[str, str | None] = {ALL: None} if NONE in value else {}
            found[field.key] = {**merged, **_variables([one for one in value if one != NONE])}
    return found


def dependencies_of(
    options: Mapping[str, Any], verb: Verb, find_jobs: Callable[[Sequence[str]], Sequence[int]]
) -> list[Dependency] | None:
    """The jobs that come first, by the numbers that are found for them. None: nothing was said of them."""
    rows = [(field, texts) for field, texts in given(options, verb) if field.kind is Kind.DEPENDENCIES]
    if not rows:
        return None
    found: dict[int, Dependency] = {}
    for field, texts in rows:
        references = [one.strip() for text in texts for one in text.split(",") if one.strip()]
        if not references:
            raise BadInput(f"{field.flags[-1]} names no job", remedy="name jobs like 12,13")
        if verb is Verb.EDIT and references == [NONE]:
            continue
        kind = After(field.choices[0])
        for number in find_jobs(references):
            if number in found and found[number].kind is not kind:
                raise BadInput(f"job {number} is to be waited for in two ways", remedy="keep one of them")
            found[number] = Dependency(JobId(number), kind)
    return list(found.values())


def given(options: Mapping[str, Any], verb: Verb) -> Iterator[tuple[Field, Any]]:
    """The fields of which something was said, and what. A flag that was not given says nothing."""
    for field in fields_of(verb):
        value = options[field.word]
        # An empty name is no name, and for `dibs edit` that is a change; no folder is called nothing.
        is_empty = (value is False and field.default is False) or (value == "" and field.kind is not Kind.FOLDER)
        if value is not None and value != () and (verb is Verb.EDIT or not is_empty):
            yield field, value


def asks_for_gpus(options: Mapping[str, Any]) -> bool:
    """Whether the command line says anything about GPUs that a script without such a line is to have."""
    words = ("num_gpus", "share", "vram", "gpu_type", "only", "prefer")
    return any(options.get(word) not in (None, (), "") for word in words)


def command_of(
    options: dict[str, Any], line: Sequence[str], command: Sequence[str] | None, verb: str
) -> Sequence[str] | None:
    """The command of this call: what stands behind `--`, or words at the end that can be nothing else.

    Other words are refused, with where they were most likely meant to stand. `-f -` becomes `-`.
    """
    if "-" in options["files"]:
        options["files"] = tuple(path for path in options["files"] if path != "-")
        options["inputs"] = (*options["inputs"], "-")
    words = [word for word in options["inputs"] if word != "-"]
    if not words:
        return command
    numbers = list(takewhile(str.isdigit, words))
    if options.get("gpus") and numbers:
        remedy = f"write --gpus {','.join([options['gpus'].strip(' ,'), *numbers])}"
    elif all(map(os.path.isfile, words)):
        named = " ".join(f"-f {shlex.quote(word)}" for word in words)
        remedy = f"a job list stands behind -f: dibs {verb} {named}"
        if os.access(words[0], os.X_OK):
            remedy += f"; a program behind --: dibs {verb} -- {shlex.join(words)}"
    elif command is None and _is_command(words, line, options):
        options["inputs"] = ()
        return words
    else:
        place = list(line).index(words[0])
        meant = shlex.join(["dibs", verb, *line[:place], "--", *line[place:]])
        remedy = f"a command stands behind --, a job list behind -f: {meant}"
    raise BadInput(f"cannot use {words[0]!r} here", remedy=one_line(remedy, 500))


def _is_command(words: list[str], line: Sequence[str], options: Mapping[str, Any]) -> bool:
    """Whether words without `--` are a command and nothing else.

    No option may stand behind them: it could be the command's. The first word must be a program, or all of it a
    line for the shell, so that a job list whose name is mistyped is not executed.
    """
    if options["files"] or "-" in options["inputs"] or list(line[-len(words) :]) != words:
        return False
    if len(words) == 1 and any(map(str.isspace, words[0].strip())):
        return True
    from shutil import which  # 2 ms of `dibs add`

    return which(words[0]) is not None


def check_shell(options: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Refuse a shell that is not here. What runs on Slurm may find it there."""
    shell = options["shell"]
    if shell == "bash" or options.get("on") == "slurm":
        return
    import shutil  # some milliseconds that no other call pays

    if shutil.which(shell, path=environ.get("PATH", os.defpath)) is None:
        raise BadInput(f"there is no shell {shell[:60]!r} here", remedy="name one that is installed, such as sh")


def check_parameters(options: dict[str, Any], params: object, command: Sequence[str] | None, verb: str) -> None:
    """Refuse parameters without a command, and a command that is none."""
    if params and command is None:
        raise BadInput("-p fills {NAME} in a command", remedy="put the command behind --")
    if not params and (options["shuffle"] or options["samples"] or options["seed"] is not None):
        raise BadInput("--shuffle, --seed and --samples are for -p", remedy="give parameters with -p NAME VALUES")
    if command is not None and not command:
        raise BadInput("there is no command behind --", remedy=f"dibs {verb} -- python train.py")


def with_command(defaults: Request, words: Sequence[str], shell: str) -> Request:
    """Words are executed as they are; a single one with blanks in it is a line for the shell."""
    if len(words) == 1 and not os.path.exists(words[0]) and set(words[0]) & _FOR_A_SHELL:
        return replace(defaults, command=Command.line(words[0], shell))
    return replace(defaults, command=Command.exact(words))


def choose_seed(options: dict[str, Any], warnings: list[str]) -> int | None:
    """The seed of a shuffle, made up and told where none was given; None where nothing is shuffled."""
    if not options["shuffle"]:
        return None
    if options["seed"] is None:
        seed = int.from_bytes(os.urandom(4), "big")
        warnings.append(f"shuffled with --seed {seed}")
        return seed
    return int(options["seed"])


def points(
    defaults: Request,
    words: Sequence[str],
    grid: "Grid[str]",
    shell: str,
    *,
    seed: int | None,
    samples: int | None,
) -> Iterator[Request]:
    """One job for each combination of the parameters; checked now, made as they are wanted."""
    from dibs.sweeps.template import LineTemplate, WordsTemplate

    chosen = grid.points(seed=seed, samples=samples)
    if len(words) == 1:
        line = LineTemplate(words[0], grid.names)
        return (with_command(defaults, [line.expand(point)], shell) for point in chosen)
    template = WordsTemplate(words, grid.names)
    return (with_command(defaults, template.expand(point), shell) for point in chosen)


def is_piped() -> bool:
    """Whether a list may come in on stdin: not from a terminal, nor from /dev/null as under cron."""
    try:
        return not stat.S_ISCHR(os.fstat(0).st_mode)
    except OSError:
        return False


def _values(options: Mapping[str, Any], verb: Verb) -> dict[str, Any]:
    """What was said, by the names of the fields, as far as it can be known from the options alone."""
    is_edit = verb is Verb.EDIT
    values: dict[str, Any] = {}
    for field, value in given(options, verb):
        match field.kind:
            case Kind.ARRAY | Kind.ARRAY_LIMIT | Kind.DEPENDENCIES | Kind.VARIABLES | Kind.SYSTEM_OPTION:
                pass
            case Kind.VRAM:
                values["vram"], values["shape"] = (None, "") if value == NONE else value
            case Kind.NAMES | Kind.MOUNTS | Kind.PATTERNS:
                values[field.name] = _names(field, [one for one in value if not is_edit or one != NONE])
            case Kind.FOLDER:
                values[field.name] = _folder(value)
            case _:
                values[field.name] = field.default if is_edit and field.takes_none and value == NONE else value
    return values


def _names(field: Field, texts: Sequence[str]) -> tuple[str, ...]:
    if not texts:
        return ()
    from dibs.inputs.wishes import read_field

    found: tuple[str, ...] = read_field(field, texts)
    return found


def _variables(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadInput(f"cannot read {word[:60]!r} as a variable", remedy="write it like --env SEED=1")
        check_variable_name(name)
        found[name] = value
    return found


def _folder(chosen: str) -> str:
    """A folder that is there, absolute."""
    if "\0" in chosen or not os.path.isdir(path := os.path.expanduser(chosen)):
        raise BadInput(f"there is no folder {chosen}", remedy="make it, or name another with -C")
    return os.path.abspath(path)


def _umask() -> int:
    """This process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the folder you are in has been removed", remedy="change to one, or name it with -C"
        ) from None
