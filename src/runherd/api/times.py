"""Timestamps as Kubernetes writes them: ``Time`` in whole seconds, ``MicroTime`` with exactly six decimals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NewType

__all__ = ["MicroTime", "micro_time", "parse_micro_time", "whole_seconds"]

#: A ``MicroTime`` as it is on the wire (``2026-01-02T03:04:05.000000Z``), of Leases and Events. It is kept as text
#: because the server refuses one with fewer decimals than six, and a datetime is encoded with as few as it needs.
MicroTime = NewType("MicroTime", str)


def micro_time(moment: datetime) -> MicroTime:
    """``moment``, an aware datetime, as a :data:`MicroTime`."""
    return MicroTime(moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z")


def parse_micro_time(text: MicroTime) -> datetime:
    """The moment that ``text`` names. Raises ValueError when it is no RFC 3339 timestamp with a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"timestamp {text!r} has no time zone")
    return moment


def whole_seconds(moment: datetime) -> datetime:
    """``moment`` without its fraction of a second: what a ``Time`` field of Kubernetes holds."""
    return moment.replace(microsecond=0)
