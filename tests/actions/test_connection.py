"""What calls of one configuration share, and what they don't."""

from __future__ import annotations

import asyncio

import pytest

from runherd.actions import (
    CallPolicy,
    ClientClosedError,
    RegistrationLimits,
    ServiceError,
    ServiceUnreachableError,
    ThrottledError,
)
from runherd.wire.transport import ConnectError, ConnectionLostError, Request, Response
from tests.actions.scripted import Scripted, connect, hang, reply, virtual

RUNNER = {"id": 7, "name": "r", "runnerScaleSetId": 1}
JIT = {"runner": RUNNER, "encodedJITConfig": "x"}


async def a_second(request: Request) -> Response:
    await asyncio.sleep(1)
    return reply(204)


@virtual
async def test_calls_run_concurrently_up_to_the_bound() -> None:
    service = Scripted()
    service.will(*[a_second] * 48)
    client = connect(service)
    calls = [asyncio.ensure_future(client.remove_runner(number)) for number in range(48)]
    await asyncio.sleep(0.5)
    assert client.throttle.calls_waiting == 32
    await asyncio.gather(*calls)
    assert [sent.at for sent in service.sent] == [0] * 16 + [1] * 16 + [2] * 16
    assert client.throttle.calls_waiting == 0


@virtual
async def test_scale_sets_take_turns() -> None:
    service = Scripted()
    service.will(*[a_second] * 34)
    client = connect(service, max_calls=2)
    big, small = client.for_scale_set(1), client.for_scale_set(2)
    crowd = [asyncio.ensure_future(big.remove_runner(number)) for number in range(30)]
    await asyncio.sleep(0.5)
    few = [asyncio.ensure_future(small.remove_runner(number)) for number in range(4)]
    await asyncio.gather(*few)
    # One of two places went to the newcomer each time: 4 calls took 4 s instead of waiting for 15.
    assert asyncio.get_running_loop().time() == 5
    await asyncio.gather(*crowd)


@virtual
async def test_a_call_that_hangs_blocks_no_other() -> None:
    service = Scripted()
    service.will(hang, *[reply(204)] * 20)
    client = connect(service)
    hanging = asyncio.ensure_future(client.remove_runner(1))
    await asyncio.sleep(1)
    await asyncio.gather(*(client.remove_runner(number) for number in range(20)))
    assert asyncio.get_running_loop().time() == 1
    hanging.cancel()


@virtual
async def test_a_login_that_hangs_holds_no_place() -> None:
    service = Scripted(admin_token_lifetime=600)
    service.will(
        reply(
            200,
            {
                "sessionId": "6b1c7a1e-5f0a-4c39-9c0e-0d9a1d0f2b11",
                "messageQueueUrl": "https://queue.example/m",
                "messageQueueAccessToken": "t",
                "statistics": {},
            },
        ),
        reply(204),
    )
    client = connect(service, max_calls=1)
    session = await client.create_message_session(42, "me")
    await asyncio.sleep(600)
    service.logins.append(hang)
    waiting = [asyncio.ensure_future(client.remove_runner(number)) for number in range(3)]
    await asyncio.sleep(1)
    # The queue has a token of its own, and the one place is free.
    await session.delete_message(5)
    for call in waiting:
        call.cancel()


@virtual
async def test_waiting_for_a_repeat_holds_no_place() -> None:
    service = Scripted()
    service.will(reply(503, Retry_After="100"), reply(204), reply(204))
    client = connect(service, max_calls=1)
    repeated = asyncio.ensure_future(client.with_policy(CallPolicy(attempts=2)).remove_runner(1))
    await asyncio.sleep(1)
    await client.remove_runner(2)
    assert service.sent[-1].at == 1
    await repeated
    assert service.sent[-1].at == 100


@virtual
async def test_a_token_that_became_stale_while_waiting_for_a_place_is_not_used() -> None:
    service = Scripted(admin_token_lifetime=600)

    async def slow(request: Request) -> Response:
        await asyncio.sleep(700)
        return reply(204)

    service.will(slow, reply(204))
    client = connect(service, max_calls=1)
    await asyncio.gather(client.remove_runner(1), client.remove_runner(2))
    assert service.sent[0].header("Authorization") != service.sent[1].header("Authorization")
    assert len(service.logged_in) == 4


@virtual
async def test_registrations_wait_for_the_limit_and_say_so() -> None:
    service = Scripted()
    service.will(reply(200, JIT), reply(200, JIT), reply(204), reply(200, JIT))
    client = connect(service, registrations=RegistrationLimits(limit=2, seconds=300))
    for _ in range(2):
        await client.generate_jit_runner_config(1, "r")
    third = asyncio.ensure_future(client.generate_jit_runner_config(1, "r"))
    await asyncio.sleep(100)
    assert (client.throttle.registrations_waiting, client.throttle.registrations_resume_in) == (1, 200.0)
    # Other calls aren't held back.
    await client.remove_runner(7)
    assert service.sent[-1].at == 100
    await third
    assert service.sent[-1].at == 300
    assert client.throttle.registrations_waiting == 0


@virtual
async def test_clients_of_one_owner_share_the_limit() -> None:
    limits = RegistrationLimits(limit=1, seconds=300)
    services = [Scripted(), Scripted(), Scripted()]
    for service, url in zip(services, ("github.com/o/r", "www.github.com/O/R", "github.com/o"), strict=True):
        service.will(reply(200, JIT))
        await connect(service, config_url=f"https://{url}", registrations=limits).generate_jit_runner_config(1, "r")
    assert [service.sent[0].at for service in services] == [0, 300, 300]


@virtual
async def test_a_server_of_ones_own_has_no_such_limit() -> None:
    service = Scripted()
    service.will(*[reply(200, JIT)] * 5)
    client = connect(service, config_url="https://ghes/o", registrations=RegistrationLimits(limit=1))
    for _ in range(5):
        await client.generate_jit_runner_config(1, "r")
    assert asyncio.get_running_loop().time() == 0


@virtual
async def test_impatient_registrations() -> None:
    service = Scripted()
    service.will(reply(200, JIT))
    client = connect(service, registrations=RegistrationLimits(limit=1, seconds=300), policy=CallPolicy(patience=10.0))
    await client.generate_jit_runner_config(1, "r")
    with pytest.raises(
        ThrottledError, match=r"not sent: as many runners of github\.com/octo-org .* in about 300 s"
    ) as caught:
        await client.generate_jit_runner_config(1, "r")
    assert caught.value.retry_after == 300.0


@virtual
async def test_what_was_certainly_not_registered_does_not_count() -> None:
    service = Scripted()
    service.will(ConnectError("x"), reply(200, JIT))
    client = connect(service, registrations=RegistrationLimits(limit=1))
    with pytest.raises(ServiceUnreachableError):
        await client.generate_jit_runner_config(1, "r")
    await client.generate_jit_runner_config(1, "r")
    assert asyncio.get_running_loop().time() == 0


@virtual
async def test_a_failed_login_registers_nothing() -> None:
    service = Scripted()
    service.logins.append(reply(500))
    service.will(reply(200, JIT))
    client = connect(service, registrations=RegistrationLimits(limit=1))
    with pytest.raises(ServiceError):
        await client.generate_jit_runner_config(1, "r")
    await client.generate_jit_runner_config(1, "r")
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.parametrize("answer", [reply(500), reply(409), ConnectionLostError("x", request_sent=True)])
def test_what_may_have_been_registered_counts(answer: Response | Exception) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(answer, reply(200, JIT))
        client = connect(service, registrations=RegistrationLimits(limit=1, seconds=300))
        with pytest.raises((ServiceError, ServiceUnreachableError)):
            await client.generate_jit_runner_config(1, "r")
        await client.generate_jit_runner_config(1, "r")
        assert asyncio.get_running_loop().time() == 300

    main()


@virtual
async def test_a_cancelled_registration_counts() -> None:
    service = Scripted()
    service.will(hang, reply(200, JIT))
    client = connect(service, registrations=RegistrationLimits(limit=1, seconds=300))
    call = asyncio.ensure_future(client.generate_jit_runner_config(1, "r"))
    await asyncio.sleep(5)
    call.cancel()
    await client.generate_jit_runner_config(1, "r")
    assert asyncio.get_running_loop().time() == 305


@virtual
async def test_a_closed_client() -> None:
    service = Scripted()
    client = connect(service)
    await client.close()
    assert service.closed
    with pytest.raises(ClientClosedError):
        await client.for_scale_set(3).get_runner(7)
    assert not service.sent
