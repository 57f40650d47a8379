"""The event loops to measure on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["LOOPS"]


def _loops() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    try:
        import uvloop
    except ImportError:
        return loops
    return {"uvloop": uvloop.new_event_loop, **loops}


#: Makers of loops by name, the one of production first.
LOOPS = _loops()
