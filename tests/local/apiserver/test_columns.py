from __future__ import annotations

from datetime import UTC, datetime

import pytest

from runherd.local.apiserver.columns import age_at, human_duration


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11000, "3h3m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (900 * 86400, "2y170d"),
        (3000 * 86400, "8y"),
    ],
)
def test_durations_are_shown_as_kubectl_shows_them(seconds: float, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_what_has_no_age() -> None:
    age = age_at(datetime(2026, 1, 2, tzinfo=UTC))
    assert age("2026-01-01T00:00:00Z") == "24h"
    assert age(None) == "<unknown>"
    assert age("nonsense") == "<invalid>"
    assert age("2026-01-01T00:00:00") == "<invalid>"
