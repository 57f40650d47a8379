"""Which job goes where, and how it ends: both modes (5.5), taken back and canceled jobs (5.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runherd.simulator.errors import ServiceError
from runherd.simulator.model import JobResult, JobState
from runherd.simulator.model_runner import ModelRunner
from runherd.simulator.settings import AssignmentMode
from runherd.simulator.simulator import Simulator
from tests.simulator.client import Client, simulator
from tests.support.virtual_time import run_in_virtual_time


class Listener:
    """Polls, remembers what it was told, and acknowledges."""

    def __init__(self, client: Client, session: dict[str, Any]) -> None:
        self.client, self.session = client, session
        self.last = 0
        self.statistics: dict[str, int] = session["statistics"]

    async def events(self, capacity: int = 10) -> list[str]:
        """The next message's job messages, as type and (for completed ones) result."""
        message = await self.client.message(self.session, self.last, capacity)
        self.last = message["messageId"]
        self.statistics = message["statistics"]
        self.jobs = message["jobs"]
        assert (await self.client.acknowledge(self.session, self.last)).status == 204
        return [" ".join(filter(None, (job["messageType"], job.get("result")))) for job in self.jobs]

    async def capacity(self, capacity: int) -> None:
        """Say what there is room for, without waiting for an answer."""
        poll = asyncio.create_task(self.client.poll(self.session, self.last, capacity))
        await asyncio.sleep(0.01)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)


Test = Callable[[Simulator, Client, int, Listener], Awaitable[None]]


def with_listener(test: Test, **settings: Any) -> None:
    async def main() -> None:
        service = simulator(**settings)
        client = await Client.logged_in(service)
        scale_set = await client.create_set("one")
        await test(service, client, scale_set, Listener(client, await client.open_session(scale_set)))
        assert service.service.inconsistencies() == []

    run_in_virtual_time(main())


async def runner(service: Simulator, client: Client, scale_set: int, name: str) -> ModelRunner:
    return ModelRunner(service, (await client.jit(scale_set, name))["encodedJITConfig"])


def test_a_job_from_queued_to_completed() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        [job] = service.queue_jobs("acme/app", ["one"], seconds=200)
        assert await listener.events() == ["JobAssigned"]
        model = await runner(service, client, scale_set, "r1")
        work = asyncio.create_task(model.run())
        assert await listener.events() == ["JobStarted"]
        assert (listener.jobs[0]["runnerName"], listener.jobs[0]["runnerId"]) == ("r1", job.runner_id)
        assert listener.statistics["totalRunningJobs"] == listener.statistics["totalBusyRunners"] == 1
        busy = await client.call("DELETE", f"agents/{job.runner_id}")
        assert busy.status == 400
        assert b"JobStillRunningException" in busy.body
        assert [await listener.events() for _ in range(1)] == [["JobCompleted succeeded"]]
        assert await work == 0
        assert listener.statistics["totalAssignedJobs"] == listener.statistics["totalRegisteredRunners"] == 0
        assert (await client.call("GET", f"agents/{job.runner_id}")).status == 404
        assert job.finish_time is not None
        assert job.runner_assign_time is not None
        assert (job.finish_time - job.runner_assign_time).total_seconds() == 200
        assert service.ledger.violations(owned=[]) == []

    # The poll for the end of a 200 s job must outlast it.
    with_listener(test, poll_hold=300)


def test_jobs_are_assigned_up_to_the_capacity_of_the_last_poll() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        service.queue_jobs("acme/app", ["one"], 5)
        assert service.statistics("one")["totalAssignedJobs"] == 0
        assert service.statistics("one")["totalAvailableJobs"] == 5
        assert await listener.events(capacity=2) == ["JobAssigned"] * 2
        assert listener.statistics["totalAvailableJobs"] == 3
        await listener.capacity(1)
        assert service.statistics("one")["totalAssignedJobs"] == 2
        assert await listener.events(capacity=4) == ["JobAssigned"] * 2
        model = await runner(service, client, scale_set, "r1")
        assert await model.run() == 0
        assert await listener.events(capacity=4) == ["JobStarted", "JobCompleted succeeded", "JobAssigned"]

    with_listener(test)


def test_without_a_session_nothing_is_assigned() -> None:
    async def test(service: Simulator, _client: Client, _scale_set: int, listener: Listener) -> None:
        await listener.capacity(5)
        service.service.sessions.evict(service.scale_set("one"))
        service.queue_jobs("acme/app", ["one"])
        assert service.statistics("one")["totalAssignedJobs"] == 0

    with_listener(test)


def test_jobs_go_to_scale_sets_that_have_all_their_labels_in_a_group_and_scope_that_fit() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        await listener.capacity(100)
        other = await Client.logged_in(service, scope="acme/tools")
        tools = await other.create_set("tools", labels=[{"name": "gpu"}, {"name": "Linux"}])
        await Listener(other, await other.open_session(tools)).capacity(100)
        for repository, labels, group, expected in [
            ("acme/app", ["one"], "", "one"),
            ("acme/app", ["ONE"], "default", "one"),
            ("acme/app", ["one"], "big", None),
            ("acme/app", ["one", "gpu"], "", None),
            ("acme/app", ["gpu"], "", None),
            ("acme/tools", ["gpu", "linux"], "", "tools"),
            ("acme/tools", ["tools"], "", "tools"),
            ("acme/tools", ["one"], "", "one"),
            ("other/app", ["one"], "", None),
            ("acme/app", [], "default", "one"),
        ]:
            [job] = service.queue_jobs(repository, labels, group=group)
            assert (job.scale_set.name if job.scale_set else None) == expected, (repository, labels, group)
        assert len(service.service.jobs.unmatched()) == 4
        await client.ok("PATCH", f"sets/{scale_set}", {"labels": [{"name": "one"}, {"name": "gpu"}]})
        assert len(service.service.jobs.unmatched()) == 2

    with_listener(test)


def test_the_least_loaded_scale_set_gets_the_job() -> None:
    async def test(service: Simulator, client: Client, _scale_set: int, listener: Listener) -> None:
        second = await client.create_set("two", labels=[{"name": "one"}])
        await listener.capacity(10)
        await Listener(client, await client.open_session(second)).capacity(10)
        service.queue_jobs("acme/app", ["one"], 6)
        assert [len(service.scale_set(name).waiting) for name in ("one", "two")] == [3, 3]

    with_listener(test)


def test_offered_jobs_belong_to_who_acquires_them() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        second = await client.create_set("two", labels=[{"name": "one"}])
        rival = Listener(client, await client.open_session(second))
        jobs = service.queue_jobs("acme/app", ["one"], 3)
        ids = [job.request_id for job in jobs]
        assert await listener.events() == ["JobAvailable"] * 3
        assert await rival.events() == ["JobAvailable"] * 3
        assert listener.statistics["totalAvailableJobs"] == 3
        assert listener.statistics["totalAssignedJobs"] == 0
        acquired = await client.acquire(listener.session, scale_set, ids[:2])
        assert acquired.body == b'{"count":2,"value":[%d,%d]}' % (ids[0], ids[1])
        late = await client.acquire(rival.session, second, [*ids, 999])
        assert late.body == b'{"count":1,"value":[%d]}' % ids[2]
        assert await listener.events() == ["JobAssigned"] * 2
        assert listener.statistics["totalAssignedJobs"] == 2
        assert listener.statistics["totalAvailableJobs"] == 0
        assert (await client.acquire(rival.session, scale_set, ids)).status == 401
        answer = await client.call("GET", f"sets/{scale_set}/acquirablejobs")
        assert answer.status == 204

    with_listener(test, mode=AssignmentMode.ACQUIRE)


def test_acquired_jobs_count_as_such_until_they_are_assigned() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        [job] = service.queue_jobs("acme/app", ["one"])
        assert (await client.ok("GET", f"sets/{scale_set}/acquirablejobs"))["count"] == 1
        await listener.events()
        await client.acquire(listener.session, scale_set, [job.request_id])
        assert service.statistics("one")["totalAcquiredJobs"] == 1
        assert await listener.events() == ["JobAssigned"]
        assert service.statistics("one")["totalAcquiredJobs"] == 0
        assert service.statistics("one")["totalAssignedJobs"] == 1

    with_listener(test, mode=AssignmentMode.ACQUIRE, acquire_delay=3.0)


def test_an_offer_that_nobody_took_is_repeated_and_a_new_session_hears_it_too() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        service.queue_jobs("acme/app", ["one"])
        assert await listener.events() == ["JobAvailable"]
        started = asyncio.get_running_loop().time()
        assert await listener.events() == ["JobAvailable"]
        assert asyncio.get_running_loop().time() - started == 40
        await client.ok("DELETE", f"sets/{scale_set}/sessions/{listener.session['sessionId']}", status=204)
        listener = Listener(client, await client.open_session(scale_set))
        assert await listener.events() == ["JobAvailable"]

    with_listener(test, mode=AssignmentMode.ACQUIRE, offer_repeat=40)


def test_an_assignment_that_no_runner_takes_is_taken_back_three_times() -> None:
    async def test(service: Simulator, _client: Client, _scale_set: int, listener: Listener) -> None:
        [job] = service.queue_jobs("acme/app", ["one"])
        loop = asyncio.get_running_loop()
        expected = ["JobAssigned", "JobCompleted canceled"]
        times = []
        for event in [*expected, *expected, *expected, *expected]:
            assert await listener.events() == [event]
            times.append(loop.time())
            if event.startswith("JobCompleted"):
                assert listener.jobs[0]["runnerAssignTime"] == "0001-01-01T00:00:00Z"
                assert listener.jobs[0]["runnerName"] == ""
        assert times == [0, 600, 630, 1230, 1290, 1890, 2010, 2610]
        assert (job.state, job.result) == (JobState.COMPLETED, JobResult.CANCELED)

    with_listener(test, poll_hold=10_000)


def test_a_canceled_job_ends_at_once_unless_a_runner_has_it() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        await listener.capacity(1)
        first, second = service.queue_jobs("acme/app", ["one"], 2, seconds=500)
        service.service.jobs.cancel(second)
        assert second.result == JobResult.CANCELED
        work = asyncio.create_task((await runner(service, client, scale_set, "r1")).run())
        await asyncio.sleep(10)
        assert first.state == JobState.RUNNING
        service.service.jobs.cancel(first)
        service.service.jobs.cancel(first)
        assert first.state == JobState.RUNNING
        assert await work == 0
        assert first.result == JobResult.CANCELED
        assert asyncio.get_running_loop().time() < 11
        assert await listener.events(1) == ["JobAssigned", "JobStarted", "JobCompleted canceled"]

    with_listener(test)


def test_a_job_that_runs_too_long_is_canceled_and_given_up_in_the_end() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        await listener.capacity(1)
        [job] = service.queue_jobs("acme/app", ["one"], timeout=60)
        model = await runner(service, client, scale_set, "deaf")
        model.connect()
        await asyncio.sleep(61)
        assert job.cancel_requested
        assert job.state == JobState.RUNNING
        await asyncio.sleep(300)
        assert job.result == JobResult.CANCELED
        with pytest.raises(ServiceError):
            model.finish()

    with_listener(test, lost_runner_timeout=1000)


def test_a_runner_that_vanishes_takes_its_job_with_it() -> None:
    async def test(service: Simulator, client: Client, scale_set: int, listener: Listener) -> None:
        await listener.capacity(1)
        [job] = service.queue_jobs("acme/app", ["one"], seconds=500)
        model = await runner(service, client, scale_set, "r1")
        model.connect()
        await asyncio.sleep(10)
        model.crash()
        await asyncio.sleep(59)
        assert job.state == JobState.RUNNING
        await asyncio.sleep(2)
        assert job.result == JobResult.FAILED
        assert [violation.kind for violation in service.ledger.violations()] == ["lost_while_busy"]
        assert service.ledger.violations(ignore=["lost_while_busy"]) == []

    with_listener(test)
