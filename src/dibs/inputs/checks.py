"""Checks of a request before it is accepted: what the kernel would refuse at its start, what Slurm cannot do."""

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from dibs.errors import BadInput
from dibs.model.fields import BY_KEY
from dibs.model.units import is_reference

if TYPE_CHECKING:
    from dibs.model.jobs import Request  # `dibs gpus` checks a text only

LONGEST_ARGUMENT = 131_071  # bytes: Linux's MAX_ARG_STRLEN less the NUL that ends it
_POINTER = 8  # bytes that the kernel counts for every word and variable
_MOST_OF_THE_STACK = 6 * 1024**2  # bytes: the kernel's limit for any size of the stack
_HERE = "or run it here: --on local"
_NOT_ON_SLURM = tuple(field for field in BY_KEY.values() if not field.on_slurm)
_RESERVED = 8192  # bytes kept free for the variables that dibs adds


def check_request(request: "Request", environment_size: int = 0) -> None:
    """Raise BadInput for a request that could never start.

    `environment_size` is that of the environment which the job will inherit.
    """
    words = request.command.words
    # A line for a shell is `bash -c TEXT`: what matters is whether the text is empty, not the words.
    if not words or not words[0] or not request.command.shown.strip():
        raise BadInput("the command is empty", remedy="write the command to run")
    size = environment_size + _RESERVED
    for word in words:
        size += _checked_size(word, "the command")
    for key, value in request.env:
        size += _checked_size(f"{key}={value}", f"the variable {key}")
    if size > (largest := _largest_start()):
        raise BadInput(
            f"the command and its environment have {size} bytes, this machine starts at most {largest}",
            remedy="put the long part into a file",
        )
    check_name(request.name)
    check_text(request.workdir, "the folder")


def check_name(name: str) -> None:
    """Raise BadInput for a name that would mean another job where jobs are named: `17`, `@`, `17_4`, `3-9`."""
    check_text(name, "the name")
    if is_reference(name):
        raise BadInput(
            f"cannot use {name!r} as a name: it names jobs by their numbers",
            remedy=f"put a word before it, like run-{name.strip().lstrip('@~') or 1}",
        )


def check_place(request: "Request") -> None:
    """Raise BadInput for a request that makes no sense where it is to run."""
    if not request.on:
        for name, _ in request.on_options:
            raise BadInput(
                f"cannot use {name} for a job that runs on this machine: it is for Slurm",
                remedy="--on slurm runs it there; or leave it out",
            )
        return
    if request.on_options:
        from dibs.model.slurm_options import check_options  # few jobs have any

        check_options(dict(request.on_options))
    if request.container_engine not in ("", "apptainer"):
        raise BadInput(
            f"cannot use {request.container_engine} on Slurm",
            remedy=f"leave out --container-engine: pyxis or apptainer runs the image, {_HERE}",
        )
    for field in _NOT_ON_SLURM:
        if field.value_in(request) not in (field.default, False):  # what is not wished needs nothing of Slurm
            message, remedy = field.refusal
            raise BadInput(message, remedy=f"{remedy}, {_HERE}")


def check_output(path: str) -> None:
    """Raise BadInput for a folder, in the place of a file for the output of jobs."""
    if path.endswith("/") or os.path.isdir(path):
        file = os.path.join(path, "%j.txt")
        raise BadInput(f"cannot write the output to {path}: it is a folder", remedy=f"name a file, such as {file}")


def check_variable_name(name: str) -> None:
    """Raise BadInput for a variable that no shell could read."""
    if not (name.isascii() and name.isidentifier()):
        raise BadInput(
            f"cannot use {name[:60]!r} as the name of a variable: no shell could read it",
            remedy="a name has letters, digits and _, and does not begin with a digit",
        )


def check_text(text: str, what: str) -> None:
    """Raise BadInput for text that no program can be given: a NUL byte, or half a character."""
    if "\0" in text:
        raise BadInput(f"{what} contains a NUL byte", remedy="no program can be given one; take it out")
    if not text.isascii():  # most text is ASCII, and the check is fast
        _encoded(text, what)


def environment_size(environment: Mapping[str, str]) -> int:
    """The bytes an inherited environment takes of the kernel's limit."""
    return sum(_size(f"{key}={value}", "the environment") for key, value in environment.items())


def _checked_size(word: str, what: str) -> int:
    check_text(word, what)
    size = _size(word, what)
    if size - _POINTER - 1 > LONGEST_ARGUMENT:
        raise BadInput(
            f"{what} has {size - _POINTER - 1} bytes, Linux takes at most {LONGEST_ARGUMENT} in one piece",
            remedy="put it into a script and run that",
        )
    return size


def _size(word: str, what: str) -> int:
    return (len(word) if word.isascii() else len(_encoded(word, what))) + 1 + _POINTER


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        # JSON can have half of a surrogate pair, "\ud800", which cannot be encoded.
        raise BadInput(
            f"{what} contains {text[error.start]!r}, which is half a character",
            remedy="write the whole character",
        ) from error


@cache
def _largest_start() -> int:
    limit = os.sysconf("SC_ARG_MAX")
    return min(limit, _MOST_OF_THE_STACK) if limit > 0 else _MOST_OF_THE_STACK
