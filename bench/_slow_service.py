"""An Actions service that takes its time, in a process of its own: every call is answered after 100 ms.

``python -m bench._slow_service`` prints its URL and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import jwt
from multidict import CIMultiDict

from bench._loops import LOOPS
from runherd.wire.server import Server
from runherd.wire.transport import Request, Response

__all__ = ["LATENCY", "slow_service"]

#: Seconds.
LATENCY = 0.1

_JSON = CIMultiDict({"Content-Type": "application/json; charset=utf-8"})
# About as long as a real one.
_JIT_CONFIG = "QUJD" * 1000


@contextmanager
def slow_service() -> Iterator[str]:
    """A service in a process of its own; its URL on 127.0.0.1."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench._slow_service"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


async def _serve() -> None:
    ids = count(1)
    url = ""

    async def answer(request: Request) -> Response:
        await asyncio.sleep(LATENCY)
        if request.method == "DELETE":
            return Response(204)
        if "generatejitconfig" in request.url:
            runner = {"id": next(ids), "name": json.loads(request.body)["name"], "runnerScaleSetId": 1}
            return _json(200, {"runner": runner, "encodedJITConfig": _JIT_CONFIG})
        if request.url.endswith("/registration-token"):
            return _json(201, {"token": "registration"})
        token = jwt.encode({"exp": time.time() + 3600}, "k" * 32, algorithm="HS256")
        return _json(200, {"url": url, "token": token})

    server = Server(answer)
    await server.start()
    url = server.url
    print(url, flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    await server.close()


def _json(status: int, body: object) -> Response:
    return Response(status, _JSON, json.dumps(body).encode())


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=next(iter(LOOPS.values()))) as runner:
        runner.run(_serve())
