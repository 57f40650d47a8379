"""A Kubernetes client of a model of an API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from runherd.kube.client import Client
from runherd.kube.retry import RetryPolicy
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from tests.support.model_api import ModelApi

__all__ = ["PODS_PATH", "client_of", "eventually", "running"]

PODS_PATH = "api/v1/pods"


def client_of(api: ModelApi, *, attempts: int = 1) -> Client:
    """A client that by default repeats nothing, so that what is under test does."""
    return Client(
        InProcessTransport(api.handle),
        "http://kubernetes.test",
        limiter=None,
        clock=EventLoopClock(),
        random=Random(1),
        retry=RetryPolicy(attempts=attempts),
    )


@asynccontextmanager
async def running(main: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """Runs ``main`` beside the test, and cancels it at its end. If it ends by itself, the test fails."""

    async def run() -> None:
        await main()
        raise AssertionError(f"{main!r} ended")

    task = asyncio.create_task(run())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def eventually(condition: Callable[[], bool], within: float = 3600.0) -> None:
    """Wait, in the loop's time, until ``condition`` holds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 (conditions are about many things; in virtual time asking is free)
            await asyncio.sleep(0.01)
