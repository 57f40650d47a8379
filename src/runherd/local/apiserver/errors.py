"""Refusals, as the API server sends them: a Status object with the real server's code, reason and wording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = [
    "ApiError",
    "FieldError",
    "already_exists",
    "bad_request",
    "conflict",
    "duplicate",
    "expired",
    "forbidden",
    "forbidden_field",
    "generate_name_conflict",
    "invalid",
    "invalid_value",
    "method_not_allowed",
    "not_acceptable",
    "not_found",
    "not_supported",
    "qualified",
    "required",
    "status_object",
    "too_large_resource_version",
    "too_long",
    "too_many",
    "type_invalid",
    "unsupported_feature",
    "unsupported_media_type",
]


class ApiError(Exception):
    """A request is refused. ``status`` is the HTTP code; ``headers`` go with the answer."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}
        self.headers = headers or {}

    def to_object(self) -> dict[str, Any]:
        """The Status object that tells the client."""
        return status_object(
            "Failure", self.status, self.message, reason=self.reason, details=self.details, metadata=self.metadata
        )


def status_object(
    status: str,
    code: int,
    message: str = "",
    *,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A ``v1`` Status; what is empty is left out, as the real server does."""
    result: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": dict(metadata or {}), "status": status}
    if message:
        result["message"] = message
    if reason:
        result["reason"] = reason
    if details is not None:
        result["details"] = dict(details)
    if code:
        result["code"] = code
    return result


def qualified(name: str, group: str) -> str:
    """``name.group``, or ``name`` alone in the core group."""
    return f"{name}.{group}" if group else name


def _details(group: str, kind: str, name: str = "") -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def not_found(group: str, plural: str, name: str) -> ApiError:
    return ApiError(
        404, "NotFound", f'{qualified(plural, group)} "{name}" not found', details=_details(group, plural, name)
    )


def already_exists(group: str, plural: str, name: str) -> ApiError:
    return ApiError(
        409,
        "AlreadyExists",
        f'{qualified(plural, group)} "{name}" already exists',
        details=_details(group, plural, name),
    )


def generate_name_conflict(group: str, plural: str, name: str) -> ApiError:
    return ApiError(
        409,
        "AlreadyExists",
        f'{qualified(plural, group)} "{name}" already exists, the server was not able to generate a unique name '
        "for the object",
        details={**_details(group, plural, name), "retryAfterSeconds": 1},
        headers={"Retry-After": "1"},
    )


def conflict(group: str, plural: str, name: str, cause: str = "") -> ApiError:
    cause = cause or ("the object has been modified; please apply your changes to the latest version and try again")
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {cause}',
        details=_details(group, plural, name),
    )


def forbidden(group: str, plural: str, name: str, cause: str, causes: Sequence[Mapping[str, str]] = ()) -> ApiError:
    details: dict[str, Any] = _details(group, plural, name)
    if causes:
        details["causes"] = list(causes)
    return ApiError(403, "Forbidden", f'{qualified(plural, group)} "{name}" is forbidden: {cause}', details=details)


def expired(message: str, *, continue_token: str = "") -> ApiError:
    return ApiError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else None)


def too_large_resource_version(requested: int, current: int) -> ApiError:
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"Retry-After": "1"},
    )


def method_not_allowed() -> ApiError:
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    return ApiError(
        406,
        "NotAcceptable",
        f"only the following media types are accepted: {', '.join(accepted)}",
    )


def unsupported_media_type(accepted: Sequence[str], given: str) -> ApiError:
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
        + (f" (the request said {given!r})" if given else ""),
    )


def unsupported_feature(feature: str) -> ApiError:
    """What the real server can and this one leaves out (docs/embedded-api-server.md)."""
    return ApiError(
        501,
        "NotImplemented",
        f"{feature} is not supported by runherd's embedded API server; use a Kubernetes cluster for it",
    )


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field. ``field`` is its path, as in ``spec.containers[0].name``."""

    reason: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """The object is refused for what its fields say (422)."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return ApiError(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {text}',
        details={
            **_details(group, kind, name),
            "causes": [{"reason": e.reason, "message": e.message, "field": e.field} for e in errors],
        },
    )


def _shown(value: object) -> str:
    """A value as Go shows it in a message: plain numbers, quoted strings, JSON for the rest."""
    return msgspec.json.encode(value).decode()


def _detailed(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, _detailed("Required value", detail))


def invalid_value(field: str, value: object, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, _detailed(f"Invalid value: {_shown(value)}", detail))


def type_invalid(field: str, value: object, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, _detailed(f"Invalid value: {_shown(value)}", detail))


def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    values = ", ".join(_shown(each) for each in supported)
    return FieldError(
        "FieldValueNotSupported",
        field,
        _detailed(f"Unsupported value: {_shown(value)}", f"supported values: {values}" if supported else ""),
    )


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, _detailed("Forbidden", detail))


def duplicate(field: str, value: object) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def too_long(field: str, limit: int, unit: str = "byte") -> FieldError:
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} {unit}{'s'[: limit != 1]}")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    return FieldError(
        "FieldValueTooMany", field, f"Too many: {actual}: must have at most {limit} item{'s'[: limit != 1]}"
    )
