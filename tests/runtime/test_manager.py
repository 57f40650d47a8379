from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from random import Random

import pytest
from structlog.testing import capture_logs

from runherd.api.core import PODS
from runherd.kube.client import Client
from runherd.kube.patch import MergePatch
from runherd.runtime.cache import Cache, CacheSyncError
from runherd.runtime.controller import Controller
from runherd.runtime.leader_election import LeaderElectionConfig, LeaderElector
from runherd.runtime.manager import Manager, ManagerOptions, RunnableError
from runherd.runtime.metrics import Metrics
from runherd.runtime.rate_limiter import rate_limiter
from runherd.runtime.reconciler import Result
from runherd.runtime.request import Request
from runherd.runtime.write_gate import GatedTransport, LeadershipLostError, WriteGate
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from tests.runtime.api import PODS_PATH, client_of, eventually
from tests.support.model_api import ModelApi
from tests.support.virtual_time import in_virtual_time

LEASE = ("apis/coordination.k8s.io/v1/leases", "system", "runherd")


class Labeller:
    """Labels every pod, taking its time."""

    def __init__(self, takes: float = 0.0) -> None:
        self.takes = takes
        self.client: Manager
        self.started: list[str] = []
        self.finished: list[str] = []

    async def reconcile(self, request: Request) -> Result | None:
        manager = self.client
        pod = manager.cache.get(PODS, request.name, request.namespace)
        if pod is None or "done" in pod.metadata.labels:
            return None
        self.started.append(request.name)
        await asyncio.sleep(self.takes)
        patch = MergePatch({"metadata": {"labels": {"done": "yes"}}})
        await manager.client.patch(PODS, request.name, request.namespace, patch=patch)
        self.finished.append(request.name)
        return None


class Setting:
    """A manager with one controller, by default one that has to be elected."""

    def __init__(
        self,
        api: ModelApi,
        identity: str = "one",
        *,
        takes: float = 0.0,
        elected: bool = True,
        options: ManagerOptions | None = None,
    ) -> None:
        clock, random, metrics = EventLoopClock(), Random(identity), Metrics()
        self.gate = WriteGate(clock)
        transport = InProcessTransport(api.handle)
        gated = GatedTransport(transport, self.gate) if elected else transport
        client = Client(gated, "http://kubernetes.test", limiter=None, clock=clock, random=random)
        elector = LeaderElector(
            client_of(api),
            LeaderElectionConfig("runherd", "system", identity),
            self.gate,
            clock=clock,
            random=random,
            metrics=metrics,
        )
        self.manager = Manager(
            client, Cache(client, random=random), elector=elector if elected else None, options=options
        )
        self.reconciler = Labeller(takes)
        self.reconciler.client = self.manager
        self.controller = Controller(
            "pod", self.reconciler, rate_limiter=rate_limiter(), metrics=metrics, random=random,
            max_concurrent_reconciles=2,
        )  # fmt: skip
        self.manager.add_controller(self.controller.for_(PODS))


class Running:
    """A runnable that does ``then`` when its time has come."""

    def __init__(self, after: float = 1e9, then: Callable[[], None] = lambda: None) -> None:
        self.after = after
        self.then = then
        self.running = False
        self.cancelled_at: float | None = None

    async def run(self) -> None:
        self.running = True
        try:
            await asyncio.sleep(self.after)
        except asyncio.CancelledError:
            self.cancelled_at = asyncio.get_running_loop().time()
            raise
        finally:
            self.running = False
        self.then()


def put(api: ModelApi, name: str) -> None:
    api.put(PODS_PATH, {"metadata": {"name": name, "namespace": "default"}})


def done(api: ModelApi, name: str) -> bool:
    return "done" in api.objects[PODS_PATH, "default", name]["metadata"].get("labels", {})


@in_virtual_time
async def test_reconciles_what_is_there_and_what_comes() -> None:
    api = ModelApi()
    put(api, "a")
    setting = Setting(api, elected=False)
    run = asyncio.create_task(setting.manager.run())
    await eventually(lambda: done(api, "a"))
    put(api, "b")
    await eventually(lambda: done(api, "b"))
    setting.manager.stop()
    await run
    assert setting.reconciler.finished == ["a", "b"]
    assert LEASE not in api.objects


@in_virtual_time
async def test_only_the_leader_reconciles_and_the_other_takes_over_from_a_filled_cache() -> None:
    api = ModelApi()
    put(api, "a")
    one, two = Setting(api, "one"), Setting(api, "two")
    first = asyncio.create_task(one.manager.run())
    await eventually(lambda: done(api, "a"))
    second = asyncio.create_task(two.manager.run())
    await eventually(lambda: two.manager.cache.has_synced())
    for number in range(100):
        put(api, f"while-waiting-{number}")
    await asyncio.sleep(100)
    assert two.reconciler.started == []
    # Who waits collects no names.
    assert len(two.controller.queue) == 0
    one.manager.stop()
    await first
    put(api, "b")
    await eventually(lambda: done(api, "b"), within=10)
    assert two.reconciler.finished == ["b"]
    two.manager.stop()
    await second


@in_virtual_time
async def test_stop_finishes_what_runs_begins_nothing_and_releases_the_lease() -> None:
    loop = asyncio.get_running_loop()
    api = ModelApi()
    for name in "abcd":
        put(api, name)
    setting = Setting(api, takes=5.0)
    run = asyncio.create_task(setting.manager.run())
    await eventually(lambda: len(setting.reconciler.started) == 2)
    stopped = loop.time()
    setting.manager.stop()
    setting.manager.stop()
    await asyncio.sleep(1)
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "one"
    await run
    assert loop.time() - stopped == pytest.approx(5, abs=0.1)
    assert setting.reconciler.finished == setting.reconciler.started == ["a", "b"]
    assert "holderIdentity" not in api.objects[LEASE]["spec"]
    assert setting.gate.remaining() == 0.0
    assert api.watching == 0


@in_virtual_time
async def test_what_does_not_finish_in_time_is_cancelled_and_the_lease_is_released_all_the_same() -> None:
    loop = asyncio.get_running_loop()
    api = ModelApi()
    put(api, "a")
    setting = Setting(api, takes=1000.0, options=ManagerOptions(graceful_shutdown_timeout=3.0))
    run = asyncio.create_task(setting.manager.run())
    await eventually(lambda: len(setting.reconciler.started) == 1)
    stopped = loop.time()
    setting.manager.stop()
    with capture_logs() as logs:
        await run
    assert loop.time() - stopped == pytest.approx(3, abs=0.1)
    assert setting.reconciler.finished == []
    assert "holderIdentity" not in api.objects[LEASE]["spec"]
    assert any(entry.get("runnables") == ["controller pod"] for entry in logs)


@in_virtual_time
async def test_a_lost_lease_cancels_everything_at_once() -> None:
    loop = asyncio.get_running_loop()
    api = ModelApi()
    put(api, "a")
    setting = Setting(api, takes=1000.0)
    runnable = Running()
    setting.manager.add("sweeper", runnable)
    run = asyncio.create_task(setting.manager.run())
    await eventually(lambda: len(setting.reconciler.started) == 1)
    await asyncio.sleep(30)
    api.refuse_next = [("PUT", 500, "InternalError")] * 1000
    failing_since = loop.time()
    with pytest.raises(LeadershipLostError):
        await run
    # All has stopped before the lease, last renewed up to 2 s earlier, runs out.
    assert loop.time() - failing_since < 15 - 2
    assert runnable.cancelled_at == pytest.approx(loop.time(), abs=0.1)
    assert setting.controller.queue.processing == 0
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "one"


@in_virtual_time
async def test_a_lease_lost_while_stopping_ends_the_grace() -> None:
    loop = asyncio.get_running_loop()
    api = ModelApi()
    put(api, "a")
    setting = Setting(api, takes=1000.0, options=ManagerOptions(graceful_shutdown_timeout=500.0))
    run = asyncio.create_task(setting.manager.run())
    await eventually(lambda: len(setting.reconciler.started) == 1)
    api.refuse_next = [("PUT", 500, "InternalError")] * 1000
    setting.manager.stop()
    stopped = loop.time()
    await run
    assert loop.time() - stopped < 13
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "one"


def fail() -> None:
    raise ValueError("no space left")


@pytest.mark.parametrize("needs_leader_election", [True, False])
@pytest.mark.parametrize("then", [fail, lambda: None])
def test_a_runnable_that_ends_takes_the_process_down(needs_leader_election: bool, then: Callable[[], None]) -> None:
    @in_virtual_time
    async def main() -> None:
        api = ModelApi()
        setting = Setting(api)
        setting.manager.add("sweeper", Running(100, then), needs_leader_election=needs_leader_election)
        other = Running()
        setting.manager.add("other", other)
        with pytest.raises(RunnableError, match="sweeper ended") as raised:
            await setting.manager.run()
        assert isinstance(raised.value.__cause__, ValueError) == (then is fail)
        assert other.cancelled_at is not None
        assert "holderIdentity" not in api.objects[LEASE]["spec"]

    main()


@in_virtual_time
async def test_runnables_that_need_no_leadership_run_without_it() -> None:
    api = ModelApi()
    one = Setting(api, "one")
    first = asyncio.create_task(one.manager.run())
    await eventually(lambda: LEASE in api.objects)
    two = Setting(api, "two")
    page, sweeper = Running(), Running()
    two.manager.add("page", page, needs_leader_election=False)
    two.manager.add("sweeper", sweeper)
    second = asyncio.create_task(two.manager.run())
    await asyncio.sleep(100)
    assert page.running
    assert not sweeper.running
    # Stopping works while waiting for leadership, too.
    two.manager.stop()
    await second
    assert page.cancelled_at is not None
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "one"
    one.manager.stop()
    await first


@in_virtual_time
async def test_a_cache_that_can_not_be_filled_is_an_error() -> None:
    api = ModelApi()
    api.refuse_next = [("WATCH", 403, "Forbidden")] * 10000
    setting = Setting(api)
    with pytest.raises(CacheSyncError, match="pods"):
        await setting.manager.run()
    assert asyncio.get_running_loop().time() == pytest.approx(120)
    assert LEASE not in api.objects


@in_virtual_time
async def test_stop_before_the_cache_is_filled() -> None:
    api = ModelApi()
    api.refuse_next = [("WATCH", 403, "Forbidden")] * 10000
    setting = Setting(api)
    run = asyncio.create_task(setting.manager.run())
    await asyncio.sleep(1)
    setting.manager.stop()
    await run
    assert LEASE not in api.objects


@in_virtual_time
async def test_objects_that_exist_after_the_sync_are_left_alone_by_the_collector_if_asked_for() -> None:
    api = ModelApi()
    put(api, "a")
    setting = Setting(api, elected=False, options=ManagerOptions(freeze_after_sync=True))
    before = gc.get_freeze_count()
    run = asyncio.create_task(setting.manager.run())
    try:
        await eventually(lambda: done(api, "a"))
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
    setting.manager.stop()
    await run
