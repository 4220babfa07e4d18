"""What a real NVIDIA H200 said, read again."""

from dibs.gpus.nvidia import NvidiaProbe
from dibs.model.gpus import GpuFault
from gpus.replay_nvml import ReplayNvml


def test_everything_that_it_said_is_understood():
    reading = NvidiaProbe(ReplayNvml()).read(energy=True)

    assert reading.driver == "NVIDIA 580.159.04"
    [seen] = reading.gpus
    assert (seen.gpu.key, seen.gpu.name) == ("GPU-57bc0f30-d89c-92e7-fc64-bf120dbc7c1b", "NVIDIA H200")
    assert (seen.gpu.number, seen.gpu.address) == ("0", "")
    assert seen.gpu.memory_total == 150754820096 - 644939776
    assert (seen.memory_used, seen.load, seen.temperature) == (3704422400, 100, 60)
    assert (seen.power, seen.energy, seen.ecc_uncorrected) == (579.577, 3940.061, 0)
    assert seen.gpu.cpus == tuple(range(16))
    assert [process.pid for process in seen.processes] == [427]
    assert (seen.state, reading.links) == ("ok", {})


def test_the_xid_of_its_bad_kernel_is_told_once():
    probe = NvidiaProbe(ReplayNvml())

    first, second = probe.read().faults, probe.read().faults

    assert first == (GpuFault("GPU-57bc0f30-d89c-92e7-fc64-bf120dbc7c1b", 31, "Xid 31"),)
    assert second == ()


def test_a_pass_over_eight_of_them_would_cost_less_than_a_hundredth_of_a_core():
    """By what each call cost there; bench/readings.py measures the whole of it."""
    nvml = ReplayNvml()
    asked = []
    answer = nvml._answer
    nvml._answer = lambda call: (asked.append(call), answer(call))[1]
    probe = NvidiaProbe(nvml)
    probe.read()
    asked.clear()

    probe.read()
    each_second = sum(nvml.said["calls"][call].get("cpu_us", 0) for call in asked)

    energy = nvml.said["calls"]["nvmlDeviceGetTotalEnergyConsumption"]["cpu_us"] / 10
    assert 8 * (each_second + energy) < 10_000
