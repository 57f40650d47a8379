from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runherd.runtime.metrics import Metrics
from runherd.runtime.rate_limiter import ItemExponentialFailureRateLimiter
from runherd.runtime.request import Request
from runherd.runtime.work_queue import ShutDownError, WorkQueue
from tests.support.virtual_time import VirtualTimeLoop, in_virtual_time, run_in_virtual_time

A, B, C = (Request("default", name) for name in "abc")


def a_queue(metrics: Metrics | None = None) -> WorkQueue:
    return WorkQueue("test", ItemExponentialFailureRateLimiter(), metrics or Metrics())


@in_virtual_time
async def test_keys_come_out_in_the_order_of_their_first_add_and_once() -> None:
    queue = a_queue()
    for request in (A, B, A, C, B):
        queue.add(request)
    assert len(queue) == 3
    assert [await queue.get() for _ in range(3)] == [A, B, C]


@in_virtual_time
async def test_a_key_that_is_added_while_a_worker_has_it_comes_again_after_done() -> None:
    queue = a_queue()
    queue.add(A)
    assert await queue.get() == A
    queue.add(A)
    queue.add(A)
    queue.add(B)
    assert await queue.get() == B
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await queue.get()
    queue.done(A)
    assert await queue.get() == A
    queue.done(A)
    assert len(queue) == 0


@in_virtual_time
async def test_a_waiting_worker_is_woken_by_an_add() -> None:
    queue = a_queue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue.add(A)
    assert await worker == A


@in_virtual_time
async def test_a_key_is_not_lost_when_the_worker_that_was_woken_for_it_is_cancelled() -> None:
    queue = a_queue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue.add(A)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == A


@in_virtual_time
async def test_a_cancelled_wait_leaves_the_queue_as_it_was() -> None:
    queue = a_queue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.sleep(1)
    queue.add(A)
    assert await second == A


@in_virtual_time
async def test_a_delayed_key_comes_when_its_time_is_over() -> None:
    loop = asyncio.get_running_loop()
    queue = a_queue()
    queue.add_after(A, 30)
    queue.add_after(B, 10)
    queue.add_after(C, 20)
    assert len(queue) == 0
    assert queue.delayed == 3
    for request, moment in ((B, 10), (C, 20), (A, 30)):
        assert await queue.get() == request
        assert loop.time() == pytest.approx(moment)
    assert queue.delayed == 0


@in_virtual_time
async def test_of_several_delays_of_a_key_the_first_to_end_counts_and_it_comes_once() -> None:
    loop = asyncio.get_running_loop()
    queue = a_queue()
    queue.add_after(A, 20)
    queue.add_after(A, 10)
    queue.add_after(A, 30)
    assert queue.delayed == 1
    assert await queue.get() == A
    assert loop.time() == pytest.approx(10)
    queue.done(A)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await queue.get()


@in_virtual_time
async def test_an_add_does_not_end_the_delay_of_the_same_key() -> None:
    loop = asyncio.get_running_loop()
    queue = a_queue()
    queue.add_after(A, 10)
    queue.add(A)
    queue.done(await queue.get())
    assert loop.time() == 0
    assert await queue.get() == A
    assert loop.time() == pytest.approx(10)


@in_virtual_time
async def test_no_delay_is_an_add() -> None:
    queue = a_queue()
    queue.add_after(A, 0)
    queue.add_after(B, -1)
    assert [await queue.get(), await queue.get()] == [A, B]


@in_virtual_time
async def test_a_thousand_delayed_keys_share_one_timer() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    queue = a_queue()
    for number in range(1000):
        queue.add_after(Request("default", str(number)), 1000 - number)
    live = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
    assert len(live) == 1
    for number in reversed(range(1000)):
        assert await queue.get() == Request("default", str(number))


@in_virtual_time
async def test_rate_limited_adds_back_off_until_forgotten() -> None:
    loop = asyncio.get_running_loop()
    queue = a_queue()
    moments = []
    for _ in range(4):
        queue.add_rate_limited(A)
        queue.done(await queue.get())
        moments.append(loop.time())
    assert moments == pytest.approx([0.005, 0.015, 0.035, 0.075])
    assert queue.requeues(A) == 4
    queue.forget(A)
    assert queue.requeues(A) == 0
    queue.add_rate_limited(A)
    await queue.get()
    assert loop.time() == pytest.approx(0.080)


@in_virtual_time
async def test_shut_down_drops_what_waits_and_ends_all_getters() -> None:
    queue = a_queue()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.add(A)
    assert await getters[0] == A
    queue.add(A)
    queue.add_after(C, 10)
    queue.shut_down()
    for getter in getters[1:]:
        with pytest.raises(ShutDownError):
            await getter
    queue.add(B)
    queue.add_after(B, 1)
    queue.done(A)
    assert len(queue) == 0
    assert queue.delayed == 0
    with pytest.raises(ShutDownError):
        await queue.get()


@in_virtual_time
async def test_shut_down_with_drain_hands_out_what_is_queued_and_waits_for_it() -> None:
    loop = asyncio.get_running_loop()
    queue = a_queue()
    worked: list[Request] = []

    async def work() -> None:
        while True:
            try:
                request = await queue.get()
            except ShutDownError:
                return
            await asyncio.sleep(10)
            worked.append(request)
            queue.done(request)

    queue.add(A)
    worker = asyncio.create_task(work())
    await asyncio.sleep(1)
    queue.add(A)  # while the worker has it: is done once more
    queue.add(B)
    queue.add_after(C, 1)
    draining = asyncio.create_task(queue.shut_down_with_drain())
    await asyncio.sleep(1)
    queue.add(C)
    await draining
    assert worked == [A, B, A]
    assert loop.time() == pytest.approx(30)
    await worker


@in_virtual_time
async def test_draining_an_idle_queue_ends_at_once() -> None:
    queue = a_queue()
    await queue.shut_down_with_drain()
    with pytest.raises(ShutDownError):
        await queue.get()


@in_virtual_time
async def test_metrics_tell_what_the_queue_does() -> None:
    metrics = Metrics()
    queue = a_queue(metrics)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"workqueue_{name}", {"name": "test", "controller": "test", **labels})

    queue.add(A)
    queue.add(A)
    queue.add(B)
    assert value("depth") == 2
    assert value("adds_total") == 2
    await asyncio.sleep(2)
    await queue.get()
    assert value("depth") == 1
    assert value("queue_duration_seconds_sum") == pytest.approx(2)
    await asyncio.sleep(3)
    await queue.get()
    assert value("unfinished_work_seconds") == pytest.approx(3)
    await asyncio.sleep(1)
    assert value("unfinished_work_seconds") == pytest.approx(5)
    assert value("longest_running_processor_seconds") == pytest.approx(4)
    queue.add(A)
    assert value("depth") == 1
    queue.done(A)
    queue.done(B)
    assert value("work_duration_seconds_sum") == pytest.approx(5)
    assert value("work_duration_seconds_count") == 2
    assert value("unfinished_work_seconds") == 0
    assert value("longest_running_processor_seconds") == 0
    queue.add_rate_limited(B)
    queue.add_after(C, 7)
    assert value("retries_total") == 2
    # client-go's buckets: decades from 10 ns, of which controller-runtime has twelve
    assert value("work_duration_seconds_bucket", le="1e-08") == 0
    assert value("work_duration_seconds_bucket", le="1000.0") == 2


class QueueAgainstModel(RuleBasedStateMachine):
    """Whatever is done to the queue, it agrees with a queue made of plain sets: nothing is lost, nothing is doubled,
    and no key is with two workers."""

    keys = st.sampled_from([Request("default", name) for name in "abcde"])

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self.queue = self.do(self._make())
        self.waiting: list[Request] = []
        self.dirty: set[Request] = set()
        self.processing: set[Request] = set()
        self.due: dict[Request, float] = {}
        self.getters: list[asyncio.Task[Request]] = []

    async def _make(self) -> WorkQueue:
        return a_queue()

    def do(self, action: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(action)

    def teardown(self) -> None:
        async def end() -> None:
            for getter in self.getters:
                getter.cancel()

        self.do(end())
        self.runner.close()

    def model_add(self, request: Request) -> None:
        if request not in self.dirty:
            self.dirty.add(request)
            if request not in self.processing:
                self.waiting.append(request)

    @rule(request=keys)
    def add(self, request: Request) -> None:
        async def action() -> None:
            self.queue.add(request)
            await asyncio.sleep(0)

        self.model_add(request)
        self.do(action())

    @rule(request=keys, delay=st.integers(1, 20))
    def add_after(self, request: Request, delay: int) -> None:
        async def action() -> None:
            due = asyncio.get_running_loop().time() + delay
            self.queue.add_after(request, delay)
            self.due[request] = min(due, self.due.get(request, due))

        self.do(action())

    @rule(seconds=st.integers(1, 30))
    def let_time_pass(self, seconds: int) -> None:
        async def action() -> float:
            # Between two due moments there is nobody who takes keys, so that the order of keys is the order of moments.
            await asyncio.sleep(seconds + 0.5)
            return asyncio.get_running_loop().time()

        now = self.do(action())
        for request, _ in sorted(self.due.items(), key=lambda item: (item[1], item[0])):
            if self.due[request] <= now:
                del self.due[request]
                self.model_add(request)

    @precondition(lambda self: len(self.getters) < 3)
    @rule()
    def start_a_worker(self) -> None:
        async def action() -> None:
            self.getters.append(asyncio.create_task(self.queue.get()))
            await asyncio.sleep(0)

        self.do(action())

    @precondition(lambda self: self.getters)
    @rule(data=st.data())
    def cancel_a_worker(self, data: st.DataObject) -> None:
        getter = data.draw(st.sampled_from(self.getters))

        async def action() -> None:
            getter.cancel()
            await asyncio.wait([getter])

        self.do(action())
        assert getter.cancelled()
        self.getters.remove(getter)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.processing)))

        async def action() -> None:
            self.queue.done(request)
            await asyncio.sleep(0)

        self.processing.remove(request)
        if request in self.dirty:
            self.waiting.append(request)
        self.do(action())

    @invariant()
    def agrees(self) -> None:
        async def settle() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        self.do(settle())
        for getter in [getter for getter in self.getters if getter.done()]:
            self.getters.remove(getter)
            request = getter.result()
            assert request not in self.processing, "one key with two workers"
            assert request in self.waiting, "handed out without an add"
            self.waiting.remove(request)
            self.dirty.remove(request)
            self.processing.add(request)
        assert not (self.getters and self.waiting), "a worker waits though there is work"
        assert len(self.queue) == len(self.dirty)
        assert self.queue.processing == len(self.processing)
        assert self.queue.delayed == len(self.due)


TestQueueAgainstModel = QueueAgainstModel.TestCase
TestQueueAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_workers_in_any_order_never_share_a_key_and_lose_none() -> None:
    async def main(seed: int) -> None:
        queue = a_queue()
        version = dict.fromkeys((A, B, C), 0)
        seen = dict(version)
        busy: set[Request] = set()

        async def work() -> None:
            while True:
                request = await queue.get()
                assert request not in busy
                busy.add(request)
                current = version[request]
                await asyncio.sleep(0.01 * (current % 3))
                seen[request] = current
                busy.remove(request)
                queue.done(request)

        async def change(request: Request) -> None:
            for step in range(50):
                version[request] += 1
                queue.add(request) if step % 3 else queue.add_after(request, 0.02)
                await asyncio.sleep(0.005 * (step % 4))

        workers = [asyncio.create_task(work()) for _ in range(4)]
        async with asyncio.TaskGroup() as changes:
            for request in version:
                changes.create_task(change(request))
        await asyncio.sleep(10)
        assert seen == version
        for worker in workers:
            worker.cancel()

    for seed in range(50):
        run_in_virtual_time(main(seed), seed)
