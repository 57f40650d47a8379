"""What the runtime costs: reconciles, events through the cache, and memory for what it holds."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from random import Random, SystemRandom
from statistics import median
from typing import Any

import psutil
import structlog
from multidict import CIMultiDict

from bench._loops import LOOPS
from bench._result import Result
from bench._watch_server import pod_events
from runherd.api.actions import EPHEMERAL_RUNNERS
from runherd.api.core import PODS, Pod
from runherd.api.meta import ObjectMeta
from runherd.api.resource import Resource
from runherd.kube.client import Client
from runherd.runtime.cache import Cache
from runherd.runtime.controller import Controller
from runherd.runtime.event_handler import EnqueueRequests, request_for_object
from runherd.runtime.index import controller_owner_index
from runherd.runtime.metrics import Metrics
from runherd.runtime.rate_limiter import rate_limiter
from runherd.runtime.reconciler import Result as ReconcileResult
from runherd.runtime.request import Request
from runherd.wire.clock import SystemClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import Request as HttpRequest
from runherd.wire.transport import StreamingResponse

ROUNDS = 7
RECONCILES = 20_000
EVENTS = 10_000
WORKERS = (1, 10)
_PIECE = 2**16


def run() -> Result:
    """Reconcile nothing 20,000 times; take 10,000 pods of 5.3 KB into a cache by watch; weigh 10,000 objects."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rows: list[dict[str, str | float]] = []
    figures = {}
    body = pod_events(EVENTS)

    def measured(what: str, loop: str, count: int, samples: list[_Taken]) -> None:
        wall, cpu = median(wall for wall, _ in samples), median(cpu for _, cpu in samples)
        rows.append({"what": what, "loop": loop, "a second": count / wall, "CPU µs each": cpu / count * 1e6})
        figures[f"{what} a second, {loop}"] = count / wall

    for loop, factory in LOOPS.items():
        for workers in WORKERS:
            reconciles = []
            for _ in range(ROUNDS):
                with asyncio.Runner(loop_factory=factory) as runner:
                    reconciles.append(runner.run(_reconciles(workers)))
            measured(f"empty reconciles, {workers} workers", loop, RECONCILES, reconciles)
        events = []
        for _ in range(ROUNDS):
            with asyncio.Runner(loop_factory=factory) as runner:
                events.append(runner.run(_events(body)))
        measured("watch events into cache, index and queue", loop, EVENTS, events)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for kind, weigh in (("Pod of 5.3 KB", _weigh_pods), ("EphemeralRunner of 5.5 KB", _weigh_runners)):
            size = pool.submit(weigh).result()
            rows.append({"what": f"memory per cached {kind}", "bytes": size})
            figures[f"bytes per cached {kind}"] = size
    return Result(title="The runtime", rows=rows, notes=f"medians of {ROUNDS} runs", figures=figures)


#: Seconds on the clock, and of CPU in this process.
_Taken = tuple[float, float]


def _stopwatch() -> Callable[[], _Taken]:
    """Starts to measure; what it returns stops."""
    wall, cpu = time.perf_counter(), time.process_time()
    return lambda: (time.perf_counter() - wall, time.process_time() - cpu)


class _Nothing:
    """Reconciles by doing nothing; says when it has done so often enough."""

    def __init__(self) -> None:
        self.left = RECONCILES
        self.done = asyncio.Event()

    async def reconcile(self, _: Request) -> ReconcileResult | None:
        self.left -= 1
        if not self.left:
            self.done.set()
        return None


async def _reconciles(workers: int) -> _Taken:
    """From the events of as many objects to the last reconcile."""
    reconciler = _Nothing()
    controller = Controller(
        "pod",
        reconciler,
        rate_limiter=rate_limiter(),
        metrics=Metrics(),
        random=SystemRandom(),
        max_concurrent_reconciles=workers,
    )
    handler = EnqueueRequests(controller.queue, request_for_object)
    pods = [Pod(metadata=ObjectMeta(namespace="runners", name=f"runner-{n}")) for n in range(RECONCILES)]
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(0)
    stop = _stopwatch()
    for pod in pods:
        handler.on_add(pod)
    await reconciler.done.wait()
    taken = stop()
    controller.stop()
    await running
    return taken


def _line(type_: str, object_: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


def _cache(body: bytes) -> Cache:
    """A cache whose server has nothing at first, and then tells of everything in ``body`` as fast as it is read."""
    end = {"metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}

    async def chunks() -> AsyncIterator[bytes]:
        yield _line("BOOKMARK", end)
        for start in range(0, len(body), _PIECE):
            yield body[start : start + _PIECE]
        await asyncio.Event().wait()

    async def handle(_: HttpRequest) -> StreamingResponse:
        return StreamingResponse(200, chunks(), CIMultiDict())

    transport = InProcessTransport(handle)
    client = Client(transport, "http://bench.test", limiter=None, clock=SystemClock(), random=Random(0))
    return Cache(client, random=Random(0))


async def _events(body: bytes) -> _Taken:
    """Until a cache with an index, and a queue behind it, have taken all events in ``body``."""
    cache = _cache(body)
    owner = controller_owner_index("actions.github.com/v1alpha1", "EphemeralRunner")
    cache.add_index(PODS, ".metadata.controller", owner)
    controller = Controller(
        "pod", _Nothing(), rate_limiter=rate_limiter(), metrics=Metrics(), random=SystemRandom()
    ).for_(PODS)
    controller.register(cache)
    controller.start_watches(cache)
    running = asyncio.create_task(cache.run())
    stop = _stopwatch()
    while cache.count(PODS) < EVENTS:  # noqa: ASYNC110 (an event would cost as much as what is measured)
        await asyncio.sleep(0.001)
    taken = stop()
    running.cancel()
    await asyncio.wait([running])
    return taken


def _weigh_pods() -> float:
    return asyncio.run(_weigh(PODS, pod_events(EVENTS)))


def _weigh_runners() -> float:
    template = {"containers": [{"name": "runner", "env": [{"name": f"V{n}", "value": "x" * 60} for n in range(40)]}]}
    body = b"".join(
        _line(
            "ADDED",
            {
                "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunner",
                "metadata": {
                    "name": f"runners-{n:05}",
                    "namespace": "arc-runners",
                    "uid": f"00000000-0000-0000-0000-{n:012}",
                    "resourceVersion": str(100_000 + n),
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {f"example.com/label-{m}": f"value-{m}" for m in range(8)},
                    "annotations": {f"example.com/annotation-{m}": "y" * 40 for m in range(4)},
                    "finalizers": ["ephemeralrunner.actions.github.com/finalizer"],
                },
                "spec": {
                    "githubConfigUrl": "https://github.com/example/repository",
                    "githubConfigSecret": "github-secret",
                    "runnerScaleSetId": 1,
                    "spec": template,
                },
                "status": {"phase": "Running", "runnerId": n, "runnerName": f"runners-{n:05}", "ready": True},
            },
        )
        for n in range(EVENTS)
    )
    return asyncio.run(_weigh(EPHEMERAL_RUNNERS, body))


async def _weigh(resource: Resource[Any], body: bytes) -> float:
    """Bytes by which this process grows for each object that a cache holds."""
    cache = _cache(body)
    cache.register(resource)
    gc.collect()
    before = psutil.Process().memory_info().rss
    running = asyncio.create_task(cache.run())
    while cache.count(resource) < EVENTS:  # noqa: ASYNC110 (as above)
        await asyncio.sleep(0.01)
    gc.collect()
    grown = psutil.Process().memory_info().rss - before
    running.cancel()
    await asyncio.wait([running])
    return grown / EVENTS
