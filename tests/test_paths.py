"""Folders that nobody else can look into."""

import stat
from pathlib import Path

import pytest

from dibs.paths import FolderRefused, make_private


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
