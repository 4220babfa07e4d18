"""Connections to the daemon: one for each request, so that threads and forks may use them."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from dibs.client.client import Client, RetryingClient, connect

_Found = TypeVar("_Found")

_said: set[str] = set()  # each notice is printed once, not for every request


def ask(
    question: Callable[[Client], _Found], *, start: bool = True, environ: Mapping[str, str] = os.environ
) -> _Found:
    """The answer of this user's daemon to one request; the daemon is started where there is none."""
    client = connect(environ, start=start, notice=say)
    try:
        return question(client)
    finally:
        client.close()


@contextmanager
def patient(environ: Mapping[str, str] = os.environ) -> Iterator[RetryingClient]:
    """A connection for requests over hours: it survives a restart of the daemon."""
    asking = RetryingClient(connect(environ, notice=say), say, environ)
    try:
        yield asking
    finally:
        asking.close()


def say(sentence: str) -> None:
    """Print a notice to stderr, once."""
    if sentence not in _said:
        _said.add(sentence)
        sys.stderr.write(f"dibs: {sentence.removeprefix('dibs: ')}\n")
