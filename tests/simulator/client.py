"""A bare client of the service, for tests: it sends what it is told to, and hides nothing of the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from runherd.simulator.settings import Settings
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import Request, Response, Timeouts, Transport

__all__ = ["TOKEN", "Client", "simulator", "until"]

TOKEN = "ghp_test"
NEVER = Timeouts(connect=None, total=None)


def simulator(seed: int = 0, **settings: Any) -> Simulator:
    """A simulator whose clock is the running loop's."""
    return Simulator(
        clock=EventLoopClock(),
        random=Random(seed),
        settings=Settings(**settings),
        personal_tokens=[TOKEN],
        admin_token=TOKEN,
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process or a socket brings about; fails after 20 s."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # nothing there sets an event
            await asyncio.sleep(0.02)


@dataclass
class Client:
    """Logs in with :data:`TOKEN` at ``base`` (``http://host`` of a GHES, or ``https://github.com``)."""

    transport: Transport
    base: str = "http://ghes.example"
    scope: str = "acme"
    service_url: str = ""
    admin_token: str = field(default="", repr=False)

    @classmethod
    async def logged_in(cls, service: Simulator, base: str = "http://ghes.example", scope: str = "acme") -> Client:
        client = cls(InProcessTransport(service), base, scope)
        await client.login()
        return client

    @property
    def api(self) -> str:
        scheme, _, host = self.base.partition("://")
        return f"https://api.{host}" if host == "github.com" else f"{scheme}://{host}/api/v3"

    async def send(
        self, method: str, url: str, body: Any = None, *, token: str = "", scheme: str = "Bearer", **headers: str
    ) -> Response:
        given = {"Authorization": f"{scheme} {token}"} if token else {}
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.transport.request(Request(method, url, given, content), NEVER)

    async def login(self, token: str = TOKEN) -> None:
        kind = {1: "orgs", 2: "repos"}[len(self.scope.split("/"))] if "enterprises/" not in self.scope else ""
        path = f"{kind}/{self.scope}".strip("/")
        answer = await self.send("POST", f"{self.api}/{path}/actions/runners/registration-token", token=token)
        assert answer.status == 201, answer.body
        answer = await self.send(
            "POST",
            f"{self.api}/actions/runner-registration",
            {"url": f"{self.base}/{self.scope}", "runner_event": "register"},
            token=json.loads(answer.body)["token"],
            scheme="RemoteAuth",
        )
        assert answer.status == 200, answer.body
        self.service_url = json.loads(answer.body)["url"]
        self.admin_token = json.loads(answer.body)["token"]

    async def call(self, method: str, path: str, body: Any = None) -> Response:
        """An administrator's call; ``path`` begins with ``sets`` or ``agents`` or is under ``_apis/``."""
        path = path.replace("agents", "_apis/distributedtask/pools/0/agents", 1)
        path = path.replace("sets", "_apis/runtime/runnerscalesets", 1) if path.startswith("sets") else path
        return await self.send(
            method, f"{self.service_url}{path}", body, token=self.admin_token, Content_Type="application/json"
        )

    async def ok(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.call(method, path, body)
        assert answer.status == status, (answer.status, answer.body)
        return json.loads(answer.body) if answer.body else None

    async def create_set(self, name: str, **fields: Any) -> int:
        created = await self.ok("POST", "sets", {"name": name, "labels": [{"name": name, "type": "System"}], **fields})
        return int(created["id"])

    async def jit(self, scale_set_id: int, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = await self.ok(
            "POST", f"sets/{scale_set_id}/generatejitconfig", {"name": name, "workFolder": ""}
        )
        return answer

    async def open_session(self, scale_set_id: int, owner: str = "listener") -> dict[str, Any]:
        nil = "00000000-0000-0000-0000-000000000000"
        answer: dict[str, Any] = await self.ok(
            "POST", f"sets/{scale_set_id}/sessions", {"sessionId": nil, "ownerName": owner}
        )
        return answer

    async def poll(self, session: dict[str, Any], last: int = 0, capacity: int = 10) -> Response:
        url = session["messageQueueUrl"] + (f"&lastMessageId={last}" if last else "")
        return await self.send(
            "GET", url, token=session["messageQueueAccessToken"], X_ScaleSetMaxCapacity=str(capacity)
        )

    async def message(self, session: dict[str, Any], last: int = 0, capacity: int = 10) -> dict[str, Any]:
        """Poll, and expect a message; its ``jobs`` are the decoded body."""
        answer = await self.poll(session, last, capacity)
        assert answer.status == 200, (answer.status, answer.body)
        message: dict[str, Any] = json.loads(answer.body)
        message["jobs"] = json.loads(message["body"])
        return message

    async def acknowledge(self, session: dict[str, Any], message_id: int) -> Response:
        path, _, query = session["messageQueueUrl"].partition("?")
        return await self.send("DELETE", f"{path}/{message_id}?{query}", token=session["messageQueueAccessToken"])

    async def acquire(self, session: dict[str, Any], scale_set_id: int, ids: list[int]) -> Response:
        url = f"{self.service_url}_apis/runtime/runnerscalesets/{scale_set_id}/acquirejobs"
        return await self.send("POST", url, ids, token=session["messageQueueAccessToken"])
