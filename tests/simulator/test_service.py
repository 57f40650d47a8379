"""hypothesis: whatever is called in whatever order, statistics add up and no job runs twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from runherd.simulator.errors import ServiceError
from runherd.simulator.ledger import ViolationKind
from runherd.simulator.model import Job, JobResult, JobState, Runner, ScaleSet, Scope, Session
from runherd.simulator.scale_sets import LabelInput, ScaleSetInput
from runherd.simulator.service import ActionsService
from runherd.simulator.settings import AssignmentMode, Settings

SCOPE = Scope(organization="acme")
LABELS = ["a", "b", "shared"]


def expect(condition: bool) -> None:
    """What is asserted about a refusal, which may or may not come."""
    assert condition


class ServiceMachine(RuleBasedStateMachine):
    """Calls the state machine as clients, runners, administrators and time do, in any order."""

    sets = Bundle("sets")
    sessions = Bundle("sessions")
    runners = Bundle("runners")
    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.queued: list[Job] = []
        self.ends: dict[int, int] = {}

    @initialize(
        mode=st.sampled_from(AssignmentMode),
        gone_status=st.sampled_from([204, 404]),
        acquire_delay=st.sampled_from([0.0, 7.0]),
    )
    def begin(self, mode: AssignmentMode, gone_status: int, acquire_delay: float) -> None:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        self.service = ActionsService(
            Settings(mode=mode, gone_runner_status=gone_status, acquire_delay=acquire_delay, assignment_timeout=120.0),
            lambda: self.time,
            lambda: start + timedelta(seconds=self.time),
            Random(1),
        )

    @rule(target=sets, name=st.sampled_from(LABELS), more=st.sets(st.sampled_from(LABELS)))
    def create_set(self, name: str, more: set[str]) -> Any:
        labels = [LabelInput(label) for label in sorted(more | {name})]
        try:
            return self.service.scale_sets.create(SCOPE, ScaleSetInput(name=name, labels=labels))
        except ServiceError as error:
            expect(error.exception == "RunnerScaleSetExistsException")
            return multiple()

    @rule(scale_set=consumes(sets))
    def delete_set(self, scale_set: ScaleSet) -> None:
        self.service.scale_sets.delete(SCOPE, scale_set.id)

    @rule(target=jobs, labels=st.sets(st.sampled_from(LABELS), min_size=1), count=st.integers(1, 60))
    def queue_jobs(self, labels: set[str], count: int) -> Any:
        def ended(job: Job) -> None:
            self.ends[job.request_id] = self.ends.get(job.request_id, 0) + 1

        made = [self.service.new_job("acme/app", labels, timeout=600.0, on_completed=ended) for _ in range(count)]
        for job in made:
            self.service.jobs.add(job)
        self.queued.extend(made)
        return multiple(*made[:3])

    @rule(job=jobs)
    def cancel_job(self, job: Job) -> None:
        self.service.jobs.cancel(job)

    @rule(target=sessions, scale_set=sets)
    def open_session(self, scale_set: ScaleSet) -> Any:
        taken = scale_set.session is not None
        try:
            return (scale_set, self.service.sessions.create(scale_set, "listener"))
        except ServiceError as error:
            assert taken
            expect(error.status == 409)
            return multiple()

    @rule(opened=sessions, capacity=st.integers(0, 100), last=st.integers(0, 3), acknowledge=st.booleans())
    def poll(self, opened: tuple[ScaleSet, Session], capacity: int, last: int, acknowledge: bool) -> None:
        scale_set, session = opened
        try:
            self.service.sessions.authenticate(session.id, session.token)
        except ServiceError:
            assert session.ended or session.token_expires <= self.service.now()
            return
        session.capacity = capacity
        self.service.jobs.fill(scale_set)
        first = self.service.settings.first_message_id
        queue = scale_set.queue
        message = queue.next_after(first + last, lambda: self.service.scale_sets.statistics(scale_set))
        if message is not None:
            assert message.id > first + last
            assert message.body.count('"messageType"') <= 50
            if acknowledge:
                assert queue.delete(message.id)
                assert message.id not in queue.messages

    @rule(opened=sessions, ids=st.lists(st.integers(0, 200), max_size=10))
    def acquire(self, opened: tuple[ScaleSet, Session], ids: list[int]) -> None:
        scale_set, session = opened
        if session.ended or self.service.settings.mode is AssignmentMode.AUTOMATIC:
            return
        acquired = self.service.jobs.acquire(scale_set, ids)
        assert len(acquired) == len(set(acquired))
        assert set(acquired) <= set(ids)

    @rule(opened=sessions, how=st.sampled_from(["delete", "evict", "refresh"]))
    def end_session(self, opened: tuple[ScaleSet, Session], how: str) -> None:
        scale_set, session = opened
        try:
            match how:
                case "delete":
                    self.service.sessions.delete(scale_set, session.id)
                case "refresh":
                    self.service.sessions.refresh(scale_set, session.id)
                case "evict":
                    self.service.sessions.evict(scale_set)
        except ServiceError as error:
            assert session.ended
            expect(error.status == 404)

    @rule(target=runners, scale_set=sets, name=st.integers(0, 8))
    def register(self, scale_set: ScaleSet, name: int) -> Any:
        if scale_set.deleted:
            return multiple()
        try:
            return self.service.runners.register(scale_set, f"r{name}", "")
        except ServiceError as error:
            expect(error.exception == "TaskAgentExistsException")
            return multiple()

    @rule(runner=runners)
    def connect(self, runner: Runner) -> None:
        usable = not (runner.connected or runner.had_job or runner.removed)
        try:
            self.service.runners.connect(runner.id, runner.token)
            assert usable
        except ServiceError:
            assert not usable

    @rule(runner=runners)
    def disconnect(self, runner: Runner) -> None:
        self.service.runners.disconnect(runner)

    @rule(runner=runners, result=st.sampled_from(JobResult))
    def finish(self, runner: Runner, result: JobResult) -> None:
        busy = runner.job is not None
        try:
            self.service.runners.finish(runner, result)
            assert busy
        except ServiceError:
            assert not busy

    @rule(runner=runners)
    def remove(self, runner: Runner) -> None:
        busy = runner.job is not None
        try:
            self.service.runners.remove(SCOPE, runner.id)
            assert not busy
            assert runner.removed
        except ServiceError as error:
            expect((error.exception == "TaskAgentJobStillRunningException") == busy)

    @rule(seconds=st.sampled_from([1.0, 20.0, 61.0, 95.0, 400.0, 4000.0, 100_000.0]))
    def let_time_pass(self, seconds: float) -> None:
        end = self.time + seconds
        while (timer := self.service.timers.earliest()) is not None and timer.at <= end:
            self.time = max(self.time, timer.at)
            self.service.timers.run_due()
            # An offered job that nobody takes is offered again for ever; look at a hundred rounds and go on.
            if self.time + 100 * self.service.settings.offer_repeat < end:
                end = self.time + 100 * self.service.settings.offer_repeat
        self.time = end

    @invariant()
    def everything_adds_up(self) -> None:
        assert self.service.inconsistencies() == []
        for job in self.queued:
            over = job.state is JobState.COMPLETED
            assert (job.request_id in self.service.jobs.open) != over
            assert self.ends.get(job.request_id, 0) == (1 if over else 0)
            assert (job.result is not None) == over

    @invariant()
    def no_job_runs_twice(self) -> None:
        kinds = {violation.kind for violation in self.service.ledger.violations()}
        assert ViolationKind.JOB_STARTED_TWICE not in kinds


TestService = ServiceMachine.TestCase
TestService.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
