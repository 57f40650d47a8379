"""A server that answers every request with one long watch, in a process of its own.

``python -m bench._watch_server EVENTS`` prints its port and serves until its standard input ends. The events are made
before anybody asks for them, so that sending costs next to nothing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench._loops import LOOPS

__all__ = ["pod_events", "watch_server"]

_PIECE = 2**16


@contextmanager
def watch_server(events: int) -> Iterator[int]:
    """A server of ``events`` events in a process of its own; its port on 127.0.0.1."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench._watch_server", str(events)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def pod_events(count: int) -> bytes:
    """``count`` lines of about 5.3 KB each: a runner's pod that changes, as an API server sends it."""
    return b"".join(
        json.dumps({"type": "MODIFIED", "object": _pod(number)}).encode() + b"\n" for number in range(count)
    )


def _pod(number: int) -> dict[str, Any]:
    variables = [{"name": f"ACTIONS_RUNNER_SETTING_{n}", "value": "x" * 30} for n in range(12)]
    container = {
        "name": "runner",
        "image": "ghcr.io/actions/actions-runner:latest",
        "command": ["/home/runner/run.sh"],
        "env": variables,
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
        "volumeMounts": [{"name": f"volume-{n}", "mountPath": f"/mnt/{n}"} for n in range(4)],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    fields: dict[str, Any] = {f"f:field-{n}": {".": {}, "f:name": {}, "f:value": {}} for n in range(30)}
    condition = {"status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"runners-{number:05}-runner",
            "namespace": "arc-runners",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(100_000 + number),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {f"example.com/label-{n}": f"value-{n}" for n in range(8)},
            "annotations": {f"example.com/annotation-{n}": "y" * 40 for n in range(4)},
            "ownerReferences": [
                {
                    "apiVersion": "actions.github.com/v1alpha1",
                    "kind": "EphemeralRunner",
                    "name": f"runners-{number:05}",
                    "uid": f"11111111-0000-0000-0000-{number:012}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [{"manager": "controller", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "nodeName": "node-17",
            "volumes": [{"name": f"volume-{n}", "emptyDir": {}} for n in range(4)],
            "tolerations": [{"key": f"node.kubernetes.io/{n}", "operator": "Exists"} for n in range(2)],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": name, **condition} for name in ("Initialized", "Ready", "PodScheduled")],
            "containerStatuses": [
                {
                    "name": "runner",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}},
                    "ready": True,
                    "restartCount": 0,
                    "image": "ghcr.io/actions/actions-runner:latest",
                }
            ],
            "startTime": "2026-01-01T00:00:00Z",
            "qosClass": "Burstable",
        },
    }


async def _serve(events: int) -> None:
    body = pod_events(events)
    pieces = [body[start : start + _PIECE] for start in range(0, len(body), _PIECE)]
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    parent = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(parent), sys.stdin)
    await parent.read()
    server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=next(iter(LOOPS.values()))) as runner:
        runner.run(_serve(int(sys.argv[1])))
