"""``docs/spec/actions-service.md`` 0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from runherd.actions.decoding import NotAsPromisedError, decode
from runherd.actions.messages import JobStarted
from runherd.actions.objects import ZERO_TIME, RunnerScaleSet, Session


@pytest.mark.parametrize("key", ["RunnerSetting", "runnerSetting", "RUNNERSETTING"])
def test_keys_match_whatever_their_case(key: str) -> None:
    assert decode(RunnerScaleSet, f'{{"{key}": {{"DisableUpdate": true}}}}'.encode()).runner_setting.disable_update


def test_unknown_keys_are_ignored() -> None:
    assert decode(RunnerScaleSet, b'{"id": 3, "new": {"id": 4}}').id == 3


def test_null_is_as_good_as_missing() -> None:
    nothing = decode(RunnerScaleSet, b'{"id": null, "labels": null, "createdOn": null, "statistics": null}')
    assert nothing == decode(RunnerScaleSet, b"{}") == RunnerScaleSet()


def test_a_byte_order_mark_is_dropped() -> None:
    assert decode(RunnerScaleSet, b'\xef\xbb\xbf{"id": 3}').id == 3


def test_numbers_of_64_bits() -> None:
    assert decode(JobStarted, b'{"runnerRequestId": 9223372036854775807}').runner_request_id == 2**63 - 1


@pytest.mark.parametrize("value", ["5", '["x"]', "true"])
def test_a_job_id_is_a_string(value: str) -> None:
    with pytest.raises(NotAsPromisedError, match=r"Expected `str`, got .* at `\$.jobid`"):
        decode(JobStarted, f'{{"jobId": {value}}}'.encode())


@pytest.mark.parametrize("value", ['"5"', "5.5", "5.0", "true", "1e3"])
def test_an_id_is_an_integer(value: str) -> None:
    with pytest.raises(NotAsPromisedError):
        decode(RunnerScaleSet, f'{{"id": {value}}}'.encode())


def test_times() -> None:
    def time(text: str) -> datetime:
        return decode(JobStarted, f'{{"queueTime": "{text}"}}'.encode()).queue_time

    assert time("2026-05-01T10:00:00Z") == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert time("2026-05-01T12:00:00.1234567+02:00") == datetime(2026, 5, 1, 10, tzinfo=UTC) + timedelta(
        microseconds=123457
    )
    assert time("0001-01-01T00:00:00Z") == ZERO_TIME
    for broken in ("", "2026-05-01T10:00:00", "yesterday"):
        with pytest.raises(NotAsPromisedError):
            time(broken)


@pytest.mark.parametrize("body", [b"", b" \n", b"\xef\xbb\xbf"])
def test_an_empty_body(body: bytes) -> None:
    with pytest.raises(NotAsPromisedError, match="the body is empty"):
        decode(RunnerScaleSet, body)


@pytest.mark.parametrize("body", [b"<html>secret</html>", b'{"id": ', b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_json_is_not_quoted(body: bytes) -> None:
    with pytest.raises(NotAsPromisedError, match=rf"^the body \({len(body)} bytes\) is not JSON$"):
        decode(RunnerScaleSet, body)


def test_a_session_id_must_be_one() -> None:
    with pytest.raises(NotAsPromisedError, match="UUID"):
        decode(Session, b'{"sessionId": "not-one"}')
