"""Folders that no other user can read, on a disk where locks work."""

import os
import stat
import subprocess
from functools import partial
from pathlib import Path

import pytest

from dibs import paths
from dibs.paths import FolderRefused, make_private
from leases.test_folder import mounts_that_say
from stories.outside import needs_root


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_a_private_folder_is_closed_to_others(tmp_path: Path) -> None:
    new, old = tmp_path / "a" / "new one", tmp_path / "old"
    old.mkdir()
    old.chmod(0o755)

    make_private(str(new))
    make_private(str(old))

    assert (mode(new), mode(old)) == (0o700, 0o700)


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_planted_link_changes_nothing_where_it_leads(tmp_path: Path, ending: str) -> None:
    website = tmp_path / "public_html"
    website.mkdir()
    website.chmod(0o755)
    (tmp_path / "dibs").symlink_to(website)

    with pytest.raises(FolderRefused, match="it is a link, not a folder"):
        make_private(f"{tmp_path}/dibs{ending}")

    assert mode(website) == 0o755


def test_a_link_to_nowhere_and_a_file_are_refused_by_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")

    with pytest.raises(FolderRefused, match="it is a link, not a folder"):
        make_private(f"{tmp_path}/link")
    with pytest.raises(FolderRefused, match="it is a file, not a folder"):
        make_private(f"{tmp_path}/file")

    assert not (tmp_path / "nowhere").exists()


def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(FolderRefused, match="cannot make the folder"):
        make_private(f"{tmp_path}/file/dibs")


@pytest.fixture(params=["HOME", "XDG_STATE_HOME"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """An environment whose state folder would be below the test's own folder."""
    return {request.param: str(tmp_path)}


def _mount_as(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = mounts_that_say(kind, folder, folder / "mountinfo")
    monkeypatch.setattr(paths, "network_file_system", partial(paths.network_file_system, mounts=mounts))


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "lustre", "beegfs"])
def test_with_a_home_on_the_network_the_queue_is_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: dict[str, str], kind: str
) -> None:
    _mount_as(kind, tmp_path, monkeypatch)

    found = (paths.state_folder(home), paths.queue_folder(home), paths.socket_path(home))

    local = f"/var/tmp/dibs-{os.getuid()}"
    assert found == (local, f"{local}/queue", f"{local}/queue/socket")


def test_with_a_home_on_a_disk_the_queue_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: dict[str, str]
) -> None:
    _mount_as("ext4", tmp_path, monkeypatch)

    assert paths.queue_folder(home).startswith(f"{tmp_path}/")
    assert paths.socket_path(home) == f"{paths.queue_folder(home)}/socket"


def test_a_named_folder_on_the_network_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: dict[str, str]
) -> None:
    _mount_as("nfs4", tmp_path, monkeypatch)

    named = paths.state_folder({**home, "DIBS_STATE": f"{tmp_path}/mine"})
    socket = paths.socket_path({**home, "DIBS_SOCKET": f"{tmp_path}/socket"})

    assert (named, socket) == (f"{tmp_path}/mine", f"{tmp_path}/socket")


def test_a_mount_is_told_from_others(tmp_path: Path) -> None:
    here, again, elsewhere = (paths.mount_id(folder) for folder in (str(tmp_path), f"{tmp_path}/..", "/proc"))

    assert here == again
    assert here != elsewhere


@needs_root
def test_a_file_system_that_is_mounted_again_is_another_mount(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], check=True)
        found.append(paths.mount_id(str(tmp_path)).split(":")[1])
        subprocess.run(["umount", str(tmp_path)], check=True)

    assert found[0] != found[1]
