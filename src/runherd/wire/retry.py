"""When to try again. Whether to is the caller's decision: only it knows whether a repeat is safe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random

from runherd.wire.randomness import jittered

__all__ = ["Backoff", "parse_retry_after"]

_SECONDS = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow: ``initial`` seconds, each ``factor`` times the last, never above ``limit``.

    ``jitter`` then adds up to that share of the wait at random (client-go's ``wait.Backoff``), so that many clients
    that failed together don't come back together.
    """

    initial: float
    limit: float
    factor: float = 2.0
    jitter: float = 0.0

    def delay(self, attempt: int, random: Random) -> float:
        """Seconds to wait before retry number ``attempt``, counted from 0."""
        try:
            seconds = min(self.initial * self.factor**attempt, self.limit)
        except OverflowError:
            seconds = self.limit
        return jittered(random, seconds, self.jitter) if self.jitter else seconds

    def delays(self, random: Random) -> Iterator[float]:
        """The waits before the first retry, the second and so on, without end."""
        attempt = 0
        while True:
            yield self.delay(attempt, random)
            attempt += 1


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds that a ``Retry-After`` header asks for (``docs/spec/actions-service.md`` 2.4); ``None`` if it doesn't.

    The header is a whole number of seconds or an HTTP date; a date that has passed means 0. ``now`` is aware.
    """
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:  # "-0000", or none: HTTP dates are always in GMT
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())
