"""Both transports behind one fixture, and a clock that tests put forward."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from runherd.wire.in_process import InProcessTransport
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.transport import Handler, Transport

__all__ = ["Connect", "Skip", "following", "skip_until_done", "soon"]

#: Puts a transport in front of a handler; returns it with the URL (no trailing slash) that it is to be called by.
#: Options are those that :class:`Server` and :class:`InProcessTransport` have in common.
Connect = Callable[..., Awaitable[tuple[Transport, str]]]

#: Puts the running loop's clock forward by so many seconds.
Skip = Callable[[float], None]


async def soon(event: asyncio.Event) -> None:
    """Wait for what must happen; far longer than it takes, so that only a failure is slow."""
    async with asyncio.timeout(10):
        await event.wait()


async def following(chunks: AsyncIterator[bytes]) -> bytes:
    """The next chunk, as a coroutine that a task can run."""
    return await anext(chunks)


async def skip_until_done(skip: Skip, seconds: float, call: asyncio.Task[Any]) -> None:
    """Let ``seconds`` pass until ``call`` is done: more than once where bytes on their way restart an idle deadline."""
    for _ in range(100_000):
        if call.done():
            return
        skip(seconds)
        await asyncio.sleep(0)
    raise AssertionError("no deadline ended the call")


@pytest.fixture
async def skip(monkeypatch: pytest.MonkeyPatch) -> Skip:
    """Deadlines pass when the test says so, over real sockets too: no machine is too slow for that."""
    loop = asyncio.get_running_loop()
    real, skipped = loop.time, 0.0

    def skip(seconds: float) -> None:
        nonlocal skipped
        skipped += seconds
        loop.call_soon(lambda: None)  # lets the loop look at its timers again

    monkeypatch.setattr(loop, "time", lambda: real() + skipped)
    return skip


@pytest.fixture(params=["network", "in-process"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def over_the_network(handler: Handler, **options: Any) -> tuple[Transport, str]:
            server = Server(handler, **options)
            await server.start()
            stack.push_async_callback(server.close)
            transport = NetworkTransport()
            stack.push_async_callback(transport.close)
            return transport, server.url

        async def in_process(handler: Handler, **options: Any) -> tuple[Transport, str]:
            transport = InProcessTransport(handler, **options)
            stack.push_async_callback(transport.close)
            return transport, "http://127.0.0.1:8080"

        yield over_the_network if request.param == "network" else in_process
