from __future__ import annotations

import asyncio
from random import Random

import pytest

from runherd.api.core import PODS
from runherd.kube.client import Client
from runherd.kube.errors import NotFoundError
from runherd.kube.limiter import Priority, WriteLimiter
from runherd.kube.patch import MergePatch
from runherd.wire.clock import EventLoopClock
from runherd.wire.transport import ConnectionLostError, Request, Response
from tests.kube.scripted import BASE_URL, Script, answer, client_of, pod, refusal, stream_of
from tests.support.virtual_time import run_in_virtual_time

LOST = ConnectionLostError("cut", request_sent=True)


class Recorder:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.finished: list[tuple[str, str, str]] = []
        self.seconds: list[float] = []
        self.waits: list[tuple[str, str, float]] = []

    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
        self.finished.append((method, host, code))
        self.seconds.append(seconds)

    def limiter_waited(self, method: str, host: str, seconds: float) -> None:
        self.waits.append((method, host, seconds))


def test_every_attempt_is_told_to_the_observer() -> None:
    async def main() -> None:
        recorder = Recorder()
        script = Script(
            LOST, refusal(503, "ServiceUnavailable"), answer(pod("web")), refusal(404, "NotFound"), stream_of(), LOST
        )
        client = client_of(script, observer=recorder)
        await client.get(PODS, "web", "default")
        with pytest.raises(NotFoundError):
            await client.delete(PODS, "web", "default")
        async with client.watch(PODS):
            pass
        with pytest.raises(ConnectionLostError):
            await client.create(PODS, pod("web"))
        host = "kubernetes.test"
        assert recorder.finished == [
            ("GET", host, "<error>"),
            ("GET", host, "503"),
            ("GET", host, "200"),
            ("DELETE", host, "404"),
            ("GET", host, "200"),
            ("POST", host, "<error>"),
        ]
        assert [method for method, _, _ in recorder.waits] == ["DELETE", "POST"]

    run_in_virtual_time(main())


class Slow(Script):
    """Takes a second for every answer."""

    async def _handle(self, request: Request) -> Response:
        await asyncio.sleep(1)
        return answer(pod("web"))


def test_durations_are_those_of_the_server_and_waits_those_of_the_limiter() -> None:
    async def main() -> None:
        recorder = Recorder()
        script = Slow(*[stream_of()] * 3)
        client = client_of(script, limiter=WriteLimiter(max_in_flight=1), observer=recorder)
        await asyncio.gather(*(client.create(PODS, pod("web")) for _ in range(3)))
        assert recorder.seconds == pytest.approx([1, 1, 1])
        assert [wait for _, _, wait in recorder.waits] == pytest.approx([0, 1, 2])

    run_in_virtual_time(main())


def test_writes_pass_the_limiter_by_owner_and_priority_and_reads_do_not() -> None:
    async def main() -> list[str]:
        script = Slow(*[stream_of()] * 6)
        limiter = WriteLimiter(max_in_flight=1)
        client = client_of(script, limiter=limiter)
        patch = MergePatch({})
        calls = [
            client.create(PODS, pod("first")),
            client.patch(PODS, "status", "default", patch=patch, subresource="status"),
            client.update(PODS, pod("update")),
            client.delete(PODS, "delete", "default", owner="a"),
            client.delete(PODS, "urgent", "default", owner="b", priority=Priority.CREATE),
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0.5)
        assert limiter.waiting == 4
        await client.get(PODS, "web", "default")
        assert asyncio.get_running_loop().time() == pytest.approx(1.5)
        await asyncio.gather(*tasks)
        return [request.method + " " + request.url.rpartition("pods")[2] for request in script.requests]

    assert run_in_virtual_time(main()) == [
        "POST ",
        "GET /web",
        "DELETE /urgent",
        "DELETE /delete",
        "PUT /update",
        "PATCH /status/status",
    ]


def test_a_place_in_the_limiter_is_given_back_whatever_happens() -> None:
    async def main() -> None:
        limiter = WriteLimiter(max_in_flight=1)
        client = client_of(Slow(stream_of(), LOST, refusal(404, "NotFound")), limiter=limiter)
        cancelled = asyncio.create_task(client.create(PODS, pod("web")))
        await asyncio.sleep(0.5)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        with pytest.raises(ConnectionLostError):
            await client.create(PODS, pod("web"))
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    run_in_virtual_time(main())


async def test_the_servers_url_may_have_a_path() -> None:
    recorder = Recorder()
    script = Script(answer(pod("web")))
    client = Client(
        script,
        f"{BASE_URL}/k8s/clusters/c-1/",
        limiter=None,
        clock=EventLoopClock(),
        random=Random(0),
        observer=recorder,
        headers={"Accept-Encoding": "identity"},
    )
    await client.get(PODS, "web", "default")
    (request,) = script.requests
    assert request.url == f"{BASE_URL}/k8s/clusters/c-1/api/v1/namespaces/default/pods/web"
    assert request.headers["Accept-Encoding"] == "identity"
    assert recorder.finished == [("GET", "kubernetes.test", "200")]
