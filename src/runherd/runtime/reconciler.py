"""What an operator author writes: a reconciler, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from runherd.runtime.request import Request

__all__ = ["Reconciler", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """What happens after a reconcile that did not raise (``docs/spec/controllers.md 1.2``).

    ``requeue_after`` is in seconds; more than 0 resets the failure count and runs the key again after just that time,
    and wins over ``requeue``, which runs it again with rate limiting, as after an error. Neither: the failure count is
    reset and the next event is waited for.
    """

    requeue: bool = False
    requeue_after: float = 0.0


class Reconciler(Protocol):
    """Brings the world nearer to what one object asks for."""

    async def reconcile(self, request: Request) -> Result | None:
        """Look at the object that ``request`` names, as it is now, and do what is missing. ``None`` is ``Result()``.

        May be called at any time, any number of times, and may be cancelled at any ``await``. An exception means: not
        done, try again with back-off. An object that does not exist is no error: there is nothing to do.
        """
        ...
