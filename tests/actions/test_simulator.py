"""Our client and our simulator, which know nothing of each other but the specification: every call, every fault."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from runherd.actions import (
    ONE_ATTEMPT,
    RETRYING,
    ActionsClient,
    ActionsError,
    JobStillRunningError,
    MessageSession,
    NotFoundError,
    PersonalAccessToken,
    RateLimitedError,
    RunnerExistsError,
    RunnerNotFoundError,
    RunnerReference,
    RunnerScaleSet,
    RunnerScaleSetExistsError,
    RunnerScaleSetNotFoundError,
    RunnerSetting,
    ServiceError,
    ServiceUnreachableError,
    SessionConflictError,
    SessionGoneError,
    Throttle,
    UndecodableMessageError,
    UnexpectedResponseError,
    UserAgent,
)
from runherd.simulator.faults import ANYWHERE, FaultKind
from runherd.simulator.model_runner import ModelRunner
from runherd.simulator.settings import AssignmentMode, Settings
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import DeadlineExceededError
from tests.actions.scripted import virtual
from tests.support.virtual_time import run_in_virtual_time


@dataclass
class World:
    """A simulated service with one scale set, an idle registered runner and a session."""

    simulator: Simulator
    client: ActionsClient
    scale_set: RunnerScaleSet
    runner: RunnerReference
    session: MessageSession

    def fresh_client(self) -> ActionsClient:
        """Another one, which has to log in first."""
        return client_of(self.simulator)


def client_of(simulator: Simulator, config_url: str = "https://github.com/acme") -> ActionsClient:
    return ActionsClient.connect(
        config_url,
        PersonalAccessToken("a-token"),
        transport=InProcessTransport(simulator),
        user_agent=UserAgent("tests"),
        clock=EventLoopClock(),
    )


async def world(mode: AssignmentMode = AssignmentMode.AUTOMATIC) -> World:
    simulator = Simulator(
        clock=EventLoopClock(), random=Random(5), settings=Settings(mode=mode), personal_tokens=["a-token"]
    )
    client = client_of(simulator)
    scale_set = await client.create_runner_scale_set(
        RunnerScaleSet(name="arc-set", runner_group_id=1, runner_setting=RunnerSetting(disable_update=True))
    )
    jit = await client.generate_jit_runner_config(scale_set.id, "first")
    session = await client.create_message_session(scale_set.id, "me")
    return World(simulator, client, scale_set, jit.runner, session)


async def new_session(world: World) -> MessageSession:
    await world.session.close()
    return await world.client.create_message_session(world.scale_set.id, "me")


async def with_a_message(world: World) -> object:
    world.simulator.queue_jobs("acme/app", ["arc-set"])
    return await world.session.get_message(0, 5)


async def delete_a_message(world: World) -> None:
    await world.session.delete_message(await message_id(world))


async def message_id(world: World) -> int:
    world.simulator.queue_jobs("acme/app", ["arc-set"])
    message = await world.session.get_message(0, 5)
    assert message is not None
    return message.message_id


Call = Callable[[World], Awaitable[Any]]

#: One call of our client for every operation of the service.
CALLS: dict[str, Call] = {
    "login.registration_token": lambda world: world.fresh_client().get_runner(world.runner.id),
    "login.runner_registration": lambda world: world.fresh_client().get_runner(world.runner.id),
    "groups.list": lambda world: world.client.get_runner_group_by_name("Default"),
    "scale_sets.list": lambda world: world.client.get_runner_scale_set(1, "arc-set"),
    "scale_sets.get": lambda world: world.client.get_runner_scale_set_by_id(world.scale_set.id),
    "scale_sets.create": lambda world: world.client.create_runner_scale_set(
        RunnerScaleSet(name="x", runner_group_id=1)
    ),
    "scale_sets.update": lambda world: world.client.update_runner_scale_set(
        world.scale_set.id, RunnerScaleSet(name="renamed")
    ),
    "scale_sets.delete": lambda world: world.client.delete_runner_scale_set(world.scale_set.id),
    "jit_config.generate": lambda world: world.client.generate_jit_runner_config(world.scale_set.id, "second"),
    "runners.get": lambda world: world.client.get_runner(world.runner.id),
    "runners.list": lambda world: world.client.get_runner_by_name("first"),
    "runners.delete": lambda world: world.client.remove_runner(world.runner.id),
    "sessions.create": new_session,
    "sessions.refresh": lambda world: world.session.refresh(),
    "sessions.delete": lambda world: world.session.close(),
    "messages.get": with_a_message,
    "messages.delete": delete_a_message,
    "jobs.acquire": lambda world: world.session.acquire_jobs([1]),
}
#: The ones that promise no body.
BARE = {"scale_sets.delete", "runners.delete", "sessions.delete", "messages.delete"}


@virtual
async def test_no_operation_is_forgotten() -> None:
    others = {"login.access_token", "jobs.acquirable"}  # another kind of login, and a call of older clients
    operations = (await world()).simulator.operations
    assert {name for name in operations if not name.startswith(("runner.", "admin."))} == CALLS.keys() | others
    assert set(FaultKind) == ANYWHERE | TESTED


@pytest.mark.parametrize("operation", CALLS)
def test_every_call_works(operation: str) -> None:
    @virtual
    async def main() -> None:
        await CALLS[operation](await world())

    main()


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        (operation, status)
        for operation in CALLS
        for status in (400, 403, 404, 409, 429, 500, 503)
        if (operation, status) != ("sessions.delete", 404)  # a session that is gone counts as closed
    ],
)
def test_a_status(operation: str, status: int) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        here.simulator.add_fault(FaultKind.STATUS, operation, status=status)
        with pytest.raises(ServiceError) as caught:
            await CALLS[operation](here)
        assert (caught.value.status, caught.value.message) == (status, "A fault was asked for.")
        assert caught.value.activity_id
        assert caught.value.request_id
        assert isinstance(caught.value, SessionGoneError) is (operation == "sessions.refresh" and status == 404)
        assert isinstance(caught.value, RateLimitedError) is (status == 429)

    main()


@pytest.mark.parametrize("operation", CALLS)
def test_a_delay(operation: str) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        here.simulator.add_fault(FaultKind.DELAY, operation, seconds=20.0)
        await CALLS[operation](here)
        assert asyncio.get_running_loop().time() >= 20

    main()


@pytest.mark.parametrize("operation", CALLS)
def test_a_call_that_hangs_ends_at_its_deadline(operation: str) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        here.simulator.add_fault(FaultKind.HANG, operation)
        started = asyncio.get_running_loop().time()
        with pytest.raises(ServiceUnreachableError) as caught:
            await CALLS[operation](here)
        assert isinstance(caught.value.__cause__, DeadlineExceededError)
        assert caught.value.retryable
        assert asyncio.get_running_loop().time() - started == (60 if operation == "messages.get" else 30)

    main()


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("kind", [FaultKind.DROP_BEFORE, FaultKind.DROP_AFTER])
def test_a_connection_that_is_dropped(operation: str, kind: FaultKind) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        here.simulator.add_fault(kind, operation)
        with pytest.raises(ServiceUnreachableError) as caught:
            await CALLS[operation](here)
        assert caught.value.request_sent
        assert caught.value.retryable

    main()


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("kind", [FaultKind.EMPTY_BODY, FaultKind.HTML_BODY])
def test_a_body_that_is_wrong(operation: str, kind: FaultKind) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        here.simulator.add_fault(kind, operation)
        if operation in BARE:
            await CALLS[operation](here)
            return
        with pytest.raises(UnexpectedResponseError) as caught:
            await CALLS[operation](here)
        assert "Sign in" not in str(caught.value)

    main()


@pytest.mark.parametrize("operation", CALLS)
def test_a_token_that_expires_is_replaced_unnoticed(operation: str) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        here.simulator.add_fault(FaultKind.EXPIRED_TOKEN, operation)
        await CALLS[operation](here)
        assert here.simulator.faults.happened == {FaultKind.EXPIRED_TOKEN: 1}

    main()


REPEATABLE = sorted(CALLS.keys() - {"jit_config.generate", "scale_sets.create", "sessions.create"})


@pytest.mark.parametrize("operation", REPEATABLE)
def test_a_listeners_retries_get_over_a_bad_moment(operation: str) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        patient = here.client.with_policy(RETRYING)
        await here.session.close()
        here.session = await patient.create_message_session(here.scale_set.id, "me")
        here.client = patient
        here.fresh_client = lambda: client_of(here.simulator).with_policy(RETRYING)  # type: ignore[method-assign]
        for kind in (FaultKind.STATUS, FaultKind.DROP_BEFORE, FaultKind.STATUS):
            here.simulator.add_fault(kind, operation, status=503)
        await CALLS[operation](here)
        assert sum(here.simulator.faults.happened.values()) == 3

    main()


@virtual
async def test_a_busy_runner() -> None:
    here = await world()
    here.simulator.add_fault(FaultKind.BUSY_RUNNER, "runners.delete")
    with pytest.raises(JobStillRunningError):
        await here.client.remove_runner(here.runner.id)
    await here.client.remove_runner(here.runner.id)


@pytest.mark.parametrize("operation", ["messages.get", "messages.delete", "jobs.acquire", "sessions.refresh"])
def test_an_evicted_session(operation: str) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        here.simulator.add_fault(FaultKind.EVICTED_SESSION, operation)
        with pytest.raises(SessionGoneError):
            await CALLS[operation](here)
        session = await here.client.create_message_session(here.scale_set.id, "me")
        await session.refresh()

    main()


@pytest.mark.parametrize("operation", ["sessions.create", "sessions.refresh"])
def test_a_session_without_a_queue_url(operation: str) -> None:
    @virtual
    async def main() -> None:
        here = await world()
        here.simulator.add_fault(FaultKind.NO_QUEUE_URL, operation)
        with pytest.raises(UnexpectedResponseError, match="address of the session's message queue"):
            await CALLS[operation](here)

    main()


@virtual
async def test_inflated_statistics() -> None:
    here = await world()
    here.simulator.add_fault(FaultKind.INFLATED_STATISTICS, "messages.get", amount=10)
    here.simulator.queue_jobs("acme/app", ["arc-set"])
    message = await here.session.get_message(0, 5)
    assert message is not None
    true = here.simulator.statistics("arc-set")["totalAssignedJobs"]
    assert message.statistics.total_assigned_jobs == true + 10


@virtual
async def test_stale_statistics() -> None:
    here = await world()
    here.simulator.add_fault(FaultKind.STALE_STATISTICS, "messages.get")
    here.simulator.queue_jobs("acme/app", ["arc-set"], 3)
    message = await here.session.get_message(0, 5)
    assert message is not None
    assert len(message.assigned) == 3
    assert message.statistics.total_assigned_jobs == 0
    assert here.simulator.statistics("arc-set")["totalAssignedJobs"] == 3


@virtual
async def test_a_lost_message() -> None:
    here = await world()
    here.simulator.add_fault(FaultKind.LOST_MESSAGE, "messages.get")
    here.simulator.queue_jobs("acme/app", ["arc-set"])
    assert await here.session.get_message(0, 5) is None
    assert here.simulator.statistics("arc-set")["totalAssignedJobs"] == 1


@virtual
async def test_a_message_that_cannot_be_decoded_is_still_there() -> None:
    here = await world()
    here.simulator.add_fault(FaultKind.UNDECODABLE_MESSAGE, "messages.get")
    here.simulator.queue_jobs("acme/app", ["arc-set"])
    with pytest.raises(UndecodableMessageError) as caught:
        await here.session.get_message(0, 5)
    message = await here.session.get_message(0, 5)
    assert message is not None
    assert message.message_id == caught.value.message_id
    await here.session.delete_message(message.message_id)


@virtual
async def test_a_stale_offer() -> None:
    here = await world(AssignmentMode.ACQUIRE)
    here.simulator.add_fault(FaultKind.STALE_OFFER, "messages.get")
    (job,) = here.simulator.queue_jobs("acme/app", ["arc-set"])
    message = await here.session.get_message(0, 5)
    assert message is not None
    offered = [offer.runner_request_id for offer in message.available]
    assert len(offered) == 2
    assert await here.session.acquire_jobs(offered) == [job.request_id]


async def a_running_job(here: World) -> ModelRunner:
    """A job that a runner works at; all messages about it have been read."""
    here.simulator.queue_jobs("acme/app", ["arc-set"], seconds=1000.0)
    jit = await here.client.generate_jit_runner_config(here.scale_set.id, "worker")
    await acknowledged(here)
    runner = ModelRunner(here.simulator, jit.encoded_jit_config)
    runner.connect()
    await runner.next_job()
    return runner


async def acknowledged(here: World) -> list[Any]:
    message = await here.session.get_message(0, 5)
    assert message is not None
    await here.session.delete_message(message.message_id)
    return list(message.jobs)


@virtual
async def test_a_completion_of_a_job_that_still_runs() -> None:
    here = await world()
    here.simulator.add_fault(FaultKind.FALSE_COMPLETION, "messages.get")
    await a_running_job(here)
    kinds = [type(job).__name__ for job in await acknowledged(here)]
    assert kinds == ["JobStarted", "JobCompleted"]
    assert here.simulator.statistics("arc-set")["totalRunningJobs"] == 1


@virtual
async def test_faults_of_the_runner_are_none_of_the_clients() -> None:
    here = await world()
    here.simulator.add_fault(FaultKind.STARVED_RUNNER, "jit_config.generate")
    here.simulator.add_fault(FaultKind.OUTDATED_RUNNER, "runner.connect")
    jit = await here.client.generate_jit_runner_config(here.scale_set.id, "worker")
    assert await ModelRunner(here.simulator, jit.encoded_jit_config).run() == 7
    assert await here.client.get_runner_by_name("worker") == jit.runner


TESTED = {
    FaultKind.BUSY_RUNNER,
    FaultKind.EVICTED_SESSION,
    FaultKind.NO_QUEUE_URL,
    FaultKind.STALE_STATISTICS,
    FaultKind.INFLATED_STATISTICS,
    FaultKind.LOST_MESSAGE,
    FaultKind.UNDECODABLE_MESSAGE,
    FaultKind.STALE_OFFER,
    FaultKind.FALSE_COMPLETION,
    FaultKind.STARVED_RUNNER,
    FaultKind.OUTDATED_RUNNER,
}


@virtual
async def test_a_jobs_whole_life() -> None:
    here = await world()
    runner = await a_running_job(here)
    (started,) = await acknowledged(here)
    assert (type(started).__name__, started.runner_name) == ("JobStarted", "worker")
    with pytest.raises(JobStillRunningError):
        await here.client.remove_runner(started.runner_id)
    runner.finish()
    (completed,) = await acknowledged(here)
    assert (completed.result, completed.runner_name, completed.runner_id) == (
        "succeeded",
        "worker",
        started.runner_id,
    )
    with pytest.raises((RunnerNotFoundError, NotFoundError)):
        await here.client.get_runner(started.runner_id)
    assert here.simulator.ledger.violations() == []


@pytest.mark.parametrize("seed", range(20))
def test_whatever_goes_wrong_the_errors_are_ours_and_nothing_is_stuck_afterwards(seed: int) -> None:
    async def main() -> None:
        here = await world(AssignmentMode.ACQUIRE if seed % 2 else AssignmentMode.AUTOMATIC)
        random = Random(seed)
        client = here.client.with_policy(RETRYING if seed % 3 else ONE_ATTEMPT)
        here.simulator.faults.add_random(0.05)
        outcomes: Counter[str] = Counter()

        async def attempt(call: Awaitable[Any]) -> Any:
            try:
                async with asyncio.timeout(random.choice([0.01, 5.0, None, None, None])):
                    result = await call
            except (ActionsError, TimeoutError) as error:
                outcomes[type(error).__name__] += 1
                return None
            outcomes["good"] += 1
            return result

        async def runners(number: int) -> None:
            view = client.for_scale_set(number)
            for turn in range(20):
                name = f"runner-{number}-{turn}"
                await attempt(view.generate_jit_runner_config(here.scale_set.id, name))
                found = await attempt(view.get_runner_by_name(name))
                if found is not None:
                    await attempt(view.remove_runner(found.id))

        async def listener() -> None:
            session = here.session
            last = 0
            for _ in range(20):
                here.simulator.queue_jobs("acme/app", ["arc-set"])
                message = await attempt(session.get_message(last, 5))
                if message is not None:
                    last = message.message_id
                    await attempt(session.acquire_jobs([job.runner_request_id for job in message.available]))
                    await attempt(session.delete_message(last))
                else:
                    session = await attempt(client.create_message_session(here.scale_set.id, "me")) or session

        await asyncio.gather(listener(), *(runners(number) for number in range(6)))
        assert outcomes["good"] > 100
        assert len(outcomes) > 4
        here.simulator.faults.clear()
        await asyncio.sleep(1000)
        assert here.client.throttle == Throttle()
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(here.client.get_runner_by_name("first") for _ in range(40)))
        assert asyncio.get_running_loop().time() == started

    run_in_virtual_time(main(), seed)


@virtual
async def test_what_the_service_refuses() -> None:
    here = await world()
    client, scale_set = here.client, here.scale_set
    with pytest.raises(RunnerExistsError):
        await client.generate_jit_runner_config(scale_set.id, "first")
    with pytest.raises(RunnerScaleSetExistsError):
        await client.create_runner_scale_set(RunnerScaleSet(name="arc-set", runner_group_id=1))
    with pytest.raises(SessionConflictError):
        await client.create_message_session(scale_set.id, "another")
    with pytest.raises(RunnerScaleSetNotFoundError):
        await client.generate_jit_runner_config(4711, "second")
    with pytest.raises(NotFoundError):
        await client.remove_runner(4711)
    here.simulator.settings.gone_runner_status = 204
    await client.remove_runner(4711)
    assert await client.get_runner_scale_set(1, "other") is None
    assert await client.get_runner_by_name("other") is None
    assert (await client.get_runner_scale_set(1, "arc-set")) is not None


@pytest.mark.parametrize(
    "config_url",
    ["https://github.com/acme/app", "https://x.ghe.com/acme", "https://ghes.example:8443/enterprises/e"],
)
def test_other_addresses(config_url: str) -> None:
    @virtual
    async def main() -> None:
        simulator = Simulator(clock=EventLoopClock(), random=Random(5), personal_tokens=["a-token"])
        client = client_of(simulator, config_url)
        scale_set = await client.create_runner_scale_set(RunnerScaleSet(name="ä & b+c #%2F", runner_group_id=1))
        assert (await client.list_runner_scale_sets(1)) == [scale_set]
        found = await client.get_runner_scale_set(1, "ä & b+c #%2F")
        assert found is not None
        assert found.id == scale_set.id

    main()
