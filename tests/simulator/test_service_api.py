"""Groups, scale sets and runners over HTTP: the rows of 3.2, 3.3, 4.1 and 4.2, and the checklist (10)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.simulator.client import Client, simulator
from tests.support.virtual_time import run_in_virtual_time

NOTHING = {
    "totalAvailableJobs": 0,
    "totalAcquiredJobs": 0,
    "totalAssignedJobs": 0,
    "totalRunningJobs": 0,
    "totalRegisteredRunners": 0,
    "totalBusyRunners": 0,
    "totalIdleRunners": 0,
}


def in_service(test: Callable[[Any, Client], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        service = simulator(**settings)
        await test(service, await Client.logged_in(service))

    run_in_virtual_time(main())


def exception(body: bytes) -> str:
    return str(json.loads(body)["typeName"])


def test_a_scale_set_as_arc_creates_it() -> None:
    async def test(_service: Any, client: Client) -> None:
        created = await client.ok(
            "POST",
            "sets",
            {
                "name": "arc-set",
                "runnerGroupId": 1,
                "labels": [{"type": "System", "name": "arc-set"}, {"type": "System", "name": "linux"}],
                "RunnerSetting": {"disableUpdate": True},
                "createdOn": "0001-01-01T00:00:00Z",
            },
        )
        assert created["runnerGroupName"] == "Default"
        assert created["runnerSetting"] == {"disableUpdate": True, "ephemeral": True}
        assert created["statistics"] == NOTHING
        assert created["createdOn"].endswith("Z")
        assert [label["name"] for label in created["labels"]] == ["arc-set", "linux"]
        assert await client.ok("GET", f"sets/{created['id']}") == created
        found = await client.ok("GET", "sets?runnerGroupId=1&name=arc-set&api-version=6.0-preview&more=1")
        assert found == {"count": 1, "value": [created]}
        assert (await client.ok("GET", "sets?runnerGroupId=1&name=other"))["count"] == 0
        assert (await client.ok("GET", "sets?runnerGroupId=2&name=arc-set"))["count"] == 0

    in_service(test)


def test_every_answer_carries_the_trace_headers() -> None:
    async def test(_service: Any, client: Client) -> None:
        for path in ("sets", "sets/99", "nowhere"):
            answer = await client.call("GET", path)
            assert answer.headers["ActivityId"]
            assert answer.headers["X-GitHub-Request-Id"]
            assert answer.headers["Content-Type"].startswith("application/json")

    in_service(test)


def test_names_are_unique_within_a_group() -> None:
    async def test(service: Any, client: Client) -> None:
        first = await client.create_set("one")
        scope = service.service.scale_sets.by_id[first].scope
        group = service.service.scale_sets.add_group(scope, "Big machines")
        answer = await client.call("POST", "sets", {"name": "ONE"})
        assert (answer.status, "RunnerScaleSetExistsException" in exception(answer.body)) == (400, True)
        second = await client.create_set("one", runnerGroupId=group.id)
        answer = await client.call("PATCH", f"sets/{second}", {"runnerGroupId": 1, "RunnerSetting": {}})
        assert answer.status == 400
        answer = await client.call("POST", "sets", {"name": "x", "runnerGroupId": 9})
        assert answer.status == 400
        groups = await client.ok("GET", "_apis/runtime/runnergroups/?groupName=big%20machines")
        assert (groups["count"], groups["value"][0]["id"]) == (1, group.id)

    in_service(test)


def test_an_update_changes_what_it_supplies_only() -> None:
    async def test(_service: Any, client: Client) -> None:
        scale_set = await client.create_set("one", RunnerSetting={"disableUpdate": True})
        zero = {"RunnerSetting": {}, "createdOn": "0001-01-01T00:00:00Z"}
        changed = await client.ok("PATCH", f"sets/{scale_set}", {"name": "two", **zero})
        assert (changed["name"], changed["runnerGroupId"]) == ("two", 1)
        assert changed["runnerSetting"]["disableUpdate"] is True
        assert changed["createdOn"] != "0001-01-01T00:00:00Z"
        assert [label["name"] for label in changed["labels"]] == ["one"]

    in_service(test)


def test_unknown_scale_sets_are_not_found() -> None:
    async def test(_service: Any, client: Client) -> None:
        calls: list[tuple[str, str, Any]] = [
            ("GET", "sets/9", None),
            ("PATCH", "sets/9", {}),
            ("DELETE", "sets/9", None),
            ("POST", "sets/9/generatejitconfig", {"name": "x", "workFolder": ""}),
            ("POST", "sets/9/sessions", {"ownerName": "x"}),
        ]
        for method, path, body in calls:
            answer = await client.call(method, path, body)
            assert (answer.status, "RunnerScaleSetNotFoundException" in exception(answer.body)) == (404, True)

    in_service(test)


def test_custom_labels_can_be_switched_off() -> None:
    async def test(_service: Any, client: Client) -> None:
        created = await client.ok("POST", "sets", {"name": "one", "labels": [{"name": "one"}, {"name": "gpu"}]})
        assert [label["name"] for label in created["labels"]] == ["one"]

    in_service(test, custom_labels=False)


def test_a_runner_from_registration_to_removal() -> None:
    async def test(_service: Any, client: Client) -> None:
        scale_set = await client.create_set("one")
        jit = await client.jit(scale_set, "runner-1")
        runner = jit["runner"]
        assert (runner["name"], runner["runnerScaleSetId"]) == ("runner-1", scale_set)
        assert jit["encodedJITConfig"]
        assert (await client.ok("GET", f"agents/{runner['id']}"))["name"] == "runner-1"
        assert (await client.ok("GET", "agents?agentName=runner-1"))["count"] == 1
        assert (await client.ok("GET", f"sets/{scale_set}"))["statistics"]["totalIdleRunners"] == 1
        clash = await client.call("POST", f"sets/{scale_set}/generatejitconfig", {"name": "Runner-1"})
        assert (clash.status, "AgentExistsException" in exception(clash.body)) == (409, True)
        await client.ok("DELETE", f"agents/{runner['id']}", status=204)
        assert (await client.ok("GET", "agents?agentName=runner-1"))["count"] == 0
        gone = await client.call("GET", f"agents/{runner['id']}")
        assert (gone.status, "AgentNotFoundException" in exception(gone.body)) == (404, True)

    in_service(test)


@pytest.mark.parametrize("status", [204, 404])
def test_removing_a_runner_that_is_gone(status: int) -> None:
    async def test(_service: Any, client: Client) -> None:
        answer = await client.call("DELETE", "agents/12345")
        assert answer.status == status
        if status == 404:
            assert "AgentNotFoundException" in exception(answer.body)

    in_service(test, gone_runner_status=status)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "sets", b"{"),
        ("POST", "sets", b'{"name": 5}'),
        ("POST", "sets", b"{}"),
        ("POST", "sets", b""),
        ("GET", "sets?runnerGroupId=x", None),
        ("GET", "sets/x", None),
        ("GET", "agents/x", None),
    ],
)
def test_what_cannot_be_understood_is_a_bad_request(method: str, path: str, body: Any) -> None:
    async def test(_service: Any, client: Client) -> None:
        assert (await client.call(method, path, body)).status == 400

    in_service(test)


def test_deleting_a_scale_set_drops_its_session_queue_and_runners() -> None:
    async def test(service: Any, client: Client) -> None:
        scale_set = await client.create_set("one")
        session = await client.open_session(scale_set)
        service.queue_jobs("acme/app", ["one"])
        await client.message(session)
        runner = (await client.jit(scale_set, "r"))["runner"]["id"]
        await client.ok("DELETE", f"sets/{scale_set}", status=204)
        assert (await client.poll(session)).status == 401
        assert (await client.call("GET", f"agents/{runner}")).status == 404
        [job] = service.service.jobs.open.values()
        assert job.state == "waiting"
        again = await client.create_set("one")
        assert again != scale_set
        message = await client.message(await client.open_session(again))
        assert [each["messageType"] for each in message["jobs"]] == ["JobAssigned"]
        assert service.service.inconsistencies() == []

    in_service(test)
