"""Lease folders with ugly names."""

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder for every user, as an admin would make it. Not in tmp_path: only its owner may enter that."""
    place = tempfile.mkdtemp(prefix="dibs leases 'é\n€ ", dir="/tmp")
    os.chmod(place, 0o1777)
    yield place
    shutil.rmtree(place)
