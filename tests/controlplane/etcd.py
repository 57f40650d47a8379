"""etcd's JSON gateway, for what no API server offers: compaction now."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any

_TIMEOUT_SECONDS = 10


class EtcdError(Exception):
    """etcd refused a request; says which, and why."""


def is_listening(socket_file: Path) -> bool:
    """Tell whether an etcd takes connections on ``socket_file``."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(socket_file))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def compact(socket_file: Path) -> int:
    """Forget every revision before the newest, which is returned.

    What asks for an older one from then on gets "compacted" of etcd, that is
    410 Gone of an API server that does not have it cached.

    Raises EtcdError when etcd refuses.
    """
    revision = int(_call(socket_file, "/v3/maintenance/status", {})["header"]["revision"])
    _call(socket_file, "/v3/kv/compaction", {"revision": str(revision), "physical": True})
    return revision


def _call(socket_file: Path, path: str, body: dict[str, Any]) -> Any:
    connection = http.client.HTTPConnection("localhost", timeout=_TIMEOUT_SECONDS)
    # http.client connects by itself unless it has a socket already.
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(_TIMEOUT_SECONDS)
    try:
        connection.sock.connect(str(socket_file))
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise EtcdError(f"etcd answered {answer.status} to {path}: {content.decode(errors='replace')}")
    return json.loads(content)
