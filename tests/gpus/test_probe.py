"""Which probe is asked, and what the fake one does for tests."""

import json
import subprocess
import sys

import pytest

from dibs.errors import BadInput
from dibs.gpus import probe as probe_module
from dibs.gpus.fake import FakeProbe
from dibs.gpus.probe import ProbeFailed, find_probe
from gpus.stand_in_nvml import StandInNvml, a_card


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
        "import sys; from dibs.gpus import probe; probe.DRIVER_LIBRARY = 'libno-such-driver.so.1';"
        "print(probe.find_probe({}), 'pynvml' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout == "None False\n", done.stderr


def test_a_library_that_knows_no_card_gives_no_probe(monkeypatch):
    monkeypatch.setattr(probe_module, "_library_loads", lambda _name: True)
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml())

    probe = find_probe({})

    assert probe is None


def test_a_sick_driver_gives_a_probe_that_tells_what_is_wrong(monkeypatch):
    monkeypatch.setattr(probe_module, "_library_loads", lambda _name: True)
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(init_error=18))

    probe = find_probe({})

    with pytest.raises(ProbeFailed):
        probe.read()


def test_a_healthy_driver_gives_its_cards(monkeypatch):
    monkeypatch.setattr(probe_module, "_library_loads", lambda _name: True)
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
