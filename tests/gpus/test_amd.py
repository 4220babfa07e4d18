"""AMD cards, over files as the kernel writes them: a server's, a desktop's, and recordings of real ones."""

import os
import pwd
import shutil

import pytest

from dibs.gpus.amd import AmdProbe, links_between, nodes
from gpus.trees import lay_out

ME = pwd.getpwuid(os.geteuid()).pw_name
GIB = 1024**3


@pytest.fixture
def server(tmp_path):
    return lay_out("mi300x", tmp_path / "a root")


@pytest.fixture
def desktop(tmp_path):
    return lay_out("radeon_desktop", tmp_path / "a root")


def card_of(root, number, name):
    return os.path.join(root, f"sys/class/drm/card{number}/device", name)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def test_a_server_card_tells_all_it_knows(server):
    reading = AmdProbe(server).read()

    assert reading.driver == "AMD amdgpu 6.12.12"
    seen = reading.gpus[0]
    assert (seen.gpu.key, seen.gpu.index) == ("AMD-1c77d0ab94e21f38", 0)
    assert (seen.gpu.name, seen.gpu.memory_total) == ("AMD Instinct MI300X OAM", 206141652992)
    assert (seen.memory_used, seen.load, seen.temperature, seen.power) == (19327352832, 97, 58, 612.0)
    assert (seen.ecc_uncorrected, seen.energy) == (0, None)
    assert seen.gpu.cpus == (0, 1, 2, 3, 8, 9, 10, 11)


def test_cards_are_counted_as_rocm_counts_them_and_not_by_their_bus(server):
    reading = AmdProbe(server).read()

    assert [(seen.gpu.index, seen.gpu.address, seen.gpu.key[:8]) for seen in reading.gpus] == [
        (0, "0", "AMD-1c77"),
        (1, "1", "AMD-8f1b"),
        (2, "2", "AMD-5d02"),
    ]


def test_who_computes_is_listed_on_the_cards_whose_memory_they_hold(server):
    reading = AmdProbe(server).read()

    [process] = reading.gpus[0].processes
    assert (process.pid, process.memory, process.kind) == (4242, 19030020096, "compute")
    assert (process.user, process.name) == (ME, "python3 (a) b")
    assert [seen.processes for seen in reading.gpus[1:]] == [(), ()]


def test_a_process_out_of_sight_has_no_user(server):
    shutil.rmtree(f"{server}/proc/4242")

    reading = AmdProbe(server).read()

    assert [(process.pid, process.user) for process in reading.gpus[0].processes] == [(4242, None)]


def test_a_link_from_card_to_card_is_better_than_the_way_over_pci(server):
    reading = AmdProbe(server).read()

    assert reading.links == {
        ("AMD-1c77d0ab94e21f38", "AMD-8f1b3c9d2e4a5f60"): 106,
        ("AMD-1c77d0ab94e21f38", "AMD-5d02e8f17ab3c649"): 106,
        ("AMD-5d02e8f17ab3c649", "AMD-8f1b3c9d2e4a5f60"): 59,
    }


def test_memory_errors_are_counted(server):
    write(card_of(server, 2, "ras/umc_err_count"), "ue: 2\nce: 40\n")

    assert AmdProbe(server).read().gpus[0].ecc_uncorrected == 2


def test_a_desktop_card_has_the_name_that_libdrm_knows_and_without_an_id_its_bus(desktop):
    reading = AmdProbe(desktop).read()

    assert [(seen.gpu.key, seen.gpu.name) for seen in reading.gpus] == [
        ("AMD-a1c4e7f20b963d58", "AMD Radeon RX 7900 XTX"),
        ("AMD-0000:0b:00.0", "AMD Radeon RX 580 Series"),
    ]
    assert [(seen.temperature, seen.power) for seen in reading.gpus] == [(47, 61.0), (33, 9.11)]


def test_without_libdrms_list_the_name_is_the_number_of_the_device(desktop):
    os.unlink(f"{desktop}/usr/share/libdrm/amdgpu.ids")

    assert AmdProbe(desktop).read().gpus[0].gpu.name == "AMD 744c"


def test_what_is_built_into_a_processor_is_not_handed_out(desktop):
    assert AmdProbe(desktop).count() == 2


def test_without_kfd_the_open_files_tell_who_uses_a_card_once_each(desktop):
    first, second = AmdProbe(desktop).read().gpus

    assert [(one.pid, one.kind, one.memory, one.name) for one in first.processes] == [
        (1201, "graphics", GIB // 2, "Xwayland"),
        (2202, "compute", GIB, "train"),
    ]
    assert [(one.pid, one.memory) for one in second.processes] == [(2202, 4 * GIB)]


@pytest.mark.parametrize("file", ["gpu_busy_percent", "mem_info_vram_used", "unique_id", "local_cpulist", "hwmon"])
def test_what_a_card_does_not_tell_is_none_and_stops_nothing(server, file):
    path = card_of(server, 1, file)
    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    reading = AmdProbe(server).read()

    assert [seen.state for seen in reading.gpus] == ["ok", "ok", "ok"]


def test_a_card_that_fell_off_is_lost_and_keeps_its_number_and_the_others_theirs(server):
    seconds = [100.0]
    probe = AmdProbe(server, clock=lambda: seconds[0])
    probe.read()
    shutil.rmtree(os.path.join(server, "sys/class/drm/card2"))
    at_once = probe.read()
    seconds[0] += 31.0

    later = probe.read()

    for reading in (at_once, later):
        assert [(seen.gpu.index, seen.state) for seen in reading.gpus] == [(0, "lost"), (1, "ok"), (2, "ok")]


def test_a_machine_without_amd_cards_has_none(tmp_path):
    assert AmdProbe(str(tmp_path)).count() == 0
    assert AmdProbe(str(tmp_path)).read().gpus == ()


# -- recordings of real cards, by others ---------------------------------------------------------------


def test_a_recorded_780m_tells_memory_load_heat_and_its_average_power(tmp_path):
    [seen] = AmdProbe(lay_out("recorded_radeon_780m", tmp_path)).read().gpus

    # Without an id, a name, or a list of its processors. 4 GiB were set aside for it: it counts as a card.
    assert (seen.gpu.key, seen.gpu.name, seen.gpu.cpus) == ("AMD-0000:64:00.0", "AMD 15bf", ())
    assert (seen.gpu.memory_total, seen.memory_used, seen.load) == (4 * GIB, 1272893440, 0)
    assert (seen.temperature, seen.power, seen.ecc_uncorrected) == (25, 3.103, None)
    assert (seen.gpu.address, seen.state) == ("0", "ok")


def test_a_recorded_vega_has_an_empty_name_and_stands_beside_graphics_of_intels(tmp_path):
    [seen] = AmdProbe(lay_out("recorded_vega56", tmp_path)).read().gpus

    assert (seen.gpu.key, seen.gpu.name) == ("AMD-0123456789abcdef", "AMD 687f")
    assert (seen.gpu.memory_total, seen.memory_used, seen.load) == (8573157376, 1490378752, 4)
    assert (seen.temperature, seen.power, seen.state) == (None, None, "ok")
    assert seen.gpu.cpus == tuple(range(16))


def test_recorded_mi210_are_found_on_their_bus_and_near_ones_are_linked_better(tmp_path):
    first, second, third = nodes(lay_out("recorded_mi210", tmp_path))

    assert [node.pci for node in (first, second, third)] == ["0000:63:00.0", "0000:43:00.0", "0000:a3:00.0"]
    assert [node.ranks for node in (first, second, third)] == [(0,), (1,), (2,)]
    links = links_between({"a": first, "b": second, "c": third})
    assert links == {("a", "b"): 105, ("a", "c"): 27}


@pytest.fixture
def divided(tmp_path):
    """The recorded nodes of two cards, with files beside them that were not recorded."""
    root = lay_out("recorded_mi308x_divided", tmp_path / "a root")
    for number, pci in ((1, "0000:0a:00.0"), (2, "0000:80:00.0")):
        os.makedirs(card_of(root, number, ""))
        write(card_of(root, number, "vendor"), "0x1002\n")
        write(card_of(root, number, "uevent"), f"PCI_SLOT_NAME={pci}\n")
        write(card_of(root, number, "mem_info_vram_total"), f"{192 * GIB}\n")
    return root


def test_a_recorded_card_that_is_divided_is_one_card_with_the_addresses_of_all_its_parts(divided):
    reading = AmdProbe(divided).read()

    assert [(seen.gpu.index, seen.gpu.address) for seen in reading.gpus] == [(0, "0,1,2,3"), (1, "4,5,6,7")]
    assert reading.links == {("AMD-0000:0a:00.0", "AMD-0000:80:00.0"): 101}


def test_who_computes_on_any_part_of_a_divided_card_is_seen_on_the_card(divided):
    computing = os.path.join(divided, "sys/class/kfd/kfd/proc/4242")
    os.makedirs(computing)
    for gpu_id, memory in ((3306, 0), (3308, GIB), (3309, 2 * GIB)):
        write(os.path.join(computing, f"vram_{gpu_id}"), f"{memory}\n")

    first, second = AmdProbe(divided).read().gpus

    assert first.processes == ()
    assert [(one.pid, one.memory) for one in second.processes] == [(4242, 3 * GIB)]
