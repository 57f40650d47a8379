from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import cast

import pytest
from structlog.testing import capture_logs

from runherd.api.core import NODES, PODS, ROLES, SERVICE_ACCOUNTS, Pod
from runherd.api.resource import ApiObject, Resource
from runherd.runtime.controller import Controller, current_reconcile
from runherd.runtime.event_handler import EventHandler
from runherd.runtime.metrics import Metrics
from runherd.runtime.predicate import Predicate
from runherd.runtime.rate_limiter import RateLimiter, rate_limiter
from runherd.runtime.reconciler import Result
from runherd.runtime.request import Request
from tests.runtime.api import running
from tests.runtime.objects import owned_by, pod
from tests.support.virtual_time import in_virtual_time, run_in_virtual_time

A, B, C = (Request("default", name) for name in "abc")

Action = Callable[[Request], Awaitable[Result | None]]


class Scripted:
    """A reconciler that does ``action``, and remembers what it was called for, and when."""

    def __init__(self, action: Action) -> None:
        self._action = action
        self.calls: list[tuple[Request, float]] = []

    async def reconcile(self, request: Request) -> Result | None:
        self.calls.append((request, asyncio.get_running_loop().time()))
        return await self._action(request)

    def moments(self) -> list[float]:
        return [moment for _, moment in self.calls]


def a_controller(
    reconciler: Scripted, *, workers: int = 1, limiter: RateLimiter | None = None, metrics: Metrics | None = None
) -> Controller:
    return Controller(
        "pod",
        reconciler,
        rate_limiter=limiter or rate_limiter("typed_rate_limiter"),
        metrics=metrics or Metrics(),
        random=Random(3),
        max_concurrent_reconciles=workers,
    )


def results(*outcomes: Result | BaseException | None) -> Action:
    """The outcomes in turn, then nothing."""
    left = list(outcomes)

    async def action(_: Request) -> Result | None:
        outcome = left.pop(0) if left else None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return action


# --- docs/spec/controllers.md 1.2 ---------------------------------------------------------------------------------


@in_virtual_time
async def test_an_error_means_back_off_and_success_ends_it() -> None:
    reconciler = Scripted(results(OSError("1"), OSError("2"), OSError("3"), None))
    controller = a_controller(reconciler)
    async with running(controller.run):
        controller.queue.add(A)
        await asyncio.sleep(1000)
        assert reconciler.moments() == pytest.approx([0, 0.005, 0.015, 0.035])
        assert controller.queue.requeues(A) == 0


@in_virtual_time
async def test_requeue_backs_off_like_an_error() -> None:
    reconciler = Scripted(results(Result(requeue=True), OSError(), Result(requeue=True), Result()))
    controller = a_controller(reconciler)
    async with running(controller.run):
        controller.queue.add(A)
        await asyncio.sleep(1000)
    assert reconciler.moments() == pytest.approx([0, 0.005, 0.015, 0.035])


@in_virtual_time
async def test_requeue_after_waits_just_so_long_resets_failures_and_wins_over_requeue() -> None:
    reconciler = Scripted(
        results(OSError(), OSError(), Result(requeue=True, requeue_after=30.0), OSError(), Result(requeue_after=7.5))
    )
    controller = a_controller(reconciler)
    async with running(controller.run):
        controller.queue.add(A)
        await asyncio.sleep(1000)
    assert reconciler.moments() == pytest.approx([0, 0.005, 0.015, 30.015, 30.02, 37.52])


@in_virtual_time
async def test_nothing_means_wait_for_the_next_event() -> None:
    reconciler = Scripted(results(None, Result()))
    controller = a_controller(reconciler)
    async with running(controller.run):
        controller.queue.add(A)
        await asyncio.sleep(1000)
        controller.queue.add(A)
        await asyncio.sleep(1000)
    assert reconciler.moments() == [0, 1000]


@in_virtual_time
async def test_a_panic_is_an_error_and_counted_by_itself() -> None:
    metrics = Metrics()
    reconciler = Scripted(results(TypeError("bug"), OSError("not there"), None))
    controller = a_controller(reconciler, metrics=metrics)
    with capture_logs() as logs:
        async with running(controller.run):
            controller.queue.add(A)
            await asyncio.sleep(1)
    assert reconciler.moments() == pytest.approx([0, 0.005, 0.015])
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert [entry["error"] for entry in errors] == ["TypeError: bug", "OSError: not there"]
    assert [bool(entry.get("exc_info")) for entry in errors] == [True, False]
    value = metrics.registry.get_sample_value
    assert value("controller_runtime_reconcile_panics_total", {"controller": "pod"}) == 1
    assert value("controller_runtime_reconcile_errors_total", {"controller": "pod"}) == 2


@in_virtual_time
async def test_a_reconcile_that_returns_no_result_is_an_error_and_the_worker_goes_on() -> None:
    reconciler = Scripted(results(cast(Result, True), None))
    controller = a_controller(reconciler)
    with capture_logs() as logs:
        async with running(controller.run):
            controller.queue.add(A)
            await asyncio.sleep(1)
    assert reconciler.moments() == pytest.approx([0, 0.005])
    assert [entry["error"] for entry in logs if entry["log_level"] == "error"] == [
        "TypeError: reconcile returned bool, not a Result or None"
    ]


@in_virtual_time
async def test_the_parts_of_a_group_of_errors_are_all_named() -> None:
    group = ExceptionGroup("2 deletes failed", [OSError("first"), ValueError("second")])
    controller = a_controller(Scripted(results(group)))
    with capture_logs() as logs:
        async with running(controller.run):
            controller.queue.add(A)
            await asyncio.sleep(1)
    (entry,) = (entry for entry in logs if entry["log_level"] == "error")
    assert entry["error"] == "2 deletes failed: OSError: first; ValueError: second"


@in_virtual_time
async def test_an_hour_of_back_off() -> None:
    async def always_fail(_: Request) -> None:
        raise OSError("down")

    reconciler = Scripted(always_fail)
    controller = a_controller(reconciler)
    async with running(controller.run):
        controller.queue.add(A)
        await asyncio.sleep(3600)
    waits = [0.005 * 2**number for number in range(18)]
    moments = [sum(waits[:number]) for number in range(19)]
    assert reconciler.moments() == pytest.approx([*moments, *(moments[-1] + 1000 * n for n in (1, 2))])


@in_virtual_time
async def test_the_overall_bucket_holds_a_storm_of_failures_to_ten_a_second() -> None:
    async def always_fail(_: Request) -> None:
        raise OSError("down")

    reconciler = Scripted(always_fail)
    controller = a_controller(reconciler, workers=10, limiter=rate_limiter())
    async with running(controller.run):
        for number in range(1000):
            controller.queue.add(Request("default", str(number)))
        await asyncio.sleep(60)
    # each key once, a burst of 100, and 10 a second from then on
    assert len(reconciler.calls) == pytest.approx(1000 + 100 + 600, abs=20)


# --- Workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_as_many_reconciles_run_at_once_as_there_are_workers_and_never_two_of_a_key(seed: int) -> None:
    active: list[Request] = []
    most = 0

    async def action(request: Request) -> None:
        nonlocal most
        assert request not in active
        active.append(request)
        most = max(most, len(active))
        await asyncio.sleep(1)
        active.remove(request)

    async def main() -> None:
        metrics = Metrics()
        controller = a_controller(Scripted(action), workers=3, metrics=metrics)
        async with running(controller.run):
            for _ in range(5):
                for number in range(8):
                    controller.queue.add(Request("default", str(number)))
                await asyncio.sleep(0.7)
            value = metrics.registry.get_sample_value
            assert value("controller_runtime_active_workers", {"controller": "pod"}) == 3
            assert value("controller_runtime_max_concurrent_reconciles", {"controller": "pod"}) == 3
            await asyncio.sleep(100)
            assert value("controller_runtime_active_workers", {"controller": "pod"}) == 0

    run_in_virtual_time(main(), seed)
    assert most == 3


@in_virtual_time
async def test_reconciles_that_wait_for_nothing_leave_others_their_turn() -> None:
    async def nothing(_: Request) -> None:
        pass

    reconciler = Scripted(nothing)
    controller = a_controller(reconciler)
    turns = 0
    async with running(controller.run):
        for number in range(1000):
            controller.queue.add(Request("default", str(number)))
        while len(reconciler.calls) < 1000:
            await asyncio.sleep(0)
            turns += 1
    assert turns >= 50


@in_virtual_time
async def test_stop_lets_what_runs_finish_and_begins_nothing_new() -> None:
    finished: list[Request] = []

    async def action(request: Request) -> None:
        await asyncio.sleep(10)
        finished.append(request)

    controller = a_controller(Scripted(action), workers=2)
    run = asyncio.create_task(controller.run())
    for request in (A, B, C):
        controller.queue.add(request)
    await asyncio.sleep(1)
    controller.stop()
    controller.queue.add(C)
    await run
    assert finished == [A, B]
    assert asyncio.get_running_loop().time() == pytest.approx(10)


@in_virtual_time
async def test_cancelling_cancels_what_runs_and_waits_for_it() -> None:
    cleaned_up = False

    async def action(_: Request) -> None:
        nonlocal cleaned_up
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            cleaned_up = True

    metrics = Metrics()
    controller = a_controller(Scripted(action), metrics=metrics)
    run = asyncio.create_task(controller.run())
    controller.queue.add(A)
    await asyncio.sleep(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert cleaned_up
    assert controller.queue.processing == 0
    assert metrics.registry.get_sample_value("controller_runtime_reconcile_errors_total", {"controller": "pod"}) == 0


@in_virtual_time
async def test_a_reconcile_whose_inner_task_was_cancelled_by_others_is_an_error_and_the_worker_goes_on() -> None:
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def action(_: Request) -> None:
        await shared

    reconciler = Scripted(action)
    controller = a_controller(reconciler)
    async with running(controller.run):
        controller.queue.add(A)
        await asyncio.sleep(1)
        shared.cancel()
        await asyncio.sleep(0.004)
        assert controller.queue.requeues(A) == 1
        await asyncio.sleep(1)
        assert len(reconciler.calls) > 2


@in_virtual_time
async def test_log_lines_of_a_reconcile_can_tell_which_it_is() -> None:
    seen = []

    async def action(request: Request) -> None:
        inner = asyncio.create_task(asyncio.sleep(0, result=current_reconcile.get()))
        reconcile = current_reconcile.get()
        assert reconcile is not None
        assert reconcile.request == request
        assert (await inner) is reconcile
        assert reconcile.id == reconcile.id
        seen.append(reconcile.id)

    controller = a_controller(Scripted(action))
    async with running(controller.run):
        controller.queue.add(A)
        controller.queue.add(B)
        await asyncio.sleep(1)
    assert len(set(seen)) == 2
    assert current_reconcile.get() is None


@in_virtual_time
async def test_metrics_count_results() -> None:
    metrics = Metrics()
    controller = a_controller(
        Scripted(results(OSError(), Result(requeue=True), Result(requeue_after=2.0), None)), metrics=metrics
    )
    async with running(controller.run):
        controller.queue.add(A)
        await asyncio.sleep(10)
    for result in ("error", "requeue", "requeue_after", "success"):
        labels = {"controller": "pod", "result": result}
        assert metrics.registry.get_sample_value("controller_runtime_reconcile_total", labels) == 1
    count = metrics.registry.get_sample_value("controller_runtime_reconcile_time_seconds_count", {"controller": "pod"})
    assert count == 4


# --- Watches ---------------------------------------------------------------------------------------------------------


class Source:
    """An event source whose events a test makes."""

    def __init__(self) -> None:
        self.registered: list[str] = []
        self.handlers: dict[str, list[EventHandler[ApiObject]]] = {}

    def register(self, resource: Resource[Pod]) -> None:
        self.registered.append(resource.plural)

    def add_handler(self, resource: Resource[Pod], handler: EventHandler[ApiObject]) -> None:
        self.handlers.setdefault(resource.plural, []).append(handler)


@in_virtual_time
async def test_watches_fill_the_queue_from_the_object_its_children_and_what_is_mapped() -> None:
    reconciler = Scripted(results())
    controller = a_controller(reconciler)
    only_running: Predicate[Pod] = Predicate(update=lambda _, new: new.status.phase == "Running")
    controller.for_(PODS, only_running)
    controller.owns(SERVICE_ACCOUNTS)
    controller.watches(ROLES, lambda role: [Request("mapped", role.metadata.labels["for"])])
    source = Source()
    controller.register(source)  # type: ignore[arg-type]  # takes pods for any object
    assert source.registered == ["pods", "serviceaccounts", "roles"]
    controller.start_watches(source)  # type: ignore[arg-type]
    (pods,) = source.handlers["pods"]
    (accounts,) = source.handlers["serviceaccounts"]
    (roles,) = source.handlers["roles"]
    async with running(controller.run):
        pods.on_add(pod("added", 1))
        pods.on_update(pod("dropped-by-predicate", 1), pod("dropped-by-predicate", 2))
        pods.on_update(pod("updated", 1), pod("updated", 2, phase="Running"))
        pods.on_update(pod("same-version", 1), pod("same-version", 1, phase="Running"))
        pods.on_delete(pod("deleted", 1))
        accounts.on_add(pod("account", 1, owner=owned_by("owner", "Pod", "v1")))
        accounts.on_add(pod("account", 1, owner=owned_by("stranger", "EphemeralRunner")))
        roles.on_update(pod("role", 1, labels={"for": "x"}), pod("role", 2, labels={"for": "y"}))
        await asyncio.sleep(1)
    names = [f"{request.namespace}/{request.name}" for request, _ in reconciler.calls]
    assert names == ["default/added", "default/updated", "default/deleted", "default/owner", "mapped/x", "mapped/y"]


def test_a_controller_is_for_one_kind_and_says_so_before_what_that_owns() -> None:
    controller = a_controller(Scripted(results()))
    with pytest.raises(ValueError, match="what it is for before"):
        controller.owns(PODS)
    controller.for_(PODS)
    with pytest.raises(ValueError, match="already for Pod"):
        controller.for_(NODES)
    with pytest.raises(ValueError, match="at least 1"):
        a_controller(Scripted(results()), workers=0)
