"""Answers, and the errors that some of them are (``docs/spec/actions-service.md`` 4.2 to 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from runherd.actions.decoding import NotAsPromisedError, parse
from runherd.actions.errors import (
    Exchange,
    RateLimitedError,
    ServiceError,
    UnexpectedResponseError,
    service_error_class,
)
from runherd.actions.rate_limit import RateLimit, rate_limit
from runherd.actions.redaction import harmless
from runherd.wire.retry import parse_retry_after
from runherd.wire.transport import Request, Response

__all__ = ["Answer"]

T = TypeVar("T")

# More of a foreign text than this helps nobody.
_LONGEST_TEXT = 500
_LONGEST_ID = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """A response to ``request``, received at ``now``.

    ``secrets`` are what a text about it must not hold. ``cut`` says that the body went on after what was read of it.
    """

    request: Request
    response: Response
    now: datetime
    secrets: tuple[str, ...] = ()
    cut: bool = False

    def __repr__(self) -> str:
        return f"Answer({self.response.status}, {self.exchange})"

    @property
    def exchange(self) -> Exchange:
        """Which request this answers."""
        headers = self.response.headers
        return Exchange.of(
            self.request.method,
            self.request.url,
            activity_id=self._harmless(headers.get("ActivityId", ""), _LONGEST_ID),
            request_id=self._harmless(headers.get("X-GitHub-Request-Id", ""), _LONGEST_ID),
        )

    def rate_limit(self) -> RateLimit | None:
        """The rate limit that this answer signals, if it does."""
        if self.response.status not in (403, 429):
            return None
        return rate_limit(self.response.status, self.response.headers, self._said()[1], self.now)

    def error(self, kind: type[ServiceError] | None = None, *, also_retried: Iterable[int] = ()) -> ServiceError:
        """The error that this answer is.

        ``kind`` overrides what the body's typeName says; ``also_retried`` are statuses that are worth a repeat besides
        the usual ones (2.4).
        """
        status = self.response.status
        type_name, message = self._said()
        limit = self.rate_limit()
        if limit is not None:
            kind = RateLimitedError
            wait = limit.delay
        else:
            wait = parse_retry_after(self.response.headers.get("Retry-After"), self.now) if status == 503 else None
        return service_error_class(status, type_name, kind)(
            self.exchange,
            status=status,
            problem=self._problem(type_name, message),
            type_name=type_name,
            message=message,
            retry_after=wait,
            retryable=limit is not None or (status >= 500 and status != 501) or status in also_retried,
        )

    def read(self, reader: Callable[[Any], T]) -> T:
        """What ``reader`` makes of the JSON in the body.

        Raises :class:`UnexpectedResponseError` when ``reader`` (or JSON itself) finds that it isn't what it should be,
        and when it is too large.
        """
        if self.cut:
            raise self.unexpected(NotAsPromisedError(f"the body is larger than {len(self.response.body)} bytes"))
        try:
            return reader(parse(self.response.body))
        except NotAsPromisedError as problem:
            raise self.unexpected(problem) from None

    def unexpected(self, problem: NotAsPromisedError) -> UnexpectedResponseError:
        """The error for an answer whose status is right and whose body isn't."""
        return UnexpectedResponseError(self.exchange, f'status "{self.response.status}", but {problem}')

    def _said(self) -> tuple[str, str]:
        """The service's typeName and message, harmless; empty where there are none."""
        if self.cut:
            return "", ""
        try:
            body: Any = parse(self.response.body)
        except NotAsPromisedError:
            return "", ""
        if not isinstance(body, dict):
            return "", ""
        said = (body.get("typename"), body.get("message"))
        type_name, message = (self._harmless(text, _LONGEST_TEXT) if isinstance(text, str) else "" for text in said)
        return type_name, message

    def _problem(self, type_name: str, message: str) -> str:
        if type_name or message:
            short = type_name.partition(",")[0].rpartition(".")[2]
            return ": ".join(filter(None, (short, message)))
        body = self.response.body
        if not body:
            return "unknown error, the body is empty"
        size = f"more than {len(body)}" if self.cut else str(len(body))
        content_type = self.response.headers.get("Content-Type", "no content type").partition(";")[0]
        return f"unknown error, {size} bytes of {self._harmless(content_type, _LONGEST_ID)} do not describe it"

    def _harmless(self, text: str, longest: int) -> str:
        return harmless(text, self.secrets, longest)
