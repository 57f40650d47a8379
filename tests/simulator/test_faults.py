"""Each kind of fault does what its comment says, in process and, where a connection is concerned, on a port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runherd.simulator.faults import Fault, FaultKind, Faults
from runherd.simulator.model_runner import ModelRunner
from runherd.simulator.simulator import Simulator
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.transport import ConnectionLostError
from tests.simulator.client import Client, simulator
from tests.support.virtual_time import run_in_virtual_time


def prepared(test: Callable[[Simulator, Client, int, dict[str, Any]], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        service = simulator(**settings)
        client = await Client.logged_in(service)
        scale_set = await client.create_set("one")
        await test(service, client, scale_set, await client.open_session(scale_set))
        assert service.service.inconsistencies() == []

    run_in_virtual_time(main())


def test_a_status_with_a_typed_exception_and_retry_after() -> None:
    async def test(service: Simulator, client: Client, _scale_set: int, _session: dict[str, Any]) -> None:
        service.add_fault("status", "scale_sets.list", status=429, retry_after=3, exception="SomeException", times=2)
        for _ in range(2):
            answer = await client.call("GET", "sets")
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "3"
            assert "SomeException" in json.loads(answer.body)["typeName"]
        assert (await client.call("GET", "sets")).status == 200

    prepared(test)


def test_a_delay_and_a_hang() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, _session: dict[str, Any]) -> None:
        service.add_fault("delay", seconds=2.5)
        await client.ok("GET", "sets")
        assert asyncio.get_running_loop().time() == 2.5
        service.add_fault("hang", "jit_config.generate")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await client.jit(scale_set, "r")
        assert service.statistics("one")["totalRegisteredRunners"] == 0

    prepared(test)


@pytest.mark.parametrize(("kind", "registered"), [("drop_before", 0), ("drop_after", 1)])
def test_a_dropped_connection(kind: str, registered: int) -> None:
    async def test(service: Simulator, client: Client, scale_set: int, _session: dict[str, Any]) -> None:
        service.add_fault(kind, "jit_config.generate")
        with pytest.raises(ConnectionLostError):
            await client.jit(scale_set, "r")
        assert service.statistics("one")["totalRegisteredRunners"] == registered

    prepared(test)


@pytest.mark.parametrize("kind", ["drop_before", "drop_after"])
async def test_a_dropped_connection_on_a_port(kind: str) -> None:
    service = simulator()
    server = Server(service)
    await server.start()
    transport = NetworkTransport()
    try:
        client = Client(transport, server.url)
        await client.login()
        service.add_fault(kind, "scale_sets.list")
        with pytest.raises(ConnectionLostError):
            await client.call("GET", "sets")
        assert (await client.call("GET", "sets")).status == 200
    finally:
        await transport.close()
        await server.close()


@pytest.mark.parametrize(("kind", "kind_of_body"), [("empty_body", b""), ("html_body", b"<!DOCTYPE html>")])
def test_a_200_that_is_wrong(kind: str, kind_of_body: bytes) -> None:
    async def test(service: Simulator, client: Client, scale_set: int, _session: dict[str, Any]) -> None:
        service.add_fault(kind, "jit_config.generate")
        answer = await client.call("POST", f"sets/{scale_set}/generatejitconfig", {"name": "r"})
        assert answer.status == 200
        assert answer.body[: max(1, len(kind_of_body))] == kind_of_body[:15]
        assert service.statistics("one")["totalRegisteredRunners"] == 1

    prepared(test)


def test_expired_tokens_stay_expired_until_there_are_new_ones() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        service.add_fault("expired_token", "messages.get")
        assert [(await client.poll(session)).status for _ in range(2)] == [401, 401]
        service.add_fault("expired_token", "sessions.refresh")
        path = f"sets/{scale_set}/sessions/{session['sessionId']}"
        assert [(await client.call("PATCH", path)).status for _ in range(2)] == [401, 401]
        await client.login()
        assert (await client.poll(await client.ok("PATCH", path))).status == 202

    prepared(test)


def test_a_runner_that_counts_as_busy() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, _session: dict[str, Any]) -> None:
        runner = (await client.jit(scale_set, "r"))["runner"]["id"]
        service.add_fault("busy_runner")
        answer = await client.call("DELETE", f"agents/{runner}")
        assert (answer.status, b"JobStillRunningException" in answer.body) == (409, True)
        await client.ok("DELETE", f"agents/{runner}", status=204)

    prepared(test, busy_runner_status=409)


@pytest.mark.parametrize("operation", ["messages.get", "messages.delete", "jobs.acquire", "sessions.refresh"])
def test_an_evicted_session(operation: str) -> None:
    async def test(service: Simulator, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        refresh = client.call("PATCH", f"sets/{scale_set}/sessions/{session['sessionId']}")
        service.add_fault("evicted_session", operation)
        match operation:
            case "messages.get":
                assert (await client.poll(session)).status == 401
            case "messages.delete":
                assert (await client.acknowledge(session, 1)).status == 401
            case "jobs.acquire":
                assert (await client.acquire(session, scale_set, [1])).status == 401
        assert (await refresh).status == 404

    prepared(test)


def test_a_session_without_a_queue_url() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        service.add_fault("no_queue_url", "sessions.refresh")
        path = f"sets/{scale_set}/sessions/{session['sessionId']}"
        assert "messageQueueUrl" not in await client.ok("PATCH", path)
        assert "messageQueueUrl" in await client.ok("PATCH", path)

    prepared(test)


def test_stale_and_inflated_statistics() -> None:
    async def test(service: Simulator, client: Client, _scale_set: int, session: dict[str, Any]) -> None:
        service.queue_jobs("acme/app", ["one"], 3)
        service.add_fault("stale_statistics")
        assert (await client.message(session))["statistics"]["totalAssignedJobs"] == 0
        service.add_fault("inflated_statistics", amount=15)
        assert (await client.message(session))["statistics"]["totalAssignedJobs"] == 18
        assert (await client.message(session))["statistics"]["totalAssignedJobs"] == 3

    prepared(test)


def test_a_lost_message() -> None:
    async def test(service: Simulator, client: Client, _scale_set: int, session: dict[str, Any]) -> None:
        service.add_fault("lost_message")
        service.queue_jobs("acme/app", ["one"])
        assert (await client.poll(session)).status == 202
        assert service.statistics("one")["totalAssignedJobs"] == 1

    prepared(test)


def test_a_message_that_cannot_be_decoded() -> None:
    async def test(service: Simulator, client: Client, _scale_set: int, session: dict[str, Any]) -> None:
        service.add_fault("undecodable_message")
        service.queue_jobs("acme/app", ["one"])
        message = json.loads((await client.poll(session)).body)
        with pytest.raises(json.JSONDecodeError):
            json.loads(message["body"])
        assert (await client.message(session))["messageId"] == message["messageId"]

    prepared(test)


def test_a_stale_offer() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        service.add_fault("stale_offer")
        [job] = (await client.message(session))["jobs"]
        assert job["messageType"] == "JobAvailable"
        answer = await client.acquire(session, scale_set, [job["runnerRequestId"]])
        assert (answer.status, json.loads(answer.body)["count"]) == (200, 0)

    prepared(test)


def test_a_completed_message_for_a_job_that_still_runs() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        service.add_fault("false_completion")
        service.queue_jobs("acme/app", ["one"])
        last = (await client.message(session))["messageId"]
        model = ModelRunner(service, (await client.jit(scale_set, "r"))["encodedJITConfig"])
        model.connect()
        message = await client.message(session, last)
        assert [job["messageType"] for job in message["jobs"]] == ["JobStarted", "JobCompleted"]
        assert message["statistics"]["totalRunningJobs"] == 1

    prepared(test)


def test_a_runner_that_is_never_given_a_job() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, session: dict[str, Any]) -> None:
        service.add_fault("starved_runner")
        starved = ModelRunner(service, (await client.jit(scale_set, "starved"))["encodedJITConfig"])
        work = asyncio.create_task(starved.run())
        [job] = service.queue_jobs("acme/app", ["one"])
        await client.message(session)
        await asyncio.sleep(100)
        assert job.state == "assigned"
        assert service.statistics("one")["totalIdleRunners"] == 1
        fed = ModelRunner(service, (await client.jit(scale_set, "fed"))["encodedJITConfig"])
        assert await fed.run() == 0
        assert not work.done()
        work.cancel()

    prepared(test)


def test_an_outdated_runner() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, _session: dict[str, Any]) -> None:
        service.add_fault("outdated_runner")
        jit = (await client.jit(scale_set, "r"))["encodedJITConfig"]
        assert await ModelRunner(service, jit).run() == 7

    prepared(test)


def test_faults_meet_the_calls_that_they_name_and_no_others() -> None:
    faults = Faults(Random(0))
    faults.add(Fault(kind=FaultKind.STATUS, operation="scale_sets.get", scale_set_id=2, after=1))
    assert faults.anywhere("scale_sets.list", 2) == []
    assert faults.anywhere("scale_sets.get", 1) == []
    assert faults.anywhere("scale_sets.get", 2) == []
    assert len(faults.anywhere("scale_sets.get", 2)) == 1
    assert faults.pending() == []
    faults.add(Fault(kind=FaultKind.STATUS, times=None))
    assert faults.anywhere("runner.poll", 0) == []
    assert faults.anywhere("admin.jobs", 0) == []
    assert len(faults.anywhere("sessions.create", 0)) == 1
    faults.clear()
    assert faults.anywhere("sessions.create", 0) == []


def test_faults_that_cannot_happen_are_refused() -> None:
    service = simulator()
    with pytest.raises(ValueError, match="not an operation"):
        service.add_fault("status", "scale_set.get")
    with pytest.raises(ValueError, match=r"can't happen on scale_sets\.get"):
        service.add_fault("busy_runner", "scale_sets.get")
    with pytest.raises(ValueError, match=r"can't happen on runner\.poll"):
        service.add_fault("expired_token", "runner.poll")


def test_the_operations_are_documented() -> None:
    text = Path("docs/simulator.md").read_text()
    assert [each for each in simulator().operations if f"`{each}`" not in text and not each.startswith("admin.")] == []


def test_a_seed_decides_which_calls_are_met() -> None:
    def met(seed: int) -> list[bool]:
        faults = Faults(Random(seed))
        faults.add_random(0.2, [FaultKind.STATUS])
        return [bool(faults.anywhere("scale_sets.get", 1)) for _ in range(1000)]

    assert met(1) == met(1)
    assert met(1) != met(2)
    assert 150 < sum(met(1)) < 250
