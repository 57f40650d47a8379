"""Which scale set and which runner gets which job, and how jobs end (5.4, 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from runherd.simulator.ledger import Ledger
from runherd.simulator.message_queue import JobEvent
from runherd.simulator.model import Demand, Job, JobResult, JobState, Runner, ScaleSet
from runherd.simulator.settings import AssignmentMode, Settings
from runherd.simulator.timers import Timers

__all__ = ["JobQueue"]


class JobQueue:
    """The jobs of all repositories, from queued to completed. Every step is one method; none of them waits."""

    def __init__(
        self,
        settings: Settings,
        timers: Timers,
        now: Callable[[], datetime],
        ledger: Ledger,
        scale_sets: dict[int, ScaleSet],
        release_runner: Callable[[Runner, str], None],
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._now = now
        self._ledger = ledger
        self._scale_sets = scale_sets
        self._release_runner = release_runner
        #: Jobs that aren't completed, by request id.
        self.open: dict[int, Job] = {}
        # Waiting jobs by what they ask for, oldest first; a demand without waiting jobs has no entry.
        self._waiting: dict[Demand, dict[int, Job]] = {}
        self._matching: dict[Demand, list[ScaleSet]] = {}

    def scale_set_changed(self, scale_set: ScaleSet) -> None:
        """A scale set was made or changed: think again about which waiting jobs it may have."""
        self._matching.clear()
        self.fill(scale_set)
        self.offer_all(scale_set)

    def add(self, job: Job) -> None:
        """Queue a job."""
        self.open[job.request_id] = job
        self._ledger.record("queued", None, job)
        self._wait(job)

    def available(self, scale_set: ScaleSet) -> int:
        """How many waiting jobs ``scale_set`` may have."""
        return sum(len(jobs) for demand, jobs in self._waiting.items() if scale_set in self._matches(demand))

    def waiting_for(self, scale_set: ScaleSet) -> list[Job]:
        """The waiting jobs that ``scale_set`` may have, oldest first."""
        jobs = [
            job for demand, jobs in self._waiting.items() if scale_set in self._matches(demand) for job in jobs.values()
        ]
        return sorted(jobs, key=lambda job: job.request_id)

    def unmatched(self) -> list[Job]:
        """Waiting jobs that no scale set can have."""
        return [job for demand, jobs in self._waiting.items() if not self._matches(demand) for job in jobs.values()]

    def fill(self, scale_set: ScaleSet) -> None:
        """Assign waiting jobs, oldest first, while the scale set says that it has room (automatic mode only)."""
        if self._settings.mode is not AssignmentMode.AUTOMATIC:
            return
        while scale_set.free_capacity() > 0:
            oldest = min(
                (next(iter(jobs)) for demand, jobs in self._waiting.items() if scale_set in self._matches(demand)),
                default=None,
            )
            if oldest is None:
                return
            self._assign(self.open[oldest], scale_set)

    def offer_all(self, scale_set: ScaleSet) -> None:
        """Offer every waiting job that ``scale_set`` may have (acquire mode only)."""
        if self._settings.mode is AssignmentMode.ACQUIRE:
            for job in self.waiting_for(scale_set):
                self._offer_to(job, scale_set)

    def acquire(self, scale_set: ScaleSet, request_ids: Iterable[int]) -> list[int]:
        """Give ``scale_set`` those of the jobs that are still to be had; returns their ids (5.3)."""
        acquired = []
        for request_id in request_ids:
            job = self.open.get(request_id)
            if job is None or job.state is not JobState.WAITING or scale_set not in self._matches(job.demand):
                continue
            self._leave_waiting(job)
            job.state = JobState.ACQUIRED
            job.scale_set = scale_set
            scale_set.acquired[request_id] = job
            acquired.append(request_id)
            self._ledger.record("acquired", None, job, scale_set.name)
            if self._settings.acquire_delay > 0:
                job.timer = self._timers.after(self._settings.acquire_delay, partial(self._assign, job, scale_set))
            else:
                self._assign(job, scale_set)
        return acquired

    def dispatch(self, scale_set: ScaleSet) -> None:
        """Give assigned jobs to idle runners, first come, first served."""
        while scale_set.waiting and scale_set.idle:
            runner = scale_set.idle.pop(next(iter(scale_set.idle)))
            job = scale_set.waiting.pop(next(iter(scale_set.waiting)))
            self._start(job, runner, scale_set)

    def complete(self, job: Job, result: JobResult) -> None:
        """End a job, whatever its state. Its runner's registration ends with it. Ending it twice changes nothing."""
        if job.state is JobState.COMPLETED:
            return
        scale_set = job.scale_set
        self._detach(job)
        job.state = JobState.COMPLETED
        job.result = result
        job.finish_time = self._now()
        del self.open[job.request_id]
        self._ledger.completed(job)
        runner, job.runner = job.runner, None
        if runner is not None:
            runner.job = None
            self._release_runner(runner, "job completed")
        if scale_set is not None:
            self._tell_completed(job, scale_set)
            self.fill(scale_set)
        if job.on_completed is not None:
            job.on_completed(job)

    def cancel(self, job: Job) -> None:
        """Cancel a job: at once when no runner has it, through its runner otherwise."""
        if job.state is not JobState.RUNNING:
            self.complete(job, JobResult.CANCELED)
            return
        if job.cancel_requested:
            return
        job.cancel_requested = True
        self._ledger.record("cancel_requested", job.runner, job)
        self._cancel_timer(job)
        job.timer = self._timers.after(self._settings.cancel_timeout, partial(self.complete, job, JobResult.CANCELED))
        if job.runner is not None and job.runner.wake is not None:
            job.runner.wake()

    def drop_scale_set(self, scale_set: ScaleSet) -> None:
        """The scale set was deleted: jobs without a runner wait again, the others fail."""
        self._matching.clear()
        for job in [*scale_set.acquired.values(), *scale_set.waiting.values()]:
            self._detach(job)
            self._wait(job)
        for job in list(scale_set.running.values()):
            self.complete(job, JobResult.FAILED)

    def _matches(self, demand: Demand) -> list[ScaleSet]:
        matching = self._matching.get(demand)
        if matching is None:
            matching = [scale_set for scale_set in self._scale_sets.values() if scale_set.matches(demand)]
            self._matching[demand] = matching
        return matching

    def _wait(self, job: Job) -> None:
        job.state = JobState.WAITING
        job.scale_set = None
        job.assign_time = None
        self._waiting.setdefault(job.demand, {})[job.request_id] = job
        self._place(job)

    def _place(self, job: Job) -> None:
        candidates = self._matches(job.demand)
        if self._settings.mode is AssignmentMode.ACQUIRE:
            for scale_set in candidates:
                self._offer_to(job, scale_set)
            self._cancel_timer(job)
            job.timer = self._timers.after(self._settings.offer_repeat, partial(self._place, job))
            return
        with_room = [scale_set for scale_set in candidates if scale_set.free_capacity() > 0]
        if with_room:
            # The set with the fewest jobs is where the job starts soonest.
            self._assign(job, min(with_room, key=lambda candidate: len(candidate.waiting) + len(candidate.running)))

    def _offer_to(self, job: Job, scale_set: ScaleSet) -> None:
        # A scale set that reads none of its messages isn't sent the same offer over and over.
        if job.request_id in scale_set.queue.pending_offers:
            return
        scale_set.queue.add(JobEvent.of("JobAvailable", job, acquireJobUrl=f"urn:runherd:job:{job.request_id}"))

    def _assign(self, job: Job, scale_set: ScaleSet) -> None:
        if job.state is JobState.WAITING:
            self._leave_waiting(job)
        scale_set.acquired.pop(job.request_id, None)
        self._cancel_timer(job)
        job.state = JobState.ASSIGNED
        job.scale_set = scale_set
        job.assign_time = self._now()
        scale_set.waiting[job.request_id] = job
        job.timer = self._timers.after(self._settings.assignment_timeout, partial(self._take_back, job))
        self._ledger.record("assigned", None, job, scale_set.name)
        scale_set.queue.add(JobEvent.of("JobAssigned", job))
        self.dispatch(scale_set)

    def _start(self, job: Job, runner: Runner, scale_set: ScaleSet) -> None:
        self._cancel_timer(job)
        job.state = JobState.RUNNING
        job.runner = runner
        job.runner_id = runner.id
        job.runner_name = runner.name
        job.runner_assign_time = self._now()
        scale_set.running[job.request_id] = job
        runner.job = job
        runner.had_job = True
        job.timer = self._timers.after(job.timeout, partial(self.cancel, job))
        self._ledger.started(job, runner)
        scale_set.queue.add(JobEvent.of("JobStarted", job, runnerId=runner.id, runnerName=runner.name))
        if runner.wake is not None:
            runner.wake()

    def _take_back(self, job: Job) -> None:
        """No runner took the job in time: say that it is canceled, and assign it anew later (5.4)."""
        delays = self._settings.reassign_delays
        if job.timeouts >= len(delays):
            self.complete(job, JobResult.CANCELED)
            return
        scale_set = job.scale_set
        self._detach(job)
        job.state = JobState.BACKOFF
        self._ledger.record("taken_back", None, job)
        if scale_set is not None:
            job.result = JobResult.CANCELED
            self._tell_completed(job, scale_set)
            job.result = None
        job.scale_set = None
        job.timer = self._timers.after(delays[job.timeouts], partial(self._wait, job))
        job.timeouts += 1
        if scale_set is not None:
            self.fill(scale_set)

    def _tell_completed(self, job: Job, scale_set: ScaleSet) -> None:
        scale_set.queue.add(
            JobEvent.of("JobCompleted", job, result=str(job.result), runnerId=job.runner_id, runnerName=job.runner_name)
        )

    def _detach(self, job: Job) -> None:
        """Take the job out of whatever holds it."""
        self._cancel_timer(job)
        if job.state is JobState.WAITING:
            self._leave_waiting(job)
        if job.scale_set is not None:
            for jobs in (job.scale_set.acquired, job.scale_set.waiting, job.scale_set.running):
                jobs.pop(job.request_id, None)

    def _leave_waiting(self, job: Job) -> None:
        jobs = self._waiting[job.demand]
        del jobs[job.request_id]
        if not jobs:
            del self._waiting[job.demand]

    @staticmethod
    def _cancel_timer(job: Job) -> None:
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None
