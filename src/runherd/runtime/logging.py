"""Log lines as the manager's users know them: text or JSON, with the keys ``severity`` and ``message``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO

import msgspec
import structlog
from structlog.typing import Processor

from runherd.runtime.controller import current_reconcile
from runherd.wire.clock import Clock

__all__ = ["FORMATS", "LEVELS", "configure_logging"]

#: ``--log-level`` (``docs/spec/controllers.md 12``).
LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
#: ``--log-format``.
FORMATS: Final = ("text", "json")

_Event = MutableMapping[str, Any]

_SEVERITIES: Final = {"warning": "warn", "critical": "error", "exception": "error"}
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def configure_logging(
    clock: Clock, *, level: str = "debug", format_: str = "text", stream: TextIO | None = None
) -> None:
    """Set up structlog, and the standard library's logging with it, for this process.

    Times are RFC 3339, from ``clock``. Lines of a reconcile carry its controller, its object and an ID of its own.
    ``stream`` is where lines go: standard error by default. Raises ``ValueError`` for a level or format that there
    isn't.
    """
    if level not in LEVELS:
        raise ValueError(f"unknown log level {level!r}: use {', '.join(LEVELS)}")
    if format_ not in FORMATS:
        raise ValueError(f"unknown log format {format_!r}: use {' or '.join(FORMATS)}")
    output = stream or sys.stderr
    render: Callable[[Any, str, _Event], str] = _render_json if format_ == "json" else _render_text
    processors: list[Processor] = [
        _Header(clock),
        structlog.processors.format_exc_info,
        render,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *names: _Logger(names[0] if names else "", output),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog()]
    root.setLevel(max(LEVELS[level], logging.INFO))


class _Logger:
    """Writes finished lines; knows the name of the logger."""

    def __init__(self, name: str, output: TextIO) -> None:
        self.name = name
        self._output = output

    def msg(self, line: str) -> None:
        self._output.write(line + "\n")
        self._output.flush()

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


class _Header:
    """Puts time, severity, logger, message and the reconcile at hand before what else a line carries."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, logger: _Logger, method: str, event: _Event) -> _Event:
        header: _Event = {
            "ts": self._clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "severity": _SEVERITIES.get(method, method),
            "logger": event.pop("logger", logger.name),
            "message": event.pop("event", ""),
        }
        reconcile = current_reconcile.get()
        if reconcile is not None:
            header["controller"] = reconcile.controller
            header["namespace"] = reconcile.request.namespace
            header["name"] = reconcile.request.name
            header["reconcileID"] = reconcile.id
        return {**header, **event}


class _ToStructlog(logging.Handler):
    """Sends what libraries log through the same processors."""

    def emit(self, record: logging.LogRecord) -> None:
        severity = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
        method = severity if severity in ("debug", "info", "warning", "error") else "info"
        getattr(structlog.get_logger(record.name), method)(record.getMessage(), exc_info=record.exc_info or None)


def _render_json(_: Any, __: str, event: _Event) -> str:
    return _encode(event).decode()


def _render_text(_: Any, __: str, event: _Event) -> str:
    exception = event.pop("exception", None)
    head = "\t".join(str(event.pop(key)) for key in ("ts", "severity", "logger", "message"))
    line = f"{head}\t{_encode(event).decode()}" if event else head
    return f"{line}\n{exception}" if exception else line
