"""From readings and trees to what each attempt used."""

import threading
import time
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from dibs.engine.watch import metering
from dibs.engine.watch.metering import CardEnergy, Meter, Series, StoredSeries
from dibs.engine.watch.sampling import Attribution, CardHolder, Sample
from dibs.model.gpus import CardState, Claim, Gpu, GpuProcess, GpuReading, Reading
from dibs.model.jobs import JobId
from dibs.model.usage import Usage
from dibs.supervise.process_usage import ProcessTree, TreeUsage

G = 1024**3
A, B = (JobId(1), 1), (JobId(2), 1)
NO_PROCESS = ProcessTree(frozenset(), 0.0, 0.0, 0)


def a_card(index=0, *processes, **more) -> GpuReading:
    return GpuReading(
        gpu=Gpu(key=f"GPU-{index}", index=index, memory_total=100 * G), processes=tuple(processes), **more
    )


def a_process(pid, memory=G, user="ann", **more) -> GpuProcess:
    return GpuProcess(pid=pid, user=user, memory=memory, **more)


def a_reading(*cards) -> Reading:
    return Reading(at=datetime(2026, 1, 1, tzinfo=UTC), gpus=cards)


def a_holder(key, *cards, shim) -> CardHolder:
    return CardHolder(key, tuple(Claim(gpu=f"GPU-{one}", index=one, share=Fraction(1)) for one in cards), shim)


def seen(strangers=(), **trees) -> TreeUsage:
    """`s10=(11, 12)`: the shim 10 has these below it."""
    below = {int(name[1:]): pids for name, pids in trees.items()}
    owners = {pid: shim for shim, pids in below.items() for pid in pids} | dict.fromkeys(strangers, 0)
    return TreeUsage({shim: ProcessTree(frozenset(pids), 1.0, 0.0, 5 * G) for shim, pids in below.items()}, owners)


# -- whose is what ---------------------------------------------------------------------------------------


def test_memory_is_that_of_the_processes_below_the_shim():
    reading = a_reading(a_card(0, a_process(11, 2 * G), a_process(12, 3 * G), a_process(99, 7 * G)))

    found = Attribution().divide(reading, [a_holder(A, 0, shim=10)], seen(strangers=[99], s10=(11, 12)))

    assert found[A].memory == {"GPU-0": 5 * G}
    assert found[A].totals == {"GPU-0": 100 * G}
    assert not found[A].is_alone, "a stranger computes there"


def test_several_cards_are_told_apart_and_their_load_is_the_mean():
    reading = a_reading(a_card(0, a_process(11, 2 * G), load=100), a_card(1, a_process(11, 3 * G), load=50))

    found = Attribution().divide(reading, [a_holder(A, 0, 1, shim=10)], seen(s10=(11,)))

    assert found[A].memory == {"GPU-0": 2 * G, "GPU-1": 3 * G}
    assert found[A].load == 75.0
    assert found[A].is_alone


def test_load_and_power_are_divided_among_those_who_share_a_card():
    reading = a_reading(a_card(0, a_process(11), a_process(21), load=90, power=300.0))
    holders = [a_holder(A, 0, shim=10), a_holder(B, 0, shim=20)]

    found = Attribution().divide(reading, holders, seen(s10=(11,), s20=(21,)))

    assert (found[A].load, found[B].load) == (45.0, 45.0)
    assert found[A].power == {"GPU-0": 150.0}
    assert not found[A].is_alone and not found[B].is_alone


def test_load_follows_what_the_driver_last_said_of_each_process():
    told = a_reading(a_card(0, a_process(11, load=60.0), a_process(21, load=20.0), load=80))
    later = a_reading(a_card(0, a_process(11), a_process(21), load=40))
    holders = [a_holder(A, 0, shim=10), a_holder(B, 0, shim=20)]
    trees = seen(s10=(11,), s20=(21,))
    attribution = Attribution()

    first = attribution.divide(told, holders, trees)
    second = attribution.divide(later, holders, trees)

    assert (first[A].load, first[B].load) == (60.0, 20.0)
    assert (second[A].load, second[B].load) == (30.0, 10.0)


def test_who_is_not_on_the_card_has_no_part_of_its_load():
    reading = a_reading(a_card(0, a_process(11), load=90))
    holders = [a_holder(A, 0, shim=10), a_holder(B, 0, shim=20)]

    found = Attribution().divide(reading, holders, seen(s10=(11,), s20=(21,)))

    assert (found[A].load, found[B].load) == (90.0, 0.0)
    assert found[B].memory == {"GPU-0": 0}


@pytest.mark.parametrize(
    "processes",
    [(), (a_process(11, None),), (a_process(4242, None, user=None),), (a_process(4242, 9 * G, user=None),)],
    ids=["none is listed", "without its memory", "a pid of another world", "with its memory"],
)
def test_where_the_driver_hides_whose_memory_it_is_the_difference_counts(processes):
    attribution = Attribution()
    attribution.saw_free(a_reading(a_card(0, memory_used=2 * G)))

    found = attribution.divide(
        a_reading(a_card(0, *processes, memory_used=11 * G)), [a_holder(A, 0, shim=10)], seen(s10=(11,))
    )

    assert found[A].memory == {"GPU-0": 9 * G}
    assert found[A].is_alone


def test_a_difference_says_nothing_about_two_who_share_a_card():
    attribution = Attribution()
    attribution.saw_free(a_reading(a_card(0, memory_used=0)))
    holders = [a_holder(A, 0, shim=10), a_holder(B, 0, shim=20)]

    found = attribution.divide(a_reading(a_card(0, memory_used=9 * G)), holders, seen(s10=(11,), s20=(21,)))

    assert found[A].memory == found[B].memory == {}


def test_what_a_held_card_is_filled_with_is_not_what_it_was_before():
    attribution = Attribution()
    attribution.saw_free(a_reading(a_card(0, memory_used=G)))
    attribution.saw_free(a_reading(a_card(0, memory_used=50 * G)), held=["GPU-0"])

    found = attribution.divide(
        a_reading(a_card(0, memory_used=51 * G)), [a_holder(A, 0, shim=10)], seen(s10=(11,))
    )

    assert found[A].memory == {"GPU-0": 50 * G}


def test_a_process_on_a_card_that_its_job_was_not_given_is_astray():
    reading = a_reading(
        a_card(0, a_process(11)), a_card(1, a_process(12)), a_card(2, a_process(13, kind="graphics"))
    )

    found = Attribution().divide(reading, [a_holder(A, 0, shim=10)], seen(s10=(11, 12, 13)))

    assert found[A].astray == ("GPU-1",)
    assert found[A].memory == {"GPU-0": G}, "what it holds of its own is not mixed with that"


def test_a_declared_card_is_the_one_with_its_number():
    holder = CardHolder(A, (Claim(gpu="index-0", index=0, share=Fraction(1)),), 10)

    found = Attribution().divide(a_reading(a_card(0, a_process(11))), [holder], seen(s10=(11,)))

    assert found[A].astray == ()
    assert found[A].memory == {"GPU-0": G}


def test_what_a_card_said_before_it_fell_silent_is_not_counted():
    reading = a_reading(a_card(0, a_process(11), load=90, power=300.0, state=CardState.STALE))

    found = Attribution().divide(reading, [a_holder(A, 0, shim=10)], seen(s10=(11,)))

    assert (found[A].memory, found[A].load, found[A].power) == ({}, None, {})


def test_an_attempt_whose_processes_are_gone_has_no_sample():
    assert Attribution().divide(a_reading(a_card(0)), [a_holder(A, 0, shim=10)], seen(s20=())) == {}


# -- energy ----------------------------------------------------------------------------------------------


def total(card: CardEnergy, looks, key=A) -> float:
    return sum(card.add(now, power, counter, since).get(key, 0.0) for now, power, counter, since in looks)


def test_energy_is_power_over_time():
    looks = [(float(now), 100.0, None, {A: 0.0}) for now in range(1, 11)]

    assert total(CardEnergy(), looks) == pytest.approx(1000.0)


def test_power_that_changes_between_two_looks_is_taken_in_the_middle():
    looks = [(1.0, 0.0, None, {A: 1.0}), (2.0, 200.0, None, {A: 1.0})]

    assert total(CardEnergy(), looks) == pytest.approx(100.0)


def test_it_is_shared_among_those_who_hold_the_card_from_when_they_do():
    card = CardEnergy()
    card.add(0.0, 100.0, None, {A: -5.0})

    used = card.add(2.0, 100.0, None, {A: -5.0, B: 1.0})

    assert used == {A: pytest.approx(100.0), B: pytest.approx(50.0)}


def test_the_cards_own_counter_sets_the_sum_right():
    looks = [(0.0, 100.0, 5000.0, {A: 0.0})]
    looks += [(float(now), 100.0, 5000.0 if now < 10 else 6200.0, {A: 0.0}) for now in range(1, 11)]

    assert total(CardEnergy(), looks) == pytest.approx(1200.0)


def test_a_counter_that_begins_anew_is_not_believed():
    looks = [(0.0, 100.0, 5000.0, {A: 0.0})]
    looks += [(float(now), 100.0, None if now < 10 else 3.0, {A: 0.0}) for now in range(1, 11)]

    assert total(CardEnergy(), looks) == pytest.approx(1000.0)


def test_the_energy_of_a_card_that_did_not_answer_is_not_counted():
    looks = [(1.0, 100.0, None, {A: 0.0}), (5000.0, 100.0, None, {A: 0.0})]

    assert total(CardEnergy(), looks) < 500.0


# -- one attempt -----------------------------------------------------------------------------------------


def a_sample(memory=0, load=0.0, *, cpu=0.0, reaped=0.0, mem=0, card="GPU-0", **more) -> Sample:
    return Sample(ProcessTree(frozenset(), cpu, reaped, mem), {card: memory}, {card: 100 * G}, load, **more)


def test_a_summary_has_peaks_and_means():
    meter = Meter(0.0, 0.0)

    meter.add(a_sample(4 * G, 0.0, cpu=1.0, mem=2 * G), 1.0)
    meter.add(a_sample(9 * G, 60.0, cpu=5.0, mem=8 * G), 2.0)
    meter.add(a_sample(6 * G, 30.0, cpu=6.0, mem=3 * G), 4.0)
    meter.add_energy(7200.0)

    assert meter.usage(4.0) == Usage(
        seconds=4.0,
        peak_vram=9 * G,
        vram_total=100 * G,
        mean_load=30.0,
        energy=2.0,
        peak_mem=8 * G,
        mean_cpus=1.5,
    )


def test_the_peak_is_of_the_fullest_card():
    meter = Meter(0.0, 0.0)
    meter.add(Sample(NO_PROCESS, {"GPU-0": 3, "GPU-1": 5}, {"GPU-0": 10, "GPU-1": 20}), 1.0)

    assert (meter.usage(1.0).peak_vram, meter.usage(1.0).vram_total) == (5, 20)
    assert meter.series.points[0].memory == 5


def test_what_was_reaped_is_not_counted_twice():
    """A child's time moves to its parent, or to the shim, when it is waited for."""
    meter = Meter(0.0, 0.0)
    meter.add(a_sample(cpu=2.0, reaped=50.0), 1.0)

    meter.add(a_sample(cpu=1.0, reaped=51.5), 2.0)

    assert meter.usage(2.0).mean_cpus == 1.25


def test_what_the_card_takes_after_the_last_look_is_guessed_for_a_moment():
    meter = Meter(0.0, 0.0)
    meter.add(a_sample(G, 1.0, power={"GPU-0": 360.0}), 1.0)
    meter.add_energy(360.0)

    assert meter.usage(1.5).energy == pytest.approx(540 / 3600)
    assert meter.usage(900.0).energy == pytest.approx(1080 / 3600)


def test_one_look_in_company_is_enough_not_to_have_been_alone():
    meter = Meter(0.0, 0.0)
    for now, alone in ((1.0, True), (2.0, False), (3.0, True)):
        meter.add(a_sample(G, 1.0, is_alone=alone), now)

    assert not meter.usage(3.0).was_alone


def test_cards_it_went_astray_to_are_remembered_once():
    meter = Meter(0.0, 0.0)
    for now, astray in ((1.0, ("GPU-1",)), (2.0, ()), (3.0, ("GPU-2", "GPU-1"))):
        meter.add(a_sample(G, 1.0, astray=astray), now)

    assert meter.usage(3.0).astray == ("GPU-1", "GPU-2")


def steady(*looks) -> bool:
    """Whether an attempt is steady after looks, one a second, at its memory in GiB and its load."""
    meter = Meter(0.0, 0.0)
    for now, (memory, load) in enumerate(looks, 1):
        meter.add(a_sample(int(memory * G), float(load)), float(now))
    return meter.usage(float(len(looks))).is_steady


def test_it_is_steady_when_its_memory_has_not_grown_for_three_looks():
    assert steady((9, 50), (9, 50), (9, 50), (9, 50))
    assert not steady((9, 50), (9, 50), (9, 50))


def test_growth_begins_the_wait_anew_but_a_little_is_none():
    assert not steady((9, 50), (9, 50), (9, 50), (12, 50), (12, 50))
    assert steady((9, 50), (9.02, 50), (9.04, 50), (9.05, 50))


def test_slow_growth_is_growth_all_the_same():
    assert not steady(*((9 + step * 0.05, 50) for step in range(20)))


def test_before_it_computes_and_before_it_uses_the_card_it_is_not_steady():
    assert not steady(*[(9, 0)] * 10)
    assert not steady(*[(0, 50)] * 10)
    assert steady((0, 0), (0, 0), (9, 0), (9, 0), (9, 5), (9, 0))


def test_many_samples_in_a_moment_are_not_steady():
    meter = Meter(0.0, 0.0)
    for tenth in range(14):
        meter.add(a_sample(9 * G, 50.0), 1 + tenth / 10)

    assert not meter.usage(2.3).is_steady


def test_another_engine_goes_on_with_what_it_finds():
    kept = StoredSeries(Usage(seconds=10.0, peak_vram=9 * G, mean_load=40.0, energy=1.0, mean_cpus=2.0), Series())
    meter = Meter(0.0, 1000.0, is_resumed=True, kept=kept)

    meter.add(a_sample(5 * G, 80.0, cpu=5000.0), 1000.0)
    meter.add(a_sample(5 * G, 80.0, cpu=5040.0), 1010.0)

    usage = meter.usage(1010.0)
    assert (usage.seconds, usage.peak_vram) == (20.0, 9 * G)
    assert (usage.mean_load, usage.mean_cpus) == (60.0, 3.0), "the time without an engine was not measured"
    assert usage.energy == 1.0
    assert [point.at for point in meter.series.points] == [1000.0, 1010.0]


def test_a_long_time_without_a_look_is_not_measured():
    meter = Meter(0.0, 0.0)
    meter.add(a_sample(G, 50.0, cpu=1.0), 1.0)
    meter.add(a_sample(G, 100.0, cpu=900.0), 1000.0)
    meter.add(a_sample(G, 50.0, cpu=901.0), 1001.0)

    assert (meter.usage(1001.0).seconds, meter.usage(1001.0).mean_load) == (2.0, 50.0)


def test_attempts_that_ended_are_forgotten_where_a_card_has_no_counter():
    joules = CardEnergy()

    for number in range(1000):
        joules.add(float(number), 100.0, None, {(JobId(number), 1): float(number)})

    assert len(joules._parts) == 1


def test_an_engine_that_leaves_does_not_wait_for_a_folder_that_does_not_answer(tmp_path, monkeypatch):
    disk_answers = threading.Event()
    write = metering.write_series

    def silent_write(folder, usage, columns):
        if folder == "/silent":
            disk_answers.wait(10)
        else:
            write(folder, usage, columns)

    monkeypatch.setattr(metering, "write_series", silent_write)
    meters = metering.Meters()
    for number, folder in enumerate(("/silent", str(tmp_path))):
        meter = Meter(0.0, 0.0)
        for second in (1.0, 2.0):
            meter.add(Sample(NO_PROCESS), second)
        meters.add((JobId(number), 1), metering.Measured(meter, 1, folder, 0.0, lambda work, done: True))

    began = time.monotonic()
    meters.close_all()
    seconds = time.monotonic() - began
    disk_answers.set()

    assert seconds < 8
    assert metering.read_series(str(tmp_path)) is not None


def test_how_fast_its_memory_grows_is_that_of_the_last_second():
    meter = Meter(0.0, 0.0)
    seen = []
    for now, held in [(0.25, 2), (1.0, 10), (1.25, 10), (1.5, 10), (2.25, 11), (3.25, 11)]:
        meter.add(a_sample(held * G), now)
        seen.append(round(meter.grows / G, 2))

    assert seen == [2, 10, 8, 6.4, 1, 0]
