"""``docs/spec/actions-service.md`` 3.1, 3.2."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from rich.pretty import pretty_repr

from runherd.actions import JitRunnerConfig, Label, RunnerReference, RunnerScaleSet, RunnerSetting
from runherd.actions.objects import Session


def test_the_body_of_a_creation() -> None:
    scale_set = RunnerScaleSet(
        name="arc-set",
        runner_group_id=1,
        labels=(Label(name="arc-set"), Label(name="linux", type="")),
        runner_setting=RunnerSetting(disable_update=True),
    )
    assert scale_set.body() == (
        b'{"name":"arc-set","runnerGroupId":1,"labels":[{"type":"System","name":"arc-set"},'
        b'{"type":"System","name":"linux"}],"RunnerSetting":{"disableUpdate":true},"createdOn":"0001-01-01T00:00:00Z"}'
    )


def test_the_body_of_a_change() -> None:
    assert RunnerScaleSet(runner_group_id=7).body() == (
        b'{"runnerGroupId":7,"RunnerSetting":{},"createdOn":"0001-01-01T00:00:00Z"}'
    )


def test_everything_that_is_set_is_sent() -> None:
    whole = RunnerScaleSet(id=3, runner_group_name="g", created_on=datetime(2026, 5, 1, 10, tzinfo=UTC))
    assert whole.body() == (b'{"id":3,"runnerGroupName":"g","RunnerSetting":{},"createdOn":"2026-05-01T10:00:00Z"}')


def test_repr_shows_no_secret() -> None:
    config = JitRunnerConfig(runner=RunnerReference(id=3, name="r"), encoded_jit_config="hidden")
    session = Session(
        session_id=UUID(int=5),
        owner_name="me",
        message_queue_url="https://queue/?secret=hidden",
        message_queue_access_token="hidden",
    )
    for shown in (repr(config), str(config), pretty_repr(config), repr(session), str(session), pretty_repr(session)):
        assert "hidden" not in shown
    assert "name='r'" in repr(config)
    assert "owner_name='me'" in repr(session)
