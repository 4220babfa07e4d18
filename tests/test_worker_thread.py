"""Work in threads that are abandoned when they hang."""

import asyncio
import sys
import threading
import time

import pytest

from dibs.worker_thread import PatientReader, WorkerThread, run_in_thread, wait_in_thread


def _fail() -> None:
    raise ValueError("this work fails")


def _no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_result_and_an_error_reach_the_caller():
    assert wait_in_thread(lambda: 7, 10, "test") == asyncio.run(run_in_thread(lambda: 7, 10, "test")) == 7
    with pytest.raises(ValueError, match="this work fails"):
        wait_in_thread(_fail, 10, "test")
    with pytest.raises(ValueError, match="this work fails"):
        asyncio.run(run_in_thread(_fail, 10, "test"))


def test_work_that_hangs_is_abandoned():
    go_on = threading.Event()

    with pytest.raises(TimeoutError):
        wait_in_thread(go_on.wait, 0.01, "test")
    with pytest.raises(TimeoutError):
        asyncio.run(run_in_thread(go_on.wait, 0.01, "test"))
    go_on.set()


def test_where_no_thread_can_be_started_that_is_a_lack_of_memory(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", _no_thread)

    assert not WorkerThread(lambda callback, value: None, "test").submit(lambda: 1, lambda one: None)
    with pytest.raises(MemoryError):
        wait_in_thread(lambda: 1, 10, "test")
    with pytest.raises(MemoryError):
        asyncio.run(run_in_thread(lambda: 1, 10, "test"))


def test_a_worker_does_one_after_the_other_and_raises_errors_where_results_are_wanted():
    raised: list[dict] = []
    found: list[int] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: raised.append(context))
        worker = WorkerThread(loop.call_soon_threadsafe, "test")
        last = loop.create_future()
        for work, done in ((lambda: 1, found.append), (_fail, found.append), (lambda: 2, last.set_result)):
            assert worker.submit(work, done)
        found.append(await last)
        worker.stop()

    asyncio.run(scenario())

    assert found == [1, 2]
    assert [type(one["exception"]) for one in raised] == [ValueError]


def test_a_patient_reader_reads_many_folders_with_one_thread():
    reader = PatientReader()

    threads = {reader.read(f"/{number}", threading.get_ident) for number in range(20)}

    assert len(threads) == 1 and threads != {threading.get_ident()}
    thread = reader.read("/0", threading.current_thread)
    del reader
    thread.join(60)
    assert not thread.is_alive(), "it waits for work that nobody gives it"


def test_an_error_of_the_work_is_no_silence_of_the_folder():
    reader = PatientReader()

    for _ in range(2):
        with pytest.raises(ValueError, match="this work fails"):
            reader.read("/0", _fail)


def test_threads_that_give_up_at_once_forget_no_folder_of_each_other():
    go_on, together = threading.Event(), threading.Barrier(4)
    reader = PatientReader(patience=0.05)
    reader._silent = {str(number): 1e18 for number in range(50_000)}  # so that looking through them takes a while

    def hang(folder: str) -> None:
        together.wait()
        with pytest.raises(TimeoutError):
            reader.read(folder, lambda: go_on.wait(60))

    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    threads = [threading.Thread(target=hang, args=(f"/{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    sys.setswitchinterval(often)
    go_on.set()

    assert {f"/{number}" for number in range(4)} <= reader._silent.keys()


def test_a_folder_that_hangs_holds_up_no_other_and_many_do_not_take_a_thread_each():
    go_on = threading.Event()
    reader = PatientReader(patience=0.01, most_hanging=2)

    def hang(folder: str) -> str:
        with pytest.raises(TimeoutError) as told:
            reader.read(folder, lambda: go_on.wait(60))
        return str(told.value)

    assert hang("/one") == "its disk does not answer"
    assert reader.read("/another", lambda: 7) == 7
    assert hang("/two") == "its disk does not answer"
    began = time.monotonic()
    assert hang("/one") == "its disk does not answer"  # it is not even asked
    assert hang("/three") == "other disks do not answer"
    assert time.monotonic() - began < 5
    go_on.set()
    while True:  # until the threads have ended
        try:
            assert reader.read("/three", lambda: 7) == 7
            return
        except TimeoutError as error:
            assert str(error) == "other disks do not answer"
            time.sleep(0.001)
