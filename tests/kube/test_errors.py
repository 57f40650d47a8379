from __future__ import annotations

import json
from typing import Any

import pytest

from runherd.kube import errors
from runherd.kube.errors import ApiError, api_error


def status(**fields: Any) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", **fields}).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequestError),
        (401, "Unauthorized", errors.UnauthorizedError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (405, "MethodNotAllowed", errors.MethodNotAllowedError),
        (406, "NotAcceptable", errors.NotAcceptableError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (409, "Conflict", errors.ConflictError),
        (410, "Expired", errors.GoneError),
        (410, "Gone", errors.GoneError),
        (413, "RequestEntityTooLarge", errors.RequestEntityTooLargeError),
        (415, "UnsupportedMediaType", errors.UnsupportedMediaTypeError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.TooManyRequestsError),
        (500, "InternalError", errors.InternalError),
        (500, "ServerTimeout", errors.ServerTimeoutError),
        (503, "ServiceUnavailable", errors.ServiceUnavailableError),
        (504, "Timeout", errors.GatewayTimeoutError),
        (500, "SomethingNew", errors.InternalError),
        (409, "", errors.ConflictError),
        (502, "", errors.ServiceUnavailableError),
        (418, "", ApiError),
    ],
)
def test_the_class_follows_the_reason_and_without_one_the_code(
    code: int, reason: str, expected: type[ApiError]
) -> None:
    error = api_error("get pods default/web", code, status(code=code, reason=reason, message="because"))
    assert type(error) is expected
    assert (error.code, error.reason, error.status.message) == (code, reason, "because")


def test_the_text_says_what_was_attempted_on_which_object_and_why_it_failed() -> None:
    error = api_error(
        "create pods default/web", 409, status(code=409, reason="AlreadyExists", message='pods "web" already exists')
    )
    assert str(error) == 'create pods default/web: AlreadyExists (409): pods "web" already exists'


def test_the_causes_of_a_refusal_are_kept() -> None:
    causes = [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}]
    error = api_error("create pods default/web", 422, status(code=422, reason="Invalid", details={"causes": causes}))
    assert error.status.details is not None
    (cause,) = error.status.details.causes
    assert (cause.reason, cause.field) == ("FieldValueRequired", "spec.containers")


def test_the_code_of_the_answer_counts_where_the_status_has_none() -> None:
    assert api_error("get pods", 404, status(reason="NotFound")).code == 404


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [(3.0, 7, 3.0), (None, 7, 7.0), (None, 0, None)],
)
def test_retry_after_is_the_header_or_what_the_status_says(
    header: float | None, details: int, expected: float | None
) -> None:
    body = status(code=429, reason="TooManyRequests", details={"retryAfterSeconds": details})
    assert api_error("list pods", 429, body, retry_after=header).retry_after == expected


def test_a_page_of_a_proxy_is_reduced_to_its_words() -> None:
    page = (
        b"<html><head><title>No</title><style>b {}</style></head>\n<body><h1>Gateway\x00 down</h1><p>ask IT</p></body>"
    )
    error = api_error("get pods default/web", 502, page)
    assert str(error) == "get pods default/web: Bad Gateway (502): Gateway down ask IT"
    assert error.reason == ""


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"[1, 2]", b'{"kind": "Status"', b'"text"', b'{"kind":"Pod"}'])
def test_any_body_makes_an_error(body: bytes) -> None:
    error = api_error("get pods", 599, body)
    assert str(error).startswith("get pods: HTTP status 599")


def test_a_long_page_is_cut() -> None:
    assert len(str(api_error("get pods", 500, b"x" * 1_000_000))) < 300


def test_credentials_that_a_server_echoes_are_not_passed_on() -> None:
    secret = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln"
    for body in (
        f"<pre>Authorization: Bearer {secret}</pre>".encode(),
        status(code=401, reason="Unauthorized", message=f"token {secret} is expired"),
        f"bad request: basic {secret}".encode(),
    ):
        error = api_error("get pods", 401, body)
        assert secret not in str(error)
        assert secret not in error.status.message
        assert "[redacted]" in str(error)
