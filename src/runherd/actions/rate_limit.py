"""When the service says that we call too often: how to tell, and the pause that follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from runherd.wire.retry import parse_retry_after

__all__ = ["Pause", "RateLimit", "rate_limit"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What an answer says about a limit: wait ``delay`` seconds or, where it gives none, as ``guess`` and ``most`` say.

    The guess doubles with every further signal, up to ``most`` seconds.
    """

    delay: float | None
    guess: float
    most: float


# Without a hint: as a retry would wait, since the service may only be short of breath for a moment ...
_TOO_MANY = (1.0, 60.0)
# ... but GitHub's secondary limit asks for a minute at least when it names no time.
_FORBIDDEN = (60.0, 900.0)


def rate_limit(status: int, headers: Mapping[str, str], message: str, now: datetime) -> RateLimit | None:
    """The rate limit that an answer signals, if it does: any 429, and a 403 that says so in its headers or words."""
    exhausted = headers.get("x-ratelimit-remaining", "").strip() == "0"
    if status == 429:
        guess, most = _TOO_MANY
    elif status == 403 and (exhausted or "Retry-After" in headers or "secondary rate limit" in message.lower()):
        guess, most = _FORBIDDEN
    else:
        return None
    delay = parse_retry_after(headers.get("Retry-After"), now)
    reset = headers.get("x-ratelimit-reset", "").strip()
    if delay is None and exhausted and reset.isascii() and reset.isdecimal() and len(reset) < 12:
        delay = max(1.0, int(reset) - now.timestamp())
    return RateLimit(delay, guess, most)


class Pause:
    """Whether a configuration may call now, or was asked to wait."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._since = float("-inf")
        self._until = float("-inf")
        self._signals = 0

    @property
    def remaining(self) -> float:
        """Seconds until calls go on; 0 when they do."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    async def wait(self, patience: float | None) -> bool:
        """Wait until calls may go on; ``False``, at once, when that takes more than ``patience`` seconds."""
        loop = asyncio.get_running_loop()
        deadline = None if patience is None else loop.time() + patience
        while (remaining := self.remaining) > 0:
            if deadline is not None and loop.time() + remaining > deadline:
                return False
            await asyncio.sleep(remaining)
        return True

    def signal(self, limit: RateLimit, sent_at: float) -> None:
        """A request sent at ``sent_at`` (loop time) was answered with ``limit``."""
        now = asyncio.get_running_loop().time()
        # Sixteen calls that were under way together are told the same thing sixteen times: that is one signal.
        is_new = sent_at > self._since
        if is_new:
            self._signals += 1
            self._since = now
        guess: float = min(limit.guess * 2 ** min(self._signals - 1, 20), limit.most)
        self._until = max(self._until, now + (guess if limit.delay is None else limit.delay))
        if is_new:
            log.warning("%s: the service asks to slow down, calls pause for %.0f s", self._name, self.remaining)

    def answered(self, sent_at: float) -> None:
        """A request sent at ``sent_at`` was answered without a signal."""
        if sent_at > self._since:
            self._signals = 0
