"""The embedded API server under load: creates, watch events, and the memory of many pods.

wrk sends the creates (64 connections, 2 KB custom resources, plain HTTP). The server runs in a process of its own, so
that its CPU and memory can be told from the rest.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import shutil
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import psutil

from bench._loops import LOOPS
from bench._result import Result
from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.sqlite_journal import sqlite_store
from runherd.local.apiserver.store import Store
from runherd.wire.clock import SystemClock
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.transport import Request, Timeouts

ROUNDS = 3
SECONDS = 5
CONNECTIONS = 64
WATCHERS = 10
PODS = 10_000
COLLECTION = "/apis/bench.runherd.dev/v1/namespaces/default/things"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_SCRIPT = """
wrk.method = "POST"
wrk.path = "%s"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [[%s]]
function response(status)
  if status ~= 201 then io.stderr:write("status " .. status .. "\\n") end
end
"""


def run() -> Result:
    """Measure, or raise when there is no wrk."""
    if shutil.which("wrk") is None:
        raise SystemExit("bench apiserver needs wrk to load the server with: apt-get install wrk")
    rows: list[dict[str, str | float]] = []
    figures: dict[str, float] = {}
    for name, durable, watchers in (
        ("memory", False, 0),
        (f"memory, {WATCHERS} watchers", False, WATCHERS),
        ("SQLite", True, 0),
    ):
        samples = [asyncio.run(_creates(durable, watchers)) for _ in range(ROUNDS)]
        creates = median(sample["creates/s"] for sample in samples)
        row: dict[str, str | float] = {"store": name, "creates/s": creates}
        row["CPU µs/create"] = median(sample["cpu"] for sample in samples)
        row["p99 ms"] = median(sample["p99"] for sample in samples)
        if watchers:
            row["watch events/s"] = median(sample["events/s"] for sample in samples)
            figures["watch events/s to 10 watchers"] = float(row["watch events/s"])
        figures[f"creates/s, {name}"] = creates
        rows.append(row)
    figures[f"MB with {PODS:,} pods of 5 KB"] = asyncio.run(_memory())
    return Result(
        title=f"The embedded API server: {CONNECTIONS} connections, 2 KB custom resources",
        rows=rows,
        notes=f"wrk for {SECONDS} s, medians of {ROUNDS} runs; server, wrk and watchers share the machine",
        figures=figures,
    )


def definition() -> dict[str, Any]:
    """A kind with a schema that is checked, pruned and defaulted."""
    item = {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}}
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 0},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "items": {"type": "array", "items": item},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.bench.runherd.dev"},
        "spec": {
            "group": "bench.runherd.dev",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }


def thing() -> bytes:
    """2 KB that differ by the name which the server makes."""
    items = [{"name": f"variable-{number}", "value": "x" * 40} for number in range(20)]
    body = {
        "apiVersion": "bench.runherd.dev/v1",
        "kind": "Thing",
        "metadata": {"generateName": "runner-", "labels": {"app": "bench", "set": "one"}},
        "spec": {"size": 1, "items": items},
    }
    # Without blanks, as Kubernetes clients write it.
    return json.dumps(body, separators=(",", ":")).encode()


def pod(name: str) -> bytes:
    """5 KB as they are stored."""
    environment = [{"name": f"VARIABLE_{number}", "value": "x" * 60} for number in range(40)]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench", "set": "one"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/image:1", "env": environment}]},
    }
    return json.dumps(body).encode()


class Served:
    """A server in a process of its own."""

    def __init__(self, directory: Path | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(directory, other))
        self.process.start()
        self.url = f"http://127.0.0.1:{self._pipe.recv()}"

    @property
    def cpu(self) -> float:
        """Seconds of CPU so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    @property
    def resident(self) -> float:
        """MB of memory."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20

    def stop(self) -> None:
        self._pipe.send(None)
        self.process.join()


def _serve(directory: Path | None, pipe: Connection) -> None:
    with asyncio.Runner(loop_factory=next(iter(LOOPS.values()))) as runner:
        runner.run(_serve_until_told(directory, pipe))


async def _serve_until_told(directory: Path | None, pipe: Connection) -> None:
    store = Store() if directory is None else sqlite_store(directory, SystemClock())[0]
    api = ApiServer(store, random=Random(0))
    await api.start()
    server = Server(api.handle)
    pipe.send(await server.start())
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), stopped.set)
    await stopped.wait()
    await server.close()
    await api.close()


async def _creates(durable: bool, watchers: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        served = Served(Path(directory) / "data" if durable else None)
        transport = NetworkTransport()
        try:
            await _post(transport, served.url + CRDS, json.dumps(definition()).encode())
            counting = await _watch(served.url, watchers) if watchers else None
            script = Path(directory) / "create.lua"
            script.write_text(_SCRIPT % (COLLECTION, thing().decode()))
            cpu = served.cpu
            command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", "-s", str(script), served.url]
            wrk = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            output, errors = await wrk.communicate()
            cpu = served.cpu - cpu
            if wrk.returncode != 0 or errors:
                raise RuntimeError(f"wrk failed: {errors.decode()[:500]}{output.decode()}")
            result = _parse(output.decode())
            result["cpu"] = cpu / result.pop("requests") * 1e6
            if counting is not None:
                seen, _ = await counting.communicate()
                result["events/s"] = float(seen)
            return result
        finally:
            await transport.close()
            served.stop()


def _parse(output: str) -> dict[str, float]:
    found = re.search(r"(\d+) requests in ([\d.]+)s", output)
    slow = re.search(r"99%\s+([\d.]+)(us|ms|s)", output)
    if found is None or slow is None:
        raise RuntimeError(f"wrk printed something else than expected: {output}")
    unit = {"us": 0.001, "ms": 1.0, "s": 1000.0}[slow[2]]
    requests = int(found[1])
    return {"requests": requests, "creates/s": requests / float(found[2]), "p99": float(slow[1]) * unit}


async def _watch(url: str, watchers: int) -> asyncio.subprocess.Process:
    """Watchers in another process, which prints how many events a second they got."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench._watchers",
        url + COLLECTION,
        str(watchers),
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )
    if process.stdout is None:
        raise RuntimeError("the process has an output")
    await process.stdout.readline()
    return process


async def _post(transport: NetworkTransport, url: str, body: bytes) -> None:
    response = await transport.request(
        Request("POST", url, {"Content-Type": "application/json"}, body), Timeouts(total=60)
    )
    if response.status != 201:
        raise RuntimeError(response.body.decode())


async def _memory() -> float:
    served = Served(None)
    transport = NetworkTransport()
    try:
        slots = asyncio.Semaphore(16)

        async def create(number: int) -> None:
            async with slots:
                await _post(transport, f"{served.url}/api/v1/namespaces/default/pods", pod(f"pod-{number}"))

        await asyncio.gather(*(create(number) for number in range(PODS)))
        return served.resident
    finally:
        await transport.close()
        served.stop()
