"""Finds the endpoint of a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from runherd.simulator.exchange import Call
from runherd.wire.transport import Response

__all__ = ["Endpoint", "Route", "Router"]

#: Takes the call and what the path's placeholders stand for.
Endpoint = Callable[..., Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """``pattern`` is a path without its first slash; segments in braces stand for any one segment."""

    method: str
    pattern: str
    #: What faults call it: ``jit_config.generate``.
    operation: str
    endpoint: Endpoint
    #: Tells the id of the scale set that a call concerns; 0 when there is none.
    scale_set_id: Callable[[Call, tuple[Any, ...]], int] = lambda _call, _parameters: 0


class Router:
    """All routes, by method and number of segments."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._table: dict[tuple[str, int], list[tuple[list[str | None], Route]]] = {}
        for route in routes:
            pattern = [None if part.startswith("{") else part for part in route.pattern.split("/")]
            self._table.setdefault((route.method, len(pattern)), []).append((pattern, route))

    def find(self, method: str, segments: list[str]) -> tuple[Route, tuple[str, ...]] | None:
        """The route and the placeholders' values."""
        for pattern, route in self._table.get((method, len(segments)), ()):
            if all(part is None or part == segment for part, segment in zip(pattern, segments, strict=True)):
                return route, tuple(segment for part, segment in zip(pattern, segments, strict=True) if part is None)
        return None
