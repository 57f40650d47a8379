"""The login chain (2.2), in both URL shapes."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from random import Random

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from runherd.simulator.simulator import Simulator
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from tests.simulator.client import TOKEN, Client, simulator
from tests.support.virtual_time import run_in_virtual_time

HOSTS = ["http://ghes.example", "https://github.com"]


@pytest.mark.parametrize("base", HOSTS)
@pytest.mark.parametrize("scope", ["acme", "acme/app", "enterprises/corp"])
def test_a_personal_token_leads_to_an_admin_token(base: str, scope: str) -> None:
    async def main() -> None:
        client = await Client.logged_in(simulator(), base, scope)
        claims = jwt.decode(client.admin_token, options={"verify_signature": False})
        assert claims["exp"] > EventLoopClock().now().timestamp() + 600
        assert jwt.get_unverified_header(client.admin_token)["alg"] == "HS256"
        assert (await client.call("GET", "_apis/runtime/runnergroups/?groupName=default")).status == 200
        hosted = "pipelines.actions.githubusercontent.com" in client.service_url
        assert hosted == (base == "https://github.com")

    run_in_virtual_time(main())


def test_a_wrong_personal_token_is_refused() -> None:
    async def main() -> None:
        client = Client(InProcessTransport(simulator()))
        answer = await client.send("POST", f"{client.api}/orgs/acme/actions/runners/registration-token", token="ghp_x")
        assert answer.status == 401
        assert json.loads(answer.body)["message"] == "Bad credentials"

    run_in_virtual_time(main())


def test_a_registration_token_is_for_its_own_scope_only() -> None:
    async def main() -> None:
        client = Client(InProcessTransport(simulator()))
        url = f"{client.api}/orgs/acme/actions/runners/registration-token"
        token = json.loads((await client.send("POST", url, token=TOKEN)).body)["token"]
        answer = await client.send(
            "POST",
            f"{client.api}/actions/runner-registration",
            {"url": "http://ghes.example/other", "runner_event": "register"},
            token=token,
            scheme="RemoteAuth",
        )
        assert answer.status == 403

    run_in_virtual_time(main())


def test_an_admin_token_of_one_scope_does_not_open_another() -> None:
    async def main() -> None:
        service = simulator()
        acme = await Client.logged_in(service, scope="acme")
        other = await Client.logged_in(service, scope="other")
        acme.admin_token = other.admin_token
        assert (await acme.call("GET", "sets?runnerGroupId=1")).status == 401

    run_in_virtual_time(main())


def test_an_admin_token_expires() -> None:
    async def main() -> None:
        service = simulator(admin_token_lifetime=600)
        client = await Client.logged_in(service)
        assert (await client.call("GET", "sets")).status == 200
        url = client.service_url
        await asyncio.sleep(601)
        assert (await client.call("GET", "sets")).status == 401
        await client.login()
        assert client.service_url == url
        assert (await client.call("GET", "sets")).status == 200

    run_in_virtual_time(main())


def test_scopes_that_do_not_exist_are_not_found() -> None:
    async def main() -> None:
        service = Simulator(clock=EventLoopClock(), random=Random(0), personal_tokens=[TOKEN], scopes=["acme/app"])
        client = Client(InProcessTransport(service))
        for path, status in (("orgs/acme", 404), ("repos/acme/app", 201), ("repos/acme/nope", 404)):
            url = f"{client.api}/{path}/actions/runners/registration-token"
            assert (await client.send("POST", url, token=TOKEN)).status == status

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 201),
        ({"iss": 77}, 201),
        ({"iss": "someone else"}, 401),
        ({"exp": -10}, 401),
        ({"exp": 3600}, 401),
        ({"iat": 600}, 401),
        ({"signature": "another key"}, 401),
    ],
)
def test_an_app_logs_in_with_a_jwt_that_github_would_take(change: dict[str, object], status: int) -> None:
    key, another = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    async def main() -> None:
        service = simulator()
        service.tokens.add_app({"77", "Iv1.client"}, 5, public)
        client = Client(InProcessTransport(service))
        now = EventLoopClock().now()
        claims = {
            "iat": int(now.timestamp()) + int(str(change.get("iat", -60))),
            "exp": int((now + timedelta(seconds=int(str(change.get("exp", 480))))).timestamp()),
            "iss": str(change.get("iss", "Iv1.client")),
        }
        signing = another if "signature" in change else key
        pem = signing.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        app_jwt = jwt.encode(claims, pem, algorithm="RS256")
        answer = await client.send("POST", f"{client.api}/app/installations/5/access_tokens", token=app_jwt)
        assert answer.status == status
        if status == 201:
            token = json.loads(answer.body)["token"]
            url = f"{client.api}/orgs/acme/actions/runners/registration-token"
            assert (await client.send("POST", url, token=token)).status == 201

    run_in_virtual_time(main())


def test_an_unknown_installation_is_not_found() -> None:
    async def main() -> None:
        client = Client(InProcessTransport(simulator()))
        answer = await client.send("POST", f"{client.api}/app/installations/6/access_tokens", token="x.y.z")
        assert answer.status == 404

    run_in_virtual_time(main())
