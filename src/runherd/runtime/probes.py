"""The HTTP endpoints that tell how a process is: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, urlsplit

import structlog
from multidict import CIMultiDict
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from runherd.wire.transport import Handler, Request, Response

__all__ = ["Check", "Checks", "metrics_handler", "probes_handler"]

log = structlog.get_logger("probes")

#: Raises when something is wrong; returns when not. Called on the event loop, so it must be quick.
Check = Callable[[], None]

_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}


def _ping() -> None:
    """All is well if anybody answers."""


class Checks:
    """The named checks behind one endpoint. ``ping``, which never fails, is always one of them."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {"ping": _ping}

    def add(self, name: str, check: Check) -> None:
        """Add a check. Raises ``ValueError`` when the name is taken."""
        if name in self._checks:
            raise ValueError(f"there is a check {name!r} already")
        self._checks[name] = check

    def answer(self, endpoint: str, name: str, query: dict[str, list[str]]) -> Response:
        """Run the check ``name``, or (``""``) all that the query doesn't ``exclude``.

        The reason of a failure goes to the log only: whoever may ask how we are need not learn why.
        """
        excluded = query.get("exclude", [])
        chosen = {
            known: check for known, check in self._checks.items() if known not in excluded and name in ("", known)
        }
        if name and not chosen:
            return _text(404, f"no check {name!r}\n")
        failed = [known for known, check in chosen.items() if not _passes(endpoint, known, check)]
        lines = [f"[-]{known} failed: reason withheld" if known in failed else f"[+]{known} ok" for known in chosen]
        if failed:
            return _text(500, "\n".join([*lines, f"{endpoint} check failed", ""]))
        if "verbose" in query:
            return _text(200, "\n".join([*lines, f"{endpoint} check passed", ""]))
        return _text(200, "ok")


def probes_handler(healthz: Checks, readyz: Checks) -> Handler:
    """Answers ``/healthz`` and ``/readyz``; ``/healthz/<check>`` runs one, ``?verbose`` lists, ``?exclude=`` omits."""
    endpoints = {"healthz": healthz, "readyz": readyz}

    async def handle(request: Request) -> Response:
        url = urlsplit(request.url)
        endpoint, _, name = url.path.strip("/").partition("/")
        checks = endpoints.get(endpoint)
        if checks is None:
            return _text(404, "not found\n")
        return _refused(request) or checks.answer(endpoint, name, parse_qs(url.query, keep_blank_values=True))

    return handle


def metrics_handler(registry: CollectorRegistry, path: str = "/metrics") -> Handler:
    """Answers ``path`` with all metrics in ``registry``: OpenMetrics where that is accepted, else Prometheus' text."""

    async def handle(request: Request) -> Response:
        if urlsplit(request.url).path != path:
            return _text(404, "not found\n")
        refused = _refused(request)
        if refused is not None:
            return refused
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(200, CIMultiDict({"Content-Type": content_type}), encode(registry))

    return handle


def _passes(endpoint: str, name: str, check: Check) -> bool:
    try:
        check()
    except Exception as error:
        log.warning("health check failed", endpoint=endpoint, check=name, error=f"{type(error).__name__}: {error}")
        return False
    return True


def _refused(request: Request) -> Response | None:
    if request.method in ("GET", "HEAD"):
        return None
    return Response(405, CIMultiDict({**_TEXT, "Allow": "GET, HEAD"}), b"method not allowed\n")


def _text(status: int, text: str) -> Response:
    return Response(status, CIMultiDict(_TEXT), text.encode())
