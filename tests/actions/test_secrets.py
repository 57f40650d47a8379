"""No token, key or JIT configuration is in the text of any error, or in a log, whatever the service answers."""

from __future__ import annotations

import io
import json
import logging
import traceback
from collections.abc import Awaitable, Callable

import jwt
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict
from rich.pretty import pretty_repr

from runherd.actions import (
    ActionsClient,
    ActionsError,
    CallPolicy,
    MessageSession,
    PersonalAccessToken,
    RegistrationLimits,
    RunnerScaleSet,
)
from runherd.wire.transport import ConnectionLostError, Request, Response
from tests.actions.scripted import SERVICE_URL, Scripted, connect, virtual

# Long enough not to stand in our own texts by chance.
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
#: Of no known shape, and long enough not to stand in our own texts by chance.
SECRET = st.text(alphabet=ALPHABET + "_-", min_size=20, max_size=60).filter(lambda text: len(set(text)) > 5)
#: A JIT configuration is base64, and longer than this.
JIT = st.text(alphabet=ALPHABET + "+/", min_size=60, max_size=90).filter(lambda text: len(set(text)) > 5)


async def all_of_a_session(client: ActionsClient) -> None:
    session = await client.create_message_session(42, "me")
    for call in SESSION_CALLS:
        await call(session)


SESSION_CALLS: list[Callable[[MessageSession], Awaitable[object]]] = [
    lambda session: session.get_message(5, 5),
    lambda session: session.delete_message(5),
    lambda session: session.acquire_jobs([5]),
    lambda session: session.refresh(),
    lambda session: session.close(),
]
CALLS: list[Callable[[ActionsClient], Awaitable[object]]] = [
    lambda client: client.get_runner_scale_set(1, "x"),
    lambda client: client.create_runner_scale_set(RunnerScaleSet(name="x")),
    lambda client: client.generate_jit_runner_config(42, "r"),
    lambda client: client.get_runner(7),
    lambda client: client.remove_runner(7),
    lambda client: client.get_runner_group_by_name("x"),
    all_of_a_session,
]


def web_token(number: str) -> str:
    return jwt.encode({"exp": 4102444800, "n": number}, "a key of 32 bytes that is made up", algorithm="HS256")


STATUSES = [200, 200, 200, 201, 202, 204, 400, 401, 403, 404, 409, 429, 500, 503]
HEADERS = ["", "ActivityId", "X-GitHub-Request-Id", "Content-Type"]


def talkative(data: st.DataObject, request: Request, secrets: dict[str, str]) -> Response:
    """Repeats what it was sent, and what else it knows, at the worst of places."""
    sent = CIMultiDict(request.headers)["Authorization"].partition(" ")[2]
    addresses = [f"https://{secrets['user']}:x@host/path?key={secrets['query']}#{secrets['query']}", request.url]
    told = " ".join([sent, secrets["token"], secrets["admin"], secrets["queue"], secrets["jit"], *addresses])
    session = {
        "sessionId": "6b1c7a1e-5f0a-4c39-9c0e-0d9a1d0f2b11",
        "messageQueueUrl": f"https://queue.example/m?key={secrets['query']}",
        "messageQueueAccessToken": secrets["queue"],
        "statistics": {},
    }
    bodies: list[object] = [
        b"",
        told.encode(),
        told,
        {"typeName": f"x.{told}, y", "message": told},
        {"typeName": "x.AgentExistsException, y", "message": "in " * 155 + told},
        {"count": 1, "value": [{"id": told, "name": told}]},
        {"id": secrets["jit"], "runner": told, "encodedJITConfig": told},
        {"runner": {"id": 7, "name": "r"}, "encodedJITConfig": secrets["jit"]},
        session,
        {**session, "statistics": None, "sessionId": told},
        {"messageId": 5, "messageType": told, "body": told, "statistics": {}},
        {"messageId": 5, "messageType": "RunnerScaleSetJobMessages", "body": told, "statistics": {}},
    ]
    body = data.draw(st.sampled_from(bodies))
    headers = CIMultiDict({"Content-Type": "application/json", "Retry-After": "0"})
    if header := data.draw(st.sampled_from(HEADERS)):
        headers[header] = told
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(data.draw(st.sampled_from(STATUSES)), headers, content)


@given(st.data(), st.integers(0, len(CALLS) - 1))
@settings(deadline=None, max_examples=100)
def test_no_secret_is_in_any_text(data: st.DataObject, number: int) -> None:
    secrets = {name: data.draw(SECRET, name) for name in ("token", "registration", "query", "user")}
    secrets["jit"] = data.draw(JIT)
    secrets["admin"], secrets["queue"] = web_token(data.draw(SECRET)), web_token(data.draw(SECRET))
    service = Scripted()

    async def answered(request: Request) -> Response:
        if data.draw(st.integers(0, 19)) == 0:
            raise ConnectionLostError("GET https://service.example/: the connection was lost", request_sent=True)
        return talkative(data, request, secrets)

    def login(request: Request) -> Response:
        if data.draw(st.integers(0, 9)) == 0:
            return talkative(data, request, secrets)
        body = {"token": secrets["registration"]}
        if request.url.endswith("runner-registration"):
            body = {"token": secrets["admin"], "url": f"{SERVICE_URL}?key={secrets['query']}"}
        status = 201 if "registration-token" in request.url else 200
        return Response(status, CIMultiDict({"Content-Type": "application/json"}), json.dumps(body).encode())

    service.login_answer = login  # type: ignore[method-assign]  # this service talks too much
    service.will(*[answered] * 40)

    @virtual
    async def call() -> list[str]:
        client = connect(
            service,
            config_url=f"https://{secrets['user']}:x@github.com/octo-org?key={secrets['query']}",
            credentials=PersonalAccessToken(secrets["token"]),
            policy=CallPolicy(attempts=data.draw(st.sampled_from([1, 3])), patience=10.0),
            registrations=RegistrationLimits(limit=1),
        )
        texts = [repr(client), repr(client.config.api_url("/"))]
        for _ in range(2):
            try:
                texts.append(repr(await CALLS[number](client)))
            except ActionsError as error:
                texts += [str(error), repr(error), pretty_repr(error), "".join(traceback.format_exception(error))]
        return texts

    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("runherd").addHandler(handler)
    try:
        texts = call()
    finally:
        logging.getLogger("runherd").removeHandler(handler)
    for text in [*texts, log.getvalue()]:
        for name, secret in secrets.items():
            assert secret not in text, name
