"""Which probe is asked, and what the fake one does for tests."""

import json
import subprocess
import sys

import pytest

from dibs.errors import BadInput
from dibs.gpus import detect
from dibs.gpus.amd import AmdProbe
from dibs.gpus.detect import CombinedProbe, find_probe
from dibs.gpus.fake import FakeProbe
from dibs.gpus.nvidia import NvidiaProbe
from dibs.gpus.probe import ProbeFailed
from gpus.stand_in_nvml import StandInNvml, a_card, an_event
from gpus.trees import lay_out


@pytest.fixture
def world(tmp_path):
    """A file of fake cards, rewritten at will, in a folder with an ugly name."""
    folder = tmp_path / "a 'b\" ü"
    folder.mkdir()
    path = folder / "cards.json"

    def rewrite(content):
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return rewrite


def test_the_fake_probe_is_chosen_by_the_environment(world):
    path = world([{"index": 0, "uuid": "GPU-a"}])

    probe = find_probe({"DIBS_PROBE": f"fake:{path}"})

    assert [seen.gpu.key for seen in probe.read().gpus] == ["GPU-a"]


def test_the_driver_can_be_overlooked():
    environ = {"DIBS_PROBE": "none"}

    probe = find_probe(environ)

    assert probe is None


def test_an_unknown_probe_is_refused():
    environ = {"DIBS_PROBE": "amd"}

    with pytest.raises(BadInput) as refusal:
        find_probe(environ)

    assert "'amd'" in refusal.value.message


def test_without_the_drivers_library_there_is_no_probe_and_the_binding_is_not_imported():
    program = (
        "import sys; from dibs.gpus import detect; detect.DRIVER_LIBRARY = 'libno-such-driver.so.1';"
        "print(detect.find_probe({}), 'pynvml' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout == "None False\n", done.stderr


def test_a_library_that_knows_no_card_gives_no_probe(monkeypatch):
    monkeypatch.setattr(detect, "_library_loads", lambda _name: True)
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml())

    probe = find_probe({})

    assert probe is None


def test_a_sick_driver_gives_a_probe_that_tells_what_is_wrong(monkeypatch):
    monkeypatch.setattr(detect, "_library_loads", lambda _name: True)
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(init_error=18))

    probe = find_probe({})

    with pytest.raises(ProbeFailed):
        probe.read()


def test_a_healthy_driver_gives_its_cards(monkeypatch):
    monkeypatch.setattr(detect, "_library_loads", lambda _name: True)
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(a_card(1)))

    probe = find_probe({})

    assert len(probe.read().gpus) == 1


def test_the_fake_probe_reads_its_file_again_every_time(world):
    probe = FakeProbe(world([{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-b"}]))
    probe.read()
    world([{"index": 1, "uuid": "GPU-b", "memory_used": 7}])

    reading = probe.read()

    assert [(seen.gpu.key, seen.memory_used) for seen in reading.gpus] == [("GPU-b", 7)]


@pytest.mark.parametrize(
    "junk",
    [
        "",
        "not json",
        "7",
        '"GPU"',
        [{"index": 0}],
        [{"uuid": "GPU-a"}],
        [["GPU-a"]],
        {"gpus": [{"index": "x", "uuid": "GPU-a"}]},
        [{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-a"}],
        [{"index": 0, "uuid": "GPU-a"}, {"index": 0, "uuid": "GPU-b"}],
        {"gpus": [], "fail": "it is on fire"},
    ],
)
def test_junk_and_wanted_failures_are_a_failed_probe(world, junk):
    probe = FakeProbe(world(junk))

    with pytest.raises(ProbeFailed) as failure:
        probe.read()

    assert failure.value.message.startswith("cannot ")


def test_a_missing_file_is_a_failed_probe(tmp_path):
    probe = FakeProbe(str(tmp_path / "nothing.json"))

    with pytest.raises(ProbeFailed) as failure:
        probe.read()

    assert "nothing.json" in failure.value.message


def test_a_fake_probe_without_cards_shows_none(world):
    probe = FakeProbe(world([]))

    reading = probe.read()

    assert reading.gpus == ()


class FailingProbe:
    def __init__(self, probe):
        self.probe = probe
        self.fails = False

    def read(self, *, energy=False):
        if self.fails:
            raise ProbeFailed("cannot ask")
        return self.probe.read(energy=energy)


@pytest.fixture
def amd(tmp_path):
    return AmdProbe(lay_out("mi300x", tmp_path / "root"))


def test_amd_cards_follow_the_numbers_of_nvidia_cards(amd):
    nvml = StandInNvml(a_card(1, levels={2: 10}), a_card(2))
    probe = CombinedProbe([NvidiaProbe(nvml), amd])
    probe.read()
    nvml.events.append(an_event(nvml.cards[0], 8, 79))

    reading = probe.read()

    assert [(seen.gpu.index, seen.gpu.key[:4]) for seen in reading.gpus] == [
        (0, "GPU-"),
        (1, "GPU-"),
        (2, "AMD-"),
        (3, "AMD-"),
        (4, "AMD-"),
    ]
    assert [seen.gpu.address for seen in reading.gpus] == ["", "", "0", "1", "2"]
    assert reading.driver == "NVIDIA 580.159.04, AMD amdgpu 6.12.12"
    assert [fault.xid for fault in reading.faults] == [79]
    assert len(reading.links) == 4


def test_a_driver_that_fails_loses_its_own_cards_only(amd):
    failing = FailingProbe(NvidiaProbe(StandInNvml(a_card(1))))
    probe = CombinedProbe([failing, amd])
    probe.read()
    failing.fails = True

    reading = probe.read()

    assert [(seen.gpu.index, seen.state) for seen in reading.gpus] == [
        (0, "lost"),
        (1, "ok"),
        (2, "ok"),
        (3, "ok"),
    ]


def test_a_driver_that_fails_from_the_start_is_told(amd):
    failing = FailingProbe(amd)
    failing.fails = True

    with pytest.raises(ProbeFailed):
        CombinedProbe([failing, amd]).read()


@pytest.mark.parametrize(
    ("nvidia", "amd_folder", "kind"),
    [(True, True, CombinedProbe), (True, False, NvidiaProbe), (False, True, AmdProbe), (False, False, type(None))],
)
def test_the_probe_follows_what_the_machine_has(nvidia, amd_folder, kind, tmp_path, monkeypatch):
    root = lay_out("mi300x", tmp_path / "root")
    monkeypatch.setattr(detect, "_find_nvidia", lambda: NvidiaProbe(StandInNvml()) if nvidia else None)
    monkeypatch.setattr(detect, "AMD_DRIVER", f"{root}/sys/module/{'amdgpu' if amd_folder else 'none'}")
    monkeypatch.setattr(AmdProbe.__init__, "__defaults__", (root,))

    assert type(find_probe({})) is kind
