"""How long a key waits before it is tried again (``docs/spec/controllers.md 1.2``; flag of 12)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from runherd.runtime.request import Request

__all__ = [
    "BucketRateLimiter",
    "ItemExponentialFailureRateLimiter",
    "MaxOfRateLimiter",
    "RateLimiter",
    "rate_limiter",
]


class RateLimiter(Protocol):
    """Decides when a key may be tried again."""

    def when(self, request: Request) -> float:
        """Seconds until ``request`` may be tried again; counts as one more failure of it."""
        ...

    def forget(self, request: Request) -> None:
        """``request`` succeeded, or is given up: its failures no longer count."""
        ...

    def requeues(self, request: Request) -> int:
        """How often :meth:`when` was asked about ``request`` since it was last forgotten."""
        ...


class ItemExponentialFailureRateLimiter:
    """``base`` seconds after the first failure of a key, twice as long after each further one, ``cap`` at most."""

    def __init__(self, base: float = 0.005, cap: float = 1000.0) -> None:
        if not 0 < base <= cap:
            raise ValueError(f"base must be above 0 and not above cap, not {base} (cap {cap})")
        self._base = base
        self._cap = cap
        self._failures: dict[Request, int] = {}

    def when(self, request: Request) -> float:
        failures = self._failures.get(request, 0)
        self._failures[request] = failures + 1
        # Beyond 2**64 times the base every cap is reached; larger exponents would overflow a float.
        return min(self._base * 2.0 ** min(failures, 64), self._cap)

    def forget(self, request: Request) -> None:
        self._failures.pop(request, None)

    def requeues(self, request: Request) -> int:
        return self._failures.get(request, 0)


class BucketRateLimiter:
    """All keys share one bucket: ``burst`` retries at once, refilled with ``rate`` a second."""

    def __init__(self, rate: float = 10.0, burst: int = 100) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"rate must be above 0 and burst at least 1, not {rate} and {burst}")
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def when(self, request: Request) -> float:
        now = asyncio.get_running_loop().time()
        if self._filled_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        # Below zero the bucket holds reservations: each is due when the refill reaches it.
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def forget(self, request: Request) -> None:
        """Nothing is kept for a single key."""

    def requeues(self, request: Request) -> int:
        return 0


class MaxOfRateLimiter:
    """The longest wait that any of several limiters asks for."""

    def __init__(self, *limiters: RateLimiter) -> None:
        self._limiters = limiters

    def when(self, request: Request) -> float:
        return max(limiter.when(request) for limiter in self._limiters)

    def forget(self, request: Request) -> None:
        for limiter in self._limiters:
            limiter.forget(request)

    def requeues(self, request: Request) -> int:
        return max(limiter.requeues(request) for limiter in self._limiters)


def rate_limiter(name: str = "") -> RateLimiter:
    """The limiter that ``--workqueue-rate-limiter`` names.

    ``""`` and ``bucket_rate_limiter``: exponential per key, and one bucket for all keys of the queue;
    ``typed_rate_limiter``: exponential per key only. Raises ``ValueError`` for any other name.
    """
    if name in ("", "bucket_rate_limiter"):
        return MaxOfRateLimiter(ItemExponentialFailureRateLimiter(), BucketRateLimiter())
    if name == "typed_rate_limiter":
        return ItemExponentialFailureRateLimiter()
    raise ValueError(f"unknown work queue rate limiter {name!r}: use bucket_rate_limiter or typed_rate_limiter")
