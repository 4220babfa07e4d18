"""Folders and files of this machine that a container sees, as users write them: `SRC[:DST][:ro]`."""

from typing import NamedTuple

from dibs.errors import BadInput


class Mount(NamedTuple):
    """What a container sees of this machine, and where. Its text is what `parse_mount` reads."""

    source: str
    target: str
    is_read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' * self.is_read_only}"


def parse_mount(text: str) -> Mount:
    """The mount that `/data`, `/data:/mnt` or `/data:/mnt:ro` names; both paths are absolute."""
    parts = text.split(":")
    is_read_only = len(parts) > 1 and parts[-1] == "ro"
    paths = parts[:-1] if len(parts) > 1 and parts[-1] in ("ro", "rw") else parts
    if not 1 <= len(paths) <= 2 or not all(path.startswith("/") for path in paths):
        raise BadInput(f"cannot mount {text[:100]!r}", remedy="write it like /data, /data:/mnt or /data:/mnt:ro")
    return Mount(paths[0], paths[-1], is_read_only)
