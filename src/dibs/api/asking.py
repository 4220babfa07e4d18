"""How Python reaches the daemon: a connection for each question, so that threads and forks may ask."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from dibs.client.client import Client, connect

if TYPE_CHECKING:
    from dibs.client.client import Patient

_Found = TypeVar("_Found")

_said: set[str] = set()  # a notebook need not hear the same sentence for every question


def ask(
    question: Callable[[Client], _Found], *, start: bool = True, environ: Mapping[str, str] = os.environ
) -> _Found:
    """One answer of this user's daemon; it is started where there is none."""
    client = connect(environ, start=start, notice=say)
    try:
        return question(client)
    finally:
        client.close()


@contextmanager
def patient(environ: Mapping[str, str] = os.environ) -> "Iterator[Patient]":
    """For questions over hours: it stands a restart of the daemon."""
    from dibs.client.client import Patient

    asking = Patient(connect(environ, notice=say), say, environ)
    try:
        yield asking
    finally:
        asking.close()


def say(sentence: str) -> None:
    """Tell a person something that is no answer, once."""
    if sentence not in _said:
        _said.add(sentence)
        sys.stderr.write(f"dibs: {sentence.removeprefix('dibs: ')}\n")
