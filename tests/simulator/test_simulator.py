"""The handler as a whole: where calls go, and that time moves by itself."""

from __future__ import annotations

import asyncio
import json

import pytest

from runherd.wire.in_process import InProcessTransport
from runherd.wire.server import Server
from tests.simulator.client import Client, simulator, until
from tests.support.virtual_time import run_in_virtual_time


def test_unknown_paths_and_methods_are_not_found_in_each_apis_own_words() -> None:
    async def main() -> None:
        client = Client(InProcessTransport(simulator()))
        for method, url, key in [
            ("GET", "https://api.github.com/zen", "documentation_url"),
            ("GET", "http://ghes.example/api/v3/actions/runner-registration", "documentation_url"),
            ("GET", "http://ghes.example/somewhere", "typeName"),
            ("PUT", "http://ghes.example/scalesets/message", "typeName"),
            ("GET", "http://ghes.example/", "typeName"),
        ]:
            answer = await client.send(method, url)
            assert answer.status == 404
            assert key in json.loads(answer.body)

    run_in_virtual_time(main())


def test_slashes_too_many_do_no_harm() -> None:
    async def main() -> None:
        client = await Client.logged_in(simulator())
        client.service_url = client.service_url.replace("/tenant", "//tenant/")
        assert (await client.call("GET", "sets/")).status == 200

    run_in_virtual_time(main())


def test_on_github_com_the_queue_has_a_host_of_its_own() -> None:
    async def main() -> None:
        service = simulator()
        client = await Client.logged_in(service, "https://github.com", "acme/app")
        session = await client.open_session(await client.create_set("one"))
        assert session["messageQueueUrl"].startswith("https://broker.actions.githubusercontent.com/scalesets/message?")
        service.queue_jobs("acme/app", ["one"])
        message = await client.message(session)
        assert (await client.acknowledge(session, message["messageId"])).status == 204

    run_in_virtual_time(main())


def test_deadlines_come_about_without_any_call() -> None:
    async def main() -> None:
        service = simulator()
        client = await Client.logged_in(service)
        scale_set = await client.create_set("one")
        await client.open_session(scale_set)
        # An earlier deadline behind a later one that is set anew all the time.
        poll = asyncio.create_task(client.poll(await client.open_session(await client.create_set("two"))))
        await asyncio.sleep(91)
        assert service.scale_set("one").session is None
        assert service.scale_set("two").session is not None
        assert (await poll).status == 202

    run_in_virtual_time(main())


def test_names_that_stand_for_one_scale_set() -> None:
    async def main() -> None:
        service = simulator()
        for scope in ("acme", "other"):
            await (await Client.logged_in(service, scope=scope)).create_set("one")
        with pytest.raises(KeyError, match="2 scale sets"):
            service.scale_set("one")

    run_in_virtual_time(main())


async def test_a_poll_whose_client_went_away_is_let_go_on_a_port() -> None:
    service = simulator()
    server = Server(service)
    await server.start()
    try:
        client = await Client.logged_in(service)
        session = await client.open_session(await client.create_set("one"))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        path = "/" + session["messageQueueUrl"].split("/", 3)[3]
        token = session["messageQueueAccessToken"]
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        opened = service.scale_set("one").session
        assert opened is not None
        await until(lambda: opened.polls == 1)
        writer.close()
        await until(lambda: opened.polls == 0)
        assert not service.scale_set("one").queue.waiters
        assert reader.at_eof() or not await reader.read()
    finally:
        await server.close()
