from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runherd.kube.auth import AuthenticatedTransport, Impersonation
from runherd.kube.credentials import Credential, StaticCredentials
from runherd.kube.errors import CredentialError
from runherd.wire.transport import CertificateError, ConnectionLostError, Request, Response
from tests.kube.scripted import BASE_URL, Script, answer, refusal, stream_of

REQUEST = Request("POST", f"{BASE_URL}/api", {"X": "1"}, b"body")


class Rotating:
    """Credentials of which the next is given when one is rejected; the last one stays."""

    def __init__(self, *credentials: Credential) -> None:
        self.credentials = list(credentials)
        self.rejected: list[Credential] = []

    async def current(self) -> Credential:
        return self.credentials[0]

    async def renew(self, rejected: Credential) -> Credential:
        self.rejected.append(rejected)
        if len(self.credentials) > 1:
            self.credentials.pop(0)
        return self.credentials[0]


def header(script: Script, name: str = "Authorization") -> list[str | None]:
    return [request.headers.get(name) for request in script.requests]


async def send(transport: AuthenticatedTransport, streaming: bool) -> tuple[int, bytes]:
    if not streaming:
        response = await transport.request(REQUEST)
        return response.status, response.body
    async with transport.stream(REQUEST) as stream:
        return stream.status, await stream.read()


both_ways = pytest.mark.parametrize("streaming", [False, True], ids=["request", "stream"])


@both_ways
async def test_the_token_goes_with_the_request_and_nothing_else_changes(streaming: bool) -> None:
    script = Script(answer(b"ok"))
    assert await send(AuthenticatedTransport(script, StaticCredentials(Credential("t1"))), streaming) == (200, b"ok")
    (request,) = script.requests
    assert dict(request.headers) == {"X": "1", "Authorization": "Bearer t1"}
    assert (request.method, request.url, request.body) == (REQUEST.method, REQUEST.url, REQUEST.body)
    assert "Authorization" not in REQUEST.headers


@both_ways
async def test_without_a_credential_the_request_stays_as_it_is(streaming: bool) -> None:
    script = Script(answer(b""))
    await send(AuthenticatedTransport(script, StaticCredentials(Credential())), streaming)
    assert script.requests == [REQUEST]


@both_ways
async def test_401_is_answered_with_the_next_credential_once(streaming: bool) -> None:
    script = Script(refusal(401, "Unauthorized"), answer(b"ok"))
    source = Rotating(Credential("old"), Credential("new"))
    assert await send(AuthenticatedTransport(script, source), streaming) == (200, b"ok")
    assert header(script) == ["Bearer old", "Bearer new"]
    script = Script(refusal(401, "Unauthorized"), refusal(401, "Unauthorized"))
    source = Rotating(Credential("a"), Credential("b"), Credential("c"))
    assert (await send(AuthenticatedTransport(script, source), streaming))[0] == 401
    assert header(script) == ["Bearer a", "Bearer b"]


@both_ways
async def test_401_is_final_when_there_is_no_other_credential(streaming: bool) -> None:
    script = Script(refusal(401, "Unauthorized"))
    assert (await send(AuthenticatedTransport(script, Rotating(Credential("only"))), streaming))[0] == 401
    # An equal one is no other one, whoever made it.
    script = Script(refusal(401, "Unauthorized"))
    source = Rotating(Credential("same"), Credential("same"))
    assert (await send(AuthenticatedTransport(script, source), streaming))[0] == 401


@both_ways
async def test_other_refusals_renew_nothing(streaming: bool) -> None:
    source = Rotating(Credential("old"), Credential("new"))
    assert (await send(AuthenticatedTransport(Script(refusal(403, "Forbidden")), source), streaming))[0] == 403
    lost = ConnectionLostError("cut", request_sent=True)
    with pytest.raises(ConnectionLostError):
        await send(AuthenticatedTransport(Script(lost), source), streaming)
    assert source.rejected == []


@both_ways
async def test_a_certificate_that_the_server_rejects_is_renewed(streaming: bool) -> None:
    script = Script(CertificateError("expired"), answer(b"ok"))
    source = Rotating(Credential("", b"c1", b"k1"), Credential("", b"c2", b"k2"))
    used: list[Credential] = []
    transport = AuthenticatedTransport(script, source, use_certificate=used.append)
    assert await send(transport, streaming) == (200, b"ok")
    assert [credential.certificate for credential in used] == [b"c1", b"c2"]
    with pytest.raises(CertificateError):
        await send(AuthenticatedTransport(Script(CertificateError("expired")), source), streaming)


async def test_an_error_inside_the_stream_is_the_users_own() -> None:
    source = Rotating(Credential("a"), Credential("b"))
    with pytest.raises(CertificateError, match="of another server"):
        async with AuthenticatedTransport(Script(stream_of(b"x")), source).stream(REQUEST):
            raise CertificateError("of another server")
    assert source.rejected == []


async def test_a_certificate_is_applied_when_it_changes_and_only_then() -> None:
    script = Script(*[answer(b"")] * 4)
    source = Rotating(Credential("t1", b"c1", b"k1"))
    used: list[bytes | None] = []
    transport = AuthenticatedTransport(
        script,
        source,
        use_certificate=lambda credential: used.append(credential.certificate),
        certificate_in_use=Credential("", b"c1", b"k1"),
    )
    for credential in (
        Credential("t1", b"c1", b"k1"),
        Credential("t2", b"c1", b"k1"),
        Credential("t2", b"c2", b"k2"),
        Credential("t2", b"c2", b"k2"),
    ):
        source.credentials = [credential]
        await transport.request(REQUEST)
    assert used == [b"c2"]
    assert header(script) == ["Bearer t1", "Bearer t2", "Bearer t2", "Bearer t2"]


def refuse(error: str) -> Callable[[Credential], None]:
    def use(credential: Credential) -> None:
        if credential.certificate == b"bad":
            raise ValueError(error)

    return use


async def test_a_renewed_certificate_that_can_not_be_used_leaves_the_last_one_in_use(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(*[answer(b"")] * 2)
    source = Rotating(Credential("t", b"good", b"k"))
    transport = AuthenticatedTransport(script, source, use_certificate=refuse("key does not match"))
    await transport.request(REQUEST)
    source.credentials = [Credential("t", b"bad", b"k")]
    await transport.request(REQUEST)
    assert "key does not match" in caplog.text


async def test_a_first_certificate_that_can_not_be_used_is_an_error() -> None:
    source = Rotating(Credential("", b"bad", b"k"))
    transport = AuthenticatedTransport(Script(), source, use_certificate=refuse("no PEM"))
    with pytest.raises(CredentialError, match="the client certificate can't be used: no PEM"):
        await transport.request(REQUEST)


async def test_impersonation_headers() -> None:
    impersonation = Impersonation("jane", "u1", ("dev", "ops"), {"Scopes/ä": ("a", "b"), "x%y": ("c",)})
    script = Script(answer(b""))
    await AuthenticatedTransport(script, StaticCredentials(Credential("t")), impersonation=impersonation).request(
        REQUEST
    )
    (request,) = script.requests
    headers: Any = request.headers
    assert headers.getall("Impersonate-User") == ["jane"]
    assert headers.getall("Impersonate-Uid") == ["u1"]
    assert headers.getall("Impersonate-Group") == ["dev", "ops"]
    assert headers.getall("Impersonate-Extra-Scopes%2F%C3%A4") == ["a", "b"]
    assert headers.getall("Impersonate-Extra-x%25y") == ["c"]


async def test_closing_closes_the_transport_inside() -> None:
    closed = []

    class Inner(Script):
        async def close(self) -> None:
            closed.append(True)

    await AuthenticatedTransport(Inner(), StaticCredentials(Credential())).close()
    assert closed


async def test_the_answer_is_passed_on() -> None:
    response = answer({"a": 1}, 201, [("X-Y", "z")])
    got = await AuthenticatedTransport(Script(response), StaticCredentials(Credential("t"))).request(REQUEST)
    assert isinstance(got, Response)
    assert (got.status, got.headers["X-Y"], got.body) == (201, "z", b'{"a": 1}')
