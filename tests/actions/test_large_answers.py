"""No answer is read without a bound, whoever it comes from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from multidict import CIMultiDict

from runherd.actions import ActionsClient, NotFoundError, PersonalAccessToken, UnexpectedResponseError, UserAgent
from runherd.actions.connection import BODY_LIMIT
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import SystemClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.transport import Handler, Request, Response, StreamingResponse, Transport
from tests.actions.scripted import Scripted, connect, reply, virtual


class Endless:
    """Answers what ends with ``path`` with a body without an end, and the rest as the service does."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._service = Simulator(clock=SystemClock(), random=Random(1), personal_tokens=["a-token"])
        self.sent = 0

    async def __call__(self, request: Request) -> Response | StreamingResponse:
        if request.url.partition("?")[0].endswith(self._path):
            status = 201 if self._path.endswith("-token") else 200
            return StreamingResponse(status, self._chunks(), CIMultiDict({"Content-Type": "application/json"}))
        return await self._service(request)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            self.sent += 2**16
            yield b" " * 2**16


async def refused(transport: Transport, config_url: str) -> None:
    client = ActionsClient.connect(
        config_url,
        PersonalAccessToken("a-token"),
        transport=transport,
        user_agent=UserAgent("tests"),
        clock=SystemClock(),
    )
    with pytest.raises(UnexpectedResponseError, match=f"the body is larger than {BODY_LIMIT} bytes"):
        await client.get_runner_scale_set(1, "fleet")
    await client.close()


@pytest.mark.parametrize("path", ["/registration-token", "/runner-registration", "/runnerscalesets"])
async def test_an_endless_answer_in_process(path: str) -> None:
    service = Endless(path)
    await refused(InProcessTransport(service), "http://ghes.test/acme")
    assert BODY_LIMIT < service.sent < 2 * BODY_LIMIT


@pytest.mark.parametrize("path", ["/registration-token", "/runnerscalesets"])
async def test_an_endless_answer_over_the_network(path: str) -> None:
    service: Handler = Endless(path)
    server = Server(service)
    await server.start()
    try:
        await refused(NetworkTransport(), f"{server.url}/acme")
    finally:
        await server.close()


@virtual
async def test_what_is_cut_is_not_taken_for_the_whole() -> None:
    service = Scripted()
    service.will(reply(200, b'{"id":1,"name":"fleet"}' + b" " * BODY_LIMIT))
    with pytest.raises(UnexpectedResponseError, match="larger"):
        await connect(service).get_runner_scale_set_by_id(1)


@virtual
async def test_the_largest_answer_that_is_read() -> None:
    service = Scripted()
    service.will(reply(200, b'{"id":1,"name":"fleet"}'.ljust(BODY_LIMIT)))
    scale_set = await connect(service).get_runner_scale_set_by_id(1)
    assert scale_set is not None
    assert scale_set.name == "fleet"


@virtual
async def test_a_refusal_stays_one_however_much_it_says() -> None:
    service = Scripted()
    service.will(reply(404, b"x" * (BODY_LIMIT + 1)))
    with pytest.raises(NotFoundError, match=f"more than {BODY_LIMIT} bytes"):
        await connect(service).get_runner_scale_set_by_id(1)
