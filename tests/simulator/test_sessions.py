"""Sessions and their queue over HTTP (5.1-5.4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from tests.simulator.client import Client, simulator
from tests.support.virtual_time import run_in_virtual_time


def in_session(test: Callable[[Any, Client, int, dict[str, Any]], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        service = simulator(**settings)
        client = await Client.logged_in(service)
        scale_set = await client.create_set("one")
        await test(service, client, scale_set, await client.open_session(scale_set))
        assert service.service.inconsistencies() == []
        assert service.ledger.violations() == []

    run_in_virtual_time(main())


def exception(body: bytes) -> str:
    return str(json.loads(body)["typeName"])


def test_a_session_is_complete() -> None:
    async def test(_service: Any, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        assert UUID(session["sessionId"]).int
        assert session["ownerName"] == "listener"
        assert session["runnerScaleSet"]["id"] == scale_set
        assert session["messageQueueUrl"].startswith("http://ghes.example/")
        assert session["statistics"]["totalAssignedJobs"] == 0
        refreshed = await client.ok("PATCH", f"sets/{scale_set}/sessions/{session['sessionId']}")
        assert set(refreshed) == set(session)
        assert refreshed["messageQueueAccessToken"] != session["messageQueueAccessToken"]
        assert (await client.poll(session)).status == 401
        assert (await client.poll(refreshed)).status == 202

    in_session(test)


def test_one_session_at_a_time_whoever_owns_it() -> None:
    async def test(_service: Any, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        answer = await client.call("POST", f"sets/{scale_set}/sessions", {"ownerName": "listener"})
        assert (answer.status, "RunnerScaleSetSessionConflictException" in exception(answer.body)) == (409, True)
        assert "listener" in json.loads(answer.body)["message"]
        await client.ok("DELETE", f"sets/{scale_set}/sessions/{session['sessionId']}", status=204)
        await client.open_session(scale_set)

    in_session(test)


@pytest.mark.parametrize(("after", "status"), [(60, 409), (89, 409), (91, 200)])
def test_an_abandoned_session_expires(after: float, status: int) -> None:
    async def test(_service: Any, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        assert (await client.poll(session)).status == 202
        await asyncio.sleep(after)
        answer = await client.call("POST", f"sets/{scale_set}/sessions", {"ownerName": "other"})
        assert answer.status == status

    in_session(test)


def test_polls_keep_a_session_alive() -> None:
    async def test(_service: Any, client: Client, _scale_set: int, session: dict[str, Any]) -> None:
        for _ in range(10):
            assert (await client.poll(session)).status == 202
            await asyncio.sleep(60)
        assert asyncio.get_running_loop().time() >= 10 * 110

    in_session(test)


def test_an_evicted_session_is_refused_and_cannot_be_refreshed() -> None:
    async def test(service: Any, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        poll = asyncio.create_task(client.poll(session))
        await asyncio.sleep(1)
        assert service.service.sessions.evict(service.scale_set("one"))
        assert (await poll).status == 401
        assert asyncio.get_running_loop().time() == 1
        for method in ("PATCH", "DELETE"):
            answer = await client.call(method, f"sets/{scale_set}/sessions/{session['sessionId']}")
            assert answer.status == 404
        answer = await client.call("PATCH", f"sets/{scale_set}/sessions/nonsense")
        assert (answer.status, "SessionExpired" in exception(answer.body)) == (400, True)

    in_session(test)


def test_the_queue_token_expires_and_a_refresh_helps() -> None:
    async def test(_service: Any, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        for _ in range(11):
            assert (await client.poll(session)).status == 202
        answer = await client.poll(session)
        assert answer.status == 401
        assert (await client.acquire(session, scale_set, [1])).status == 401
        assert (await client.acknowledge(session, 1)).status == 401
        await client.login()
        refreshed = await client.ok("PATCH", f"sets/{scale_set}/sessions/{session['sessionId']}")
        assert (await client.poll(refreshed)).status == 202

    in_session(test, queue_token_lifetime=540)


def test_a_poll_is_held_until_there_is_a_message() -> None:
    async def test(service: Any, client: Client, _scale_set: int, session: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        assert (await client.poll(session)).status == 202
        assert loop.time() == 50
        loop.call_later(7, lambda: service.queue_jobs("acme/app", ["one"], 2))
        message = await client.message(session)
        assert loop.time() == 57
        assert message["messageType"] == "RunnerScaleSetJobMessages"
        assert message["messageId"] == 100000001
        assert [each["messageType"] for each in message["jobs"]] == ["JobAssigned", "JobAssigned"]
        assert message["statistics"]["totalAssignedJobs"] == 2

    in_session(test)


def test_job_messages_have_all_their_fields() -> None:
    async def test(service: Any, client: Client, _scale_set: int, session: dict[str, Any]) -> None:
        service.queue_jobs("Acme/App", ["One"], name="build")
        [job] = (await client.message(session))["jobs"]
        assert isinstance(job["jobId"], str)
        assert isinstance(job["runnerRequestId"], int)
        assert isinstance(job["workflowRunId"], int)
        assert (job["ownerName"], job["repositoryName"], job["jobDisplayName"]) == ("Acme", "App", "build")
        assert job["requestLabels"] == ["One"]
        assert job["jobWorkflowRef"].count("@") == 1
        assert job["runnerAssignTime"] == job["finishTime"] == "0001-01-01T00:00:00Z"
        for name in ("queueTime", "scaleSetAssignTime"):
            assert job[name] == "2026-01-01T00:00:00Z"

    in_session(test)


def test_messages_are_delivered_again_until_they_are_deleted() -> None:
    async def test(service: Any, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        service.queue_jobs("acme/app", ["one"])
        first = await client.message(session)
        assert await client.message(session) == first
        service.queue_jobs("acme/app", ["one"])
        second = await client.message(session, last=first["messageId"])
        assert second["messageId"] == first["messageId"] + 1
        assert await client.message(session) == first
        # A later session begins from the start too.
        await client.ok("DELETE", f"sets/{scale_set}/sessions/{session['sessionId']}", status=204)
        session = await client.open_session(scale_set)
        assert session["statistics"]["totalAssignedJobs"] == 2
        assert await client.message(session) == first
        assert (await client.acknowledge(session, first["messageId"])).status == 204
        assert await client.message(session) == second
        assert (await client.acknowledge(session, second["messageId"])).status == 204
        assert (await client.acknowledge(session, second["messageId"])).status == 204
        assert (await client.poll(session)).status == 202

    in_session(test)


def test_a_message_carries_50_jobs_at_most_and_true_statistics() -> None:
    async def test(service: Any, client: Client, _scale_set: int, session: dict[str, Any]) -> None:
        service.queue_jobs("acme/app", ["one"], 120)
        last, sizes = 0, []
        for _ in range(3):
            message = await client.message(session, last, capacity=200)
            last = message["messageId"]
            sizes.append(len(message["jobs"]))
            assert message["statistics"]["totalAssignedJobs"] == 120
        assert sizes == [50, 50, 20]

    in_session(test)


def test_a_poll_that_is_given_up_leaves_nothing_behind() -> None:
    async def test(service: Any, client: Client, _scale_set: int, session: dict[str, Any]) -> None:
        poll = asyncio.create_task(client.poll(session))
        await asyncio.sleep(5)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        scale_set = service.scale_set("one")
        assert not scale_set.queue.waiters
        assert scale_set.session.polls == 0
        service.queue_jobs("acme/app", ["one"])
        assert len((await client.message(session))["jobs"]) == 1

    in_session(test)
