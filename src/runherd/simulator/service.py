"""The service as a state machine: no sockets, no tasks, no waiting. Everything else in this folder stands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from random import Random

from runherd.simulator.job_queue import JobQueue
from runherd.simulator.ledger import Ledger
from runherd.simulator.model import Demand, Job, JobState, ScaleSet
from runherd.simulator.runner_pool import RunnerPool
from runherd.simulator.scale_sets import ScaleSets
from runherd.simulator.sessions import Sessions
from runherd.simulator.settings import Settings
from runherd.simulator.timers import Timers
from runherd.wire.randomness import uuid4

__all__ = ["DEFAULT_JOB_TIMEOUT", "ActionsService"]

#: GitHub's own default of ``timeout-minutes``, in seconds.
DEFAULT_JOB_TIMEOUT = 360 * 60.0


class ActionsService:
    """Scale sets, runners, sessions and jobs, tied together.

    ``time`` tells seconds (an event loop's ``time``), ``now`` the wall clock. Whoever drives the service calls
    ``timers.run_due()`` whenever the time of ``timers.earliest()`` has come.
    """

    def __init__(
        self, settings: Settings, time: Callable[[], float], now: Callable[[], datetime], random: Random
    ) -> None:
        self.settings = settings
        self.timers = Timers(time)
        self.now = now
        self.random = random
        self.ledger = Ledger(time)
        self.scale_sets = ScaleSets(settings, now)
        self.runners = RunnerPool(settings, self.timers, random, self.ledger)
        self.sessions = Sessions(settings, self.timers, now, random, self.ledger)
        self.jobs = JobQueue(settings, self.timers, now, self.ledger, self.scale_sets.by_id, self.runners.release)
        self.scale_sets.jobs = self.runners.jobs = self.sessions.jobs = self.jobs
        self.scale_sets.runners = self.runners
        self.scale_sets.sessions = self.sessions
        self._next_request_id = 1

    def new_job(
        self,
        repository: str,
        labels: Iterable[str],
        *,
        group: str = "",
        name: str = "job",
        workflow_ref: str = "",
        run_id: int = 0,
        event: str = "push",
        timeout: float = DEFAULT_JOB_TIMEOUT,
        seconds: float = 0.0,
        payload: dict[str, object] | None = None,
        on_completed: Callable[[Job], None] | None = None,
    ) -> Job:
        """A job of ``repository`` (``owner/name``) that isn't queued yet: ``jobs.add`` does that."""
        owner, _, name_of_repository = repository.partition("/")
        if not owner or not name_of_repository:
            raise ValueError(f"repository {repository!r} must be owner/name")
        labels = tuple(labels)
        request_id = self._next_request_id
        self._next_request_id += 1
        return Job(
            request_id=request_id,
            job_id=str(uuid4(self.random)),
            name=name,
            owner=owner,
            repository=name_of_repository,
            workflow_ref=workflow_ref or f"{repository}/.github/workflows/ci.yml@refs/heads/main",
            run_id=run_id or request_id,
            event=event,
            labels=labels,
            demand=Demand(
                owner.lower(), name_of_repository.lower(), frozenset(label.lower() for label in labels), group.lower()
            ),
            queue_time=self.now(),
            timeout=timeout,
            seconds=seconds,
            payload=payload or {},
            on_completed=on_completed,
        )

    def inconsistencies(self) -> list[str]:
        """What doesn't add up, found by going through everything. Empty when all is well; for tests."""
        found: list[str] = []
        for scale_set in self.scale_sets.by_id.values():
            found.extend(self._scale_set_inconsistencies(scale_set))
        for job in self.jobs.open.values():
            holder = {
                JobState.ACQUIRED: "acquired",
                JobState.ASSIGNED: "waiting",
                JobState.RUNNING: "running",
            }.get(job.state)
            for scale_set in self.scale_sets.by_id.values():
                for place in ("acquired", "waiting", "running"):
                    has_it = job.request_id in getattr(scale_set, place)
                    if has_it != (place == holder and scale_set is job.scale_set):
                        found.append(f"job {job.request_id} is {job.state}, {scale_set.name}.{place}: {has_it}")
        return found

    def _scale_set_inconsistencies(self, scale_set: ScaleSet) -> list[str]:
        found = []
        counts = self.scale_sets.statistics(scale_set)
        if counts["totalBusyRunners"] != sum(1 for runner in scale_set.runners.values() if runner.job is not None):
            found.append(f"{scale_set.name}: busy runners {counts}")
        if counts["totalAvailableJobs"] != len(self.jobs.waiting_for(scale_set)):
            found.append(f"{scale_set.name}: available jobs {counts}")
        if min(counts.values()) < 0:
            found.append(f"{scale_set.name}: negative {counts}")
        found.extend(
            f"{scale_set.name}: running job {job.request_id} and its runner disagree"
            for job in scale_set.running.values()
            if job.runner is None or job.runner.job is not job or job.runner.removed
        )
        found.extend(
            f"{scale_set.name}: {runner.name} counts as idle and is {runner.state}"
            for runner in scale_set.idle.values()
            if runner.state != "idle"
        )
        if scale_set.waiting and scale_set.idle:
            found.append(f"{scale_set.name}: jobs wait while runners are idle")
        return found
