"""When a request is sent again, and after how long.

A repeat is made where it can't do harm:

- Nothing was sent (``request_sent`` is false), or the server answered 429: it did not act. Any request is repeated.
- The server itself asks for a repeat, by ``Retry-After`` on a 5xx: all but a create whose name the server generates,
  which could leave two objects. A repeated create of a fixed name ends, at worst, with AlreadyExists.
- The answer was lost, or is a 5xx without ``Retry-After``: reads, and deletes with a UID precondition. A PUT or PATCH
  is not repeated, though a resource version would keep it from happening twice: the repeat of one that did succeed
  ends with a Conflict, which says "not written" of something that was. The caller learns that the outcome is unknown
  instead, and looks.

Waits grow and are jittered, never shorter than the server asks, and bounded: where the server asks for a longer wait
than is left, the error goes to the caller, who finds the wish in ``retry_after``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

from runherd.kube.errors import CredentialError
from runherd.wire.randomness import jittered
from runherd.wire.retry import Backoff
from runherd.wire.transport import CertificateError, TransportError

__all__ = ["Attempts", "Repeat", "RetryPolicy"]


class Repeat(Enum):
    """What may be repeated without harm, once the server may have acted."""

    #: Reads, and deletes with a UID precondition: always.
    ALWAYS = "always"
    #: Only when the server asks for it.
    WHEN_ASKED = "when asked"
    #: Not at all: a create whose name the server generates.
    NEVER = "never"


_BACKOFF = Backoff(initial=0.25, limit=8.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long."""

    #: Requests in all, the first one included.
    attempts: int = 6
    backoff: Backoff = _BACKOFF
    #: How many seconds all waits of one call may take together.
    total_wait: float = 60.0


class Attempts:
    """The requests that one call makes: counts them, and says after each whether there is a next one."""

    __slots__ = ("_left", "_policy", "_random", "_repeat", "made")

    def __init__(self, policy: RetryPolicy, random: Random, repeat: Repeat) -> None:
        self._policy = policy
        self._random = random
        self._repeat = repeat
        self._left = policy.total_wait
        self.made = 0

    def after_status(self, code: int, retry_after: float | None) -> float | None:
        """How long to wait before the repeat of a request that was answered with ``code``; ``None``: no repeat."""
        self.made += 1
        if code == 429:
            return self._wait(retry_after)
        if code < 500 or code == 501:
            return None
        if self._repeat is Repeat.ALWAYS or (retry_after is not None and self._repeat is Repeat.WHEN_ASKED):
            return self._wait(retry_after)
        return None

    def after_failure(self, error: TransportError) -> float | None:
        """How long to wait before the repeat of a request that got no answer; ``None``: no repeat."""
        self.made += 1
        if isinstance(error, CertificateError | CredentialError):
            return None
        if error.request_sent and self._repeat is not Repeat.ALWAYS:
            return None
        return self._wait(None)

    def _wait(self, asked: float | None) -> float | None:
        if self.made >= self._policy.attempts:
            return None
        wait = self._policy.backoff.delay(self.made - 1, self._random)
        if asked is not None:
            # Clients that were all told the same number of seconds must not all come back in the same moment.
            wait = max(wait, jittered(self._random, asked, 0.1))
        if wait > self._left:
            return None
        self._left -= wait
        return wait
