from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter
from structlog.testing import capture_logs

from runherd.runtime.metrics import Metrics
from runherd.runtime.probes import Checks, metrics_handler, probes_handler
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import Handler, Request, Response
from tests.support.virtual_time import in_virtual_time


async def ask(handler: Handler, path: str, method: str = "GET", accept: str = "*/*") -> Response:
    return await InProcessTransport(handler).request(Request(method, f"http://runherd.test{path}", {"Accept": accept}))


def broken() -> None:
    raise ConnectionError("the database at db.internal is down")


@in_virtual_time
async def test_probes_are_pings_unless_checks_are_added() -> None:
    handler = probes_handler(Checks(), Checks())
    for path in ("/healthz", "/readyz", "/healthz/", "/readyz/ping"):
        response = await ask(handler, path)
        assert (response.status, response.body) == (200, b"ok")
    assert (await ask(handler, "/healthz", "HEAD")).status == 200
    assert (await ask(handler, "/livez")).status == 404
    assert (await ask(handler, "/")).status == 404
    assert (await ask(handler, "/healthz/nothing")).status == 404
    refused = await ask(handler, "/healthz", "POST")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


@in_virtual_time
async def test_one_failed_check_fails_its_endpoint_alone_and_the_reason_stays_in_the_log() -> None:
    healthz, readyz = Checks(), Checks()
    readyz.add("database", broken)
    handler = probes_handler(healthz, readyz)
    with capture_logs() as logs:
        response = await ask(handler, "/readyz")
    assert response.status == 500
    assert response.body == b"[+]ping ok\n[-]database failed: reason withheld\nreadyz check failed\n"
    assert [entry["error"] for entry in logs] == ["ConnectionError: the database at db.internal is down"]
    assert (await ask(handler, "/healthz")).status == 200
    assert (await ask(handler, "/readyz/ping")).status == 200
    assert (await ask(handler, "/readyz/database")).status == 500
    assert (await ask(handler, "/readyz?exclude=database")).status == 200


@in_virtual_time
async def test_verbose_lists_what_was_checked() -> None:
    healthz = Checks()
    healthz.add("other", lambda: None)
    response = await ask(probes_handler(healthz, Checks()), "/healthz?verbose")
    assert response.body == b"[+]ping ok\n[+]other ok\nhealthz check passed\n"


def test_check_names_are_unique() -> None:
    checks = Checks()
    with pytest.raises(ValueError, match="'ping'"):
        checks.add("ping", broken)


@in_virtual_time
async def test_metrics_come_as_text_or_openmetrics_as_asked_for() -> None:
    registry = CollectorRegistry()
    Counter("jobs_total", "Jobs", registry=registry).inc()
    handler = metrics_handler(registry)
    text = await ask(handler, "/metrics")
    assert text.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"\njobs_total 1.0\n" in text.body
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    openmetrics = await ask(handler, "/metrics", accept=accept)
    assert openmetrics.headers["Content-Type"].startswith("application/openmetrics-text")
    assert openmetrics.body.endswith(b"# EOF\n")
    assert (await ask(handler, "/metrics", "POST")).status == 405
    assert (await ask(handler, "/other")).status == 404
    assert (await ask(metrics_handler(registry, "/custom"), "/custom")).status == 200


@in_virtual_time
async def test_dashboards_find_the_names_that_controller_runtime_has() -> None:
    metrics = Metrics()
    metrics.work_queue("pod", lambda: 0, lambda: 0, lambda: 0)
    metrics.controller("pod", 1, lambda: 0)
    metrics.leader("lease")(1)
    rest = metrics.rest_client()
    rest.request_finished("GET", "10.0.0.1:443", "200", 0.1)
    rest.request_finished("GET", "10.0.0.1:443", "<error>", 0.1)
    rest.limiter_waited("POST", "10.0.0.1:443", 0.1)
    rest.limiter_waited("POST", "10.0.0.1:443", 0.1)
    text = (await ask(metrics_handler(metrics.registry), "/metrics")).body.decode()
    for line in (
        'workqueue_depth{controller="pod",name="pod"} 0.0',
        'workqueue_adds_total{controller="pod",name="pod"} 0.0',
        'workqueue_retries_total{controller="pod",name="pod"} 0.0',
        'workqueue_queue_duration_seconds_bucket{controller="pod",le="1e-05",name="pod"} 0.0',
        'workqueue_work_duration_seconds_count{controller="pod",name="pod"} 0.0',
        'workqueue_unfinished_work_seconds{controller="pod",name="pod"} 0.0',
        'workqueue_longest_running_processor_seconds{controller="pod",name="pod"} 0.0',
        'controller_runtime_reconcile_total{controller="pod",result="requeue_after"} 0.0',
        'controller_runtime_reconcile_errors_total{controller="pod"} 0.0',
        'controller_runtime_reconcile_panics_total{controller="pod"} 0.0',
        'controller_runtime_reconcile_time_seconds_bucket{controller="pod",le="60.0"} 0.0',
        'controller_runtime_max_concurrent_reconciles{controller="pod"} 1.0',
        'controller_runtime_active_workers{controller="pod"} 0.0',
        'leader_election_master_status{name="lease"} 1.0',
        'rest_client_requests_total{code="200",host="10.0.0.1:443",method="GET"} 1.0',
        'rest_client_requests_total{code="<error>",host="10.0.0.1:443",method="GET"} 1.0',
        'rest_client_request_duration_seconds_count{host="10.0.0.1:443",verb="GET"} 2.0',
        'rest_client_rate_limiter_duration_seconds_count{host="10.0.0.1:443",verb="POST"} 2.0',
    ):
        assert f"\n{line}\n" in text
    assert "process_resident_memory_bytes" in text
    assert "_created" not in text
