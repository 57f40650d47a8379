"""What can go wrong with a call, each in a class of its own.

An answer with an error status becomes one object that is of two kinds at once where both apply: the kind that the
service names in its body (:class:`RunnerExistsError`) and the kind of its status (:class:`ConflictError`), so that
``except`` works with either (``docs/spec/actions-service.md`` 4.2 to 4.4).

Texts name method, address, status, activity id, request id and the service's own message. They never hold a query, a
raw body, or anything secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

__all__ = [
    "ActionsError",
    "AmbiguousNameError",
    "BadRequestError",
    "ClientClosedError",
    "ConflictError",
    "CredentialsError",
    "Exchange",
    "InvalidConfigURLError",
    "JobStillRunningError",
    "MessageQueueTokenExpiredError",
    "NotFoundError",
    "RateLimitedError",
    "RequestError",
    "RootCertificatesError",
    "RunnerExistsError",
    "RunnerGroupNotFoundError",
    "RunnerNotFoundError",
    "RunnerScaleSetExistsError",
    "RunnerScaleSetNotFoundError",
    "ServiceError",
    "ServiceUnreachableError",
    "SessionConflictError",
    "SessionExpiredError",
    "SessionGoneError",
    "ThrottledError",
    "UnauthorizedError",
    "UndecodableMessageError",
    "UnexpectedResponseError",
    "service_error_class",
]


class ActionsError(Exception):
    """Everything that this package raises on purpose.

    ``retry_after`` is how many seconds the service (or our own limit) asks to wait before the next try, where it says;
    ``retryable`` whether a repeat of the same call can help at all; ``attempts`` how many were made.
    """

    retry_after: float | None = None
    retryable: bool = False
    attempts: int = 1

    def __copy__(self) -> Self:
        """For each of several callers who wait for the same thing, so that none sees the other's traceback."""
        copied = type(self).__new__(type(self), *self.args)
        copied.__dict__.update(self.__dict__)
        copied.__cause__ = self.__cause__
        return copied

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.attempts == 1 else f"{text}; giving up after {self.attempts} attempts"


class InvalidConfigURLError(ActionsError, ValueError):
    """The configuration URL names no enterprise, organization or repository."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"invalid config URL {_without_user_info(url)!r}: it must point at an enterprise "
            "(https://github.com/enterprises/NAME), an organization (https://github.com/NAME) "
            "or a repository (https://github.com/OWNER/NAME)"
        )


class CredentialsError(ActionsError):
    """The credentials are missing, contradictory, unreadable, or of a kind that isn't supported."""


class ClientClosedError(ActionsError):
    """The client was closed, for example since its credentials were replaced. Take a new one from the cache."""

    def __init__(self) -> None:
        super().__init__("this client of the Actions service was closed; take a new one")


class RootCertificatesError(ActionsError):
    """The certificates to trust hold none that can be read."""


class AmbiguousNameError(ActionsError):
    """The service knows more than one thing of a name that should be unique."""


class RunnerGroupNotFoundError(ActionsError):
    """There is no runner group of that name, or it isn't visible to these credentials."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Which request an error is about: the method, where it went, and the service's own names for it.

    ``address`` is the URL without user info, query and fragment; see :meth:`of`.
    """

    method: str
    address: str
    activity_id: str = ""
    request_id: str = ""

    @classmethod
    def of(cls, method: str, url: str, activity_id: str = "", request_id: str = "") -> Exchange:
        """The exchange about ``url``, of which only the harmless parts are kept."""
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return cls(method, address, activity_id, request_id)

    def __str__(self) -> str:
        ids = (("activity_id", self.activity_id), ("github_request_id", self.request_id))
        known = ", ".join(f'{name}="{value}"' for name, value in ids if value)
        return f"{self.method} {self.address}" + (f" ({known})" if known else "")


class RequestError(ActionsError):
    """A call failed. Base of all errors that belong to one request."""

    def __init__(self, exchange: Exchange, problem: str) -> None:
        super().__init__(f"{exchange}: {problem}")
        self.exchange = exchange

    @property
    def method(self) -> str:
        return self.exchange.method

    @property
    def path(self) -> str:
        return urlsplit(self.exchange.address).path

    @property
    def activity_id(self) -> str:
        """The service's ``ActivityId``; empty when it sent none. GitHub's support asks for it."""
        return self.exchange.activity_id

    @property
    def request_id(self) -> str:
        """The service's ``X-GitHub-Request-Id``; empty when it sent none."""
        return self.exchange.request_id


class ServiceUnreachableError(RequestError):
    """No answer came: no connection, a deadline passed, the connection broke. The cause says which.

    ``request_sent`` tells whether the service may have acted on the request all the same.
    """

    def __init__(self, exchange: Exchange, problem: str, *, request_sent: bool, retryable: bool) -> None:
        super().__init__(exchange, problem)
        self.request_sent = request_sent
        self.retryable = retryable


class ThrottledError(RequestError):
    """The request was not sent: a limit would have kept it waiting for longer than the caller wants to wait."""

    def __init__(self, exchange: Exchange, problem: str, *, retry_after: float) -> None:
        super().__init__(exchange, problem)
        self.retry_after = retry_after


class UnexpectedResponseError(RequestError):
    """The status promised a result and the body doesn't hold it: it is empty, HTML, or lacks what must be there."""


class UndecodableMessageError(UnexpectedResponseError):
    """A message came that can't be read. It stays in the queue under ``message_id`` until it is deleted."""

    def __init__(self, exchange: Exchange, problem: str, *, message_id: int) -> None:
        super().__init__(exchange, problem)
        self.message_id = message_id


class ServiceError(RequestError):
    """The service refused the call. ``type_name`` and ``message`` are its own words, empty when it gave none."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        status: int,
        problem: str,
        type_name: str = "",
        message: str = "",
        retry_after: float | None = None,
        retryable: bool = False,
    ) -> None:
        phrase = HTTPStatus(status).phrase if status in _KNOWN_STATUSES else ""
        super().__init__(exchange, f'status "{f"{status} {phrase}".strip()}": {problem}')
        self.status = status
        self.type_name = type_name
        self.message = message
        self.retry_after = retry_after
        self.retryable = retryable


class BadRequestError(ServiceError):
    """Status 400."""


class UnauthorizedError(ServiceError):
    """Status 401."""


class NotFoundError(ServiceError):
    """Status 404."""


class ConflictError(ServiceError):
    """Status 409."""


class RunnerExistsError(ServiceError):
    """A runner of that name is registered already."""


class RunnerNotFoundError(ServiceError):
    """No runner of that id is registered."""


class JobStillRunningError(ServiceError):
    """The runner executes a job and can't be removed now."""


class RunnerScaleSetExistsError(ServiceError):
    """A scale set of that name is in the group already."""


class RunnerScaleSetNotFoundError(ServiceError):
    """No scale set of that id exists (any more)."""


class SessionConflictError(ServiceError):
    """Somebody else holds the scale set's one session; the message may name the owner."""


class SessionExpiredError(ServiceError):
    """The session's id is no longer valid."""


class SessionGoneError(ServiceError):
    """The session's token could not be refreshed since the service has forgotten the session: create a new one."""


class MessageQueueTokenExpiredError(ServiceError):
    """The queue refused the session's token, and a refreshed one as well."""


class RateLimitedError(ServiceError):
    """The service asks to slow down, for ``retry_after`` seconds if it says so. The whole configuration pauses."""


_KNOWN_STATUSES = frozenset(HTTPStatus)

_BY_STATUS: dict[int, type[ServiceError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    404: NotFoundError,
    409: ConflictError,
}

# Matched as substrings of the service's typeName, which goes on with namespace and assembly.
_BY_TYPE_NAME: tuple[tuple[str, type[ServiceError]], ...] = (
    ("AgentExistsException", RunnerExistsError),
    ("AgentNotFoundException", RunnerNotFoundError),
    ("JobStillRunningException", JobStillRunningError),
    ("RunnerScaleSetSessionConflictException", SessionConflictError),
    ("RunnerScaleSetSessionExpiredException", SessionExpiredError),
    ("RunnerScaleSetNotFoundException", RunnerScaleSetNotFoundError),
    ("RunnerScaleSetExistsException", RunnerScaleSetExistsError),
)

#: Classes that are two at once, made when they are first needed.
_COMBINED: dict[tuple[type[ServiceError], type[ServiceError]], type[ServiceError]] = {}


def service_error_class(status: int, type_name: str = "", kind: type[ServiceError] | None = None) -> type[ServiceError]:
    """The class of an error answer: ``kind`` or else what ``type_name`` says, and what ``status`` says, in one."""
    if kind is None:
        kind = next((named for part, named in _BY_TYPE_NAME if part in type_name), None)
    status_kind = _BY_STATUS.get(status)
    if kind is None or status_kind is None:
        return kind or status_kind or ServiceError
    return _both(kind, status_kind)


def _both(kind: type[ServiceError], status_kind: type[ServiceError]) -> type[ServiceError]:
    found = _COMBINED.get((kind, status_kind))
    if found is None:
        names = {"__doc__": kind.__doc__, "__module__": kind.__module__}
        found = _COMBINED[kind, status_kind] = type(kind.__name__, (kind, status_kind), names)
    return found


def _without_user_info(url: str) -> str:
    """``url`` for people: what stands before an @, and what follows a question mark, may be secret."""
    before, separator, rest = url.rpartition("://")
    rest = rest.rpartition("@")[2]
    return f"{before}{separator}{rest.partition('?')[0].partition('#')[0]}"
