"""Which folder the leases live in."""

import os
import stat

import pytest

from dibs.leases.files import LeaseRefused
from dibs.leases.folder import lease_folder
from leases.processes import STRANGER, needs_root

NOWHERE = "/nowhere/at/all"


def mounts_that_say(kind, path, file):
    """A copy of the kernel's list in which the mount under this path is of another kind."""
    handle = os.open(path, os.O_PATH)
    with open(f"/proc/self/fdinfo/{handle}") as lines:
        mount = next(line.split()[1] for line in lines if line.startswith("mnt_id"))
    os.close(handle)
    file.write_text(
        f"1 0 0:1 / / rw - ext4 /dev/root rw\n{mount} 1 0:2 / /a\\040b rw shared:1 - {kind} host:/x rw\n"
    )
    return str(file)


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_the_folder_that_was_asked_for_is_made_for_its_owner_alone(folder, mask):
    wanted = f"{folder}/a b/é/leases"
    before = os.umask(mask)

    try:
        found = lease_folder({"DIBS_LEASES": wanted})
    finally:
        os.umask(before)

    assert found == wanted
    for made in (wanted, os.path.dirname(wanted)):
        assert stat.S_IMODE(os.stat(made).st_mode) == 0o700


def test_what_an_admin_made_comes_before_the_shared_folders(folder):
    os.mkdir(f"{folder}/admin")
    os.chmod(f"{folder}/admin", 0o1777)

    found = lease_folder({}, admin=f"{folder}/admin", shared=[folder])

    assert found == f"{folder}/admin"


@needs_root
def test_the_first_sticky_folder_of_root_is_taken(folder):
    places = {"plain": 0o755, "open to all": 0o777, "theirs": 0o1777, "good": 0o1777, "good too": 0o1777}
    for name, mode in places.items():
        os.mkdir(f"{folder}/{name}")
        os.chmod(f"{folder}/{name}", mode)
    os.chown(f"{folder}/theirs", STRANGER, STRANGER)

    found = lease_folder({}, admin=NOWHERE, shared=[NOWHERE, *(f"{folder}/{name}" for name in places)])

    assert found == f"{folder}/good"


def test_without_any_folder_it_says_what_to_do(folder):
    with pytest.raises(LeaseRefused) as refused:
        lease_folder({}, admin=NOWHERE, shared=[NOWHERE])

    assert "DIBS_LEASES" in refused.value.remedy


@needs_root
def test_a_folder_of_another_user_is_refused(folder):
    os.mkdir(f"{folder}/theirs")
    os.chmod(f"{folder}/theirs", 0o1777)
    os.chown(f"{folder}/theirs", STRANGER, STRANGER)

    with pytest.raises(LeaseRefused) as refused:
        lease_folder({"DIBS_LEASES": f"{folder}/theirs"})

    assert "it belongs to nobody" in refused.value.message


@pytest.mark.parametrize("how", ["DIBS_LEASES", "admin"])
def test_a_folder_in_which_all_may_delete_is_refused(folder, how):
    os.chmod(folder, 0o777)

    with pytest.raises(LeaseRefused) as refused:
        lease_folder({how: folder}, admin=folder)

    assert "chmod 1777" in refused.value.remedy


def test_a_file_where_the_folder_should_be_is_refused(folder):
    with open(f"{folder}/file", "w"):
        pass

    for path in (f"{folder}/file", f"{folder}/file/below", f"{folder}/file/below/it"):
        with pytest.raises(LeaseRefused):
            lease_folder({"DIBS_LEASES": path})


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "lustre", "gpfs", "beegfs"])
def test_a_network_file_system_is_refused_with_the_fix(folder, tmp_path, kind):
    mounts = mounts_that_say(kind, folder, tmp_path / "mountinfo")

    with pytest.raises(LeaseRefused) as refused:
        lease_folder({"DIBS_LEASES": folder}, mounts=mounts)

    assert f"it is on {kind}," in refused.value.message and "local disk" in refused.value.remedy
    with pytest.raises(LeaseRefused):
        lease_folder({}, admin=NOWHERE, shared=[folder], mounts=mounts)


def test_a_local_file_system_is_fine(folder, tmp_path):
    mounts = mounts_that_say("ext4", folder, tmp_path / "mountinfo")

    assert lease_folder({"DIBS_LEASES": folder}, mounts=mounts) == folder
    assert lease_folder({"DIBS_LEASES": folder}, mounts=NOWHERE) == folder
