"""What a request costs a :class:`~runherd.wire.server.Server`: 1.9 KB in, 1.9 KB out."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from aiohttp import web
from multidict import CIMultiDict

from bench._load import load
from bench._loops import LOOPS
from bench._result import Result
from runherd.wire.server import Server
from runherd.wire.transport import Request, Response

ROUNDS = 5
REQUESTS = 8000
CONNECTIONS = 16


def run() -> Result:
    """Load it from another process, beside a bare server of aiohttp's."""
    samples: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for loop, factory in LOOPS.items():
            for name, measure in (("aiohttp", _aiohttp), ("Server", _server)):
                with asyncio.Runner(loop_factory=factory) as runner:
                    samples.setdefault((loop, name), []).append(runner.run(measure()))
    medians = {key: (median(wall for wall, _ in runs), median(cpu for _, cpu in runs)) for key, runs in samples.items()}
    return Result(
        title=f"Requests over {CONNECTIONS} connections: medians of {ROUNDS} runs of {REQUESTS:,}",
        rows=[
            {"loop": loop, "server": name, "requests/s": REQUESTS / wall, "CPU µs/request": cpu / REQUESTS * 1e6}
            for (loop, name), (wall, cpu) in medians.items()
        ],
        figures={f"requests/s, {loop}": REQUESTS / medians[loop, "Server"][0] for loop in LOOPS},
    )


async def _server() -> tuple[float, float]:
    async def echo(request: Request) -> Response:
        return Response(200, CIMultiDict({"Content-Type": "application/json"}), request.body)

    server = Server(echo)
    measured = await _measure(await server.start())
    await server.close()
    return measured


async def _aiohttp() -> tuple[float, float]:
    async def echo(request: web.BaseRequest) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")

    protocols = web.Server(echo, access_log=None)
    listener = await asyncio.get_running_loop().create_server(protocols, "127.0.0.1", 0)
    measured = await _measure(listener.sockets[0].getsockname()[1])
    listener.close()
    await protocols.shutdown(1)
    return measured


async def _measure(port: int) -> tuple[float, float]:
    """Seconds on the clock, and of CPU in this process."""
    await load(port, CONNECTIONS, CONNECTIONS * 10)
    cpu = time.process_time()
    wall = await load(port, CONNECTIONS, REQUESTS)
    return wall, time.process_time() - cpu
