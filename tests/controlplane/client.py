"""A plain HTTPS client for tests to look at the API server with, apart from the client under test."""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    """An answer of the API server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded; raises ValueError when it is not JSON."""
        return json.loads(self.body)


class UnexpectedStatusError(AssertionError):
    """The API server answered with another status than the test needs."""


class Client:
    """Speaks to one API server as one user, with a new connection for each request.

    It blocks: in a coroutine, call it through ``asyncio.to_thread``.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, token: str | None = None) -> None:
        """Authenticate by the client certificate in ``tls``, if it has one, and by ``token``, if given."""
        self._host = host
        self._port = port
        self._tls = tls
        self._token = token

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout_seconds: float = 30,
    ) -> Response:
        """Send one request, ``body`` as JSON, and read the whole answer, whatever its status.

        Raises OSError or http.client.HTTPException when no answer comes.
        """
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout_seconds, context=self._tls)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Response(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return the object or list at ``path``; raises UnexpectedStatusError unless it is there."""
        return self._succeed("GET", path)

    def create(self, path: str, body: object) -> Any:
        """Create ``body`` in the collection ``path`` and return it as stored; raises UnexpectedStatusError."""
        return self._succeed("POST", path, body)

    def delete(self, path: str, options: object = None) -> Any:
        """Delete what is at ``path``, with DeleteOptions if given; raises UnexpectedStatusError."""
        return self._succeed("DELETE", path, options)

    def exists(self, path: str) -> bool:
        """Tell whether there is an object at ``path``; raises UnexpectedStatusError on any answer but 200 and 404."""
        response = self.request("GET", path)
        if response.status not in {200, 404}:
            raise UnexpectedStatusError(_told("GET", path, response))
        return response.status == 200

    def _succeed(self, method: str, path: str, body: object = None) -> Any:
        response = self.request(method, path, body)
        if not 200 <= response.status < 300:
            raise UnexpectedStatusError(_told(method, path, response))
        return response.json


def _told(method: str, path: str, response: Response) -> str:
    return f"{method} {path}: {response.status} {response.body.decode(errors='replace')}"
