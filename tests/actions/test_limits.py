"""The bound on calls under way, and the limit on registrations."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runherd.actions import parse_config_url
from runherd.actions.limits import CallLimiter, RegistrationLimit, RegistrationLimits, TurnTooLateError
from tests.actions.scripted import virtual
from tests.support.virtual_time import run_in_virtual_time


@virtual
async def test_never_more_calls_than_allowed_and_flows_take_turns() -> None:
    limiter = CallLimiter(2)
    order: list[str] = []
    under_way = 0

    async def call(flow: str) -> None:
        nonlocal under_way
        async with limiter.slot(flow):
            under_way += 1
            assert under_way <= 2
            order.append(flow)
            await asyncio.sleep(1)
            under_way -= 1

    calls = [asyncio.ensure_future(call("big")) for _ in range(10)]
    await asyncio.sleep(0.5)
    assert limiter.waiting == 8
    calls += [asyncio.ensure_future(call(flow)) for flow in ("small", "small", "other")]
    await asyncio.gather(*calls)
    assert order[:8] == ["big", "big", "big", "small", "other", "big", "small", "big"]
    assert limiter.waiting == 0


@virtual
async def test_a_cancelled_wait_loses_no_place() -> None:
    limiter = CallLimiter(1)
    release = asyncio.Event()

    async def call() -> None:
        async with limiter.slot("x"):
            await release.wait()

    first, second, third = (asyncio.ensure_future(call()) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    # The third gets the turn and is cancelled before it runs.
    release.set()
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    async with asyncio.timeout(1):
        await call()


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_places_are_neither_lost_nor_made(seed: int, limit: int) -> None:
    random = Random(seed)

    async def main() -> None:
        limiter = CallLimiter(limit)
        under_way = 0

        async def call(flow: int) -> None:
            nonlocal under_way
            async with limiter.slot(flow):
                under_way += 1
                assert under_way <= limit
                try:
                    await asyncio.sleep(random.random())
                finally:
                    under_way -= 1

        calls = []
        for _ in range(40):
            calls.append(asyncio.ensure_future(call(random.randrange(4))))
            await asyncio.sleep(random.random() / 10)
            if random.random() < 0.3:
                random.choice(calls).cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert limiter.waiting == 0
        async with asyncio.timeout(0.5):
            for _ in range(limit):
                await limiter.slot("rest").__aenter__()

    run_in_virtual_time(main(), seed)


def test_a_limit_of_none() -> None:
    with pytest.raises(ValueError, match="at least one call"):
        CallLimiter(0)


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_registrations_up_to_the_limit_go_at_once_and_the_next_waits() -> None:
    limit = RegistrationLimit("github.com/octo-org")
    for _ in range(1500):
        await limit.acquire("x")
        limit.release(counts=True)
    assert now() == 0
    assert (limit.used, limit.resumes_in, limit.waiting) == (1500, 300.0, 0)
    waiting = asyncio.ensure_future(limit.acquire("x"))
    await asyncio.sleep(100)
    assert (limit.waiting, limit.resumes_in) == (1, 200.0)
    await waiting
    assert now() == 300
    assert limit.used == 1


def test_waiting_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def main() -> None:
        limit = RegistrationLimit("github.com/octo-org", 1, 60.0)
        for _ in range(3):
            await limit.acquire("x")
            limit.release(counts=True)

        async def one() -> None:
            await limit.acquire("x")
            limit.release(counts=True)

        await asyncio.gather(one(), one())

    with caplog.at_level(logging.WARNING):
        main()
    texts = [record.getMessage() for record in caplog.records]
    assert texts[0] == (
        "1 runners of github.com/octo-org were registered within 60 s, as many as GitHub allows: "
        "further ones wait, the first for about 60 s"
    )
    assert len(texts) == 3


@virtual
async def test_what_the_service_has_not_seen_does_not_count() -> None:
    limit = RegistrationLimit("o", 1, 60.0)
    for _ in range(5):
        await limit.acquire("x")
        limit.release(counts=False)
    assert (now(), limit.used) == (0, 0)


@virtual
async def test_registrations_under_way_count() -> None:
    limit = RegistrationLimit("o", 1, 60.0)
    await limit.acquire("x")
    second = asyncio.ensure_future(limit.acquire("x"))
    await asyncio.sleep(10)
    assert (limit.waiting, limit.resumes_in) == (1, 0.0)
    limit.release(counts=True)
    await second
    assert now() == 70


@virtual
async def test_flows_take_turns() -> None:
    limit = RegistrationLimit("o", 1, 60.0)
    order = []

    async def register(flow: str) -> None:
        await limit.acquire(flow)
        limit.release(counts=True)
        order.append((flow, now()))

    await asyncio.gather(*(register(flow) for flow in ("big", "big", "big", "big", "small")))
    assert order == [("big", 0), ("big", 60), ("small", 120), ("big", 180), ("big", 240)]


@virtual
async def test_patience() -> None:
    limit = RegistrationLimit("o", 2, 60.0)
    await limit.acquire("x")
    limit.release(counts=True)
    await asyncio.sleep(20)
    await limit.acquire("x")
    # The first expires in 40 s, which is too late for one and not for the other.
    with pytest.raises(TurnTooLateError) as caught:
        await limit.acquire("x", patience=39.0)
    assert (caught.value.seconds, now()) == (40.0, 20.0)
    await limit.acquire("x", patience=41.0)
    assert now() == 60


@virtual
async def test_patience_runs_out_where_nothing_could_be_foreseen() -> None:
    limit = RegistrationLimit("o", 1, 60.0)
    await limit.acquire("x")
    with pytest.raises(TurnTooLateError):
        await limit.acquire("x", patience=5.0)
    assert (now(), limit.waiting) == (5.0, 0)


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_no_window_ever_holds_more_than_the_limit(seed: int) -> None:
    random = Random(seed)

    async def main() -> None:
        limit = RegistrationLimit("o", 5, 60.0)
        counted: list[float] = []

        async def register(flow: int) -> None:
            await limit.acquire(flow, patience=random.choice([None, 30.0, 200.0]))
            try:
                await asyncio.sleep(random.random() * 5)
                # The service counts somewhere between the request and its answer.
                counted.append(now())
                await asyncio.sleep(random.random() * 5)
            finally:
                limit.release(counts=True)

        calls = []
        for _ in range(40):
            calls.append(asyncio.ensure_future(register(random.randrange(3))))
            await asyncio.sleep(random.random() * 20)
            if random.random() < 0.2:
                random.choice(calls).cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for start in counted:
            assert sum(1 for at in counted if start <= at < start + 60.0) <= 5
        assert limit.waiting == 0

    run_in_virtual_time(main(), seed)


def test_one_limit_for_each_owner_on_github() -> None:
    limits = RegistrationLimits()

    def of(url: str) -> RegistrationLimit | None:
        return limits.of(parse_config_url(url))

    assert of("https://github.com/org") is of("https://www.github.com/ORG/")
    assert of("https://github.com/org") is not of("https://github.com/org/repo")
    assert of("https://github.com/org") is not of("https://x.ghe.com/org")
    assert of("https://x.ghe.com/org") is not None
    assert of("https://ghes.example/org") is None
