"""How long a call may take its time: whether it is repeated, and how long it lets itself be kept waiting.

That is the caller's choice. A controller has a queue of its own to come back from, a listener has nothing better to do
than to try again (``docs/spec/actions-service.md`` 2.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from runherd.actions.errors import ActionsError

__all__ = ["ONE_ATTEMPT", "RETRYING", "CallPolicy"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """What a caller wants of its calls.

    ``attempts`` counts the first one. The wait before a repeat starts at ``first_wait`` seconds and doubles up to
    ``longest_wait``; a ``Retry-After`` of the service replaces it, however long it is. ``patience`` is how many seconds
    a call may be held back by a limit (the pause after a rate limit, the limit on registrations) before it fails with
    :class:`~runherd.actions.ThrottledError`, unsent; ``None``: as long as it takes.
    """

    attempts: int = 1
    first_wait: float = 1.0
    longest_wait: float = 30.0
    patience: float | None = None

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What ``attempt`` returns, called as often as this policy allows and its errors suggest."""
        made = 1
        while True:
            try:
                return await attempt()
            except ActionsError as error:
                if not error.retryable or made >= self.attempts:
                    error.attempts = made
                    raise
                wait = error.retry_after
            if wait is None:
                wait = min(self.first_wait * 2.0 ** min(made - 1, 62), self.longest_wait)
            await asyncio.sleep(wait)
            made += 1


#: One attempt, for callers who come back by themselves.
ONE_ATTEMPT = CallPolicy()

#: The retries of a listener: 5 attempts, 1, 2, 4 and 8 seconds apart.
RETRYING = CallPolicy(attempts=5)
