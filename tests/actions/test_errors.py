"""``docs/spec/actions-service.md`` 4.2 to 4.4, row by row."""

from __future__ import annotations

import copy

import pytest

from runherd.actions import (
    ActionsError,
    BadRequestError,
    ConflictError,
    JobStillRunningError,
    NotFoundError,
    RequestError,
    RunnerExistsError,
    RunnerNotFoundError,
    RunnerScaleSetExistsError,
    RunnerScaleSetNotFoundError,
    ServiceError,
    ServiceUnreachableError,
    SessionConflictError,
    SessionExpiredError,
    UnauthorizedError,
)
from runherd.wire.transport import ConnectError, Response
from tests.actions.scripted import Scripted, connect, error_body, reply, virtual

PATH = "/tenant/123/_apis/distributedtask/pools/0/agents/7"


def refused(response: Response) -> ServiceError:
    """The error of a call that was answered with ``response``."""

    @virtual
    async def main() -> ServiceError:
        service = Scripted()
        # A 401 is asked about twice.
        service.will(response, response)
        with pytest.raises(ServiceError) as caught:
            await connect(service).remove_runner(7)
        return caught.value

    return main()


TYPED = [
    ("AgentExistsException", RunnerExistsError),
    ("TaskAgentExistsException", RunnerExistsError),
    ("AgentNotFoundException", RunnerNotFoundError),
    ("TaskAgentNotFoundException", RunnerNotFoundError),
    ("JobStillRunningException", JobStillRunningError),
    ("TaskAgentJobStillRunningException", JobStillRunningError),
    ("RunnerScaleSetSessionConflictException", SessionConflictError),
    ("RunnerScaleSetNotFoundException", RunnerScaleSetNotFoundError),
    ("RunnerScaleSetExistsException", RunnerScaleSetExistsError),
    ("RunnerScaleSetSessionExpiredException", SessionExpiredError),
]
BY_STATUS = [
    (400, BadRequestError),
    (401, UnauthorizedError),
    (404, NotFoundError),
    (409, ConflictError),
    (410, None),
    (500, None),
]
STATUS_CLASSES = (BadRequestError, UnauthorizedError, NotFoundError, ConflictError)


@pytest.mark.parametrize(("status", "status_class"), BY_STATUS)
@pytest.mark.parametrize(("name", "kind"), TYPED)
def test_both_classes_on_one_error(
    name: str, kind: type[ServiceError], status: int, status_class: type[ServiceError] | None
) -> None:
    error = refused(reply(status, error_body(name, "it is so")))
    assert [class_ for _, class_ in TYPED if isinstance(error, class_)] == [
        found for _, found in TYPED if found is kind
    ]
    assert [class_ for class_ in STATUS_CLASSES if isinstance(error, class_)] == [
        class_ for class_ in (status_class,) if class_
    ]
    assert type(error).__name__ == kind.__name__
    assert (error.status, error.message) == (status, "it is so")
    assert error.type_name == f"GitHub.Actions.Runtime.WebApi.{name}, GitHub.Actions.Runtime.WebApi"
    assert f"{name}: it is so" in str(error)


@pytest.mark.parametrize(("status", "status_class"), BY_STATUS)
def test_a_name_that_is_unknown(status: int, status_class: type[ServiceError] | None) -> None:
    error = refused(reply(status, error_body("SomethingNewException", "it is so")))
    assert type(error) is (status_class or ServiceError)
    assert "SomethingNewException: it is so" in str(error)
    assert error.type_name.startswith("GitHub.Actions.Runtime.WebApi.SomethingNewException")


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "text/plain"])
def test_the_name_counts_whatever_the_content_type(content_type: str) -> None:
    response = reply(404, error_body("AgentNotFoundException"), Content_Type=content_type)
    assert isinstance(refused(response), RunnerNotFoundError)


def test_method_path_ids_and_status_are_told() -> None:
    error = refused(reply(404, error_body("AgentNotFoundException"), ActivityId="act-1", X_GitHub_Request_Id="req-1"))
    assert (error.method, error.path, error.activity_id, error.request_id) == ("DELETE", PATH, "act-1", "req-1")
    assert str(error) == (
        f'DELETE https://service.example{PATH} (activity_id="act-1", github_request_id="req-1"): '
        'status "404 Not Found": AgentNotFoundException: it says so'
    )


def test_ids_that_are_not_sent() -> None:
    error = refused(reply(500))
    assert (error.activity_id, error.request_id) == ("", "")
    assert str(error) == (
        f'DELETE https://service.example{PATH}: status "500 Internal Server Error": unknown error, the body is empty'
    )


@pytest.mark.parametrize("content_type", ["text/plain", "text/html; charset=utf-8", "application/json"])
def test_a_body_that_is_not_json_is_described_and_not_quoted(content_type: str) -> None:
    error = refused(reply(404, b"<b>Sign in</b>", Content_Type=content_type))
    assert isinstance(error, NotFoundError)
    assert f"unknown error, 14 bytes of {content_type.partition(';')[0]} do not describe it" in str(error)
    assert "Sign in" not in str(error)


@pytest.mark.parametrize("body", [[], "text", 5, {"typeName": 5, "message": {}}, {}])
def test_json_that_describes_nothing(body: object) -> None:
    error = refused(reply(409, body))
    assert type(error) is ConflictError
    assert "do not describe it" in str(error)


def test_githubs_own_api_only_gives_a_message() -> None:
    assert str(refused(reply(404, {"message": "Not Found"}))).endswith('status "404 Not Found": Not Found')


def test_keys_in_another_case() -> None:
    body = {"TypeName": "x.AgentNotFoundException, x", "Message": "gone"}
    error = refused(reply(404, body))
    assert isinstance(error, RunnerNotFoundError)
    assert error.message == "gone"


def test_long_and_broken_texts_are_made_handy() -> None:
    error = refused(reply(404, error_body("AgentNotFoundException", "line\r\n" * 1000), ActivityId="a" * 1000))
    assert "\n" not in str(error)
    assert len(str(error)) < 1000


def test_an_unknown_status() -> None:
    assert 'status "599": unknown error' in str(refused(reply(599)))


@virtual
async def test_no_answer_keeps_the_cause() -> None:
    service = Scripted()
    cause = ConnectError("GET https://service.example/x: no connection to service.example:443: Connection refused")
    service.will(cause)
    with pytest.raises(ServiceUnreachableError, match="Connection refused") as caught:
        await connect(service).get_runner(7)
    assert caught.value.__cause__ is cause
    assert (caught.value.method, caught.value.path) == ("GET", PATH)
    assert isinstance(caught.value, RequestError)


def test_a_copy_is_like_the_original() -> None:
    error = refused(reply(404, error_body("AgentNotFoundException"), ActivityId="act-1"))
    other = copy.copy(error)
    assert other is not error
    assert type(other) is type(error)
    assert (str(other), other.status, other.activity_id) == (str(error), 404, "act-1")


def test_defaults_of_the_base() -> None:
    error = ActionsError("x")
    assert (error.retry_after, error.retryable, error.attempts, str(error)) == (None, False, 1, "x")
