"""Both transports behind one fixture."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from runherd.wire.in_process import InProcessTransport
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.transport import Handler, Transport

__all__ = ["Connect"]

#: Puts a transport in front of a handler; returns it with the URL (no trailing slash) that it is to be called by.
#: Options are those that :class:`Server` and :class:`InProcessTransport` have in common.
Connect = Callable[..., Awaitable[tuple[Transport, str]]]


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
