"""Stores in a folder with an ugly name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> str:
    folder = tmp_path / 'a \'b\n"c" ?mode=ro%20#é'
    folder.mkdir()
    return str(folder / "store.db")


@pytest.fixture
def store(path: str) -> Iterator[Store]:
    one = Store(path)
    yield one
    one.close()
