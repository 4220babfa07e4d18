"""A machine with cards of two makers."""

import pytest

from dibs.gpus import probe as probe_module
from dibs.gpus.amd import AmdProbe
from dibs.gpus.combined import CombinedProbe
from dibs.gpus.nvidia import NvidiaProbe
from dibs.gpus.probe import ProbeFailed, find_probe
from gpus.stand_in_nvml import StandInNvml, a_card, an_event
from gpus.trees import lay_out


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
    monkeypatch.setattr(probe_module, "_find_nvidia", lambda: NvidiaProbe(StandInNvml()) if nvidia else None)
    monkeypatch.setattr(probe_module, "AMD_DRIVER", f"{root}/sys/module/{'amdgpu' if amd_folder else 'none'}")
    monkeypatch.setattr(AmdProbe.__init__, "__defaults__", (root,))

    assert type(find_probe({})) is kind
