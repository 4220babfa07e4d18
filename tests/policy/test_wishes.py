"""What else a job may wish: a type of card, CPUs, memory, so many of its array at once."""

import pytest

from dibs.model.jobs import ArrayTask, JobId, Wishes
from dibs.policy.schedule import impossible, schedule, waits_for_turn, wish_in_the_way
from policy.builders import GIB, a_job, a_machine, placed

CARDS = ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H200"]


@pytest.mark.parametrize(("gpu_type", "where"), [("h200", [0, 2]), ("H200", [0, 2]), ("nvidia", [0, 1])])
def test_a_type_is_a_part_of_the_name_in_any_case(gpu_type, where):
    job = a_job(gpus=2, gpu_type=gpu_type)

    plan = schedule(a_machine(gpus=3, names=CARDS).with_waiting(job))

    assert placed(plan) == {job.id: where}


def test_a_job_waits_for_a_card_of_its_type_and_keeps_no_other():
    picky, other = a_job(gpu_type="a100"), a_job()
    machine = a_machine(gpus=3, names=CARDS, busy=[1])

    plan = schedule(machine.with_waiting(picky, other))

    assert plan.reasons[picky.id].sentence == "waits for a GPU of type a100: GPU 1 is held by job 99"
    assert placed(plan) == {other.id: [0]}


def test_a_card_without_a_name_is_of_no_type():
    job = a_job(gpu_type="h200")

    plan = schedule(a_machine(gpus=1).with_waiting(job))

    assert plan.reasons[job.id].sentence == (
        "waits for a GPU of type h200: the GPUs here were only declared, and their type is unknown"
    )


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        (Wishes(gpu_type="h200", num_gpus=2), ""),
        (Wishes(gpu_type="b300", num_gpus=0), ""),
        (Wishes(cpus=8, mem=64 * GIB), ""),
        (
            Wishes(gpu_type="b300"),
            "it wants a GPU of type b300, but there is only NVIDIA A100-SXM4-80GB and NVIDIA H200",
        ),
        (
            Wishes(gpu_type="h200", num_gpus=3),
            "it wants 3 GPUs of type h200, but only 2 may be used (GPU 0, 1, 2)",
        ),
        (
            Wishes(gpu_type="h200", only=("1",)),
            "it wants a GPU of type h200, but none may be used (GPU 1)",
        ),
        (Wishes(cpus=9), "it wants 9 CPUs, but this machine has 8"),
        (Wishes(num_gpus=0, mem=65 * GIB), "it wants 65G of memory, but this machine has 64G"),
    ],
)
def test_what_this_machine_does_not_have_is_refused(wishes, why):
    pool = a_machine(gpus=3, names=CARDS).pool

    found = impossible(wishes, pool, cpus=8, mem=64 * GIB)

    assert found == why


@pytest.mark.parametrize(
    ("wishes", "key"),
    [
        (Wishes(gpu_type="b300"), "gpu_type"),
        (Wishes(gpu_type="h200", num_gpus=3), "gpu_type"),
        (Wishes(num_gpus=4, prefer=("1",)), "num_gpus"),
        (Wishes(only=("7",)), "only"),
        (Wishes(vram=200 * GIB), "vram_bytes"),
        (Wishes(cpus=9), "cpus"),
        (Wishes(num_gpus=0, mem=65 * GIB), "mem_bytes"),
        (Wishes(cpus=9, mem=65 * GIB), ""),
    ],
)
def test_the_wish_that_makes_a_job_impossible_is_named_where_it_is_a_single_one(wishes, key):
    pool = a_machine(gpus=3, names=CARDS, memory=80 * GIB).pool

    assert wish_in_the_way(wishes, pool, cpus=8, mem=64 * GIB) == key


def test_a_type_that_no_group_has_is_refused():
    pool = a_machine(gpus=3, names=CARDS, groups=[(0, 1), (2,)]).pool

    found = [impossible(Wishes(gpu_type=one, num_gpus=2), pool) for one in ("h200", "a100", "b300")]

    assert all(found)
    assert impossible(Wishes(gpu_type="h200"), pool) == ""


def test_where_nothing_is_counted_every_wish_for_cpus_is_possible():
    job = a_job(cpus=10_000, mem=10_000)

    plan = schedule(a_machine(gpus=1).with_waiting(job))

    assert impossible(job.request.wishes, a_machine(gpus=1).pool) == ""
    assert placed(plan) == {job.id: [0]}


def test_cpus_are_booked_and_the_reason_names_them():
    first, second, third = a_job(cpus=5), a_job(cpus=4), a_job()

    plan = schedule(a_machine(gpus=3).with_waiting(first, second, third, cpus_free=8))

    assert placed(plan) == {first.id: [0], third.id: [2]}  # GPU 1 is kept for the second
    assert plan.reasons[second.id].code == "no-cpus"
    assert plan.reasons[second.id].sentence == "waits for 4 CPUs: 3 free"


def test_memory_is_booked_and_the_reason_names_it():
    first, second = a_job(gpus=0, mem=60), a_job(gpus=0, mem=8)

    plan = schedule(a_machine(gpus=1).with_waiting(first, second, mem_free=64 * GIB, room_without_gpu=2))

    assert placed(plan) == {first.id: []}
    assert plan.reasons[second.id].code == "no-mem"
    assert plan.reasons[second.id].sentence == "waits for 8G of memory: 4G free"


def test_a_job_that_wishes_many_cpus_is_not_passed_for_ever():
    big, small, careless = a_job(gpus=0, cpus=8), a_job(gpus=0, cpus=1), a_job(gpus=0)

    plan = schedule(a_machine(gpus=0).with_waiting(big, small, careless, cpus_free=6, room_without_gpu=4))

    assert placed(plan) == {careless.id: []}
    assert plan.reasons[small.id].sentence == "waits for a CPU: 6 free, but kept for an earlier job"


def test_cpus_kept_for_later_may_be_used_until_then():
    wide = a_job(gpus=2, cpus=6)
    late, early = a_job(gpus=0, cpus=4, time_limit=101), a_job(gpus=0, cpus=4, time_limit=100)
    machine = a_machine(gpus=2, busy=[0], until={0: 100})

    plan = schedule(machine.with_waiting(wide, late, early, cpus_free=8, room_without_gpu=4))

    assert placed(plan) == {early.id: []}


def test_when_cpus_are_free_is_unknown():
    wide, short = a_job(gpus=2, cpus=8), a_job(time_limit=1)
    machine = a_machine(gpus=3, busy=[0], until={0: 100})

    plan = schedule(machine.with_waiting(wide, short, cpus_free=6))

    assert plan.reasons[wide.id].code == "no-cpus"
    assert plan.reasons[wide.id].until is None
    assert placed(plan) == {}


def test_a_card_is_named_before_the_cpus_where_both_lack():
    job = a_job(cpus=8)

    plan = schedule(a_machine(gpus=1, busy=[0]).with_waiting(job, cpus_free=0))

    assert plan.reasons[job.id].code == "no-gpu"


def a_task(array, task, most=2, **wishes):
    return a_job(array=ArrayTask(JobId(array), task, most), **wishes)


def test_of_an_array_so_many_run_at_once():
    tasks = [a_task(7, number) for number in range(4)]

    plan = schedule(a_machine(gpus=4).with_waiting(*tasks, array_running={JobId(7): 1}))

    assert list(placed(plan)) == [tasks[0].id]
    assert plan.reasons[tasks[1].id].code == "array"
    assert plan.reasons[tasks[1].id].sentence == "waits for its array: 2 of its tasks run at once"


def test_a_task_that_waits_for_its_array_keeps_nothing_from_others():
    task, twin, other_array = a_task(7, 1, most=1), a_job(), a_task(9, 1, most=1)

    plan = schedule(a_machine(gpus=2).with_waiting(task, twin, other_array, array_running={JobId(7): 1}))

    assert placed(plan) == {twin.id: [0], other_array.id: [1]}
    assert plan.reasons[task.id].sentence == "waits for its array: one of its tasks runs at once"


def test_an_array_without_a_cap_is_like_any_job():
    tasks = [a_task(7, number, most=None) for number in range(3)]

    plan = schedule(a_machine(gpus=2).with_waiting(*tasks, array_running={JobId(7): 99}))

    assert list(placed(plan)) == [tasks[0].id, tasks[1].id]
    assert plan.reasons[tasks[2].id].code == "no-gpu"


def test_a_paused_project_waits_and_keeps_nothing_from_others():
    paused, twin = a_job(gpus=2, project="vision"), a_job(gpus=2, project="speech")

    plan = schedule(a_machine(gpus=2).with_waiting(paused, twin, paused={"vision": "by alice"}))

    assert placed(plan) == {twin.id: [0, 1]}
    assert plan.reasons[paused.id].code == "paused"
    assert plan.reasons[paused.id].sentence == "waits for its project vision: it is paused (by alice)"


def test_while_the_queue_is_paused_nothing_starts():
    jobs = [a_job(), a_job(project="vision")]

    plan = schedule(a_machine(gpus=2).with_waiting(*jobs, paused={"": ""}))

    assert {reason.sentence for reason in plan.reasons.values()} == {"waits for the queue: it is paused"}
    assert plan.reasons.keys() == {job.id for job in jobs}


@pytest.mark.parametrize(("ahead", "words"), [(1, "1 job goes first"), (12_345, "12,345 jobs go first")])
def test_a_job_behind_others_knows_how_many_and_what_the_first_waits_for(ahead, words):
    job = a_job()
    head = schedule(a_machine(gpus=1, busy=[0], until={0: 60}).with_waiting(job)).reasons[job.id]

    reason = waits_for_turn(ahead, head)

    assert reason.code == "turn"
    assert reason.sentence == f"waits for its turn: {words}; the first waits for a GPU: GPU 0 is held by job 99"
    assert reason.until == 60
