"""The runner program's connection to the service. Standard library only, like its caller.

It speaks just enough HTTP by itself: ``http.client`` would cost a third of what the program may take to start. It
relies on what the simulator does, which answers with ``Content-Length`` and never with a redirect.
"""

from __future__ import annotations

import json
import socket
import time

TYPE_CHECKING = False  # importing typing would cost milliseconds at every start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["RefusedError", "Service"]

_RETRY_DELAYS = (0.5, 1.0, 2.0, 4.0)
# Longer than the service holds a poll.
_TIMEOUT = 60.0


class RefusedError(Exception):
    """The service answered, and not as hoped; ``status`` is 0 where it doesn't answer at all."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Service:
    """The service's side of the runner protocol (:mod:`runherd.simulator.runner_api`): one connection, kept alive."""

    def __init__(self, config: dict[str, Any]) -> None:
        """``config`` is the JIT configuration. Raises ``KeyError`` and ``ValueError`` where it isn't one."""
        scheme, _, authority = str(config["url"]).partition("://")
        self._secure = scheme == "https"
        self._authority = authority.strip("/")
        host, colon, port = self._authority.rpartition(":")
        self._host = (host if colon else self._authority).strip("[]")
        self._port = int(port) if colon else (443 if self._secure else 80)
        self._identity = {"runnerId": config["runnerId"], "token": config["token"], "connection": 0}
        self._socket: socket.socket | None = None

    def connect(self, version: str) -> None:
        """Begin: later calls carry the connection's number. Raises :class:`RefusedError`."""
        self._identity["connection"] = self.call("connect", version=version)["connection"]

    def call(self, name: str, **fields: object) -> dict[str, Any]:
        """Make a call that is worth repeating where the network or the service fails. Raises :class:`RefusedError`."""
        delays = list(_RETRY_DELAYS)
        while True:
            try:
                self.send(name, **fields)
                return self.receive()
            except OSError as error:
                failure = error.strerror or type(error).__name__
            except RefusedError as error:
                if error.status < 500:
                    raise
                failure = str(error)
            self.close()
            if not delays:
                raise RefusedError(0, f"{name}: the service does not answer ({failure})")
            time.sleep(delays.pop(0))

    def send(self, name: str, **fields: object) -> None:
        """Send a call; :meth:`receive` takes the answer. Raises ``OSError``."""
        if self._socket is None:
            self._socket = self._open()
        body = json.dumps({**self._identity, **fields}).encode()
        head = (
            f"POST /_runner/{name} HTTP/1.1\r\nHost: {self._authority}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)

    def receive(self) -> dict[str, Any]:
        """The answer to what was sent. Raises :class:`RefusedError` and ``OSError``."""
        status, body = self._read_response()
        try:
            content = json.loads(body)
        except ValueError:
            content = None
        if status != 200 or not isinstance(content, dict):
            message = content.get("message") if isinstance(content, dict) else None
            raise RefusedError(status, str(message or f"status {status}"))
        return content

    def fileno(self) -> int:
        """What becomes readable when the answer comes. Only after :meth:`send`."""
        return self._socket.fileno() if self._socket is not None else -1

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> socket.socket:
        connection = socket.create_connection((self._host, self._port), timeout=_TIMEOUT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._secure:
            return connection
        import ssl  # only where it is needed: it is slow to load

        # SSL_CERT_FILE names further roots, as it does for every OpenSSL program.
        return ssl.create_default_context().wrap_socket(connection, server_hostname=self._host)

    def _read_response(self) -> tuple[int, bytes]:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive_some()
        head, _, body = received.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", "0")):
            body += self._receive_some()
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(status_line.split()[1]), body

    def _receive_some(self) -> bytes:
        received = self._socket.recv(65536) if self._socket is not None else b""
        if not received:
            raise ConnectionResetError("the service closed the connection")
        return received
