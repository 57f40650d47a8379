"""The simulator's own administration over HTTP."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from runherd.simulator.model_runner import ModelRunner
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from tests.simulator.client import TOKEN, Client, simulator
from tests.support.virtual_time import run_in_virtual_time

WORKFLOW = """
name: CI
jobs:
  one: {runs-on: one, steps: [{run: x}]}
  two: {runs-on: one, needs: one, steps: [{run: x}]}
"""


class Admin:
    def __init__(self, client: Client, service: Simulator, scale_set: int) -> None:
        self.client, self.service, self.scale_set = client, service, scale_set

    async def __call__(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.client.send(method, f"{self.client.base}/_simulator/{path}", body, token=TOKEN)
        assert answer.status == status, answer.body
        return json.loads(answer.body) if answer.body else None

    async def run_a_job(self, name: str) -> None:
        assert (
            await ModelRunner(self.service, (await self.client.jit(self.scale_set, name))["encodedJITConfig"]).run()
            == 0
        )


def administered(test: Callable[[Admin], Awaitable[None]]) -> None:
    async def main() -> None:
        service = simulator()
        client = await Client.logged_in(service)
        scale_set = await client.create_set("one")
        await client.open_session(scale_set)
        session = service.scale_set("one").session
        assert session is not None
        session.capacity = 10
        await test(Admin(client, service, scale_set))

    run_in_virtual_time(main())


def test_a_run_can_be_started_watched_canceled_and_run_again() -> None:
    async def test(admin: Admin) -> None:
        run = await admin("POST", "workflows?repository=acme/tools&path=ci.yml", WORKFLOW.encode(), 201)
        assert [(job["name"], job["state"]) for job in run["jobs"]] == [("one", "assigned"), ("two", "blocked")]
        await admin.run_a_job("r1")
        run = await admin("GET", f"runs/{run['id']}")
        assert [(job["state"], job["result"]) for job in run["jobs"]] == [
            ("completed", "succeeded"),
            ("assigned", None),
        ]
        await admin("POST", f"runs/{run['id']}/rerun", status=409)
        run = await admin("POST", f"runs/{run['id']}/cancel")
        assert run["result"] == "canceled"
        run = await admin("POST", f"runs/{run['id']}/rerun-failed-jobs")
        assert (run["attempt"], run["result"]) == (2, None)
        await admin.run_a_job("r2")
        await admin("POST", f"runs/{run['id']}/jobs/0/rerun")
        await admin("POST", f"runs/{run['id']}/jobs/9/rerun", status=404)
        await admin.run_a_job("r3")
        await admin.run_a_job("r4")
        await admin("POST", f"runs/{run['id']}/rerun")
        [run] = await admin("GET", "runs")
        assert run["attempt"] == 4
        await admin("GET", "runs/1", status=404)

    administered(test)


def test_a_workflow_that_cannot_be_read_is_refused_with_its_line() -> None:
    async def test(admin: Admin) -> None:
        refused = await admin("POST", "workflows?path=ci.yml", b"jobs:\n  a:\n    runs-on: x\n    if: 1\n", 400)
        assert refused["message"] == "ci.yml:4: jobs.a.if is not supported"

    administered(test)


def test_jobs_without_a_workflow() -> None:
    async def test(admin: Admin) -> None:
        jobs = await admin("POST", "jobs", {"repository": "acme/app", "labels": ["one"], "count": 3}, 201)
        assert len(await admin("GET", "jobs")) == 3
        await admin("POST", f"jobs/{jobs[0]['requestId']}/cancel")
        await admin("POST", f"jobs/{jobs[0]['requestId']}/cancel", status=404)
        await admin("POST", "jobs", {"repository": "acme", "labels": ["one"]}, 400)
        [shown] = await admin("GET", "scale-sets")
        assert (shown["name"], shown["sessionOwner"], shown["statistics"]["totalAssignedJobs"]) == (
            "one",
            "listener",
            2,
        )

    administered(test)


def test_faults_settings_sessions_and_the_ledger() -> None:
    async def test(admin: Admin) -> None:
        await admin("POST", "faults", {"kind": "status", "operation": "scale_sets.list", "status": 503}, 201)
        await admin("POST", "faults", {"kind": "nonsense"}, 400)
        await admin("POST", "faults", {"kind": "busy_runner", "operation": "scale_sets.list"}, 400)
        assert (await admin.client.call("GET", "sets")).status == 503
        assert await admin("GET", "faults") == {"pending": [], "happened": {"status": 1}}
        await admin("DELETE", "faults", status=204)
        assert (await admin("PATCH", "settings", {"poll_hold": 5}))["poll_hold"] == 5
        await admin("PATCH", "settings", {"poll_hold": "x"}, 400)
        await admin("PATCH", "settings", {"poll_holds": 5}, 400)
        assert (await admin("GET", "settings"))["mode"] == "automatic"
        jit = await admin.client.jit(admin.scale_set, "r1")
        ModelRunner(admin.service, jit["encodedJITConfig"]).connect()
        [runner] = await admin("GET", "runners")
        assert (runner["name"], runner["state"]) == ("r1", "idle")
        await admin("POST", f"scale-sets/{admin.scale_set}/evict-session", status=204)
        await admin("POST", f"scale-sets/{admin.scale_set}/evict-session", status=404)
        ledger = await admin("GET", "ledger")
        assert (ledger["counts"]["registered"], ledger["violations"]) == (1, [])

    administered(test)


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "message.get"},
        {"kind": "evicted_session", "operation": "message.get"},
        {"kind": "expired_token", "operation": "runner.poll"},
        {"probability": 7},
        {"probability": -0.1},
        {"times": -1},
        {"times": 0},
        {"after": -1},
        {"seconds": -3},
        {"amount": -1},
        {"status": 9999},
        {"status": 99},
        {"colour": "red"},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    async def test(admin: Admin) -> None:
        await admin("POST", "faults", {"kind": "status", **fields}, 400)
        assert (await admin("GET", "faults"))["pending"] == []

    administered(test)


@pytest.mark.parametrize(
    "fields",
    [
        {"count": -1},
        {"count": 0},
        {"count": 10**9},
        {"seconds": -1},
        {"labels": []},
        {"labels": [""]},
        {"colour": "red"},
    ],
)
def test_jobs_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    async def test(admin: Admin) -> None:
        await admin("POST", "jobs", {"repository": "acme/app", "labels": ["one"], **fields}, 400)
        assert await admin("GET", "jobs") == []

    administered(test)


@pytest.mark.parametrize("admin_token", ["", "other"])
def test_nobody_gets_in_without_the_token(admin_token: str) -> None:
    async def main() -> None:
        service = Simulator(clock=EventLoopClock(), random=Random(0), admin_token=admin_token)
        client = Client(InProcessTransport(service))
        for token in ("", "wrong"):
            answer = await client.send("GET", f"{client.base}/_simulator/runs", token=token)
            assert answer.status == 401

    run_in_virtual_time(main())
