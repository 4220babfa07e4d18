"""Functions as jobs of a real queue, through the interface of concurrent.futures."""

import asyncio
import concurrent.futures
import os
import signal
import sys
import threading
import types
from concurrent.futures import as_completed
from pathlib import Path
from unittest.mock import patch

import pytest

import dibs
from dibs.api.errors import RemoteTraceback
from dibs.api.submit import LimitedArray, add
from dibs.api.watch import the_watch
from stories.outside import World, wait_until


def calls(world: World) -> list[str]:
    """What lies on the shelf of calls that nobody has collected."""
    shelf = world.state / "queue" / "calls"
    return os.listdir(shelf) if shelf.exists() else []


def where_am_i() -> object:
    """A function that travels whole, because it is defined inside of one."""

    def train(number: int, factor: int = 10) -> tuple[int, str]:
        return number * factor, os.environ["CUDA_VISIBLE_DEVICES"]

    return train


def test_each_call_is_a_job_with_its_gpu_and_its_value_comes_back(here: World) -> None:
    train = where_am_i()

    with dibs.Executor(num_gpus=1) as executor:
        futures = [executor.submit(train, number, factor=2) for number in range(4)]
        found = {future.result(60)[0] for future in as_completed(futures, timeout=60)}
        cards = {future.result()[1] for future in futures}

    assert found == {0, 2, 4, 6}
    assert cards == {"0", "1"}
    about = futures[3].job.refresh().about
    assert (about["command"], about["name"], about["num_gpus"]) == ("train(3, factor=2)", "train", 1)
    assert calls(here) == []


def test_map_gives_the_results_in_the_order_of_the_arguments(here: World) -> None:
    with dibs.Executor(num_gpus=0) as executor:
        found = list(executor.map(lambda a, b: a * b, range(10), range(100, 110), chunksize=5, timeout=120))

    assert found == [number * (100 + number) for number in range(10)]
    assert calls(here) == []


def test_it_is_an_executor_like_any_other(here: World) -> None:
    with dibs.Executor(num_gpus=0) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        future = executor.submit(lambda: 7)
        done, _ = concurrent.futures.wait([future], timeout=60)

    assert done == {future}
    assert (future.done(), future.running(), future.cancelled(), future.result()) == (True, False, False, 7)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(print)


def test_an_exception_comes_back_with_the_traceback_of_the_job(here: World) -> None:
    def fails() -> None:
        try:
            {}["x"]
        except KeyError as error:
            raise ValueError("no such thing") from error

    with dibs.Executor(num_gpus=0) as executor:
        future = executor.submit(fails)
        error = future.exception(60)

    assert isinstance(error, ValueError) and str(error) == "no such thing"
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in fails" in str(error.__cause__) and "KeyError: 'x'" in str(error.__cause__)
    assert "work.py" not in str(error.__cause__)
    assert "ValueError: no such thing" in future.job.log()  # and in the log
    assert (future.job.state, future.job.exit_code) == ("failed", 1)


def test_an_exception_that_cannot_be_read_again_still_tells_what_happened(here: World) -> None:
    def fails() -> None:
        class Odd(Exception):
            def __init__(self, one: int, two: int) -> None:
                super().__init__("odd")

        raise Odd(1, 2)

    with dibs.Executor(num_gpus=0) as executor:
        error = executor.submit(fails).exception(60)

    assert isinstance(error, dibs.JobFailed)
    assert "Odd: odd" in str(error)
    assert "in fails" in str(error.__cause__)


def test_a_value_that_cannot_travel_is_said_in_a_sentence(here: World) -> None:
    with dibs.Executor(num_gpus=0) as executor:
        error = executor.submit(lambda: threading.Lock()).exception(60)

    assert isinstance(error, dibs.JobFailed)
    assert "cannot give back what lambda returned (lock)" in str(error)


@pytest.mark.parametrize("how", ["words", "named", "inside"])
def test_an_argument_that_cannot_travel_is_refused_before_there_is_a_job(here: World, how: str) -> None:
    lock = threading.Lock()

    with dibs.Executor(num_gpus=0) as executor, pytest.raises(dibs.BadInput) as refused:
        if how == "words":
            executor.submit(print, 1, lock)
        elif how == "named":
            executor.submit(print, end=lock)
        else:
            executor.submit(lambda: lock)

    part = {"words": "its argument 2", "named": "its argument end", "inside": "the function itself"}[how]
    assert f"{part} cannot be pickled" in refused.value.message
    assert calls(here) == []
    assert not (here.state / "queue" / "socket").exists()


def test_a_job_that_is_killed_gives_a_job_failed(here: World) -> None:
    def dies() -> None:
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    with dibs.Executor(num_gpus=0) as executor:
        error = executor.submit(dies).exception(60)

    assert isinstance(error, dibs.JobFailed)
    assert (error.signal, error.log) == (9, "last words\n")
    assert calls(here) == []


def test_a_function_that_ends_its_process_has_no_value(here: World) -> None:
    with dibs.Executor(num_gpus=0) as executor:
        bad = executor.submit(sys.exit, 3).exception(60)
        good = executor.submit(sys.exit, 0).exception(60)

    assert isinstance(bad, dibs.JobFailed) and bad.exit_code == 3
    assert isinstance(good, dibs.JobFailed) and "before it could return one" in str(good)


def test_an_attempt_that_is_killed_does_not_hand_in_the_result_of_the_one_before(here: World) -> None:
    def fails_then_dies() -> None:
        if os.environ["DIBS_ATTEMPT"] == "1":
            raise ValueError("the first time")
        os.kill(os.getpid(), signal.SIGKILL)

    def fails_then_works() -> str:
        if os.environ["DIBS_ATTEMPT"] == "1":
            raise ValueError("the first time")
        return "at last"

    with dibs.Executor(num_gpus=0, retries=1) as executor:
        dies, works = executor.submit(fails_then_dies), executor.submit(fails_then_works)
        error = dies.exception(120)

    assert isinstance(error, dibs.JobFailed) and error.signal == 9
    assert works.result(120) == "at last"


def test_cancelling_takes_a_waiting_job_back_and_leaves_a_running_one(here: World) -> None:
    def waits(fence: str) -> str:
        import time

        while not os.path.exists(fence):
            time.sleep(0.02)
        return "done"

    with dibs.Executor(num_gpus=2) as executor:
        first = executor.submit(waits, str(here.folder / "go on"))
        second = executor.submit(waits, "/not/there")
        wait_until(first.running, show=lambda: first.job.state)

        assert first.cancel() is False
        assert second.running() is False
        assert second.cancel() is True
        assert second.cancel() is True
        (here.folder / "go on").touch()
        ended, _ = concurrent.futures.wait([first, second], timeout=60)

    assert ended == {first, second}
    assert first.result() == "done"
    assert second.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        second.result()
    assert second.job.state == "cancelled"


def test_a_running_job_is_ended_by_its_job(here: World) -> None:
    def sleeps() -> None:
        import time

        time.sleep(60)

    with dibs.Executor(num_gpus=0) as executor:
        future = executor.submit(sleeps)
        wait_until(future.running)
        future.job.cancel()
        error = future.exception(60)

    assert isinstance(error, dibs.JobFailed) and error.state == "cancelled"


def test_shutdown_can_take_back_what_waits(here: World) -> None:
    executor = dibs.Executor(num_gpus=0, hold=True)
    futures = [executor.submit(str, number) for number in range(5)]

    executor.shutdown(wait=True, cancel_futures=True)

    assert all(future.cancelled() for future in futures)
    assert [job.state for job in dibs.jobs()] == ["cancelled"] * 5


def test_leaving_map_in_the_middle_takes_back_the_rest(here: World) -> None:
    def one_at_a_time(number: int) -> int:
        return number

    with dibs.Executor(num_gpus=2, hold=False) as executor:
        results = executor.map(one_at_a_time, range(6))
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]  # it is a generator

    states = {job.state for job in dibs.jobs()}
    assert states <= {"succeeded", "cancelled"} and "cancelled" in states


def test_a_timeout_of_map_counts_from_the_call(here: World) -> None:
    with dibs.Executor(num_gpus=0, hold=True) as executor:
        results = executor.map(str, range(3), timeout=0.2)
        with pytest.raises(TimeoutError):
            next(results)

    assert {job.state for job in dibs.jobs()} == {"cancelled"}


def test_ctrl_c_in_the_block_ends_what_runs_and_what_waits(here: World) -> None:
    def sleeps() -> None:
        import time

        time.sleep(60)

    with pytest.raises(KeyboardInterrupt), dibs.Executor(num_gpus=2) as executor:
        first, second = executor.submit(sleeps), executor.submit(sleeps)
        wait_until(first.running)
        raise KeyboardInterrupt

    assert (first.job.state, second.job.state) == ("cancelled", "cancelled")
    assert first.done() and second.done()


def test_nobody_listens_once_everything_is_collected(here: World) -> None:
    with dibs.Executor(num_gpus=0) as executor:
        executor.submit(str, 1).result(60)

    wait_until(lambda: the_watch()._thread is None)
    assert the_watch()._listeners == {}


def test_whoever_listens_too_late_is_told_when_the_daemon_next_says_anything(here: World) -> None:
    job = dibs.submit("true", num_gpus=0)
    job.wait(60)
    heard: list[str] = []
    watch = the_watch()

    with watch.listening():  # its event is long past
        watch.add(job.id, lambda kind, news: heard.append(kind))
    before = list(heard)
    watch._hear(None)

    assert (before, heard) == ([], ["over"])


def test_one_thread_waits_for_all_of_them(here: World) -> None:
    before = threading.active_count()
    with dibs.Executor(num_gpus=0, hold=True) as executor:
        futures = [executor.submit(str, number) for number in range(20)]
        count = threading.active_count()
        for future in futures:
            future.cancel()

    assert count <= before + 1


def test_futures_stand_a_daemon_that_dies(here: World) -> None:
    def waits(fence: str) -> str:
        import time

        while not os.path.exists(fence):
            time.sleep(0.02)
        return "done"

    fence = here.folder / "go on"
    with dibs.Executor(num_gpus=0) as executor:
        future = executor.submit(waits, str(fence))
        wait_until(future.running)
        pid = here.daemon_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        fence.touch()

        assert future.result(60) == "done"


def test_a_removed_job_is_told_to_its_future(here: World) -> None:
    with dibs.Executor(num_gpus=0, hold=True) as executor:
        future = executor.submit(str, 1)
        future.job.cancel()
        error = future.exception(60)

    assert isinstance(error, dibs.JobFailed)


# -- modules and interpreters -----------------------------------------------------------------------------


def test_functions_of_a_module_beside_the_script_are_imported_there(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("beside.py").write_text("import os\ndef who(): return os.path.abspath(__file__)\n")
    monkeypatch.syspath_prepend("")
    import beside  # type: ignore[import-not-found]

    with dibs.Executor(num_gpus=0, workdir="/") as executor:
        assert executor.submit(beside.who).result(60) == os.path.abspath("beside.py")


def test_a_module_that_the_job_cannot_import_travels_by_value(here: World) -> None:
    made = types.ModuleType("made_up")
    exec("def double(x): return 2 * helper(x)\ndef helper(x): return x + 1", made.__dict__)
    sys.modules["made_up"] = made
    try:
        with dibs.Executor(num_gpus=0) as executor:
            error = executor.submit(made.double, 1).exception(60)
        with dibs.Executor(num_gpus=0, by_value=[made]) as executor:
            value = executor.submit(made.double, 1).result(60)
    finally:
        del sys.modules["made_up"]

    assert value == 4
    assert isinstance(error, dibs.JobFailed) and "No module named 'made_up'" in str(error)


def test_another_version_of_python_is_refused_at_once(here: World, tmp_path: Path) -> None:
    other = tmp_path / "python2"
    other.write_text("#!/bin/sh\necho 2 7\n")
    other.chmod(0o755)

    with pytest.raises(dibs.BadInput, match=r"it is Python 2\.7"):
        dibs.Executor(python=str(other))
    with pytest.raises(dibs.BadInput, match="as python"):
        dibs.Executor(python="/not/there")


def test_another_interpreter_of_the_same_version_runs_the_functions(here: World, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nBY_ANOTHER=1 exec {sys.executable} "$@"\n')
    other.chmod(0o755)

    with dibs.Executor(python=str(other), num_gpus=0) as executor:
        assert executor.submit(lambda: os.environ["BY_ANOTHER"]).result(60) == "1"


def test_a_runner_stands_before_the_interpreter(here: World) -> None:
    with dibs.Executor(runner=["env", "CONTAINED=yes"], num_gpus=0) as executor:
        assert executor.submit(lambda: os.environ["CONTAINED"]).result(60) == "yes"

    with pytest.raises(dibs.BadInput, match="as a runner"):
        dibs.Executor(runner="docker")


def test_what_one_function_needs_says_nothing_of_another(here: World) -> None:
    def one(number: int) -> None: ...

    def other(number: int) -> None: ...

    with dibs.Executor(vram="auto", hold=True) as executor:
        futures = [executor.submit(function, number) for function in (one, other) for number in range(2)]
        shapes = [future.job.refresh().about["shape"] for future in futures]
        executor.shutdown(cancel_futures=True)

    assert shapes[0] == shapes[1] != shapes[2] == shapes[3]
    assert f"--one:{__file__}".replace("_", "-") in shapes[0]  # where it is written


def test_wishes_that_cannot_be_meant_are_refused_when_it_is_made(here: World) -> None:
    with pytest.raises(dibs.BadInput, match="as vram"):
        dibs.Executor(vram="much")
    with pytest.raises(dibs.BadInput, match="once names one job"):
        dibs.Executor(once="x")


# -- decorated functions ----------------------------------------------------------------------------------


def test_a_decorated_function_runs_here_or_in_the_queue(here: World) -> None:
    @dibs.job(num_gpus=1, name="tuned")
    def train(lr: float, layers: int = 1) -> tuple[float, str]:
        """Trains."""
        return lr * layers, os.environ.get("CUDA_VISIBLE_DEVICES", "-")

    assert train(0.5) == (0.5, "-")
    job = train.submit(0.5, layers=4)
    jobs = train.map([1, 2], [3, 4])

    assert job.result(60)[0] == 2.0
    assert job.result()[1] in ("0", "1")  # again: the value is kept
    assert dibs.job_by_id(job.id).result()[0] == 2.0  # also by somebody else
    assert [one.result(60)[0] for one in jobs] == [3, 8]
    assert (job.name, job.command) == ("tuned", "train(0.5, layers=4)")
    assert (train.__name__, train.__doc__) == ("train", "Trains.")
    assert train.wishing(num_gpus=0).submit(1).result(60) == (1, "")
    assert train.map([]) == []


def test_the_bare_decorator_works_too_and_failures_come_back(here: World) -> None:
    @dibs.job
    def fails(what: str) -> None:
        raise LookupError(what)

    with pytest.raises(LookupError, match="gone") as failed:
        fails.wishing(num_gpus=0).submit("gone").result(60)

    assert isinstance(failed.value.__cause__, RemoteTraceback)


def test_a_decorated_function_of_a_module_is_imported_by_its_name(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("decorated.py").write_text(
        "import dibs, threading\n"
        "lock = threading.Lock()\n"  # it could not be pickled
        "@dibs.job(num_gpus=0)\n"
        "def locked(x):\n"
        "    with lock: pass\n"
        "    return x + (locked(x - 1) if x else 0)\n"
    )
    monkeypatch.syspath_prepend("")
    import decorated  # type: ignore[import-not-found]

    assert decorated.locked.submit(3).result(60) == 6


def test_a_decorated_method_of_an_object_can_be_sent_too(here: World) -> None:
    class Net:
        def __init__(self, width: int) -> None:
            self.width = width

        @dibs.job(num_gpus=0)
        def fit(self, steps: int) -> int:
            return self.width * steps

    net = Net(3)

    assert net.fit(4) == 12
    job = net.fit.submit(5)
    assert (job.result(60), job.name, job.command) == (15, "fit", "fit(5)")
    assert [one.result(60) for one in net.fit.wishing(priority=3).map([1, 2])] == [3, 6]
    assert Net.fit.submit(net, 6).result(60) == 18


def test_a_decorated_method_of_a_module_is_imported_by_its_name(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("methods.py").write_text(
        "import dibs, threading\n"
        "lock = threading.Lock()\n"  # it could not be pickled
        "class Net:\n"
        "    @dibs.job(num_gpus=0)\n"
        "    def fit(self, x):\n"
        "        with lock: return x\n"
    )
    monkeypatch.syspath_prepend("")
    import methods  # type: ignore[import-not-found]

    assert methods.Net().fit.submit(3).result(60) == 3


def test_the_outer_of_two_decorators_has_the_last_word(here: World) -> None:
    @dibs.job(num_gpus=0, name="outer")
    @dibs.job(num_gpus=2, name="inner")
    def one() -> int:
        return 1

    job = one.submit()

    assert (job.result(60), job.name, job.gpus) == (1, "outer", ())


def test_a_result_that_was_removed_is_said_to_be(here: World) -> None:
    @dibs.job(num_gpus=0)
    def one() -> int:
        return 1

    job = one.submit()
    job.wait(60)
    for name in calls(here):
        for file in (here.state / "queue" / "calls" / name).iterdir():
            file.unlink()

    with pytest.raises(dibs.JobFailed, match="it was collected before, or removed"):
        job.result()


# -- asyncio ----------------------------------------------------------------------------------------------


def test_a_job_can_be_awaited(here: World) -> None:
    async def main() -> list[object]:
        good = dibs.submit("echo hello", num_gpus=0)
        bad = dibs.submit("exit 4", num_gpus=0)
        over = dibs.submit("true", num_gpus=0)
        over.wait(60)
        found = await asyncio.wait_for(asyncio.gather(good, bad, over, return_exceptions=True), 60)
        lines = [line async for line in good.log(follow=True)]
        return [*found, lines]

    good, bad, over, lines = asyncio.run(main())

    assert (good, over, lines) == (0, 0, ["hello"])
    assert isinstance(bad, dibs.JobFailed) and bad.exit_code == 4


def test_whoever_stops_awaiting_leaves_no_thread_that_holds_up_the_end(here: World) -> None:
    code = """
import asyncio, dibs
async def main():
    job = dibs.submit("sleep 600", num_gpus=0)
    try:
        await asyncio.wait_for(job, 0.3)
    except TimeoutError:
        print("given up")
    async def follow():
        async for line in job.log(follow=True):
            pass
    try:
        await asyncio.wait_for(follow(), 0.3)
    except TimeoutError:
        print("again")
asyncio.run(main())
"""
    ended = here.start(program=[sys.executable, "-c", code]).wait(30)

    assert (ended.status, ended.stdout, ended.stderr) == (0, "given up\nagain\n", "")


def test_a_function_can_be_awaited_through_the_loop(here: World) -> None:
    async def main() -> int:
        with dibs.Executor(num_gpus=0) as executor:
            return await asyncio.get_running_loop().run_in_executor(executor, pow, 2, 10)

    assert asyncio.run(main()) == 1024


def test_whoever_begins_to_await_while_the_daemon_is_away_gets_the_result_too(here: World) -> None:
    socket, fence = here.state / "queue" / "socket", here.folder / "go on"

    async def main() -> list[object]:
        jobs = [dibs.submit(["sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done', str(fence)], num_gpus=0)]
        jobs.append(dibs.submit("true", num_gpus=0, after=jobs[0]))
        first = asyncio.ensure_future(asyncio.wait_for(jobs[0], 60))
        await asyncio.to_thread(wait_until, lambda: jobs[0].id in the_watch()._listeners)
        socket.rename(f"{socket}.away")
        second = asyncio.ensure_future(asyncio.wait_for(jobs[1], 60))
        await asyncio.to_thread(wait_until, lambda: jobs[1].id in the_watch()._listeners or second.done())
        await asyncio.wait([second], timeout=0.5)  # it looks, and nobody answers
        socket.with_name("socket.away").rename(socket)
        fence.touch()
        return [await first, await second]

    assert asyncio.run(main()) == [0, 0]


def test_awaiting_an_unknown_job_raises(here: World) -> None:
    async def main() -> None:
        dibs.submit("true", num_gpus=0)
        await dibs.Job(99)

    with pytest.raises(dibs.NoSuchJob):
        asyncio.run(main())


def test_a_warm_function_leaves_nothing_undone_at_its_end(here: World) -> None:
    def untidy() -> int:
        import atexit
        import threading
        import time

        global left_open
        left_open = open("left-open", "w")  # noqa: SIM115
        left_open.write("by the function\n")
        atexit.register(lambda: left_open.write("at the exit\n"))
        threading.Thread(target=lambda: (time.sleep(0.2), left_open.write("by a thread\n"))).start()
        print("not flushed", end="")
        return 7

    with dibs.Executor(num_gpus=0, warm="colorsys") as executor:
        future = executor.submit(untidy)
        assert future.result(60) == 7
        assert future.job.wait(60)

    assert (here.folder / "left-open").read_text() == "by the function\nby a thread\nat the exit\n"
    assert future.job.log() == "not flushed"
    assert future.job.exit_code == 0


MAIN = """
import functools, multiprocessing, dibs
@functools.lru_cache(maxsize=7)
def cached(x):
    "Its words."
    return x + 1
def main(x):
    return cached(x) * 2
class Point:
    def __init__(self, x):
        self.x = x
    def __call__(self, y):
        return self.x + y
def several(how):
    with multiprocessing.get_context(how).Pool(2) as pool:
        return pool.map(main, [1, 2]), pool.map(Point(1), [1, 2])
if __name__ == "__main__":
    with dibs.Executor(num_gpus=0) as executor:
        ones = [executor.submit(cached, 1), executor.submit(lambda: (cached.__doc__, cached.cache_parameters()))]
        pools = [executor.submit(several, how) for how in ("fork", "spawn")]
        print([future.result(60) for future in (*ones, *pools)])
"""


def test_cached_functions_and_pools_of_a_script_work_in_a_job(here: World) -> None:
    (here.folder / "script.py").write_text(MAIN)

    ended = here.start(program=(sys.executable, "script.py")).wait()

    about, pools = "('Its words.', {'maxsize': 7, 'typed': False})", "([4, 6], [2, 3])"
    assert ended.stdout == f"[2, {about}, {pools}, {pools}]\n", ended.stderr


def test_chunksize_puts_calls_together(here: World) -> None:
    with dibs.Executor(num_gpus=0, name="chunks") as executor:
        found = list(
            executor.map(lambda a, b: (a * b, os.environ["DIBS_JOB_ID"]), range(5), range(5), chunksize=2)
        )

    assert [value for value, _ in found] == [0, 1, 4, 9, 16]
    numbers = [number for _, number in found]
    assert len(set(numbers)) == 3 and numbers[0] == numbers[1] and numbers[2] == numbers[3]
    first = dibs.job_by_id(int(numbers[0]))
    assert first.command == "lambda(0, 0) and 1 more"
    assert calls(here) == []


def test_max_workers_limits_the_calls_of_one_executor_and_no_others(here: World) -> None:
    def most_at_once(folder: str) -> int:
        import time

        mine = Path(folder, os.environ["DIBS_JOB_ID"])
        mine.touch()
        time.sleep(0.2)
        seen = len(list(Path(folder).iterdir()))
        mine.unlink()
        return seen

    together = here.folder / "together"
    together.mkdir()
    with dibs.Executor(2, num_gpus=0) as executor, dibs.Executor(num_gpus=0, hold=True) as other:
        waits = other.submit(int)
        mapped = executor.map(most_at_once, [str(together)] * 3)
        futures = [executor.submit(most_at_once, str(together)) for _ in range(2)]
        most = max([*mapped, *(future.result(60) for future in futures)])
        waits.cancel()

    assert most <= 2
    arrays = [future.job.refresh().about["array"] for future in futures]
    assert [(array["task"], array["most"]) for array in arrays] == [(4, 2), (5, 2)]
    assert arrays[0]["id"] == arrays[1]["id"] < futures[0].job.id
    assert waits.job.refresh().about["array"] is None
    with pytest.raises(ValueError, match="max_workers"):
        dibs.Executor(0)


def test_nothing_joins_an_array_that_there_is_not(here: World) -> None:
    plain = dibs.submit("true", num_gpus=0)

    for array in (plain.id, 999):
        with pytest.raises(dibs.BadInput, match=f"there is no array {array}"):
            add([{"command": "true", "array": {"task": 1, "id": array}}], {})


def test_a_limited_array_gives_no_number_twice_though_no_answer_came() -> None:
    answers: list[object] = [[dibs.Job(5)], TimeoutError, [dibs.Job(7)]]
    with patch("dibs.api.submit.add", side_effect=answers) as asked:
        array = LimitedArray(2)
        array.add([{"command": "true"}], {})
        with pytest.raises(TimeoutError):
            array.add([{"command": "true"}], {})
        array.add([{"command": "true"}], {})

    assert [call.args[0][0]["array"]["task"] for call in asked.mock_calls] == [1, 2, 3]


def test_calls_that_wait_for_the_gpu_of_their_own_caller_say_so_and_may_run_inside_it(here: World) -> None:
    def outer(nested: str) -> list[object]:
        import os

        import dibs

        def inner(number: int) -> tuple[int, str, str]:
            if number > 1:
                os._exit(3)
            return number, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["DIBS_JOB_ID"]

        with dibs.Executor(nested=nested, num_gpus=2) as executor:  # type: ignore[arg-type]
            futures = [executor.submit(inner, number) for number in range(3)]
            return [future.exception() or future.result() for future in futures]

    with dibs.Executor(num_gpus=1) as executor:
        stuck = executor.submit(outer, "queue")
        wait_until(lambda: len(list(dibs.jobs(state="queued"))) == 3, show=here.dibs("ls").stdout)
        wait_until(lambda: "then nothing goes on" in stuck.job.log(), show=lambda: stuck.job.log())
        why = next(iter(dibs.jobs(state="queued"))).why()
        here.dibs("kill", *(str(job.id) for job in dibs.jobs(state="queued")))
        stuck.exception(60)
        inside = executor.submit(outer, "inside")
        first, second, third = inside.result(60)

    assert f"its holder, job {stuck.job.id}, added it and may wait for it" in why
    gpu = str(inside.job.gpus[0])
    assert [first, second] == [(0, gpu, str(inside.job.id)), (1, gpu, str(inside.job.id))]
    assert isinstance(third, dibs.JobFailed) and "exit code 3" in str(third)
    assert calls(here) == []
