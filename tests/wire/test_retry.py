from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.wire.retry import Backoff, parse_retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def test_waits_double_up_to_the_limit() -> None:
    """``docs/spec/actions-service.md`` 2.4."""
    backoff = Backoff(initial=1.0, limit=30.0)
    assert list(islice(backoff.delays(Random(1)), 8)) == [1, 2, 4, 8, 16, 30, 30, 30]


def test_another_factor() -> None:
    assert [Backoff(0.01, 100, factor=5).delay(attempt, Random(1)) for attempt in range(4)] == [0.01, 0.05, 0.25, 1.25]


def test_any_number_of_attempts() -> None:
    assert Backoff(0.005, 1000).delay(10_000, Random(1)) == 1000


def test_jitter_comes_from_the_random_that_is_given() -> None:
    backoff = Backoff(1.0, 30.0, jitter=0.5)
    delays = list(islice(backoff.delays(Random(7)), 20))
    assert delays == list(islice(backoff.delays(Random(7)), 20))
    assert delays != list(islice(backoff.delays(Random(8)), 20))
    bare = list(islice(Backoff(1.0, 30.0).delays(Random(7)), 20))
    assert all(plain <= delay < plain * 1.5 for plain, delay in zip(bare, delays, strict=True))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("120", 120),
        ("100000", 100000),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("9" * 30, None),
        ("Mon, 30 Nov 2026 12:00:30 GMT", 30),
        ("Mon, 30 Nov 2026 12:00:00 GMT", 0),
        ("Mon, 30 Nov 2026 11:59:00 GMT", 0),
        ("Tue, 01 Dec 2026 12:00:00 GMT", 86400),
        ("Mon, 30 Nov 2026 12:00:30 -0000", 30),
        ("Mon, 30 Nov 2026 13:00:30 +0100", 30),
        ("Monday, 30-Nov-26 12:00:30 GMT", 30),
        ("Mon, 99 Nov 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after(value: str | None, expected: float | None) -> None:
    assert parse_retry_after(value, NOW) == expected


@given(st.text(alphabet=st.characters(max_codepoint=0x2FFF)))
def test_retry_after_takes_any_text(text: str) -> None:
    seconds = parse_retry_after(text, NOW)
    assert seconds is None or seconds >= 0
