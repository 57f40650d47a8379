"""What only the transport in process has: virtual time, contexts, exact buffers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import (
    ConnectionLostError,
    DeadlineExceededError,
    Request,
    Response,
    StreamingResponse,
    Timeouts,
)
from tests.support.virtual_time import run_in_virtual_time

REQUEST = Request("GET", "http://h/")


def ticking(seconds: float, count: int) -> InProcessTransport:
    """Answers after ``seconds``, with ``count`` chunks each so long after the last."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(count):
            await asyncio.sleep(seconds)
            yield b"."

    async def handler(request: Request) -> StreamingResponse:
        await asyncio.sleep(seconds)
        return StreamingResponse(200, chunks())

    return InProcessTransport(handler)


@pytest.mark.parametrize(
    ("timeouts", "ends", "text"),
    [
        (Timeouts(total=None), 110, None),
        (Timeouts(total=110.5), 110, None),
        (Timeouts(total=109.5), 109.5, "not answered within 109.5 s"),
        (Timeouts(total=5), 5, "not answered within 5 s"),
        (Timeouts(total=None, idle=10.5), 110, None),
        (Timeouts(total=None, idle=9.5), 9.5, "nothing came for 9.5 s"),
        (Timeouts(total=8, idle=9.5), 8, "not answered within 8 s"),
        (Timeouts(connect=1, total=None), 110, None),
    ],
)
def test_deadlines_are_exact(timeouts: Timeouts, ends: float, text: str | None) -> None:
    async def main() -> tuple[float, str | None]:
        try:
            response = await ticking(10, count=10).request(REQUEST, timeouts)
        except DeadlineExceededError as error:
            return asyncio.get_running_loop().time(), str(error).partition(": ")[2]
        assert response.body == b"." * 10
        return asyncio.get_running_loop().time(), None

    assert run_in_virtual_time(main()) == (ends, text)


def test_an_idle_deadline_counts_between_pieces() -> None:
    async def main() -> float:
        async def chunks() -> AsyncIterator[bytes]:
            for pause in (5, 5, 20):
                await asyncio.sleep(pause)
                yield b"."

        async def handler(request: Request) -> StreamingResponse:
            return StreamingResponse(200, chunks())

        async with InProcessTransport(handler).stream(REQUEST, Timeouts(total=None, idle=10)) as stream:
            received = aiter(stream.chunks())
            assert [await anext(received) for _ in range(2)] == [b".", b"."]
            with pytest.raises(DeadlineExceededError):
                await anext(received)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) == 20


def test_the_callers_own_deadline_cancels_the_handler() -> None:
    async def main() -> float:
        cancelled: list[float] = []

        async def handler(request: Request) -> Response:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(asyncio.get_running_loop().time())
                raise
            return Response(200)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await InProcessTransport(handler).request(REQUEST)
        await asyncio.sleep(0)
        (when,) = cancelled
        return when

    assert run_in_virtual_time(main()) == 7


def test_a_slow_handler_does_not_hold_up_the_client_that_left() -> None:
    async def main() -> float:
        async def handler(request: Request) -> Response:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(500)  # tidies up at leisure
            return Response(200)

        transport = InProcessTransport(handler)
        with pytest.raises(DeadlineExceededError):
            await transport.request(REQUEST, Timeouts(total=7))
        assert asyncio.get_running_loop().time() == 7
        await transport.close()
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) == 507  # closing waits for it


@given(st.integers(0, 2**32))
def test_every_schedule_gives_every_call_its_own_answer(seed: int) -> None:
    async def handler(request: Request) -> StreamingResponse:
        async def chunks() -> AsyncIterator[bytes]:
            for part in (request.body, request.url.rpartition("/")[2].encode()):
                await asyncio.sleep(0)
                yield part

        await asyncio.sleep(0)
        return StreamingResponse(200, chunks())

    async def main() -> list[bytes]:
        transport = InProcessTransport(handler)
        requests = [Request("POST", f"http://h/{number}", {}, b"n") for number in range(10)]
        return [response.body for response in await asyncio.gather(*map(transport.request, requests))]

    assert run_in_virtual_time(main(), seed) == [b"n%d" % number for number in range(10)]


async def test_a_call_gives_others_their_turn() -> None:
    """As over a network: what a caller saw before a call may be different after it."""
    order: list[str] = []

    async def handler(request: Request) -> Response:
        return Response(200)

    async def other() -> None:
        order.append("other")

    task = asyncio.create_task(other())
    await InProcessTransport(handler).request(REQUEST)
    order.append("answered")
    await task
    assert order == ["other", "answered"]


async def test_the_two_sides_share_no_context() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nobody's")

    async def handler(request: Request) -> Response:
        seen = variable.get()
        variable.set("the handler's")
        return Response(200, body=seen.encode())

    transport = InProcessTransport(handler)
    variable.set("the caller's")
    for _ in range(2):
        assert (await transport.request(REQUEST)).body == b"nobody's"
    assert variable.get() == "the caller's"


async def test_a_handler_that_is_cancelled_from_elsewhere_cuts_the_connection() -> None:
    async def handler(request: Request) -> Response:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return Response(200)

    with pytest.raises(ConnectionLostError, match="the connection ended before the response did"):
        await InProcessTransport(handler).request(REQUEST)


async def test_what_came_before_a_cut_is_read() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"
        raise KeyError("why")

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(200, chunks())

    async with InProcessTransport(handler).stream(REQUEST) as stream:
        received = aiter(stream.chunks())
        assert [await anext(received) for _ in range(2)] == [b"a", b"b"]
        with pytest.raises(ConnectionLostError):
            await anext(received)


async def test_a_handler_may_close_the_transport_that_called_it() -> None:
    async def handler(request: Request) -> Response:
        await transport.close()
        return Response(200)

    transport = InProcessTransport(handler)
    with pytest.raises(ConnectionLostError, match="the transport is closed"):
        await transport.request(REQUEST)


async def test_nothing_is_left_behind() -> None:
    async def handler(request: Request) -> Response:
        return Response(200)

    transport = InProcessTransport(handler)
    await asyncio.gather(*(transport.request(REQUEST) for _ in range(100)))
    async with transport.stream(REQUEST):
        pass
    await asyncio.sleep(0)
    assert not transport._exchanges
    assert not transport._tasks
