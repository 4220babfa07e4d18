"""submitit with `cluster="dibs"`: the real package, the real daemon, two declared GPUs."""

import os
import pickle
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import submitit
from submitit.core.utils import FailedJobError, UncompletedJobError

import dibs
from dibs.errors import BadInput
from dibs.plugins.submitit_executor import DibsJob
from stories.outside import World, wait_until


@pytest.fixture
def executor(here: Path) -> submitit.AutoExecutor:
    return submitit.AutoExecutor(folder=here / "log", cluster="dibs")


def about(queue: World, job: submitit.Job[Any]) -> dict[str, Any]:
    return queue.client().job(int(job.job_id))


def test_a_function_comes_back_with_its_result_and_is_a_job_of_the_queue(
    queue: World, executor: submitit.AutoExecutor
) -> None:
    executor.update_parameters(gpus_per_node=1)

    def train(lr: float, *, scale: int) -> tuple[float, str]:
        return lr * scale, os.environ["CUDA_VISIBLE_DEVICES"]

    job = executor.submit(train, 0.5, scale=4)

    value, gpu = job.result()
    assert value == 2.0
    assert gpu in ("0", "1")
    wait_until(lambda: job.state == "COMPLETED", show=lambda: job.state)
    found = about(queue, job)
    assert (found["name"], found["command"], found["gpus"]) == ("train", "train(0.5, scale=4)", [int(gpu)])
    assert found["words"][-1] == f"--train:{__file__}"  # another function is of another shape


def test_without_a_word_about_gpus_a_job_has_none(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(lambda: os.environ["CUDA_VISIBLE_DEVICES"])

    assert job.result() == ""


def test_an_array_and_a_batch_are_one_call_and_keep_their_order(
    queue: World, executor: submitit.AutoExecutor
) -> None:
    numbers = executor.map_array(lambda x, y: x * y, [1, 2, 3], [10, 10, 10])
    with executor.batch():
        later = [executor.submit(lambda k: -k, k) for k in range(3)]

    assert [job.result() for job in numbers] == [10, 20, 30]
    assert [job.result() for job in later] == [0, -1, -2]
    ids = [int(job.job_id) for job in (*numbers, *later)]
    assert ids == list(range(ids[0], ids[0] + 6))


def test_the_parameters_of_submitit_are_wishes(queue: World, executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(
        name="big", gpus_per_node=2, timeout_min=90, mem_gb=1.5, cpus_per_task=1, dibs_priority=7,
        dibs_vram="2G", dibs_project="vision", dibs_tags=["a", "b"], dibs_hold=True, dibs_env={"SEED": 3},
    )  # fmt: skip

    job = executor.submit(print)

    found = about(queue, job)
    assert {key: found[key] for key in ("num_gpus", "time_limit_seconds", "mem_bytes", "cpus", "priority")} == {
        "num_gpus": 2,
        "time_limit_seconds": 5400.0,
        "mem_bytes": 3 * 2**29,
        "cpus": 1,
        "priority": 7,
    }
    assert (found["vram_bytes"], found["project"], found["tags"]) == (2 * 2**30, "vision", ["a", "b"])
    assert found["env"]["SEED"] == "3"
    assert (found["name"], found["command"]) == ("big", "print()")
    assert (found["state"], job.state, job.done()) == ("held", "PENDING", False)
    job.cancel()
    assert (job.state, job.done()) == ("CANCELLED", True)


@pytest.mark.parametrize("name", ["nodes", "tasks_per_node"])
def test_what_one_process_on_one_machine_cannot_be_is_refused(executor: submitit.AutoExecutor, name: str) -> None:
    with pytest.raises(BadInput, match=f"cannot run with {name}=2"):
        executor.update_parameters(**{name: 2})

    executor.update_parameters(**{name: 1})


def test_a_wish_that_cannot_be_granted_is_refused_and_leaves_nothing_behind(
    here: Path, executor: submitit.AutoExecutor
) -> None:
    executor.update_parameters(gpus_per_node=3)

    with pytest.raises(BadInput):
        executor.submit(print)

    assert list((here / "log").iterdir()) == []


def test_an_exception_comes_back_with_its_traceback_and_the_job_has_failed(
    queue: World, executor: submitit.AutoExecutor
) -> None:
    def fail() -> None:
        raise ValueError("loss is nan")

    job = executor.submit(fail)

    with pytest.raises(FailedJobError, match="ValueError: loss is nan"):
        job.result()
    queue.wait_for(int(job.job_id))
    assert job.get_info()["jobState"] == "FAILED"


def test_a_job_that_dies_is_told_of_at_once_with_what_it_wrote(executor: submitit.AutoExecutor) -> None:
    def die() -> None:
        os.write(2, b"out of luck\n")
        os._exit(3)

    job = executor.submit(die)

    with pytest.raises(UncompletedJobError, match=r"state: FAILED(?s:.*)out of luck"):
        job.result()


def test_a_running_job_is_cancelled_without_waiting_for_its_grace(
    queue: World, executor: submitit.AutoExecutor, here: Path
) -> None:
    executor.update_parameters(dibs_grace="40s")
    job = executor.submit(lambda: ((here / "began").touch(), time.sleep(600)))
    wait_until((here / "began").exists)

    job.cancel()

    assert (job.state, about(queue, job)["signal"]) == ("CANCELLED", 15)


def test_a_suspended_job_is_not_over(queue: World, executor: submitit.AutoExecutor, here: Path) -> None:
    def waits() -> str:
        (here / "began").touch()
        while not (here / "go on").exists():
            time.sleep(0.02)
        return "went on"

    job = executor.submit(waits)
    wait_until((here / "began").exists)
    number = int(job.job_id)

    dibs.job_by_id(number).suspend()
    wait_until(lambda: job.state == "SUSPENDED", show=lambda: job.state)
    assert not job.done(force_check=True)
    (here / "go on").touch()
    dibs.job_by_id(number).resume()

    assert job.result() == "went on"


def test_the_streams_are_apart_and_lie_where_submitit_looks(executor: submitit.AutoExecutor, here: Path) -> None:
    def talk() -> None:
        print("to stdout")
        os.write(2, b"to stderr\n")

    job = executor.submit(talk)
    job.result()

    assert "to stdout" in (job.stdout() or "") and "to stderr" not in (job.stdout() or "")
    assert job.stderr() == "to stderr\n"
    assert (here / "log" / f"{job.job_id}_0_log.out").read_text() == job.stdout()


def test_one_file_has_both_streams_where_that_is_wanted(executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(stderr_to_stdout=True)

    job = executor.submit(os.write, 2, b"to stderr\n")
    job.result()

    assert "to stderr" in job.paths.stdout.read_text()
    assert not job.paths.stdout.is_symlink()


def test_inside_submitit_knows_the_job(executor: submitit.AutoExecutor, here: Path) -> None:
    def look() -> tuple[str, str, int, str]:
        environment = submitit.JobEnvironment()
        return environment.cluster, environment.job_id, environment.num_tasks, str(environment.paths.folder)

    job = executor.submit(look)

    assert job.result() == ("dibs", job.job_id, 1, str(here / "log"))


def test_a_function_that_can_be_saved_is_queued_again_and_goes_on(queue: World, here: Path) -> None:
    executor = submitit.AutoExecutor(folder=here / "log", cluster="dibs", dibs_max_num_timeout=20)
    # Longer than it takes to import what it needs on a busy machine, and shorter than the work.
    executor.update_parameters(dibs_timeout_min=8 / 60, dibs_checkpoint_seconds=2)

    class Count(submitit.helpers.Checkpointable):
        def __init__(self) -> None:
            self.done: list[tuple[int, str]] = []

        def __call__(self, last: int) -> list[tuple[int, str]]:
            while len(self.done) < last:
                time.sleep(0.5)
                self.done.append((len(self.done), os.environ["DIBS_ATTEMPT"]))
            return self.done

    job = executor.submit(Count(), 16)

    done = job.result()
    assert [step for step, _ in done] == list(range(16))
    assert len({attempt for _, attempt in done}) > 1
    queue.wait_for(int(job.job_id))
    assert job.get_info()["jobState"] == "COMPLETED"
    assert about(queue, job)["attempts"] == int(done[-1][1])


def test_an_interrupted_function_saves_itself_and_goes_on(queue: World, here: Path) -> None:
    executor = submitit.AutoExecutor(folder=here / "log", cluster="dibs")
    executor.update_parameters(timeout_min=10)

    class Stay(submitit.helpers.Checkpointable):
        def __init__(self) -> None:
            self.attempts: list[str] = []

        def __call__(self) -> list[str]:
            self.attempts.append(os.environ["DIBS_ATTEMPT"])
            Path(f"began-{len(self.attempts)}").touch()
            while len(self.attempts) < 2:
                time.sleep(0.05)
            return self.attempts

    job = executor.submit(Stay())
    wait_until(lambda: (here / "began-1").exists(), show=job.stderr)
    job._interrupt()

    assert job.result() == ["1", "2"]
    assert job.get_info()["jobState"] == "COMPLETED"


@pytest.mark.filterwarnings("ignore:Setting 'array_parallelism' is deprecated")
@pytest.mark.parametrize(
    "name", ["slurm_array_parallelism", "array_parallelism"]
)  # the other is submitit's old one
def test_an_array_runs_so_many_at_once(queue: World, executor: submitit.AutoExecutor, name: str) -> None:
    executor.update_parameters(dibs_hold=True, **{name: 2})
    executor.update_parameters(slurm_partition="other", slurm_time=3)  # of Slurm, and not for us

    jobs = executor.map_array(int, range(3))

    arrays = [about(queue, job)["array"] for job in jobs]
    assert arrays == [{"id": int(jobs[0].job_id), "task": task, "most": 2} for task in (1, 2, 3)]
    queue.client().act("kill", [int(job.job_id) for job in jobs])


@pytest.mark.filterwarnings("ignore:Setting 'array_parallelism' is deprecated")
def test_no_parameter_of_slurm_is_taken_away_from_scripts_for_it(here: Path) -> None:
    executor = submitit.AutoExecutor(folder=here / "log", cluster="slurm", slurm_max_num_timeout=1)
    executor.update_parameters(array_parallelism=2)

    assert executor.parameters["array_parallelism"] == 2
    names = {name: one._valid_parameters() for name, one in submitit.core.plugins.get_executors().items()}
    assert not names["dibs"] & names["slurm"]


def test_a_function_that_cannot_be_saved_has_its_whole_time_and_then_ends(
    queue: World, executor: submitit.AutoExecutor
) -> None:
    executor.update_parameters(dibs_timeout_min=2 / 60)

    job = executor.submit(time.sleep, 600)

    with pytest.raises(UncompletedJobError, match="state: TIMEOUT"):
        job.result()
    assert about(queue, job)["checkpoint"] is None


def test_a_job_is_found_again_from_its_pickle_and_from_its_number(
    executor: submitit.AutoExecutor, here: Path
) -> None:
    job = executor.submit(lambda: "still here")

    again = pickle.loads(pickle.dumps(job))
    by_number: DibsJob[str] = DibsJob(here / "log", job.job_id)

    assert again.result() == by_number.result() == "still here"


def test_a_job_that_was_cleaned_away_is_over(queue: World, executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(dibs_hold=True, dibs_project="forgotten")
    job = executor.submit(print)
    queue.client().act("kill", [int(job.job_id)])
    queue.client().clean(project="forgotten")

    assert (job.state, job.done()) == ("FORGOTTEN", True)
    with pytest.raises(UncompletedJobError, match="FORGOTTEN"):
        job.result()


def test_what_an_earlier_queue_left_under_the_same_number_is_nobodys_result(
    queue: World, executor: submitit.AutoExecutor, here: Path
) -> None:
    following = int(executor.submit(int).job_id) + 1
    for name, content in (("submitted", submitit.core.utils.DelayedSubmission(lambda: "old")), ("0_result", None)):
        with (here / "log" / f"{following}_{name}.pkl").open("wb") as file:
            cloudpickle.dump(content or ("success", "old"), file)

    job = executor.submit(lambda: "new")

    assert int(job.job_id) == following
    assert job.result() == "new"


def test_installing_dibs_moves_nobodys_jobs(here: Path) -> None:
    assert submitit.AutoExecutor(folder=here / "log").cluster != "dibs"
    slurms = submitit.AutoExecutor(folder=here / "log", cluster="local")._deprecated_args
    assert {name: slurms[name] for name in ("time", "partition", "signal_delay_s")} == {
        "time": "slurm_time",
        "partition": "slurm_partition",
        "signal_delay_s": "slurm_signal_delay_s",
    }
