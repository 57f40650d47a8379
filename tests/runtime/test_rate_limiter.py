from __future__ import annotations

import asyncio

import pytest

from runherd.runtime.rate_limiter import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
    rate_limiter,
)
from runherd.runtime.request import Request
from tests.support.virtual_time import run_in_virtual_time

A = Request("default", "a")
B = Request("default", "b")


def test_exponential_back_off_doubles_from_five_milliseconds_to_a_thousand_seconds() -> None:
    limiter = ItemExponentialFailureRateLimiter()
    waits = [limiter.when(A) for _ in range(20)]
    assert waits[:5] == [0.005, 0.01, 0.02, 0.04, 0.08]
    assert waits[17] == 0.005 * 2**17
    assert waits[18:] == [1000.0, 1000.0]
    assert limiter.requeues(A) == 20


def test_exponential_back_off_counts_each_key_by_itself_and_forgets() -> None:
    limiter = ItemExponentialFailureRateLimiter()
    limiter.when(A)
    limiter.when(A)
    assert limiter.when(B) == 0.005
    limiter.forget(A)
    assert limiter.requeues(A) == 0
    assert limiter.when(A) == 0.005
    assert limiter.requeues(B) == 1
    limiter.forget(Request("default", "never seen"))


def test_exponential_back_off_stays_at_the_cap_after_any_number_of_failures() -> None:
    limiter = ItemExponentialFailureRateLimiter()
    for _ in range(5000):
        wait = limiter.when(A)
    assert wait == 1000.0


def test_exponential_back_off_refuses_senseless_numbers() -> None:
    with pytest.raises(ValueError, match="base"):
        ItemExponentialFailureRateLimiter(base=0)
    with pytest.raises(ValueError, match="cap"):
        ItemExponentialFailureRateLimiter(base=2, cap=1)


def test_bucket_lets_a_burst_through_and_then_ten_a_second() -> None:
    async def main() -> None:
        limiter = BucketRateLimiter()
        assert [limiter.when(A) for _ in range(100)] == [0.0] * 100
        assert limiter.when(A) == pytest.approx(0.1)
        assert limiter.when(B) == pytest.approx(0.2)
        await asyncio.sleep(0.2)
        # The two reservations used up what was refilled.
        assert limiter.when(A) == pytest.approx(0.1)

    run_in_virtual_time(main())


def test_bucket_never_holds_more_than_its_burst() -> None:
    async def main() -> None:
        limiter = BucketRateLimiter(rate=10, burst=3)
        limiter.when(A)
        await asyncio.sleep(3600)
        assert [limiter.when(A) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.0, 0.1])

    run_in_virtual_time(main())


def test_bucket_refuses_senseless_numbers() -> None:
    with pytest.raises(ValueError, match="rate"):
        BucketRateLimiter(rate=0)
    with pytest.raises(ValueError, match="burst"):
        BucketRateLimiter(burst=0)


def test_the_longest_wait_of_several_limiters_counts() -> None:
    async def main() -> None:
        limiter = MaxOfRateLimiter(ItemExponentialFailureRateLimiter(), BucketRateLimiter(rate=1, burst=2))
        assert limiter.when(A) == 0.005
        assert limiter.when(A) == 0.01
        assert limiter.when(A) == pytest.approx(1.0)
        assert limiter.requeues(A) == 3
        limiter.forget(A)
        assert limiter.requeues(A) == 0
        assert limiter.when(A) == pytest.approx(2.0)

    run_in_virtual_time(main())


@pytest.mark.parametrize(("name", "bucket"), [("", True), ("bucket_rate_limiter", True), ("typed_rate_limiter", False)])
def test_the_flag_chooses_whether_there_is_a_bucket(name: str, bucket: bool) -> None:
    async def main() -> float:
        limiter = rate_limiter(name)
        return max(limiter.when(Request("default", str(number))) for number in range(200))

    longest = run_in_virtual_time(main())
    assert longest == pytest.approx(10.0 if bucket else 0.005)


def test_the_flag_refuses_other_names() -> None:
    with pytest.raises(ValueError, match="'token_bucket'"):
        rate_limiter("token_bucket")
