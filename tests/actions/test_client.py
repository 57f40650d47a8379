"""``docs/spec/actions-service.md`` 0, 3.2, 4.1, 4.5."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

from runherd.actions import (
    ActionsClient,
    AmbiguousNameError,
    JobStillRunningError,
    Label,
    NotFoundError,
    RunnerExistsError,
    RunnerGroupNotFoundError,
    RunnerNotFoundError,
    RunnerReference,
    RunnerScaleSet,
    RunnerSetting,
    ServiceError,
    UnexpectedResponseError,
)
from tests.actions.scripted import SERVICE_URL, Reply, Scripted, Sent, connect, error_body, reply, virtual

RUNNER = {"id": 7, "name": "r", "runnerScaleSetId": 42}
SCALE_SET = {
    "id": 42,
    "name": "arc-set",
    "runnerGroupId": 1,
    "runnerGroupName": "Default",
    "labels": [{"id": 1, "name": "arc-set", "type": "System"}],
    "runnerSetting": {"disableUpdate": True, "ephemeral": True},
    "createdOn": "2026-05-01T10:00:00Z",
    "runnerJitConfigUrl": "https://svc/_apis/runtime/runnerscalesets/42/generatejitconfig",
    "statistics": {"totalAssignedJobs": 2},
}
GROUP = {"id": 1, "name": "Default", "size": 3, "isDefaultGroup": True}
SCALE_SETS = "/tenant/123/_apis/runtime/runnerscalesets"
GROUPS = "/tenant/123/_apis/runtime/runnergroups/"
RUNNERS = "/tenant/123/_apis/distributedtask/pools/0/agents"

Call = Callable[[ActionsClient], Awaitable[Any]]


def made(call: Call, *replies: Reply) -> tuple[Any, Sent]:
    """What ``call`` returns, and the request that it made."""

    @virtual
    async def main() -> tuple[Any, Sent]:
        service = Scripted()
        service.will(*replies)
        result = await call(connect(service))
        assert not service.script
        return result, service.sent[-1]

    return main()


def listed(*values: object, count: int | None = None) -> Reply:
    return reply(200, {"count": len(values) if count is None else count, "value": list(values)})


def query(sent: Sent) -> dict[str, list[str]]:
    return parse_qs(urlsplit(sent.url).query, keep_blank_values=True, strict_parsing=True)


def check(sent: Sent, method: str, path: str, **expected: str) -> None:
    assert (sent.method, urlsplit(sent.url).path) == (method, path)
    assert query(sent) == {"api-version": ["6.0-preview"], **{key: [value] for key, value in expected.items()}}
    assert sent.header("Content-Type") == "application/json"
    assert (sent.header("Authorization") or "").startswith("Bearer ey")
    assert json.loads(sent.header("User-Agent") or "")["subsystem"] == "tests"
    assert (sent.timeouts.connect, sent.timeouts.total, sent.timeouts.idle) == (10.0, 30.0, None)


WHOLE = RunnerScaleSet(
    id=42,
    name="arc-set",
    runner_group_id=1,
    runner_group_name="Default",
    labels=(Label(name="arc-set"),),
    runner_setting=RunnerSetting(disable_update=True),
)


def is_whole(scale_set: RunnerScaleSet) -> bool:
    assert scale_set.statistics is not None
    return (
        scale_set.statistics.total_assigned_jobs == 2
        and scale_set.created_on.year == 2026
        and (scale_set.id, scale_set.name, scale_set.labels) == (WHOLE.id, WHOLE.name, WHOLE.labels)
        and scale_set.runner_group_name == "Default"
        and scale_set.runner_setting.disable_update
    )


def test_get_scale_set_by_name() -> None:
    found, sent = made(lambda client: client.get_runner_scale_set(1, "a&b #%2F+ä"), listed(SCALE_SET))
    check(sent, "GET", SCALE_SETS, runnerGroupId="1", name="a&b #%2F+ä")
    assert is_whole(found)


def test_the_count_has_authority() -> None:
    assert made(lambda client: client.get_runner_scale_set(1, "x"), listed(SCALE_SET, count=0))[0] is None
    assert made(lambda client: client.get_runner_scale_set(1, "x"), reply(200, {"count": 0}))[0] is None
    with pytest.raises(AmbiguousNameError, match="2 things by the name of runner scale set 'x'"):
        made(lambda client: client.get_runner_scale_set(1, "x"), listed(SCALE_SET, count=2))
    with pytest.raises(UnexpectedResponseError):
        made(lambda client: client.get_runner_scale_set(1, "x"), listed(count=1))


def test_list_scale_sets() -> None:
    found, sent = made(lambda client: client.list_runner_scale_sets(3), listed(SCALE_SET, {**SCALE_SET, "id": 43}))
    check(sent, "GET", SCALE_SETS, runnerGroupId="3")
    assert [scale_set.id for scale_set in found] == [42, 43]


def test_get_scale_set_by_id() -> None:
    found, sent = made(lambda client: client.get_runner_scale_set_by_id(42), reply(200, SCALE_SET))
    check(sent, "GET", f"{SCALE_SETS}/42")
    assert is_whole(found)
    assert made(lambda client: client.get_runner_scale_set_by_id(42), reply(200, b"null"))[0] is None
    with pytest.raises(NotFoundError):
        made(lambda client: client.get_runner_scale_set_by_id(42), reply(404))


def test_get_group() -> None:
    found, sent = made(lambda client: client.get_runner_group_by_name("Default & more"), listed(GROUP))
    check(sent, "GET", GROUPS, groupName="Default & more")
    assert (found.id, found.name, found.size, found.is_default_group) == (1, "Default", 3, True)
    with pytest.raises(RunnerGroupNotFoundError, match=r"no runner group is called 'x' in github\.com/octo-org"):
        made(lambda client: client.get_runner_group_by_name("x"), listed())
    with pytest.raises(AmbiguousNameError):
        made(lambda client: client.get_runner_group_by_name("x"), listed(GROUP, GROUP))


def test_create() -> None:
    wanted = RunnerScaleSet(name="arc-set", runner_group_id=1, runner_setting=RunnerSetting(disable_update=True))
    created, sent = made(lambda client: client.create_runner_scale_set(wanted), reply(200, SCALE_SET))
    check(sent, "POST", SCALE_SETS)
    assert sent.json == {
        "name": "arc-set",
        "runnerGroupId": 1,
        "labels": [{"type": "System", "name": "arc-set"}],
        "RunnerSetting": {"disableUpdate": True},
        "createdOn": "0001-01-01T00:00:00Z",
    }
    assert is_whole(created)
    with pytest.raises(ServiceError):  # 200 it must be
        made(lambda client: client.create_runner_scale_set(wanted), reply(201, SCALE_SET))


def test_create_with_neither_name_nor_labels() -> None:
    with pytest.raises(ValueError, match="needs a name or labels"):
        made(lambda client: client.create_runner_scale_set(RunnerScaleSet()))


def test_update() -> None:
    changed, sent = made(
        lambda client: client.update_runner_scale_set(42, RunnerScaleSet(runner_group_id=7)), reply(200, SCALE_SET)
    )
    check(sent, "PATCH", f"{SCALE_SETS}/42")
    assert sent.json == {"runnerGroupId": 7, "RunnerSetting": {}, "createdOn": "0001-01-01T00:00:00Z"}
    assert is_whole(changed)


def test_delete() -> None:
    _, sent = made(lambda client: client.delete_runner_scale_set(42), reply(204))
    check(sent, "DELETE", f"{SCALE_SETS}/42")
    with pytest.raises(ServiceError):
        made(lambda client: client.delete_runner_scale_set(42), reply(200))


def test_generate_jit_config() -> None:
    body = {"runner": RUNNER, "encodedJITConfig": "eyJy"}
    config, sent = made(lambda client: client.generate_jit_runner_config(42, "r"), reply(200, body))
    check(sent, "POST", f"{SCALE_SETS}/42/generatejitconfig")
    assert sent.json == {"name": "r", "workFolder": ""}
    assert (config.runner, config.encoded_jit_config) == (
        RunnerReference(id=7, name="r", runner_scale_set_id=42),
        "eyJy",
    )
    with pytest.raises(RunnerExistsError):
        made(
            lambda client: client.generate_jit_runner_config(42, "r", "_work"),
            reply(409, error_body("TaskAgentExistsException")),
        )


def test_get_runner() -> None:
    found, sent = made(lambda client: client.get_runner(7), reply(200, RUNNER))
    check(sent, "GET", f"{RUNNERS}/7")
    assert found == RunnerReference(id=7, name="r", runner_scale_set_id=42)
    with pytest.raises(RunnerNotFoundError):
        made(lambda client: client.get_runner(7), reply(404, error_body("TaskAgentNotFoundException")))


def test_get_runner_by_name() -> None:
    found, sent = made(lambda client: client.get_runner_by_name("r"), listed(RUNNER))
    check(sent, "GET", RUNNERS, agentName="r")
    assert found == RunnerReference(id=7, name="r", runner_scale_set_id=42)
    assert made(lambda client: client.get_runner_by_name("r"), listed())[0] is None
    with pytest.raises(AmbiguousNameError):
        made(lambda client: client.get_runner_by_name("r"), listed(RUNNER, RUNNER))


def test_remove_runner() -> None:
    _, sent = made(lambda client: client.remove_runner(2**40), reply(204))
    check(sent, "DELETE", f"{RUNNERS}/{2**40}")
    for status in (200, 202):
        with pytest.raises(ServiceError):
            made(lambda client: client.remove_runner(7), reply(status))
    for status in (400, 409):
        with pytest.raises(JobStillRunningError):
            made(lambda client: client.remove_runner(7), reply(status, error_body("JobStillRunningException")))
    # A runner that is gone, in either of the two ways in which the service says so (4.5).
    with pytest.raises(NotFoundError):
        made(lambda client: client.remove_runner(7), reply(404))
    with pytest.raises(RunnerNotFoundError):
        made(lambda client: client.remove_runner(7), reply(404, error_body("TaskAgentNotFoundException")))


def test_delete_a_session_that_was_left_behind() -> None:
    session_id = UUID("6b1c7a1e-5f0a-4c39-9c0e-0d9a1d0f2b11")
    _, sent = made(lambda client: client.delete_message_session(42, session_id), reply(204))
    check(sent, "DELETE", f"{SCALE_SETS}/42/sessions/{session_id}")


CALLS: dict[str, Call] = {
    "get by name": lambda client: client.get_runner_scale_set(1, "x"),
    "list": lambda client: client.list_runner_scale_sets(1),
    "get group": lambda client: client.get_runner_group_by_name("x"),
    "create": lambda client: client.create_runner_scale_set(RunnerScaleSet(name="x")),
    "update": lambda client: client.update_runner_scale_set(42, RunnerScaleSet(name="x")),
    "generate": lambda client: client.generate_jit_runner_config(42, "r"),
    "get runner": lambda client: client.get_runner(7),
    "get runner by name": lambda client: client.get_runner_by_name("r"),
    "create session": lambda client: client.create_message_session(42, "me"),
}
NOTHING = [b"", b"\xef\xbb\xbf", b"<html></html>", b"null", b"[]", b"{}", b'"x"', b"5", b'{"value": []}', b'{"id": 0}']


@pytest.mark.parametrize("body", NOTHING)
@pytest.mark.parametrize("name", CALLS)
def test_a_success_that_is_not_what_the_call_promises(name: str, body: bytes) -> None:
    with pytest.raises(UnexpectedResponseError) as caught:
        made(CALLS[name], reply(200, body, ActivityId="act-1"))
    assert caught.value.activity_id == "act-1"
    assert caught.value.path.startswith("/tenant/123/_apis/")


@pytest.mark.parametrize("body", [body for body in NOTHING if body != b"null"])
def test_a_scale_set_by_id_is_null_or_whole(body: bytes) -> None:
    with pytest.raises(UnexpectedResponseError):
        made(lambda client: client.get_runner_scale_set_by_id(42), reply(200, body))


@pytest.mark.parametrize(
    "body",
    [
        {"runner": RUNNER},
        {"runner": RUNNER, "encodedJITConfig": ""},
        {"encodedJITConfig": "x"},
        {"runner": None, "encodedJITConfig": "x"},
        {"runner": {"name": "r"}, "encodedJITConfig": "x"},
        {"runner": {"id": 7}, "encodedJITConfig": "x"},
    ],
)
def test_an_incomplete_jit_config(body: object) -> None:
    with pytest.raises(UnexpectedResponseError):
        made(lambda client: client.generate_jit_runner_config(42, "r"), reply(200, body))


@pytest.mark.parametrize("broken", [{}, {"id": 7}, {"name": "r"}, None, 5])
def test_a_list_with_something_incomplete_in_it(broken: object) -> None:
    for call in (CALLS["get by name"], CALLS["list"], CALLS["get group"], CALLS["get runner by name"]):
        with pytest.raises(UnexpectedResponseError):
            made(call, listed(broken))


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (
            SERVICE_URL,
            "https://service.example/tenant/123/_apis/runtime/runnergroups/?api-version=6.0-preview&groupName=x",
        ),
        ("https://s", "https://s/_apis/runtime/runnergroups/?api-version=6.0-preview&groupName=x"),
        ("https://s/a//b", "https://s/a/b/_apis/runtime/runnergroups/?api-version=6.0-preview&groupName=x"),
        (
            "https://s/rest/?zone=1&groupName=other&empty=",
            "https://s/rest/_apis/runtime/runnergroups/?api-version=6.0-preview&empty=&groupName=x&zone=1",
        ),
    ],
)
def test_addresses_are_built_below_the_services_own(base: str, expected: str) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.logins.extend([reply(201, {"token": "t"}), reply(200, {"url": base, "token": service.admin_token()})])
        service.will(listed(GROUP))
        await connect(service).get_runner_group_by_name("x")
        assert service.sent[0].url == expected

    main()


@virtual
async def test_redirects_are_followed_without_giving_the_token_away() -> None:
    service = Scripted()
    service.will(
        reply(307, Location="https://service.example/_apis/elsewhere"),
        reply(302, Location="https://other.example/_apis/x"),
        reply(200, RUNNER),
    )
    assert (await connect(service).get_runner(7)).id == 7
    assert [sent.header("Authorization") is not None for sent in service.sent] == [True, True, False]


@virtual
async def test_views_share_the_login_and_name_their_scale_set() -> None:
    service = Scripted()
    service.will(reply(200, RUNNER), reply(200, RUNNER))
    client = connect(service)
    await client.for_scale_set(42).get_runner(7)
    await client.get_runner(7)
    agents = [json.loads(sent.header("User-Agent") or "")["scale_set_id"] for sent in service.sent]
    assert agents == [42, 0]
    assert len(service.logged_in) == 2
    assert client.config.organization == "octo-org"
