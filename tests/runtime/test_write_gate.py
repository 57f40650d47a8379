from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from runherd.runtime.write_gate import GatedTransport, LeadershipLostError, WriteGate
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import Request, Response, StreamingResponse
from tests.support.virtual_time import in_virtual_time


class Server:
    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay
        self.seen: list[str] = []
        self.answered: list[str] = []

    async def handle(self, request: Request) -> Response | StreamingResponse:
        self.seen.append(request.method)
        await asyncio.sleep(self.delay)
        self.answered.append(request.method)
        return Response(200)


def write(method: str = "POST") -> Request:
    return Request(method, "http://kubernetes.test/api")


@in_virtual_time
async def test_writes_pass_only_while_the_lease_is_certain_to_hold() -> None:
    server = Server()
    gate = WriteGate(EventLoopClock())
    transport = GatedTransport(InProcessTransport(server.handle), gate)
    with pytest.raises(LeadershipLostError, match="POST was not sent"):
        await transport.request(write())
    since = gate.now()
    await asyncio.sleep(4)
    gate.hold(since, 15.0)
    assert gate.remaining() == pytest.approx(11)
    await asyncio.sleep(10.9)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await transport.request(write(method))).status == 200
    await asyncio.sleep(0.2)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(LeadershipLostError):
            await transport.request(write(method))
    with pytest.raises(LeadershipLostError):
        transport.stream(write())
    assert server.seen == ["POST", "PUT", "PATCH", "DELETE"]


@in_virtual_time
async def test_reads_always_pass() -> None:
    server = Server()
    transport = GatedTransport(InProcessTransport(server.handle), WriteGate(EventLoopClock()))
    assert (await transport.request(write("GET"))).status == 200
    async with transport.stream(write("GET")) as stream:
        assert stream.status == 200
    await transport.close()


@in_virtual_time
async def test_a_gate_that_shut_stays_shut() -> None:
    gate = WriteGate(EventLoopClock())
    gate.hold(gate.now(), 15.0)
    await asyncio.sleep(15)
    assert gate.remaining() == 0.0
    gate.hold(gate.now(), 15.0)
    assert gate.remaining() == 0.0
    closed = WriteGate(EventLoopClock())
    closed.hold(closed.now(), 15.0)
    closed.close()
    assert closed.remaining() == 0.0


@in_virtual_time
async def test_time_that_only_the_wall_clock_saw_counts_too() -> None:
    clock = EventLoopClock()
    gate = WriteGate(clock)
    gate.hold(gate.now(), 15.0)
    clock.offset += timedelta(seconds=10)
    assert gate.remaining() == pytest.approx(5)
    clock.offset -= timedelta(hours=1)
    assert gate.remaining() == pytest.approx(15)  # set back: the loop's clock decides
    clock.offset += timedelta(hours=2)
    assert gate.remaining() == 0.0


@in_virtual_time
async def test_a_write_is_dropped_in_the_moment_in_which_the_lease_runs_out() -> None:
    server = Server(delay=60)
    gate = WriteGate(EventLoopClock())
    transport = GatedTransport(InProcessTransport(server.handle), gate)
    gate.hold(gate.now(), 15.0)
    with pytest.raises(LeadershipLostError, match="outcome is unknown"):
        await transport.request(write())
    assert asyncio.get_running_loop().time() == pytest.approx(15)
    await asyncio.sleep(100)
    assert server.answered == []


@in_virtual_time
async def test_overdue_is_a_gate_that_nobody_has_closed_though_the_lease_ran_out() -> None:
    gate = WriteGate(EventLoopClock())
    assert not gate.is_overdue()  # never led
    gate.hold(gate.now(), 15.0)
    assert not gate.is_overdue()
    await asyncio.sleep(15)
    assert gate.is_overdue()
    given_up = WriteGate(EventLoopClock())
    given_up.hold(given_up.now(), 15.0)
    given_up.close()
    await asyncio.sleep(15)
    assert not given_up.is_overdue()
