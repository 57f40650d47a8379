"""The metrics of the runtime, under the names that dashboards for controller-runtime know.

Each manager has its own registry. Label children are bound once, when a queue or controller is made, since looking one
up costs several times as much as counting. What can be read from the thing itself (depth, work under way) is read when
the metrics are asked for, and costs nothing in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

__all__ = ["ControllerMetrics", "Metrics", "RestClientMetrics", "WorkQueueMetrics"]

# client-go's and controller-runtime's buckets, so that quantiles on existing dashboards stay comparable.
_QUEUE_BUCKETS: Final = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
_RECONCILE_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0),
    *(40.0, 50.0, 60.0),
)
_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)

_BY_QUEUE: Final = ("name", "controller")
_BY_CONTROLLER: Final = ("controller",)


class WorkQueueMetrics:
    """The metrics of one work queue."""

    __slots__ = ("add", "queue_duration", "retry", "work_duration")

    def __init__(
        self,
        add: Callable[[], None],
        retry: Callable[[], None],
        queue_duration: Callable[[float], None],
        work_duration: Callable[[float], None],
    ) -> None:
        self.add = add
        self.retry = retry
        self.queue_duration = queue_duration
        self.work_duration = work_duration


class ControllerMetrics:
    """The metrics of one controller."""

    __slots__ = ("error", "panic", "reconcile_time", "requeue", "requeue_after", "success")

    def __init__(self, total: Counter, errors: Counter, panics: Counter, time: Histogram, controller: str) -> None:
        result = {name: total.labels(controller, name).inc for name in ("error", "requeue", "requeue_after", "success")}
        count_error = errors.labels(controller).inc
        count_panic = panics.labels(controller).inc
        self.success = result["success"]
        self.requeue = result["requeue"]
        self.requeue_after = result["requeue_after"]
        self.reconcile_time = time.labels(controller).observe

        def error() -> None:
            result["error"]()
            count_error()

        self.error = error
        self.panic = count_panic


class RestClientMetrics:
    """Counts the requests of a Kubernetes client; a :class:`runherd.kube.rest.RequestObserver`."""

    def __init__(self, total: Counter, duration: Histogram, waited: Histogram) -> None:
        self._total = total
        self._duration = duration
        self._waited = waited
        self._finished: dict[tuple[str, str, str], tuple[Callable[[], None], Callable[[float], None]]] = {}
        self._limited: dict[tuple[str, str], Callable[[float], None]] = {}

    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
        bound = self._finished.get((method, host, code))
        if bound is None:
            bound = (self._total.labels(code, method, host).inc, self._duration.labels(method, host).observe)
            self._finished[method, host, code] = bound
        count, observe = bound
        count()
        observe(seconds)

    def limiter_waited(self, method: str, host: str, seconds: float) -> None:
        observe = self._limited.get((method, host))
        if observe is None:
            observe = self._limited[method, host] = self._waited.labels(method, host).observe
        observe(seconds)


class Metrics:
    """All metrics of one manager, and the registry that holds them. Others may register theirs in it, too."""

    def __init__(self) -> None:
        # The library's only switch for them is global. They double the number of series and no dashboard reads them.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._depth = Gauge("workqueue_depth", "Keys that wait in the work queue", _BY_QUEUE, registry=registry)
        self._adds = Counter("workqueue_adds_total", "Keys added to the work queue", _BY_QUEUE, registry=registry)
        self._retries = Counter(
            "workqueue_retries_total", "Keys added to the work queue with a delay", _BY_QUEUE, registry=registry
        )
        self._queue_duration = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys wait in the work queue until a worker takes them",
            _BY_QUEUE,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self._work_duration = Histogram(
            "workqueue_work_duration_seconds",
            "How long workers take for a key",
            _BY_QUEUE,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self._unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "How long all keys that are being worked on have been so, together",
            _BY_QUEUE,
            registry=registry,
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "How long the longest of the keys that are being worked on has been so",
            _BY_QUEUE,
            registry=registry,
        )
        self._reconciles = Counter(
            "controller_runtime_reconcile_total", "Reconciles by result", ("controller", "result"), registry=registry
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors_total", "Reconciles that failed", _BY_CONTROLLER, registry=registry
        )
        self._panics = Counter(
            "controller_runtime_reconcile_panics_total",
            "Reconciles that failed with an error that only a bug raises",
            _BY_CONTROLLER,
            registry=registry,
        )
        self._reconcile_time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long reconciles take",
            _BY_CONTROLLER,
            buckets=_RECONCILE_BUCKETS,
            registry=registry,
        )
        self._max_workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "How many reconciles may run at once",
            _BY_CONTROLLER,
            registry=registry,
        )
        self._active_workers = Gauge(
            "controller_runtime_active_workers", "How many reconciles run", _BY_CONTROLLER, registry=registry
        )
        self._leader = Gauge(
            "leader_election_master_status", "1 while this process is the leader, else 0", ("name",), registry=registry
        )
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server; code is <error> where no answer came",
            ("code", "method", "host"),
            registry=registry,
        )
        self._request_duration = Histogram(
            "rest_client_request_duration_seconds",
            "How long requests to the API server take (of a watch: until its headers come)",
            ("verb", "host"),
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._limiter_duration = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "How long writes wait for their turn before they are sent",
            ("verb", "host"),
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )

    def work_queue(
        self,
        name: str,
        depth: Callable[[], float],
        unfinished: Callable[[], float],
        longest_running: Callable[[], float],
    ) -> WorkQueueMetrics:
        """The metrics of the queue ``name``; the three functions are asked whenever metrics are read."""
        self._depth.labels(name, name).set_function(depth)
        self._unfinished.labels(name, name).set_function(unfinished)
        self._longest.labels(name, name).set_function(longest_running)
        return WorkQueueMetrics(
            self._adds.labels(name, name).inc,
            self._retries.labels(name, name).inc,
            self._queue_duration.labels(name, name).observe,
            self._work_duration.labels(name, name).observe,
        )

    def controller(self, name: str, max_workers: int, active_workers: Callable[[], float]) -> ControllerMetrics:
        """The metrics of the controller ``name``."""
        self._max_workers.labels(name).set(max_workers)
        self._active_workers.labels(name).set_function(active_workers)
        return ControllerMetrics(self._reconciles, self._errors, self._panics, self._reconcile_time, name)

    def leader(self, lease: str) -> Callable[[float], None]:
        """Sets the status of the election on ``lease``: 1 leads, 0 does not."""
        return self._leader.labels(lease).set

    def rest_client(self) -> RestClientMetrics:
        """What a Kubernetes client reports its requests to."""
        return RestClientMetrics(self._requests, self._request_duration, self._limiter_duration)
