"""``docs/spec/actions-service.md`` 2.1 to 2.3."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from runherd.actions import (
    ClientClosedError,
    CredentialsError,
    GitHubApp,
    NotFoundError,
    ServiceError,
    ServiceUnreachableError,
    UnauthorizedError,
    UnexpectedResponseError,
)
from runherd.actions.decoding import NotAsPromisedError
from runherd.actions.login import AppKey, expiry
from runherd.wire.transport import ConnectError, Request, Response
from tests.actions.scripted import SERVICE_URL, Scripted, connect, reply, virtual

RUNNER = {"id": 7, "name": "r", "runnerScaleSetId": 1}


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def pem(key: Any, format_: PrivateFormat = PrivateFormat.TraditionalOpenSSL) -> str:
    text: bytes = key.private_bytes(Encoding.PEM, format_, NoEncryption())
    return text.decode()


@virtual
async def test_a_token_logs_in_by_two_calls() -> None:
    service = Scripted()
    service.will(reply(200, RUNNER))
    await connect(service).get_runner(7)
    token, registration = service.logged_in
    assert (token.method, token.url) == (
        "POST",
        "https://api.github.com/orgs/octo-org/actions/runners/registration-token",
    )
    assert token.request.headers == {
        "Authorization": "Bearer a-token",
        "Content-Type": "application/vnd.github.v3+json",
        "User-Agent": token.header("User-Agent"),
    }
    assert token.request.body == b""
    assert (registration.method, registration.url) == ("POST", "https://api.github.com/actions/runner-registration")
    assert registration.request.headers == {
        "Authorization": "RemoteAuth registration-token",
        "Content-Type": "application/json",
        "User-Agent": token.header("User-Agent"),
    }
    assert registration.request.body == b'{"url":"https://github.com/octo-org","runner_event":"register"}\n'
    for sent in service.logged_in:
        assert (sent.timeouts.connect, sent.timeouts.total) == (10.0, 30.0)


@pytest.mark.parametrize(
    ("config_url", "expected"),
    [
        ("https://github.com/enterprises/e", "https://api.github.com/enterprises/e/actions/runners/registration-token"),
        ("https://ghes/o/r", "https://ghes/api/v3/repos/o/r/actions/runners/registration-token"),
    ],
)
def test_other_scopes(config_url: str, expected: str) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(reply(200, RUNNER))
        await connect(service, config_url=config_url).get_runner(7)
        assert service.logged_in[0].url == expected

    main()


@virtual
async def test_ampersands_in_the_config_url_are_sent_as_they_are() -> None:
    service = Scripted()
    service.will(reply(200, RUNNER))
    await connect(service, config_url="https://ghes/org?a=<b>&c").get_runner(7)
    assert b'"url":"https://ghes/org?a=<b>&c"' in service.logged_in[1].request.body


@pytest.mark.parametrize("format_", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
def test_an_app_gets_an_installation_token_first(key: rsa.RSAPrivateKey, format_: PrivateFormat) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(reply(200, RUNNER))
        await connect(service, credentials=GitHubApp("Iv1.abc", 34, pem(key, format_))).get_runner(7)
        installation, token, _ = service.logged_in
        assert installation.url == "https://api.github.com/app/installations/34/access_tokens"
        assert installation.header("Content-Type") == "application/vnd.github+json"
        assert installation.request.body == b""
        assert token.header("Authorization") == "Bearer installation-token"
        scheme, _, app_token = (installation.header("Authorization") or "").partition(" ")
        assert scheme == "Bearer"
        assert jwt.get_unverified_header(app_token) == {"alg": "RS256", "typ": "JWT"}
        now = int(service.clock.now().timestamp())
        claims = jwt.decode(
            app_token, key.public_key(), algorithms=["RS256"], options={"verify_exp": False, "verify_iat": False}
        )
        assert claims == {"iat": now - 60, "exp": now + 480, "iss": "Iv1.abc"}

    main()


def test_the_installation_token_is_fetched_at_every_login(key: rsa.RSAPrivateKey) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(reply(200, RUNNER), reply(200, RUNNER))
        client = connect(service, credentials=GitHubApp("1", 34, pem(key)))
        await client.get_runner(7)
        await asyncio.sleep(3600)
        await client.get_runner(7)
        assert [sent.url.endswith("/access_tokens") for sent in service.logged_in] == [True, False, False] * 2

    main()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: "not a key", "must be an unencrypted RSA key in PEM form"),
        (lambda: "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n", "in PEM form"),
        (lambda: pem(ec.generate_private_key(ec.SECP256R1()), PrivateFormat.PKCS8), "is no RSA key"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_before_anything_is_sent(make: Callable[[], str], problem: str) -> None:
    text = make()
    with pytest.raises(CredentialsError, match=problem) as caught:
        AppKey(GitHubApp("1", 2, text))
    assert caught.value.__cause__ is None
    assert text not in str(caught.value)


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("status", [200, 202, 400, 401, 403, 404, 422, 500, 503])
def test_exact_success_codes(key: rsa.RSAPrivateKey, step: int, status: int) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        good = [
            reply(201, {"token": "t"}),
            reply(201, {"token": "t"}),
            reply(200, {"url": SERVICE_URL, "token": service.admin_token()}),
        ]
        body = {"token": "t", "url": SERVICE_URL, "message": "no"}
        service.logins.extend([*good[:step], reply(status, body)])
        client = connect(service, credentials=GitHubApp("1", 34, pem(key)))
        with pytest.raises(ServiceError if step < 2 or status > 299 else UnexpectedResponseError) as caught:
            await client.get_runner(7)
        assert len(service.logged_in) == step + 1
        if isinstance(caught.value, ServiceError):
            assert caught.value.status == status
            assert caught.value.message == "no"
            assert caught.value.path == service.logged_in[-1].url.removeprefix("https://api.github.com")
            # The registration is worth a repeat when its token isn't known everywhere yet.
            assert caught.value.retryable is (status >= 500 or (step == 2 and status in (401, 403)))

    main()


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_registration_succeeds_with_any_2xx(status: int) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.logins.extend(
            [reply(201, {"token": "t"}), reply(status, {"url": SERVICE_URL, "token": service.admin_token()})]
        )
        service.will(reply(200, RUNNER))
        await connect(service).get_runner(7)

    main()


@pytest.mark.parametrize("body", [b"", b"<html></html>", {}, {"token": ""}, {"token": None}, {"token": 5}, []])
@pytest.mark.parametrize("step", [0, 1])
def test_a_success_without_a_token(step: int, body: object) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.logins.extend([reply(201, {"token": "t"})][:step])
        service.logins.append(reply(201, body))
        with pytest.raises(UnexpectedResponseError):
            await connect(service).get_runner(7)

    main()


@pytest.mark.parametrize(
    "url", ["", None, "service.example", "ftp://service.example/", "https://user@service.example/"]
)
def test_a_registration_without_an_address(url: str | None) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.logins.extend([reply(201, {"token": "t"}), reply(200, {"url": url, "token": service.admin_token()})])
        with pytest.raises(UnexpectedResponseError, match="url"):
            await connect(service).get_runner(7)

    main()


def token(payload: object, **header: Any) -> str:
    parts = jwt.encode({}, "a key of 32 bytes that is made up", headers=header).split(".")
    parts[1] = jwt.utils.base64url_encode(json.dumps(payload).encode()).decode()
    return ".".join(parts)


def test_the_expiry_of_a_token() -> None:
    assert expiry(token({"exp": 1800000000})) == 1800000000.0
    assert expiry(token({"exp": 1800000000.5})) == 1800000000.5
    # Long expired, and with a signature that nobody checks.
    assert expiry(token({"exp": 1})[:-4] + "AAAA") == 1.0


@pytest.mark.parametrize(
    "broken",
    [
        "opaque",
        "a.b",
        "a.b.c.d",
        token({}),
        token({"exp": "1800000000"}),
        token({"exp": True}),
        token({"exp": None}),
        token({"exp": 1}).replace(".", "!.", 1),
    ],
)
def test_a_token_that_does_not_say_when_it_expires(broken: str) -> None:
    with pytest.raises(NotAsPromisedError):
        expiry(broken)


@pytest.mark.parametrize("algorithm", [None, "ROT13", ""])
def test_a_token_of_no_known_algorithm(algorithm: str | None) -> None:
    header = jwt.utils.base64url_encode(json.dumps({"typ": "JWT", "alg": algorithm}).encode()).decode()
    _, payload, signature = token({"exp": 1800000000}).split(".")
    with pytest.raises(NotAsPromisedError):
        expiry(f"{header}.{payload}.{signature}")


@virtual
async def test_one_login_lasts_until_a_minute_before_its_expiry() -> None:
    service = Scripted(admin_token_lifetime=600)
    service.will(*[reply(200, RUNNER)] * 4)
    client = connect(service)
    await client.get_runner(7)
    await asyncio.sleep(539)
    await client.get_runner(7)
    assert len(service.logged_in) == 2
    await asyncio.sleep(2)
    await client.get_runner(7)
    assert len(service.logged_in) == 4
    assert service.sent[1].header("Authorization") == service.sent[0].header("Authorization")
    assert service.sent[2].header("Authorization") != service.sent[0].header("Authorization")


@virtual
async def test_a_wall_clock_that_jumps_is_believed() -> None:
    service = Scripted()
    service.will(*[reply(200, RUNNER)] * 2)
    client = connect(service)
    await client.get_runner(7)
    service.clock.offset += timedelta(hours=2)
    await client.get_runner(7)
    assert len(service.logged_in) == 4


@virtual
async def test_tokens_that_live_shorter_than_the_margin_work_all_the_same() -> None:
    service = Scripted(admin_token_lifetime=5)
    service.will(*[reply(200, RUNNER)] * 5)
    client = connect(service, max_calls=1)
    await asyncio.gather(*(client.get_runner(7) for _ in range(5)))
    assert len(service.sent) == 5


@virtual
async def test_a_login_is_made_once_for_all_who_need_it() -> None:
    service = Scripted()

    async def slowly(request: Request) -> Response:
        await asyncio.sleep(5)
        return service.login_answer(request)

    service.logins.extend([slowly, slowly])
    service.will(*[reply(200, RUNNER)] * 50)
    client = connect(service, max_calls=50)
    await asyncio.gather(*(client.get_runner(7) for _ in range(50)))
    assert len(service.logged_in) == 2
    assert {sent.at for sent in service.sent} == {10.0}


@virtual
async def test_a_failed_login_fails_all_who_waited_each_with_an_error_of_its_own() -> None:
    service = Scripted()
    service.logins.append(reply(404, {"message": "Not Found"}))
    results = await asyncio.gather(
        *(connect_once.get_runner(7) for connect_once in [connect(service)] * 3), return_exceptions=True
    )
    assert all(isinstance(error, NotFoundError) for error in results)
    assert len({id(error) for error in results}) == 3
    assert len(service.logged_in) == 1


@virtual
async def test_the_first_caller_may_give_up_while_others_wait() -> None:
    service = Scripted()

    async def slowly(request: Request) -> Response:
        await asyncio.sleep(5)
        return service.login_answer(request)

    service.logins.append(slowly)
    service.will(reply(200, RUNNER))
    client = connect(service)
    first = asyncio.ensure_future(client.get_runner(7))
    second = asyncio.ensure_future(client.get_runner(7))
    await asyncio.sleep(1)
    first.cancel()
    assert (await second).id == 7
    assert first.cancelled()


@virtual
async def test_a_failed_login_is_tried_again_by_the_next_call() -> None:
    service = Scripted()
    service.logins.append(ConnectError("POST https://api.github.com/...: no connection"))
    service.will(reply(200, RUNNER))
    client = connect(service)
    with pytest.raises(ServiceUnreachableError):
        await client.get_runner(7)
    assert (await client.get_runner(7)).id == 7


@virtual
async def test_an_unreadable_token_fails_the_call_and_the_next_one_logs_in_anew() -> None:
    service = Scripted()
    service.logins.extend([reply(201, {"token": "t"}), reply(200, {"url": SERVICE_URL, "token": "opaque-token"})])
    service.will(reply(200, RUNNER))
    client = connect(service)
    with pytest.raises(UnexpectedResponseError, match="no JSON web token") as caught:
        await client.get_runner(7)
    assert "opaque-token" not in str(caught.value)
    await client.get_runner(7)
    assert len(service.logged_in) == 4


@virtual
async def test_the_service_moves_with_the_login() -> None:
    service = Scripted(admin_token_lifetime=600)
    service.will(reply(200, RUNNER), reply(200, RUNNER))
    client = connect(service)
    await client.get_runner(7)
    await asyncio.sleep(600)
    elsewhere = "https://elsewhere.example/"
    service.logins.extend([reply(201, {"token": "t"}), reply(200, {"url": elsewhere, "token": service.admin_token()})])
    await client.get_runner(7)
    assert service.sent[0].url.startswith(SERVICE_URL)
    assert service.sent[1].url.startswith(elsewhere)


@virtual
async def test_a_refused_token_is_replaced_once_and_the_call_repeated() -> None:
    service = Scripted()
    service.will(reply(401), reply(200, RUNNER), reply(401), reply(401))
    client = connect(service)
    assert (await client.get_runner(7)).id == 7
    assert len(service.logged_in) == 4
    assert service.sent[0].header("Authorization") != service.sent[1].header("Authorization")
    with pytest.raises(UnauthorizedError):
        await client.get_runner(7)
    assert len(service.logged_in) == 6
    assert len(service.sent) == 4


@virtual
async def test_many_refused_tokens_lead_to_one_login() -> None:
    service = Scripted()

    async def refused(request: Request) -> Response:
        await asyncio.sleep(1)
        return reply(401)

    service.will(*[refused] * 10, *[reply(200, RUNNER)] * 10)
    client = connect(service)
    await asyncio.gather(*(client.get_runner(7) for _ in range(10)))
    assert len(service.logged_in) == 4


@virtual
async def test_a_late_refusal_of_an_old_token_leaves_the_new_one_alone() -> None:
    service = Scripted()

    async def late(request: Request) -> Response:
        await asyncio.sleep(10)
        return reply(401)

    service.will(late, reply(401), reply(200, RUNNER), reply(200, RUNNER))
    client = connect(service)
    slow = asyncio.ensure_future(client.get_runner(7))
    await asyncio.sleep(1)
    await client.get_runner(7)
    await slow
    assert len(service.logged_in) == 4


@virtual
async def test_closing_during_a_login() -> None:
    service = Scripted()
    closed = asyncio.Event()

    async def until_closed(request: Request) -> Response:
        await closed.wait()
        raise ConnectError("POST https://api.github.com/: the transport is closed")

    service.logins.append(until_closed)
    client = connect(service)
    call = asyncio.ensure_future(client.get_runner(7))
    await asyncio.sleep(1)
    closing = asyncio.ensure_future(client.close())
    await asyncio.sleep(1)
    closed.set()
    await closing
    with pytest.raises(ClientClosedError):
        await call
    with pytest.raises(ClientClosedError):
        await client.get_runner(7)
