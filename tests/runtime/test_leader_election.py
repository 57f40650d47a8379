from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from runherd.api.core import LEASES, Lease
from runherd.api.times import parse_micro_time
from runherd.runtime.leader_election import LeaderElectionConfig, LeaderElector
from runherd.runtime.metrics import Metrics
from runherd.runtime.write_gate import LeadershipLostError, WriteGate
from runherd.wire.clock import EventLoopClock
from tests.runtime.api import client_of, eventually
from tests.support.model_api import ModelApi
from tests.support.virtual_time import in_virtual_time, run_in_virtual_time

LEASES_PATH = "apis/coordination.k8s.io/v1/leases"


@dataclass
class Candidate:
    api: ModelApi
    identity: str
    #: How far this machine's wall clock is off.
    clock: EventLoopClock = field(default_factory=EventLoopClock)

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.gate = WriteGate(self.clock)
        config = LeaderElectionConfig("runherd", "system", self.identity)
        self.elector = LeaderElector(
            client_of(self.api), config, self.gate, clock=self.clock, random=Random(self.identity), metrics=self.metrics
        )

    @property
    def status(self) -> float | None:
        return self.metrics.registry.get_sample_value("leader_election_master_status", {"name": "runherd"})

    async def lead(self) -> None:
        await self.elector.acquire()
        await self.elector.renew()


def lease_of(api: ModelApi) -> dict[str, Any]:
    lease: dict[str, Any] = api.objects[LEASES_PATH, "system", "runherd"]["spec"]
    return lease


def events_of(api: ModelApi) -> list[str]:
    return [object_["message"] for (collection, _, _), object_ in api.objects.items() if collection == "api/v1/events"]


@in_virtual_time
async def test_the_first_takes_the_lease_and_renews_it() -> None:
    api = ModelApi()
    one = Candidate(api, "one")
    assert one.status == 0
    leading = asyncio.create_task(one.lead())
    await asyncio.sleep(1)
    assert one.elector.is_leader
    assert one.elector.leader == "one"
    assert one.status == 1
    first = lease_of(api)
    assert first["holderIdentity"] == "one"
    assert first["leaseDurationSeconds"] == 15
    assert first.get("leaseTransitions", 0) == 0
    assert events_of(api) == ["one became leader"]
    await asyncio.sleep(3600)
    last = lease_of(api)
    assert last["acquireTime"] == first["acquireTime"]
    renewed = parse_micro_time(last["renewTime"])
    assert one.clock.now() - renewed < timedelta(seconds=2.1)
    assert one.gate.remaining() > 12
    leading.cancel()
    # A renewal is one request, not two.
    assert len([request for request in api.requests if request.startswith("GET")]) == 1


@in_virtual_time
async def test_a_second_waits_while_the_lease_is_renewed() -> None:
    api = ModelApi()
    one, two = Candidate(api, "one"), Candidate(api, "two")
    tasks = [asyncio.create_task(one.lead())]
    await asyncio.sleep(1)
    tasks.append(asyncio.create_task(two.lead()))
    await asyncio.sleep(3600)
    assert one.elector.is_leader
    assert not two.elector.is_leader
    assert two.elector.leader == "one"
    assert two.gate.remaining() == 0.0
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("off", [timedelta(0), timedelta(hours=-3), timedelta(days=300)])
def test_a_lease_that_is_not_renewed_any_more_is_taken_over_within_its_duration(off: timedelta) -> None:
    """By the watcher's own clock, however wrong the wall clocks are."""

    @in_virtual_time
    async def main() -> None:
        loop = asyncio.get_running_loop()
        api = ModelApi()
        one, two = Candidate(api, "one"), Candidate(api, "two", EventLoopClock(offset=off))
        first = asyncio.create_task(one.lead())
        await asyncio.sleep(1)
        second = asyncio.create_task(two.lead())
        await asyncio.sleep(100)
        first.cancel()  # as by kill -9: nothing is released
        died = loop.time()
        await eventually(lambda: two.elector.is_leader)
        # the duration from the last renewal on that it saw, and at most one period between two looks
        assert 15 - 2.2 <= loop.time() - died <= 15 + 2 * 2.2 * 2
        assert lease_of(api)["holderIdentity"] == "two"
        assert lease_of(api)["leaseTransitions"] == 1
        second.cancel()

    main()


@in_virtual_time
async def test_a_released_lease_is_taken_at_once_and_the_gate_is_shut() -> None:
    loop = asyncio.get_running_loop()
    api = ModelApi()
    one, two = Candidate(api, "one"), Candidate(api, "two")
    first = asyncio.create_task(one.lead())
    await asyncio.sleep(1)
    second = asyncio.create_task(two.lead())
    await asyncio.sleep(10)
    first.cancel()
    await one.elector.release()
    released = loop.time()
    assert one.gate.remaining() == 0.0
    assert one.status == 0
    assert not one.elector.is_leader
    spec = lease_of(api)
    assert spec.get("holderIdentity", "") == ""
    assert spec["leaseDurationSeconds"] == 1
    assert "one stopped leading" in events_of(api)
    await eventually(lambda: two.elector.is_leader)
    assert loop.time() - released <= 2 * 2.2
    await one.elector.release()  # again: it is not ours
    assert lease_of(api)["holderIdentity"] == "two"
    second.cancel()


@in_virtual_time
async def test_who_can_not_renew_stops_leading_before_the_lease_runs_out() -> None:
    loop = asyncio.get_running_loop()
    api = ModelApi()
    one = Candidate(api, "one")
    leading = asyncio.create_task(one.lead())
    await asyncio.sleep(1)
    renewed = parse_micro_time(lease_of(api)["renewTime"])
    api.refuse_next = [("PUT", 500, "InternalError")] * 1000
    with pytest.raises(LeadershipLostError, match="could not be renewed for 10 s"):
        await leading
    since = one.clock.now() - renewed
    assert timedelta(seconds=9.9) < since < timedelta(seconds=10.1)
    assert one.gate.remaining() == 0.0
    assert one.status == 0
    assert loop.time() < 15


@in_virtual_time
async def test_a_request_that_hangs_leaves_time_for_another() -> None:
    api = ModelApi()
    one = Candidate(api, "one")
    leading = asyncio.create_task(one.lead())
    await asyncio.sleep(1)
    api.delay = 7.0
    await asyncio.sleep(3)
    api.delay = 0.0
    await asyncio.sleep(60)
    assert one.elector.is_leader
    leading.cancel()


@in_virtual_time
async def test_who_finds_another_in_the_lease_stops_at_once() -> None:
    api = ModelApi()
    one = Candidate(api, "one")
    leading = asyncio.create_task(one.lead())
    await asyncio.sleep(1)
    lease = api.objects[LEASES_PATH, "system", "runherd"]
    api.put(LEASES_PATH, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief"}})
    with pytest.raises(LeadershipLostError, match="system/runherd is held by thief now"):
        await leading
    assert asyncio.get_running_loop().time() < 5
    assert lease_of(api)["holderIdentity"] == "thief"


@in_virtual_time
async def test_a_lease_that_somebody_deleted_is_made_anew() -> None:
    api = ModelApi()
    one = Candidate(api, "one")
    leading = asyncio.create_task(one.lead())
    await asyncio.sleep(1)
    api.remove(LEASES_PATH, "system", "runherd")
    await asyncio.sleep(10)
    assert lease_of(api)["holderIdentity"] == "one"
    assert one.elector.is_leader
    leading.cancel()


@in_virtual_time
async def test_a_lease_that_was_changed_otherwise_is_renewed_all_the_same() -> None:
    api = ModelApi()
    one = Candidate(api, "one")
    leading = asyncio.create_task(one.lead())
    await asyncio.sleep(1)
    for _ in range(5):
        api.put(
            LEASES_PATH, {"metadata": {"name": "runherd", "namespace": "system", "labels": {"x": str(api.version)}}}
        )
        await asyncio.sleep(10)
    assert one.elector.is_leader
    assert "x" in api.objects[LEASES_PATH, "system", "runherd"]["metadata"]["labels"]
    leading.cancel()


@in_virtual_time
async def test_a_restarted_process_waits_for_the_lease_of_its_former_self() -> None:
    loop = asyncio.get_running_loop()
    api = ModelApi()
    one = Candidate(api, "one")
    leading = asyncio.create_task(one.lead())
    await asyncio.sleep(30)
    leading.cancel()
    again = Candidate(api, "one-restarted")
    started = loop.time()
    await again.elector.acquire()
    assert 13 < loop.time() - started < 15 + 2 * 2.2 * 2


@in_virtual_time
async def test_without_the_right_to_send_events_everything_works() -> None:
    api = ModelApi()
    one = Candidate(api, "one")
    # The first POST makes the lease, the second the event.
    api.objects[LEASES_PATH, "system", "runherd"] = {
        "metadata": {"name": "runherd", "namespace": "system", "uid": "u", "resourceVersion": "1"},
        "spec": {"leaseTransitions": 4},
    }
    api.refuse_next = [("POST", 403, "Forbidden")]
    await one.elector.acquire()
    assert one.elector.is_leader
    assert events_of(api) == []
    assert lease_of(api)["leaseTransitions"] == 5


@in_virtual_time
async def test_a_release_that_fails_is_no_error() -> None:
    api = ModelApi()
    one = Candidate(api, "one")
    await one.elector.acquire()
    api.refuse_next = [("GET", 500, "InternalError")]
    await one.elector.release()
    assert one.gate.remaining() == 0.0
    assert lease_of(api)["holderIdentity"] == "one"


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))])
def test_there_are_never_two_whose_gate_is_open(seed: int) -> None:
    """Requests fail and hang, processes are paused for any time, and wall clocks differ."""

    async def main() -> None:
        random = Random(seed)
        api = ModelApi()
        offsets = [timedelta(seconds=random.uniform(-1e6, 1e6)) for _ in range(3)]
        candidates = [Candidate(api, f"c{n}", EventLoopClock(offset=offset)) for n, offset in enumerate(offsets)]
        leaders: set[str] = set()

        async def live(number: int) -> None:
            life = 0
            while True:
                candidate = candidates[number]
                try:
                    async with asyncio.timeout(random.expovariate(1 / 60)):
                        await candidate.lead()
                except (LeadershipLostError, TimeoutError):
                    if random.random() < 0.3:
                        await candidate.elector.release()
                await asyncio.sleep(random.expovariate(1 / 5))
                life += 1
                candidates[number] = Candidate(api, f"c{number}-{life}", candidate.clock)

        async def trouble() -> None:
            while True:
                await asyncio.sleep(random.expovariate(1 / 5))
                api.delay = random.choice([0.0, 0.0, 0.0, 0.1, 3.0, 12.0])
                method = random.choice(["GET", "PUT"])
                api.refuse_next = [(method, 500, "InternalError")] * random.choice([0, 0, 1, 3, 20])

        tasks = [asyncio.create_task(live(number)) for number in range(3)] + [asyncio.create_task(trouble())]
        for _ in range(36000):
            await asyncio.sleep(0.1)
            open_gates = [c.elector._config.identity for c in candidates if c.gate.remaining() > 0]
            assert len(open_gates) <= 1, open_gates
            leaders.update(open_gates)
        for task in tasks:
            assert not task.done()
            task.cancel()
        assert len(leaders) > 5

    run_in_virtual_time(main(), seed)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"identity": ""}, "identity"),
        ({"lease_duration": 10}, "lease_duration"),
        ({"renew_deadline": 2.4}, "renew_deadline"),
        ({"retry_period": 0.0}, "retry_period"),
    ],
)
def test_times_that_do_not_fit_each_other_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LeaderElectionConfig(**{"name": "a", "namespace": "b", "identity": "c", **changes})


async def lease_through_client(api: ModelApi) -> Lease:
    return await client_of(api).get(LEASES, "runherd", "system")


@in_virtual_time
async def test_times_in_the_lease_have_six_decimals() -> None:
    """client-go can't read others."""
    api = ModelApi()
    one = Candidate(api, "one", EventLoopClock())
    await one.elector.acquire()
    lease = await lease_through_client(api)
    for time in (lease.spec.acquire_time, lease.spec.renew_time):
        assert time is not None
        assert len(time) == len("2026-01-01T00:00:00.000000Z")
