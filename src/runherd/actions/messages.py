"""The messages of a scale set's queue (``docs/spec/actions-service.md`` 5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runherd.actions.decoding import NotAsPromisedError, parse, to
from runherd.actions.objects import ZERO_TIME, ServiceObject, Statistics, Time

__all__ = ["JobAssigned", "JobAvailable", "JobCompleted", "JobMessage", "JobStarted", "RunnerScaleSetMessage"]


class JobMessage(ServiceObject, frozen=True, kw_only=True):
    """What all job messages tell. A time that is :data:`~runherd.actions.objects.ZERO_TIME` hasn't come yet."""

    runner_request_id: int = 0
    repository_name: str = ""
    owner_name: str = ""
    job_id: str = ""
    job_workflow_ref: str = ""
    job_display_name: str = ""
    workflow_run_id: int = 0
    event_name: str = ""
    request_labels: tuple[str, ...] = ()
    queue_time: Time = ZERO_TIME
    scale_set_assign_time: Time = ZERO_TIME
    runner_assign_time: Time = ZERO_TIME
    finish_time: Time = ZERO_TIME


class JobAvailable(JobMessage, frozen=True, kw_only=True):
    """A job that this scale set may acquire (GitHub Enterprise Server)."""

    acquire_job_url: str = ""


class JobAssigned(JobMessage, frozen=True, kw_only=True):
    """A job was given to this scale set; no runner has it yet."""


class JobStarted(JobMessage, frozen=True, kw_only=True):
    """A runner took the job."""

    runner_id: int = 0
    runner_name: str = ""


class JobCompleted(JobMessage, frozen=True, kw_only=True):
    """The job ended, or was taken back before a runner had it (then no runner is named)."""

    result: str = ""
    runner_id: int = 0
    runner_name: str = ""


class RunnerScaleSetMessage(ServiceObject, frozen=True, kw_only=True):
    """One message: counts, and the job messages of its batch in their order."""

    message_id: int
    statistics: Statistics
    jobs: tuple[JobAvailable | JobAssigned | JobStarted | JobCompleted, ...] = ()

    @property
    def available(self) -> list[JobAvailable]:
        return [job for job in self.jobs if isinstance(job, JobAvailable)]

    @property
    def assigned(self) -> list[JobAssigned]:
        return [job for job in self.jobs if isinstance(job, JobAssigned)]

    @property
    def started(self) -> list[JobStarted]:
        return [job for job in self.jobs if isinstance(job, JobStarted)]

    @property
    def completed(self) -> list[JobCompleted]:
        return [job for job in self.jobs if isinstance(job, JobCompleted)]


class Envelope(ServiceObject, frozen=True, kw_only=True):
    """A message as it comes, its batch still a string."""

    message_id: int = 0
    message_type: str = ""
    body: str = ""
    statistics: Statistics | None = None

    def open(self) -> RunnerScaleSetMessage:
        """The message in it. Raises :class:`NotAsPromisedError`, also for a batch of which one known part is wrong."""
        if self.message_type != "RunnerScaleSetJobMessages":
            raise NotAsPromisedError("its messageType is not RunnerScaleSetJobMessages")
        if self.statistics is None:
            raise NotAsPromisedError("it has no statistics")
        return RunnerScaleSetMessage(
            message_id=self.message_id, statistics=self.statistics, jobs=tuple(_jobs(self.body)) if self.body else ()
        )


class _Batch(ServiceObject, frozen=True, kw_only=True):
    items: list[Any] | None = None


class _Kind(ServiceObject, frozen=True, kw_only=True):
    message_type: str = ""


_KINDS: dict[str, type[JobAvailable | JobAssigned | JobStarted | JobCompleted]] = {
    kind.__name__: kind for kind in (JobAvailable, JobAssigned, JobStarted, JobCompleted)
}


def _jobs(body: str) -> Iterator[JobAvailable | JobAssigned | JobStarted | JobCompleted]:
    try:
        batch = to(_Batch, {"items": parse(body.encode("utf-8", "surrogatepass"))})
        for item in batch.items or ():
            # A kind that we don't know is news for a newer client, not an error.
            if item is not None and (kind := _KINDS.get(to(_Kind, item).message_type)) is not None:
                yield to(kind, item)
    except NotAsPromisedError as error:
        raise NotAsPromisedError(f"in its batch of job messages, {error}") from None
