"""What a JIT configuration can be used for, and what a registration goes through."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runherd.simulator.errors import ServiceError
from runherd.simulator.ledger import ViolationKind
from runherd.simulator.model_runner import ModelRunner
from runherd.simulator.simulator import Simulator
from tests.simulator.client import Client, simulator
from tests.support.virtual_time import run_in_virtual_time


async def prepared(**settings: Any) -> tuple[Simulator, Client, int]:
    """A service with the scale set ``one``, which asks for up to ten jobs."""
    service = simulator(**settings)
    client = await Client.logged_in(service)
    scale_set = await client.create_set("one")
    session = await client.open_session(scale_set)
    service.scale_set("one").session.capacity = 10  # type: ignore[union-attr]  # it was opened just now
    service.scale_set("one").session.polls = 1  # type: ignore[union-attr]
    assert session["sessionId"]
    return service, client, scale_set


def refused(model: ModelRunner) -> int:
    with pytest.raises(ServiceError) as caught:
        model.connect()
    return caught.value.status


def test_a_configuration_is_refused_while_its_runner_is_connected_and_after_its_job() -> None:
    async def main() -> None:
        service, client, scale_set = await prepared()
        jit = (await client.jit(scale_set, "r"))["encodedJITConfig"]
        model = ModelRunner(service, jit)
        model.connect()
        assert refused(ModelRunner(service, jit)) == 409
        service.queue_jobs("acme/app", ["one"])
        await model.next_job()
        assert refused(ModelRunner(service, jit)) == 409
        model.finish()
        assert refused(ModelRunner(service, jit)) == 409
        kinds = [violation.kind for violation in service.ledger.violations()]
        assert kinds == [ViolationKind.CONFIGURATION_USED_TWICE] * 3

    run_in_virtual_time(main())


def test_a_runner_without_a_job_may_come_back() -> None:
    async def main() -> None:
        service, client, scale_set = await prepared()
        jit = (await client.jit(scale_set, "r"))["encodedJITConfig"]
        for end in ("crash", "disconnect"):
            model = ModelRunner(service, jit)
            model.connect()
            getattr(model, end)()
            assert service.service.runners.by_id[1].state == "offline"
        service.queue_jobs("acme/app", ["one"])
        assert await ModelRunner(service, jit).run() == 0
        assert service.ledger.violations(owned=[]) == []

    run_in_virtual_time(main())


def test_a_removed_runner_ends_and_cannot_come_back() -> None:
    async def main() -> None:
        service, client, scale_set = await prepared()
        jit = await client.jit(scale_set, "r")
        work = asyncio.create_task(ModelRunner(service, jit["encodedJITConfig"]).run())
        await asyncio.sleep(1)
        assert service.statistics("one")["totalIdleRunners"] == 1
        await client.ok("DELETE", f"agents/{jit['runner']['id']}", status=204)
        assert await work == 1
        assert refused(ModelRunner(service, jit["encodedJITConfig"])) == 404
        assert service.ledger.violations(owned=[]) == []

    run_in_virtual_time(main())


def test_a_name_is_free_again_after_its_runner_is_gone() -> None:
    async def main() -> None:
        service, client, scale_set = await prepared()
        first = await client.jit(scale_set, "r")
        await client.ok("DELETE", f"agents/{first['runner']['id']}", status=204)
        second = await client.jit(scale_set, "r")
        assert second["runner"]["id"] != first["runner"]["id"]
        assert [violation.runner for violation in service.ledger.violations(owned=["other"])] == ["r"]
        assert service.ledger.violations(owned=["r"]) == []

    run_in_virtual_time(main())


def test_an_outdated_runner_is_told_so() -> None:
    async def main() -> None:
        service, client, scale_set = await prepared(minimum_runner_version="2.329.0")
        jit = (await client.jit(scale_set, "r"))["encodedJITConfig"]
        assert await ModelRunner(service, jit, "2.328.1").run() == 7
        service.queue_jobs("acme/app", ["one"])
        assert await ModelRunner(service, jit, "2.329.0").run() == 0

    run_in_virtual_time(main())


def test_a_configuration_of_another_service_is_refused() -> None:
    async def main() -> None:
        service, client, scale_set = await prepared()
        jit = (await client.jit(scale_set, "r"))["encodedJITConfig"]
        assert refused(ModelRunner(simulator(1), jit)) == 401
        for nonsense in ("", "no base64!", "e30="):
            with pytest.raises(ValueError, match="not a JIT configuration"):
                ModelRunner(service, nonsense)

    run_in_virtual_time(main())


def test_a_registration_that_is_never_used_is_dropped_in_the_end() -> None:
    async def main() -> None:
        service, client, scale_set = await prepared(offline_runner_expiry=3600)
        await client.jit(scale_set, "unused")
        used = ModelRunner(service, (await client.jit(scale_set, "used"))["encodedJITConfig"])
        used.connect()
        await asyncio.sleep(3601)
        assert [runner.name for runner in service.service.runners.by_id.values()] == ["used"]

    run_in_virtual_time(main())


def test_deleting_a_scale_set_under_a_busy_runner_is_a_violation() -> None:
    async def main() -> None:
        service, client, scale_set = await prepared()
        [job] = service.queue_jobs("acme/app", ["one"], seconds=60)
        work = asyncio.create_task(ModelRunner(service, (await client.jit(scale_set, "r"))["encodedJITConfig"]).run())
        await asyncio.sleep(1)
        await client.ok("DELETE", f"sets/{scale_set}", status=204)
        assert await work == 1
        assert job.result == "failed"
        assert [violation.kind for violation in service.ledger.violations()] == ["removed_while_busy"]

    run_in_virtual_time(main())
