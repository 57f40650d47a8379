"""What a Kubernetes API server answers instead of what was asked for, as exceptions typed by reason.

Every error carries the server's :class:`~runherd.api.meta.Status`. An answer that is not a Status (a proxy's page, a
plain text) is turned into one. What kept an answer from coming at all is a
:class:`~runherd.wire.transport.TransportError` and never one of these.
"""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

from runherd.api.meta import Status
from runherd.wire.transport import TransportError

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "BadRequestError",
    "ConfigError",
    "ConflictError",
    "CredentialError",
    "DecodeError",
    "ForbiddenError",
    "GatewayTimeoutError",
    "GoneError",
    "InternalError",
    "InvalidError",
    "MethodNotAllowedError",
    "NotAcceptableError",
    "NotFoundError",
    "RequestEntityTooLargeError",
    "ServerTimeoutError",
    "ServiceUnavailableError",
    "TooManyRequestsError",
    "UnauthorizedError",
    "UnsupportedMediaTypeError",
    "api_error",
    "redacted",
]

_EXCERPT_LENGTH = 200
_MARKUP = re.compile(r"(?is)<(script|style|head)\b.*?</\1\s*>|<[^>]*>?")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\uffff]+")
_CREDENTIAL = re.compile(r"(?i)\b(bearer|basic|token)(\s+|=|:\s*)[\w.~+/=-]{8,}")


class ApiError(Exception):
    """An API server refused, or failed to do, what was asked. Raised itself only for reasons without an own class.

    ``retry_after`` is how long the server asks to wait before the next attempt, in seconds, where it asks for it.
    """

    def __init__(self, text: str, status: Status, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        #: What the server said.
        self.status = status
        self.retry_after = retry_after
        #: How many requests were made until the caller was told; more than 1 after repeats.
        self.attempts = 1

    @property
    def code(self) -> int:
        """The HTTP status code."""
        return self.status.code

    @property
    def reason(self) -> str:
        """The machine-readable reason (``StatusReason``), for example ``AlreadyExists``; may be empty."""
        return self.status.reason


class BadRequestError(ApiError):
    """400: the request makes no sense to the server."""


class UnauthorizedError(ApiError):
    """401: the server does not accept our credentials."""


class ForbiddenError(ApiError):
    """403: our identity may not do this, or admission refused it."""


class NotFoundError(ApiError):
    """404: there is no such object, or no such kind."""


class MethodNotAllowedError(ApiError):
    """405: the verb is not offered for this resource."""


class NotAcceptableError(ApiError):
    """406: the server can't answer in JSON."""


class AlreadyExistsError(ApiError):
    """409: an object of this name exists."""


class ConflictError(ApiError):
    """409: the object is not (or no longer) what the request was made for; read it again before the next attempt."""


class GoneError(ApiError):
    """410, reasons ``Expired`` and ``Gone``: the resource version or continue token is too old; list afresh."""


class RequestEntityTooLargeError(ApiError):
    """413: the object is larger than the server takes."""


class UnsupportedMediaTypeError(ApiError):
    """415: the server does not know this kind of body, for example this kind of patch."""


class InvalidError(ApiError):
    """422: the object breaks its schema or a rule of its kind; ``status.details.causes`` names the fields."""


class TooManyRequestsError(ApiError):
    """429: the server sheds load, or an eviction is held up by a disruption budget."""


class InternalError(ApiError):
    """500: the server failed."""


class ServerTimeoutError(ApiError):
    """500 with reason ``ServerTimeout``: the server could not finish in time and asks to try again."""


class ServiceUnavailableError(ApiError):
    """503: the server, or what stands before it, takes no requests now."""


class GatewayTimeoutError(ApiError):
    """504, reason ``Timeout``: the request may or may not have been carried out."""


class DecodeError(Exception):
    """The server's answer is not what its API promises. Trying again doesn't help; the text says where it differs."""


class ConfigError(Exception):
    """The configuration that says how to reach an API server can't be used; the text names file, entry and field."""


class CredentialError(TransportError):
    """No credentials could be had (a plugin failed, a token file can't be read), so nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, request_sent=False)


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExistsError,
    "BadRequest": BadRequestError,
    "Conflict": ConflictError,
    "Expired": GoneError,
    "Forbidden": ForbiddenError,
    "Gone": GoneError,
    "InternalError": InternalError,
    "Invalid": InvalidError,
    "MethodNotAllowed": MethodNotAllowedError,
    "NotAcceptable": NotAcceptableError,
    "NotFound": NotFoundError,
    "RequestEntityTooLarge": RequestEntityTooLargeError,
    "ServerTimeout": ServerTimeoutError,
    "ServiceUnavailable": ServiceUnavailableError,
    "Timeout": GatewayTimeoutError,
    "TooManyRequests": TooManyRequestsError,
    "Unauthorized": UnauthorizedError,
    "UnsupportedMediaType": UnsupportedMediaTypeError,
}

_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    405: MethodNotAllowedError,
    406: NotAcceptableError,
    409: ConflictError,
    410: GoneError,
    413: RequestEntityTooLargeError,
    415: UnsupportedMediaTypeError,
    422: InvalidError,
    429: TooManyRequestsError,
    500: InternalError,
    502: ServiceUnavailableError,
    503: ServiceUnavailableError,
    504: GatewayTimeoutError,
}

_status_decoder = msgspec.json.Decoder(Status)


def api_error(what: str, code: int, body: bytes, *, retry_after: float | None = None) -> ApiError:
    """The error for an answer of status ``code``.

    ``what`` says what was attempted: verb, resource and object (``create pods default/web``). ``body`` is the answer's:
    a Status, or whatever a proxy sends. ``retry_after`` is the ``Retry-After`` header, in seconds; without it the
    Status's own ``details.retryAfterSeconds`` counts.
    """
    status = _decode_status(code, body)
    if retry_after is None and status.details is not None and status.details.retry_after_seconds > 0:
        retry_after = float(status.details.retry_after_seconds)
    error_class = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, ApiError)
    label = status.reason or _phrase(status.code)
    text = f"{what}: {label} ({status.code})" if label else f"{what}: HTTP status {status.code}"
    if status.message:
        text = f"{text}: {status.message}"
    return error_class(text, status, retry_after=retry_after)


def _decode_status(code: int, body: bytes) -> Status:
    try:
        status = _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status(status="Failure", code=code, message=_excerpt(body))
    if status.kind != "Status" or not (status.reason or status.message or status.code):
        return Status(status="Failure", code=code, message=_excerpt(body))
    return msgspec.structs.replace(status, code=status.code or code, message=redacted(status.message))


def _excerpt(body: bytes) -> str:
    """The first words of an answer that is no Status, without markup and control characters."""
    text = body[: 64 * 1024].decode("utf-8", "replace")
    text = _MARKUP.sub(" ", text)
    text = redacted(" ".join(_UNPRINTABLE.sub(" ", text).split()))
    return text if len(text) <= _EXCERPT_LENGTH else text[:_EXCERPT_LENGTH] + "..."


def redacted(text: str) -> str:
    """``text`` without what looks like credentials, which servers, proxies and plugins sometimes echo."""
    return _CREDENTIAL.sub(r"\1\2[redacted]", text)


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return ""
