"""What can happen to the record in an attempt's folder."""

import shutil
from collections.abc import Callable
from pathlib import Path


def delete_folder(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)


def delete_record(folder: Path, other: Path) -> None:
    (folder / "record").unlink()


def empty_record(folder: Path, other: Path) -> None:
    (folder / "record").write_bytes(b"")


def zero_record(folder: Path, other: Path) -> None:
    content = (folder / "record").read_bytes()
    (folder / "record").write_bytes(bytes(1024) + content[1024:])


def copy_record_of_another(folder: Path, other: Path) -> None:
    shutil.copyfile(other / "record", folder / "record")


# By a name for a job that meets it; each gets the attempt's folder and that of another that succeeded.
DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "folder-deleted": delete_folder,
    "record-deleted": delete_record,
    "record-emptied": empty_record,
    "record-zeroed": zero_record,
    "record-copied": copy_record_of_another,
}
