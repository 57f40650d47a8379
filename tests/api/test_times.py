from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from runherd.api.core import Lease, LeaseSpec
from runherd.api.meta import ObjectMeta
from runherd.api.times import MicroTime, micro_time, parse_micro_time, whole_seconds


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC), "2026-01-02T03:04:05.000060Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC), "2026-01-02T03:04:05.123456Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5))), "2026-01-01T22:04:05.000000Z"),
        (datetime(926, 1, 2, 3, 4, 5, tzinfo=UTC), "0926-01-02T03:04:05.000000Z"),
    ],
)
def test_micro_time_has_six_decimals(moment: datetime, text: str) -> None:
    assert micro_time(moment) == text
    assert parse_micro_time(MicroTime(text)) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-02T03:04:05.000000"])
def test_what_is_no_micro_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|time zone"):
        parse_micro_time(MicroTime(text))


def test_a_time_has_whole_seconds_on_the_wire() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 999999, tzinfo=UTC)
    encoded = msgspec.json.encode(ObjectMeta(creation_timestamp=whole_seconds(moment)))
    assert encoded == b'{"creationTimestamp":"2026-01-02T03:04:05Z"}'


def test_a_lease_keeps_its_times_to_the_digit() -> None:
    spec = LeaseSpec(holder_identity="me", renew_time=micro_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))
    encoded = msgspec.json.encode(Lease(metadata=ObjectMeta(name="l"), spec=spec))
    assert b'"renewTime":"2026-01-02T03:04:05.000000Z"' in encoded
    assert msgspec.json.decode(encoded, type=Lease).spec == spec
