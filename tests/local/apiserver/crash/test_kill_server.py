"""kill -9 of the whole server under load over HTTPS: its clients find all that it has answered, and carry on."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runherd.kube.config import load_kubeconfig
from runherd.kube.connection import open_transport
from runherd.wire.clock import SystemClock
from runherd.wire.transport import Request, Transport, TransportError

COMMAND = [sys.executable, "-c", "from runherd.cli.main import main; main()", "apiserver"]
CLIENTS = 16


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[tuple[Process, Transport, str]]:
    """The command on ``data``, a client of it and the URL of its config maps. Killed at the end."""
    server = await asyncio.create_subprocess_exec(*COMMAND, "--data", str(data), stdout=PIPE)
    try:
        assert server.stdout is not None
        assert b"serving on" in await server.stdout.readline()
        config = load_kubeconfig(environment={}, home=None, kubeconfig=data / "kubeconfig")
        transport = open_transport(config, clock=SystemClock())
        yield server, transport, f"{config.server}/api/v1/namespaces/default/configmaps"
        await transport.close()
    finally:
        if server.returncode is None:
            server.kill()
        await server.communicate()


async def call(transport: Transport, method: str, url: str, body: object = None) -> tuple[int, dict[str, Any]]:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    content = json.dumps(body).encode() if body is not None else b""
    response = await transport.request(Request(method, url, {"Content-Type": content_type}, content))
    return response.status, json.loads(response.body)


async def hammer(server: Process, transport: Transport, url: str, kills_after: int, answered: dict[str, int]) -> None:
    """Write config maps, each again and again, until so many writes were answered; then kill the server."""

    async def client(number: int) -> None:
        for count in range(1, 10_000):
            name = f"map-{number}-{count % 5}"
            data = {"data": {"count": str(answered.get(name, 0) + 1)}}
            if name in answered:
                status, _ = await call(transport, "PATCH", f"{url}/{name}", data)
            else:
                status, _ = await call(transport, "POST", url, {"metadata": {"name": name}, **data})
            # It may be there without having been answered, from before a kill.
            assert status in {200, 201, 409}
            if status != 409:
                answered[name] = answered.get(name, 0) + 1
            if sum(answered.values()) >= kills_after and server.returncode is None:
                server.kill()

    outcomes = await asyncio.gather(*(client(number) for number in range(CLIENTS)), return_exceptions=True)
    assert all(isinstance(outcome, TransportError) for outcome in outcomes), outcomes


@pytest.mark.slow
async def test_every_answered_write_is_there_after_the_server_was_killed(tmp_path: Path) -> None:
    random = Random(0)
    answered: dict[str, int] = {}
    version = 0
    for _ in range(4):
        async with serving(tmp_path / "data") as (server, transport, url):
            status, found = await call(transport, "GET", url)
            assert status == 200
            assert int(found["metadata"]["resourceVersion"]) >= version
            version = int(found["metadata"]["resourceVersion"])
            counts = {item["metadata"]["name"]: int(item["data"]["count"]) for item in found["items"]}
            assert counts.keys() >= answered.keys()
            for name, count in counts.items():
                # The write that was under way may have made it, or not.
                assert count in {answered.get(name, 0), answered.get(name, 0) + 1}
            answered |= counts
            kills_after = sum(answered.values()) + random.randint(1, 400)
            await hammer(server, transport, url, kills_after, answered)
