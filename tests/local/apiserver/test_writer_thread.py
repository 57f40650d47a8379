import asyncio
import threading
from collections.abc import Iterator

import pytest

from runherd.local.apiserver.writer_thread import WriterThread


@pytest.fixture
def thread() -> Iterator[WriterThread]:
    thread = WriterThread("test")
    yield thread
    thread.stop()


async def test_jobs_run_in_order_on_one_other_thread(thread: WriterThread) -> None:
    ran: list[tuple[int, int]] = []
    await asyncio.gather(*(thread.run(lambda n: ran.append((n, threading.get_ident())), n) for n in range(100)))
    assert [n for n, _ in ran] == list(range(100))
    (ident,) = {ident for _, ident in ran}
    assert ident != threading.get_ident()


async def test_what_a_job_raises_is_raised_and_the_next_runs(thread: WriterThread) -> None:
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert await thread.run(lambda: 1) == 1


async def test_a_long_job_lets_the_others_in(thread: WriterThread) -> None:
    ran: list[str] = []
    submitted = threading.Event()

    def long_job() -> None:
        submitted.wait(60)
        assert not thread.is_idle
        ran.append("begin")
        thread.run_pending()
        ran.append("end")

    long = thread.submit(long_job)
    short = [thread.submit(ran.append, name) for name in "ab"]
    submitted.set()
    await asyncio.gather(*map(asyncio.wrap_future, [long, *short]))
    assert ran == ["begin", "a", "b", "end"]


async def test_a_job_that_is_cancelled_before_it_begins_does_not_run(thread: WriterThread) -> None:
    blocking, ran = threading.Event(), threading.Event()
    blocked = thread.submit(blocking.wait, 60)
    waiting = thread.submit(ran.set)
    assert waiting.cancel()
    blocking.set()
    await asyncio.wrap_future(blocked)
    await thread.run(lambda: None)
    assert not ran.is_set()


def test_stopping_runs_what_was_submitted_and_refuses_more() -> None:
    thread = WriterThread("test")
    jobs = [thread.submit(lambda n=n: n) for n in range(10)]
    thread.stop()
    assert [job.result(0) for job in jobs] == list(range(10))
    with pytest.raises(RuntimeError, match="stopped"):
        thread.submit(lambda: None)
