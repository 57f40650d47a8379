"""The ledger sees what should not happen, even where the service itself would be at fault."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

from runherd.simulator.ledger import Ledger, ViolationKind
from runherd.simulator.model import Job, JobResult, Runner, Scope
from runherd.simulator.scale_sets import ScaleSetInput
from runherd.simulator.service import ActionsService
from runherd.simulator.settings import Settings


@pytest.fixture
def service() -> ActionsService:
    return ActionsService(Settings(), lambda: 5.0, lambda: datetime(2026, 1, 1, tzinfo=UTC), Random(0))


@pytest.fixture
def runners(service: ActionsService) -> list[Runner]:
    scale_set = service.scale_sets.create(Scope(organization="acme"), ScaleSetInput(name="one"))
    return [service.runners.register(scale_set, name, "") for name in ("r1", "r2")]


@pytest.fixture
def job(service: ActionsService) -> Job:
    return service.new_job("acme/app", ["one"])


def kinds(ledger: Ledger, **query: object) -> list[ViolationKind]:
    return [violation.kind for violation in ledger.violations(**query)]  # type: ignore[arg-type]  # passed on as given


def test_a_job_that_two_runners_have(job: Job, runners: list[Runner]) -> None:
    ledger = Ledger(lambda: 7.0)
    ledger.started(job, runners[0])
    assert kinds(ledger) == []
    ledger.started(job, runners[1])
    [violation] = ledger.violations()
    assert (violation.kind, violation.at, violation.runner) == (ViolationKind.JOB_STARTED_TWICE, 7.0, "r2")
    assert violation.detail == "r1 has it"


def test_a_job_that_runs_after_its_end(job: Job, runners: list[Runner]) -> None:
    ledger = Ledger(lambda: 0.0)
    ledger.started(job, runners[0])
    job.result = JobResult.SUCCEEDED
    ledger.completed(job)
    ledger.started(job, runners[1])
    assert [violation.detail for violation in ledger.violations()] == ["it has ended already"]


def test_a_runner_that_is_removed_or_lost_with_its_job(job: Job, runners: list[Runner]) -> None:
    ledger = Ledger(lambda: 0.0)
    runners[0].job = job
    ledger.removed(runners[0], "somebody")
    ledger.lost(runners[0])
    ledger.removed(runners[1], "somebody")
    ledger.lost(runners[1])
    assert kinds(ledger) == [ViolationKind.REMOVED_WHILE_BUSY, ViolationKind.LOST_WHILE_BUSY]
    assert kinds(ledger, ignore=["lost_while_busy"]) == [ViolationKind.REMOVED_WHILE_BUSY]


def test_registrations_that_nobody_owns(service: ActionsService, runners: list[Runner]) -> None:
    assert kinds(service.ledger) == []
    assert kinds(service.ledger, owned=["r1", "r2", "r3"]) == []
    assert [violation.runner for violation in service.ledger.violations(owned=["r1"])] == ["r2"]
    service.runners.remove(Scope(organization="acme"), runners[1].id)
    assert kinds(service.ledger, owned=["r1"]) == []


def test_entries_are_counted_and_the_newest_are_kept(job: Job) -> None:
    ledger = Ledger(lambda: 0.0, keep=3)
    for number in range(5):
        ledger.record("queued", None, job, str(number))
    assert ledger.counts == {"queued": 5}
    assert [entry.detail for entry in ledger.entries] == ["2", "3", "4"]
