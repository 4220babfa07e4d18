"""Pyxis for the private Slurm of the tests: a stand-in that Slurm loads and asks as it does the real one."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from containers.private_engines import PrivateEngines

_HEADER = Path("/usr/include/slurm/spank.h")
_SOURCE = Path(__file__).with_name("stand_in_pyxis.c")


@contextmanager
def pyxis_in(slurm: PrivateSlurm, engines: PrivateEngines) -> Iterator[str]:
    """The name of an image, while that Slurm has pyxis: each of its commands reads the table of plugins anew."""
    if not _HEADER.exists():
        pytest.skip("a test with pyxis needs Slurm's header for plugins: install libslurm-dev")
    images, plugin, table = slurm.folder / "images", slurm.folder / "pyxis.so", slurm.folder / "etc/plugstack.conf"
    (images / "containers").mkdir(parents=True)
    shutil.copytree(engines.folder / "bundle" / "rootfs", images / "box", symlinks=True)
    (images / "box" / "environment").write_text("PATH=/bin\nOF_IMAGE=of the image\n")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", plugin, _SOURCE], check=True)
    table.write_text(f"required {plugin} {images}\n")
    try:
        yield "box"
    finally:
        table.unlink()


def asked_of_pyxis(slurm: PrivateSlurm) -> list[dict[str, str]]:
    """What each step asked for that had an image, in the words of the stand-in."""
    lines = (slurm.folder / "images" / "asked").read_text().splitlines()
    return [dict(word.partition("=")[::2] for word in line.split(" ")) for line in lines]


def containers_of_pyxis(slurm: PrivateSlurm) -> list[str]:
    """The root folders of steps that are not removed."""
    return sorted(path.name for path in (slurm.folder / "images" / "containers").iterdir())
