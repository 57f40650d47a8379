"""hypothesis: whatever is called in whatever order, statistics add up and no job runs twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runherd.simulator.errors import ServiceError
from runherd.simulator.ledger import ViolationKind
from runherd.simulator.model import Job, JobResult, JobState, Runner, ScaleSet, Scope, Session
from runherd.simulator.scale_sets import LabelInput, ScaleSetInput
from runherd.simulator.service import ActionsService
from runherd.simulator.settings import AssignmentMode, Settings

SCOPE = Scope(organization="acme")
FIRST_MESSAGE = 1

T = TypeVar("T")

#: Which of the things that there are an action is about; the newest ones come first.
which = st.integers(0, 5)


def pick(things: Sequence[T], number: int) -> T | None:
    return things[-1 - number % len(things)] if things else None


def expect(condition: bool) -> None:
    """What is asserted about a refusal, which may or may not come."""
    assert condition


class ServiceMachine(RuleBasedStateMachine):
    """Calls the state machine as clients, runners, administrators and time do, in any order, also about what is gone.

    Few rules with many actions: hypothesis switches rules off at random, and jobs only get anywhere when scale sets,
    sessions, runners and jobs all come together.
    """

    mode: AssignmentMode

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.sets: list[ScaleSet] = []
        self.sessions: list[tuple[ScaleSet, Session]] = []
        self.runners: list[Runner] = []
        self.jobs: list[Job] = []
        self.ends: dict[int, int] = {}

    @initialize(
        gone_status=st.sampled_from([204, 404]),
        acquire_delay=st.sampled_from([0.0, 7.0]),
    )
    def begin(self, gone_status: int, acquire_delay: float) -> None:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        self.service = ActionsService(
            Settings(
                mode=self.mode,
                gone_runner_status=gone_status,
                acquire_delay=acquire_delay,
                assignment_timeout=120.0,
                offer_repeat=500.0,
                offline_runner_expiry=3000.0,
                first_message_id=FIRST_MESSAGE,
            ),
            lambda: self.time,
            lambda: start + timedelta(seconds=self.time),
            Random(1),
        )
        self.change_sets("create", 0, "a")
        self.use_session("open", 0, 5)
        # Chance alone comes to running jobs late and seldom.
        self.use_jobs("queue", 0, 4)
        self.use_session("acquire", 0, 5)
        self.use_runner("start", 0, JobResult.SUCCEEDED)
        self.use_runner("start", 0, JobResult.SUCCEEDED)
        assert self.service.settings.acquire_delay or len(self.sets[0].running) == 2

    @rule(
        action=st.sampled_from(["create", "create", "relabel", "delete"]),
        number=which,
        name=st.sampled_from(["a", "b", "shared"]),
    )
    def change_sets(self, action: str, number: int, name: str) -> None:
        given = ScaleSetInput(name=name, labels=[LabelInput(name), LabelInput("shared")])
        scale_set = pick(self.sets, number)
        try:
            if action == "create":
                self.sets.append(self.service.scale_sets.create(SCOPE, given))
            elif scale_set is not None and action == "relabel":
                self.service.scale_sets.update(SCOPE, scale_set.id, ScaleSetInput(labels=[LabelInput(name)]))
            elif scale_set is not None:
                self.service.scale_sets.delete(SCOPE, scale_set.id)
        except ServiceError as error:
            expect(error.exception == "RunnerScaleSetExistsException" or (scale_set is not None and scale_set.deleted))

    @rule(
        action=st.sampled_from(
            ["open", "poll", "acquire", "open", "poll", "acquire", "poll", "refresh", "delete", "evict"]
        ),
        number=which,
        amount=st.sampled_from([5, 1, 100, 0]),
    )
    def use_session(self, action: str, number: int, amount: int) -> None:
        if action == "open":
            self._open_session(number)
            return
        live = [opened for opened in self.sessions if not opened[1].ended]
        opened = pick(live if number % 3 and live else self.sessions, number)
        if opened is None:
            return
        scale_set, session = opened
        try:
            match action:
                case "poll":
                    self._poll(session, amount)
                case "acquire":
                    self._acquire(session, amount)
                case "refresh":
                    self.service.sessions.refresh(scale_set, session.id)
                case "delete":
                    self.service.sessions.delete(scale_set, session.id)
                case "evict":
                    self.service.sessions.evict(scale_set)
        except ServiceError as error:
            expect(error.status in (401, 404))
            expect(session.ended or session.token_expires <= self.service.now())

    def _open_session(self, number: int) -> None:
        scale_set = pick(self.sets, number)
        if scale_set is None or scale_set.deleted:
            return
        taken = scale_set.session is not None
        try:
            session = self.service.sessions.create(scale_set, "listener")
            session.capacity = 5
            self.sessions.append((scale_set, session))
            self.service.jobs.fill(scale_set)
            assert not taken
        except ServiceError as error:
            expect(error.status == 409)
            expect(taken)

    def _poll(self, session: Session, amount: int) -> None:
        """Take a message (some are acknowledged, some are left to come again), and say what there is room for."""
        scale_set, _ = self.service.sessions.authenticate(session.id, session.token)
        session.capacity = amount
        self.service.jobs.fill(scale_set)
        queue, last = scale_set.queue, FIRST_MESSAGE + amount % 4
        message = queue.next_after(last, lambda: self.service.scale_sets.statistics(scale_set))
        if message is None:
            return
        assert message.id > last
        assert message.body.count('"messageType"') <= 50
        if amount % 2:
            assert queue.delete(message.id)
            assert message.id not in queue.messages

    def _acquire(self, session: Session, amount: int) -> None:
        """Ask for jobs that are to be had, for one that isn't, and for one of them twice."""
        scale_set, _ = self.service.sessions.authenticate(session.id, session.token)
        if self.service.settings.mode is AssignmentMode.AUTOMATIC:
            return
        ids = [job.request_id for job in self.service.jobs.waiting_for(scale_set)][: amount + 1]
        acquired = self.service.jobs.acquire(scale_set, [*ids, *ids[:1], 10**9])
        assert acquired == ids

    @rule(action=st.sampled_from(["queue", "queue", "cancel"]), number=which, count=st.sampled_from([1, 4, 60]))
    def use_jobs(self, action: str, number: int, count: int) -> None:
        if action == "cancel":
            job = pick(self.jobs, number)
            if job is not None:
                self.service.jobs.cancel(job)
            return

        def ended(job: Job) -> None:
            self.ends[job.request_id] = self.ends.get(job.request_id, 0) + 1

        labels = ("a", "a", "shared", "shared", "b", "nobody")[number]
        for _ in range(count):
            job = self.service.new_job("acme/app", [labels], timeout=600.0, on_completed=ended)
            self.jobs.append(job)
            self.service.jobs.add(job)

    @rule(
        action=st.sampled_from(
            ["start", "attend", "finish", "start", "register", "connect", "attend", "disconnect", "finish", "remove"]
        ),
        number=which,
        result=st.sampled_from(JobResult),
    )
    def use_runner(self, action: str, number: int, result: JobResult) -> None:
        if action in ("start", "register"):
            self._start_runner(number, connect=action == "start")
            return
        runner = pick(self.runners, number)
        if runner is None:
            return
        busy = runner.job is not None
        usable = not (runner.connected or runner.had_job or runner.removed)
        try:
            match action:
                case "connect":
                    self.service.runners.connect(runner.id, runner.token)
                    assert usable
                case "attend":
                    if runner.connected:
                        self.service.runners.attend(runner)
                case "disconnect":
                    self.service.runners.disconnect(runner)
                case "finish":
                    self.service.runners.finish(runner, result)
                    assert busy
                case "remove":
                    self.service.runners.remove(SCOPE, runner.id)
                    assert runner.removed
        except ServiceError as error:
            match action:
                case "connect":
                    expect(not usable)
                case "finish":
                    expect(not busy)
                case "remove":
                    expect((error.exception == "TaskAgentJobStillRunningException") == busy)

    def _start_runner(self, number: int, *, connect: bool) -> None:
        # A controller starts runners where jobs wait for them; now and then one where there is nothing to do.
        with_jobs = [scale_set for scale_set in self.sets if scale_set.waiting]
        scale_set = pick(with_jobs or self.sets, number)
        if scale_set is None or scale_set.deleted:
            return
        runner = self.service.runners.register(scale_set, f"r{len(self.runners)}", "")
        self.runners.append(runner)
        if connect:
            self.service.runners.connect(runner.id, runner.token)

    @rule(number=which)
    def register_a_name_that_is_taken(self, number: int) -> None:
        runner = pick([runner for runner in self.runners if not runner.removed], number)
        if runner is None:
            return
        try:
            self.service.runners.register(runner.scale_set, runner.name.upper(), "")
        except ServiceError as error:
            expect(error.exception == "TaskAgentExistsException")
        else:
            raise AssertionError("two runners have one name")

    @rule(seconds=st.sampled_from([1.0, 1.0, 1.0, 7.0, 20.0, 20.0, 61.0, 95.0, 400.0, 700.0, 4000.0]))
    def let_time_pass(self, seconds: float) -> None:
        end = self.time + seconds
        while (timer := self.service.timers.earliest()) is not None and timer.at <= end:
            self.time = max(self.time, timer.at)
            self.service.timers.run_due()
        self.time = end

    @invariant()
    def everything_adds_up(self) -> None:
        assert self.service.inconsistencies() == []
        for job in self.jobs:
            over = job.state is JobState.COMPLETED
            assert (job.request_id in self.service.jobs.open) != over
            assert self.ends.get(job.request_id, 0) == (1 if over else 0)
            assert (job.result is not None) == over

    @invariant()
    def no_job_runs_twice(self) -> None:
        kinds = {violation.kind for violation in self.service.ledger.violations()}
        assert ViolationKind.JOB_STARTED_TWICE not in kinds


class AutomaticMachine(ServiceMachine):
    mode = AssignmentMode.AUTOMATIC


class AcquireMachine(ServiceMachine):
    mode = AssignmentMode.ACQUIRE


TestAutomatic = pytest.mark.slow(AutomaticMachine.TestCase)
TestAcquire = pytest.mark.slow(AcquireMachine.TestCase)
TestAutomatic.settings = TestAcquire.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
