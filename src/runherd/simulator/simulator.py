"""The pretend GitHub Actions service, ready to be called: in process, or behind a server on a port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import NoReturn

from multidict import CIMultiDict

from runherd.simulator.admin_api import admin_api_routes
from runherd.simulator.context import Context, Tenants
from runherd.simulator.errors import GithubApiError, ServiceError
from runherd.simulator.exchange import Call, json_response
from runherd.simulator.faults import Fault, FaultKind, Faults
from runherd.simulator.github_api import github_api_routes
from runherd.simulator.ledger import Ledger
from runherd.simulator.model import Job, ScaleSet, Scope
from runherd.simulator.queue_api import queue_api_routes
from runherd.simulator.router import Route, Router
from runherd.simulator.runner_api import runner_api_routes
from runherd.simulator.runs import Runs, WorkflowRun
from runherd.simulator.service import DEFAULT_JOB_TIMEOUT, ActionsService
from runherd.simulator.service_api import service_api_routes
from runherd.simulator.settings import Settings
from runherd.simulator.timers import Timer
from runherd.simulator.tokens import Tokens
from runherd.simulator.workflow import parse_workflow
from runherd.wire.clock import Clock
from runherd.wire.randomness import uuid4
from runherd.wire.transport import Request, Response

__all__ = ["Simulator"]

_QUEUE_OPERATIONS = frozenset({"messages.get", "messages.delete", "jobs.acquire"})
_HTML = CIMultiDict({"Content-Type": "text/html; charset=utf-8"})
_HTML_PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n"


class Simulator:
    """A :data:`~runherd.wire.transport.Handler` that answers as GitHub's REST API and its Actions service do.

    ``https://github.com/...`` config URLs work in process (calls to ``api.github.com`` and the hosts that it names all
    come here), and any other host is taken for a GitHub Enterprise Server, whose API is under ``/api/v3``.

    ``personal_tokens`` are accepted for login, ``admin_token`` for the simulator's own administration under
    ``/_simulator/`` (empty: nobody may). ``scopes`` lists the enterprises (``enterprises/x``), organizations and
    repositories (``org/repo``) that exist; by default all do. Time is the running loop's and ``clock``'s.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        random: Random,
        settings: Settings | None = None,
        personal_tokens: Iterable[str] = (),
        admin_token: str = "",
        scopes: Collection[str] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.service = ActionsService(self.settings, lambda: asyncio.get_running_loop().time(), clock.now, random)
        self.faults = Faults(random)
        self.tokens = Tokens(self.settings, clock.now, random)
        self.tokens.personal.update(personal_tokens)
        self.runs = Runs(self.service)
        self._random = random
        known = None if scopes is None else frozenset(Scope.of(scope) for scope in scopes)
        context = Context(self.service, self.tokens, self.faults, Tenants(known))
        self._github_router = Router(github_api_routes(context))
        self._router = Router(
            [
                *service_api_routes(context),
                *queue_api_routes(context),
                *runner_api_routes(context),
                *admin_api_routes(context, self.runs, admin_token),
            ]
        )
        self.faults.operations = frozenset(self.operations)
        self._wake_up: asyncio.TimerHandle | None = None
        self.service.timers.on_set = self._arm

    @property
    def ledger(self) -> Ledger:
        """What really happened."""
        return self.service.ledger

    @property
    def operations(self) -> list[str]:
        """The names that faults know calls by."""
        routes = [*self._github_router.routes, *self._router.routes]
        return sorted({route.operation for route in routes})

    def scale_set(self, name: str) -> ScaleSet:
        """The scale set of that name, in whatever scope and group. Raises ``KeyError`` unless there is exactly one."""
        found = [scale_set for scale_set in self.service.scale_sets.by_id.values() if scale_set.name == name]
        if len(found) != 1:
            raise KeyError(f"{len(found)} scale sets are named {name!r}")
        return found[0]

    def statistics(self, name: str) -> dict[str, int]:
        """The true statistics of the scale set of that name."""
        return self.service.scale_sets.statistics(self.scale_set(name))

    def queue_jobs(
        self,
        repository: str,
        labels: Iterable[str],
        count: int = 1,
        *,
        seconds: float = 0.0,
        name: str = "job",
        group: str = "",
        timeout: float = DEFAULT_JOB_TIMEOUT,
        on_completed: Callable[[Job], None] | None = None,
    ) -> list[Job]:
        """Queue jobs that do nothing for ``seconds``, without a workflow file."""
        labels = tuple(labels)
        jobs = [
            self.service.new_job(
                repository,
                labels,
                name=name,
                group=group,
                seconds=seconds,
                timeout=timeout,
                on_completed=on_completed,
            )
            for _ in range(count)
        ]
        for job in jobs:
            self.service.jobs.add(job)
        return jobs

    def start_workflow(
        self,
        text: str | bytes,
        *,
        path: str = ".github/workflows/ci.yml",
        repository: str = "acme/app",
        ref: str = "refs/heads/main",
        event: str = "push",
    ) -> WorkflowRun:
        """Run a workflow file; bytes are UTF-8.

        Raises :class:`~runherd.simulator.yaml_nodes.WorkflowError` for what can't be read.
        """
        return self.runs.start(parse_workflow(text, path), repository=repository, ref=ref, event=event)

    def add_fault(self, kind: FaultKind | str, operation: str = "", **settings: object) -> Fault:
        """Let something go wrong; ``settings`` are the fields of :class:`~runherd.simulator.faults.Fault`.

        Raises ``ValueError`` for an operation that doesn't exist or can't have this fault.
        """
        return self.faults.add(Fault(kind=FaultKind(kind), operation=operation, **settings))  # type: ignore[arg-type]

    async def __call__(self, request: Request) -> Response:
        """Answer one call."""
        self.service.timers.run_due()
        call = Call.of(request)
        try:
            response = await self._answer(call)
        except ServiceError as error:
            response = json_response(error.body(), error.status)
        except GithubApiError as error:
            response = json_response(error.body(), error.status)
        headers = CIMultiDict(response.headers)
        headers["ActivityId"] = str(uuid4(self._random))
        headers["X-GitHub-Request-Id"] = f"{self._random.getrandbits(64):016X}"
        return Response(response.status, headers, response.body)

    async def _answer(self, call: Call) -> Response:
        router = self._router
        if call.segments[:2] == ["api", "v3"]:
            router, call.segments = self._github_router, call.segments[2:]
        elif call.host.startswith("api."):
            router = self._github_router
        found = router.find(call.method, call.segments)
        if found is None:
            path = "/".join(call.segments)
            if router is self._github_router:
                raise GithubApiError(404, "Not Found")
            raise ServiceError(404, "VssServiceException", f"There is no {call.method} /{path} here.")
        route, parameters = found
        faults: list[Fault] = []
        if self.faults.pending():
            faults = self.faults.anywhere(route.operation, route.scale_set_id(call, parameters))
        for fault in faults:
            response = await self._before(fault, route, call, parameters)
            if response is not None:
                return response
        response = await route.endpoint(call, *parameters)
        for fault in faults:
            response = _after(fault, response)
        return response

    async def _before(self, fault: Fault, route: Route, call: Call, parameters: tuple[str, ...]) -> Response | None:
        match fault.kind:
            case FaultKind.STATUS:
                return _refusal(fault)
            case FaultKind.DELAY:
                await asyncio.sleep(fault.seconds)
            case FaultKind.HANG:
                await asyncio.get_running_loop().create_future()
            case FaultKind.DROP_BEFORE:
                _drop_connection()
            case FaultKind.EXPIRED_TOKEN if route.operation in _QUEUE_OPERATIONS:
                scale_set = self.service.scale_sets.by_id.get(route.scale_set_id(call, parameters))
                if scale_set is not None and scale_set.session is not None:
                    scale_set.session.token_expires = self.service.now()
            case FaultKind.EXPIRED_TOKEN:
                self.tokens.expire_admin_tokens()
        return None

    def _arm(self, timer: Timer) -> None:
        """Be woken no later than for ``timer``."""
        if self._wake_up is not None:
            if self._wake_up.when() <= timer.at:
                return
            self._wake_up.cancel()
        self._wake_up = asyncio.get_running_loop().call_at(timer.at, self._run_due)

    def _run_due(self) -> None:
        self._wake_up = None
        self.service.timers.run_due()
        earliest = self.service.timers.earliest()
        if earliest is not None:
            self._arm(earliest)


def _drop_connection() -> NoReturn:
    """Servers and in-process transports end the connection without an answer when a handler is cancelled."""
    raise asyncio.CancelledError("the connection is dropped, as a fault asked for")


def _refusal(fault: Fault) -> Response:
    headers = CIMultiDict({"Content-Type": "application/json; charset=utf-8"})
    if fault.retry_after >= 0:
        headers["Retry-After"] = str(fault.retry_after)
    error = ServiceError(fault.status, fault.exception or "VssServiceException", "A fault was asked for.")
    return Response(fault.status, headers, json_response(error.body()).body)


def _after(fault: Fault, response: Response) -> Response:
    match fault.kind:
        case FaultKind.DROP_AFTER:
            _drop_connection()
        case FaultKind.EMPTY_BODY if response.status < 300:
            return Response(response.status, response.headers)
        case FaultKind.HTML_BODY if response.status < 300:
            return Response(response.status, _HTML, _HTML_PAGE)
    return response
