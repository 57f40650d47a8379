from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from random import Random

import pytest
import structlog

from runherd.runtime.controller import Reconcile, current_reconcile
from runherd.runtime.logging import configure_logging
from runherd.runtime.request import Request
from runherd.wire.clock import EventLoopClock
from tests.support.virtual_time import in_virtual_time


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configuration = structlog.get_config()
    yield
    structlog.configure(**configuration)
    root.handlers[:] = handlers
    root.setLevel(level)


@in_virtual_time
async def test_json_lines() -> None:
    output = StringIO()
    configure_logging(EventLoopClock(), format_="json", stream=output)
    structlog.get_logger("EphemeralRunner").info("created pod", pod="a", count=2)
    assert json.loads(output.getvalue()) == {
        "ts": "2026-01-01T00:00:00.000Z",
        "severity": "info",
        "logger": "EphemeralRunner",
        "message": "created pod",
        "pod": "a",
        "count": 2,
    }


@in_virtual_time
async def test_text_lines() -> None:
    output = StringIO()
    configure_logging(EventLoopClock(), stream=output)
    log = structlog.get_logger("manager")
    log.warning("slow", seconds=3)
    log.debug("nothing else")
    assert output.getvalue().splitlines() == [
        '2026-01-01T00:00:00.000Z\twarn\tmanager\tslow\t{"seconds":3}',
        "2026-01-01T00:00:00.000Z\tdebug\tmanager\tnothing else",
    ]


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warn", "error"]),
        ("info", ["info", "warn", "error"]),
        ("warn", ["warn", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels(level: str, shown: list[str]) -> None:
    @in_virtual_time
    async def main() -> None:
        output = StringIO()
        configure_logging(EventLoopClock(), level=level, format_="json", stream=output)
        log = structlog.get_logger("x")
        for method in ("debug", "info", "warning", "error"):
            getattr(log, method)("line")
        assert [json.loads(line)["severity"] for line in output.getvalue().splitlines()] == shown

    main()


@in_virtual_time
async def test_lines_of_a_reconcile_name_its_controller_and_object() -> None:
    output = StringIO()
    configure_logging(EventLoopClock(), format_="json", stream=output)
    reconcile = Reconcile("ephemeralrunner", Request("default", "a"), Random(1))
    token = current_reconcile.set(reconcile)
    structlog.get_logger("x").info("line")
    current_reconcile.reset(token)
    line = json.loads(output.getvalue())
    assert (line["controller"], line["namespace"], line["name"]) == ("ephemeralrunner", "default", "a")
    assert line["reconcileID"] == reconcile.id


@pytest.mark.parametrize("format_", ["text", "json"])
def test_tracebacks_and_lines_of_libraries_come_the_same_way(format_: str) -> None:
    @in_virtual_time
    async def main() -> None:
        output = StringIO()
        configure_logging(EventLoopClock(), format_=format_, stream=output)
        try:
            json.loads("{}")["why"]
        except KeyError:
            structlog.get_logger("x").exception("failed")
            logging.getLogger("aiohttp.server").exception("failed %s", "too")
        logging.getLogger("aiohttp.client").warning("odd")
        logging.getLogger("aiohttp.client").debug("chatter")
        text = output.getvalue()
        assert text.count("Traceback (most recent call last)") == 2
        assert "failed too" in text
        assert "aiohttp.server" in text
        assert "chatter" not in text
        assert ("warn\taiohttp.client\todd" if format_ == "text" else '"severity":"warn"') in text

    main()


def test_unknown_levels_and_formats_are_refused() -> None:
    with pytest.raises(ValueError, match="'trace': use debug, info, warn, error"):
        configure_logging(EventLoopClock(), level="trace")
    with pytest.raises(ValueError, match="'xml': use text or json"):
        configure_logging(EventLoopClock(), format_="xml")
