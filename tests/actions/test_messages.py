"""``docs/spec/actions-service.md`` 5.4."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from runherd.actions import ZERO_TIME, JobAssigned, JobAvailable, JobCompleted, JobStarted, RunnerScaleSetMessage
from runherd.actions.decoding import NotAsPromisedError, decode
from runherd.actions.messages import Envelope

COMMON = {
    "runnerRequestId": 7848922,
    "repositoryName": "app",
    "ownerName": "acme",
    "jobId": "6f1d2a34-0000-4000-8000-000000000001",
    "jobWorkflowRef": "acme/app/.github/workflows/ci.yml@refs/heads/main",
    "jobDisplayName": "build",
    "workflowRunId": 30721627864,
    "eventName": "push",
    "requestLabels": ["arc-set"],
    "queueTime": "2026-05-01T10:00:00Z",
    "scaleSetAssignTime": "0001-01-01T00:00:00Z",
    "runnerAssignTime": "0001-01-01T00:00:00Z",
    "finishTime": "0001-01-01T00:00:00Z",
}
STATISTICS = {"totalAssignedJobs": 3, "totalRunningJobs": 2}


def opened(batch: object, **changes: object) -> RunnerScaleSetMessage:
    envelope = {
        "messageId": 100000007,
        "messageType": "RunnerScaleSetJobMessages",
        "body": batch if isinstance(batch, str) else json.dumps(batch),
        "statistics": STATISTICS,
        **changes,
    }
    return decode(Envelope, json.dumps(envelope).encode()).open()


def test_all_four_kinds_in_one_batch() -> None:
    message = opened(
        [
            {"messageType": "JobCompleted", "result": "succeeded", "runnerId": 117, "runnerName": "r", **COMMON},
            {"messageType": "JobAvailable", "acquireJobUrl": "https://svc/acquire/7848922", **COMMON},
            {"messageType": "JobAssigned", **COMMON},
            {"messageType": "JobStarted", "runnerId": 117, "runnerName": "r", **COMMON},
        ]
    )
    assert message.message_id == 100000007
    assert (message.statistics.total_assigned_jobs, message.statistics.total_idle_runners) == (3, 0)
    assert [type(job) for job in message.jobs] == [JobCompleted, JobAvailable, JobAssigned, JobStarted]
    assert [job.acquire_job_url for job in message.available] == ["https://svc/acquire/7848922"]
    assert [job.runner_request_id for job in message.assigned] == [7848922]
    assert [(job.runner_id, job.runner_name) for job in message.started] == [(117, "r")]
    (completed,) = message.completed
    assert completed.result == "succeeded"
    assert (completed.owner_name, completed.repository_name, completed.job_display_name) == ("acme", "app", "build")
    assert (completed.workflow_run_id, completed.event_name) == (30721627864, "push")
    assert completed.job_id == COMMON["jobId"]
    assert completed.job_workflow_ref == COMMON["jobWorkflowRef"]
    assert completed.request_labels == ("arc-set",)
    assert completed.queue_time == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert completed.finish_time == completed.runner_assign_time == completed.scale_set_assign_time == ZERO_TIME


def test_a_job_that_no_runner_had() -> None:
    (job,) = opened([{"messageType": "JobCompleted", "result": "canceled"}]).completed
    assert (job.runner_id, job.runner_name, job.runner_assign_time) == (0, "", ZERO_TIME)


@pytest.mark.parametrize("batch", ["", "[]", "null"])
def test_no_job_messages(batch: str) -> None:
    assert opened(batch).jobs == ()


def test_a_missing_batch() -> None:
    assert opened("", body=None).jobs == ()


def test_unknown_kinds_are_skipped_even_if_their_shape_is_odd() -> None:
    batch = [{"messageType": "JobTeleported", "jobId": 5}, None, {}, {"messageType": "JobStarted"}]
    assert len(opened(batch).jobs) == 1


@pytest.mark.parametrize(
    "batch",
    [
        "not json",
        '{"messageType": "JobStarted"}',
        '[{"messageType": "JobStarted", "jobId": 5}]',
        '[{"messageType": "JobStarted", "queueTime": ""}]',
        '[{"messageType": "JobAvailable", "runnerRequestId": "7"}]',
        '["JobStarted"]',
        "[5]",
    ],
)
def test_a_batch_that_cannot_be_read(batch: str) -> None:
    with pytest.raises(NotAsPromisedError, match="in its batch of job messages"):
        opened(batch)


@pytest.mark.parametrize("kind", ["", "RunnerScaleSetOther", "runnerscalesetjobmessages"])
def test_a_message_of_another_type(kind: str) -> None:
    with pytest.raises(NotAsPromisedError, match="messageType"):
        opened([], messageType=kind)


def test_a_message_without_statistics() -> None:
    with pytest.raises(NotAsPromisedError, match="no statistics"):
        opened([], statistics=None)
