"""What all endpoints share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Set
from dataclasses import dataclass, field

from runherd.simulator.errors import GithubApiError, unauthorized
from runherd.simulator.exchange import Call, integer
from runherd.simulator.faults import Faults
from runherd.simulator.model import ScaleSet, Scope
from runherd.simulator.service import ActionsService
from runherd.simulator.tokens import Tokens

__all__ = ["Context", "Tenants", "wait_for_wake"]

# Where github.com keeps what GHES serves from its one host.
_SERVICE_HOST = "pipelines.actions.githubusercontent.com"
_QUEUE_HOST = "broker.actions.githubusercontent.com"


@dataclass(slots=True)
class Tenants:
    """Scopes and the service URLs that stand for them."""

    #: The scopes that exist; ``None``: all of them do.
    known: Set[Scope] | None = None
    _numbers: dict[Scope, int] = field(default_factory=dict)
    _scopes: dict[int, Scope] = field(default_factory=dict)
    _count: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def require(self, scope: Scope) -> None:
        """Raises 404 for a scope that doesn't exist (or that the caller may not know of)."""
        if self.known is not None and scope not in self.known:
            raise GithubApiError(404, "Not Found")

    def service_url(self, call: Call, scope: Scope) -> str:
        """Where ``scope`` finds the Actions service, with a slash at the end.

        A call to ``api.<host>`` came from github.com's clients, and gets hosts as github.com has them.
        """
        number = self._numbers.get(scope)
        if number is None:
            number = next(self._count)
            self._numbers[scope] = number
            self._scopes[number] = scope
        base = call.base
        if call.host.startswith("api."):
            base = f"{base.partition(':')[0]}://{_SERVICE_HOST}"
        return f"{base}/tenant/{number}/"

    def scope(self, number: str) -> Scope | None:
        return self._scopes.get(integer(number, "tenant"))

    @staticmethod
    def queue_url(call: Call, session_id: str) -> str:
        """Where messages are polled, for a session that ``call`` created or refreshed."""
        base = call.base
        if call.host == _SERVICE_HOST:
            base = f"{base.partition(':')[0]}://{_QUEUE_HOST}"
        return f"{base}/scalesets/message?sessionId={session_id}"


@dataclass(slots=True)
class Context:
    """The service, and what stands around it."""

    service: ActionsService
    tokens: Tokens
    faults: Faults
    tenants: Tenants

    def administered(self, call: Call, tenant: str) -> Scope:
        """The scope that an administrator's call is about. Raises 401."""
        scope = self.tokens.admin_scope(call.authorization())
        if self.tenants.scope(tenant) != scope:
            raise unauthorized("The admin token is for another tenant.")
        return scope

    def scale_set(self, call: Call, tenant: str, scale_set_id: str) -> ScaleSet:
        """The scale set that an administrator's call names. Raises 401 and 404."""
        scope = self.administered(call, tenant)
        return self.service.scale_sets.get(scope, integer(scale_set_id, "runner scale set id"))


async def wait_for_wake(subscribe: Callable[[Callable[[], None]], Callable[[], None]], deadline: float) -> bool:
    """Wait until the callback that ``subscribe`` is given is called, at most until ``deadline`` (loop time).

    ``subscribe`` returns what undoes it. Tells whether the callback was called.
    """
    woken = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    unsubscribe = subscribe(wake)
    try:
        async with asyncio.timeout_at(deadline):
            await woken
    except TimeoutError:
        return False
    finally:
        unsubscribe()
    return True
