"""A long day in virtual time: 20,000 jobs through 50 scale sets, while all kinds of faults happen by seed."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

from runherd.simulator.faults import FaultKind
from runherd.simulator.model import Job, JobResult
from runherd.simulator.model_runner import ModelRunner
from runherd.simulator.settings import AssignmentMode
from runherd.simulator.simulator import Simulator
from runherd.wire.transport import Response, TransportError
from tests.simulator.client import Client, simulator
from tests.support.virtual_time import run_in_virtual_time

SETS = 50
JOBS = 20_000
ROOM = 20

# Faults that make a runner lose its job are left out of the list: their violations would hide real ones.
KINDS = [kind for kind in FaultKind if kind is not FaultKind.HANG]


class Controller:
    """A small and stubborn client: listens for one scale set and keeps as many runners as it has assigned jobs.

    It trusts nothing that it is told: every failure is a reason to try again a little later.
    """

    def __init__(self, service: Simulator, client: Client, name: str, scale_set: int, random: Random) -> None:
        self.service, self.client, self.name, self.scale_set, self.random = service, client, name, scale_set, random
        self.runners: dict[str, asyncio.Task[None]] = {}
        self.number = 0

    async def run(self, group: asyncio.TaskGroup) -> None:
        while True:
            opened = await self.expect(
                self.client.call("POST", f"sets/{self.scale_set}/sessions", {"ownerName": self.name})
            )
            if not opened or "messageQueueUrl" not in opened:
                await self.pause()
                continue
            self.scale(group, opened["statistics"]["totalAssignedJobs"])
            await self.listen(group, opened)

    async def listen(self, group: asyncio.TaskGroup, session: dict[str, Any]) -> None:
        """Poll until the session is lost."""
        last = 0
        while True:
            answer = await self.attempt(self.client.poll(session, last, ROOM))
            if answer is None or answer.status not in (200, 202):
                if answer is not None and answer.status == 401:
                    path = f"sets/{self.scale_set}/sessions/{session['sessionId']}"
                    refreshed = await self.attempt(self.client.call("PATCH", path))
                    if refreshed is not None and refreshed.status == 404:
                        return
                    content = _object(refreshed)
                    if content and "messageQueueUrl" in content:
                        session = content
                await self.pause()
                continue
            message = _object(answer)
            if answer.status == 202 or not message:
                self.scale(group, self.service.statistics(self.name)["totalAssignedJobs"])
                continue
            try:
                events = json.loads(message["body"])
            except ValueError:
                continue
            offered = [event["runnerRequestId"] for event in events if event["messageType"] == "JobAvailable"]
            if offered:
                await self.attempt(self.client.acquire(session, self.scale_set, offered))
            self.scale(group, message["statistics"]["totalAssignedJobs"])
            deleted = await self.attempt(self.client.acknowledge(session, message["messageId"]))
            if deleted is not None and deleted.status == 204:
                last = message["messageId"]

    def scale(self, group: asyncio.TaskGroup, wanted: int) -> None:
        while len(self.runners) < min(wanted, ROOM):
            self.number += 1
            name = f"{self.name}-{self.number}"
            self.runners[name] = group.create_task(self.runner(name))

    async def runner(self, name: str) -> None:
        """Register a runner, run it, and see that its registration is gone."""
        try:
            config = ""
            while not config:
                made = await self.expect(
                    self.client.call("POST", f"sets/{self.scale_set}/generatejitconfig", {"name": name})
                )
                if made and "encodedJITConfig" in made:
                    config = made["encodedJITConfig"]
                else:
                    # It may have been made all the same: by its name it is found and removed.
                    await self.remove(name)
                    await self.pause()
            model = ModelRunner(self.service, config)
            result = self.random.choice([JobResult.SUCCEEDED, JobResult.FAILED])
            try:
                async with asyncio.timeout(300):
                    await model.run(result=result)
            except TimeoutError:
                model.crash()
            await self.remove(name)
        finally:
            del self.runners[name]

    async def remove(self, name: str) -> None:
        """Until the service says that there is no runner of this name."""
        while True:
            found = await self.expect(self.client.call("GET", f"agents?agentName={name}"))
            if found and found.get("count") == 0:
                return
            if found and found.get("value"):
                await self.attempt(self.client.call("DELETE", f"agents/{found['value'][0]['id']}"))
            await self.pause()

    async def attempt(self, call: Any) -> Response | None:
        """The answer, if there is one. A new admin token is fetched where the old one is refused."""
        try:
            answer: Response = await call
        except TransportError:
            return None
        if answer.status == 401:
            try:
                await self.client.login()
            except (AssertionError, ValueError, KeyError, TransportError):
                return answer
        return answer

    async def expect(self, call: Any) -> dict[str, Any]:
        return _object(await self.attempt(call))

    async def pause(self) -> None:
        await asyncio.sleep(1 + self.random.random())


def _object(answer: Response | None) -> dict[str, Any]:
    if answer is None or answer.status != 200:
        return {}
    try:
        content = json.loads(answer.body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "mode"), [(1, AssignmentMode.AUTOMATIC), (2, AssignmentMode.ACQUIRE)])
def test_a_day_of_20000_jobs_and_faults(seed: int, mode: AssignmentMode) -> None:
    async def main() -> None:
        random = Random(seed)
        service = simulator(seed, mode=mode, reassign_delays=[30.0] * 1000)
        client = await Client.logged_in(service)
        ended: list[Job] = []
        names = [f"set-{number}" for number in range(SETS)]
        async with asyncio.TaskGroup() as group:
            tasks = []
            for name in names:
                scale_set = await client.create_set(name)
                controller = Controller(service, client, name, scale_set, random)
                tasks.append(group.create_task(controller.run(group)))
            service.faults.add_random(0.002, KINDS)
            # Calls on which these can happen are rare.
            service.faults.add_random(0.2, [FaultKind.NO_QUEUE_URL, FaultKind.BUSY_RUNNER])
            for _ in range(JOBS // 200):
                label = random.choice(names)
                service.queue_jobs("acme/app", [label], 200, seconds=random.uniform(1, 60), on_completed=ended.append)
                await asyncio.sleep(60)
            service.faults.clear()
            while len(ended) < JOBS:  # noqa: ASYNC110  # in virtual time this costs nothing
                await asyncio.sleep(60)
            # All that was registered is used or removed by its owner in the end.
            await asyncio.sleep(900)
            for task in tasks:
                task.cancel()
        assert len({job.request_id for job in ended}) == JOBS
        assert {job.result for job in ended} <= {JobResult.SUCCEEDED, JobResult.FAILED}
        assert set(service.faults.happened) == set(KINDS)
        assert service.service.inconsistencies() == []
        assert service.ledger.violations(owned=[]) == []
        assert service.ledger.counts["queued"] == JOBS

    run_in_virtual_time(main(), seed)
