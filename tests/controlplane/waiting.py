"""Waits for what other processes do."""

import time
from collections.abc import Callable

_SECONDS_BETWEEN_CHECKS = 0.02


def wait_until(check: Callable[[], bool], what: str, timeout_seconds: float = 30) -> None:
    """Return as soon as ``check()`` is true; whatever it raises comes through.

    Raises TimeoutError, which says that ``what`` did not come true, after ``timeout_seconds``.
    """
    deadline = time.monotonic() + timeout_seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_seconds} s: {what}")
        time.sleep(_SECONDS_BETWEEN_CHECKS)
