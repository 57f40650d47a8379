"""The client of the GitHub Actions service, as its callers see it (``docs/spec/actions-service.md`` 3, 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from runherd.actions.answers import Answer
from runherd.actions.config_url import ConfigURL, parse_config_url
from runherd.actions.connection import Caller, ServiceConnection, Throttle
from runherd.actions.credentials import Credentials
from runherd.actions.decoding import NotAsPromisedError, to
from runherd.actions.errors import AmbiguousNameError, RunnerGroupNotFoundError
from runherd.actions.limits import RegistrationLimits
from runherd.actions.objects import (
    JitRunnerConfig,
    Label,
    RunnerGroup,
    RunnerReference,
    RunnerScaleSet,
    ServiceObject,
)
from runherd.actions.retry import ONE_ATTEMPT, CallPolicy
from runherd.actions.session import MessageSession, new_session
from runherd.actions.user_agent import UserAgent
from runherd.wire.clock import Clock
from runherd.wire.transport import Transport

__all__ = ["ActionsClient"]

_SCALE_SETS = "_apis/runtime/runnerscalesets"
_RUNNER_GROUPS = "_apis/runtime/runnergroups/"
_RUNNERS = "_apis/distributedtask/pools/0/agents"

Identified = TypeVar("Identified", RunnerScaleSet, RunnerGroup, RunnerReference)


class ActionsClient:
    """Calls the Actions service on behalf of one configuration, from as many tasks at once as one likes.

    A client is a light view: :meth:`for_scale_set` and :meth:`with_policy` give others that share login, network
    connections and limits with this one. All methods raise :class:`~runherd.actions.ActionsError`.
    """

    def __init__(self, connection: ServiceConnection, user_agent: UserAgent, policy: CallPolicy = ONE_ATTEMPT) -> None:
        self._connection = connection
        self._user_agent = user_agent
        self._policy = policy
        self._caller = Caller(user_agent.header(), policy, user_agent.scale_set_id)

    @classmethod
    def connect(
        cls,
        config_url: str | ConfigURL,
        credentials: Credentials,
        *,
        transport: Transport,
        user_agent: UserAgent,
        clock: Clock,
        policy: CallPolicy = ONE_ATTEMPT,
        max_calls: int = 16,
        registrations: RegistrationLimits | None = None,
    ) -> ActionsClient:
        """A client of its own, which owns ``transport``. Nothing is sent before the first call.

        ``max_calls`` bounds the calls under way. Pass the same ``registrations`` to all clients of a process, since
        GitHub counts the runners of an owner whoever registers them; a
        :class:`~runherd.actions.ClientCache` does that. Raises :class:`~runherd.actions.InvalidConfigURLError` and
        :class:`~runherd.actions.CredentialsError`.
        """
        config = parse_config_url(config_url) if isinstance(config_url, str) else config_url
        connection = ServiceConnection(
            config,
            credentials,
            transport,
            user_agent=user_agent.header(),
            clock=clock,
            max_calls=max_calls,
            registrations=(registrations or RegistrationLimits()).of(config),
        )
        return cls(connection, user_agent, policy)

    def for_scale_set(self, scale_set_id: int) -> ActionsClient:
        """This client on behalf of a scale set: named in the user agent, and taking turns with the others."""
        return ActionsClient(self._connection, self._user_agent.for_scale_set(scale_set_id), self._policy)

    def with_policy(self, policy: CallPolicy) -> ActionsClient:
        """This client with another choice of retries and patience."""
        return ActionsClient(self._connection, self._user_agent, policy)

    @property
    def config(self) -> ConfigURL:
        """For whom runners are registered."""
        return self._connection.config

    @property
    def throttle(self) -> Throttle:
        """What keeps this configuration's calls waiting at the moment."""
        return self._connection.throttle

    async def close(self) -> None:
        """Close the network connections, for all views of this client. Calls under way fail."""
        await self._connection.close()

    # Scale sets and runner groups

    async def get_runner_scale_set(self, runner_group_id: int, name: str) -> RunnerScaleSet | None:
        """The scale set called ``name``; ``None`` when there is none."""
        query: dict[str, str | int] = {"runnerGroupId": runner_group_id, "name": name}
        answer = await self._call("GET", _SCALE_SETS, query=query)
        return answer.read(lambda body: _only(RunnerScaleSet, body, f"runner scale set {name!r}"))

    async def get_runner_scale_set_by_id(self, scale_set_id: int) -> RunnerScaleSet | None:
        """The scale set of that id; ``None`` when the service answers with nothing, an error when it says 404."""
        answer = await self._call("GET", f"{_SCALE_SETS}/{scale_set_id}")
        return answer.read(lambda body: None if body is None else _known(RunnerScaleSet, body))

    async def list_runner_scale_sets(self, runner_group_id: int) -> list[RunnerScaleSet]:
        """All scale sets of a group."""
        answer = await self._call("GET", _SCALE_SETS, query={"runnerGroupId": runner_group_id})
        return answer.read(lambda body: _list(RunnerScaleSet, body))

    async def get_runner_group_by_name(self, name: str) -> RunnerGroup:
        """The runner group called ``name``. Raises :class:`~runherd.actions.RunnerGroupNotFoundError`."""
        answer = await self._call("GET", _RUNNER_GROUPS, query={"groupName": name})
        group = answer.read(lambda body: _only(RunnerGroup, body, f"runner group {name!r}"))
        if group is None:
            raise RunnerGroupNotFoundError(
                f"no runner group is called {name!r} in {self.config}, or it isn't visible to these credentials"
            )
        return group

    async def create_runner_scale_set(self, scale_set: RunnerScaleSet) -> RunnerScaleSet:
        """Create ``scale_set`` and return it as the service made it. Without labels, its name becomes its label.

        Raises ``ValueError`` when it has neither.
        """
        if not scale_set.labels:
            if not scale_set.name:
                raise ValueError("a scale set needs a name or labels")
            scale_set = msgspec.structs.replace(scale_set, labels=(Label(name=scale_set.name),))
        answer = await self._call("POST", _SCALE_SETS, body=scale_set.body())
        return answer.read(lambda body: _known(RunnerScaleSet, body))

    async def update_runner_scale_set(self, scale_set_id: int, changes: RunnerScaleSet) -> RunnerScaleSet:
        """Change what is set in ``changes`` (name, group), and return the whole."""
        answer = await self._call("PATCH", f"{_SCALE_SETS}/{scale_set_id}", body=changes.body())
        return answer.read(lambda body: _known(RunnerScaleSet, body))

    async def delete_runner_scale_set(self, scale_set_id: int) -> None:
        """Delete a scale set, and its message queue with it."""
        await self._call("DELETE", f"{_SCALE_SETS}/{scale_set_id}", expected=204)

    # Runners

    async def generate_jit_runner_config(
        self, scale_set_id: int, runner_name: str, work_folder: str = ""
    ) -> JitRunnerConfig:
        """Register a runner, and return the configuration that its process starts with.

        Raises :class:`~runherd.actions.RunnerExistsError` when the name is taken. Waits where GitHub's limit on
        registrations is reached (see :attr:`throttle`).
        """
        answer = await self._connection.service_call(
            self._caller,
            "POST",
            f"{_SCALE_SETS}/{scale_set_id}/generatejitconfig",
            expected=200,
            body=msgspec.json.encode({"name": runner_name, "workFolder": work_folder}),
            registers=True,
        )
        return answer.read(_jit_config)

    async def get_runner(self, runner_id: int) -> RunnerReference:
        """The runner of that id. Raises :class:`~runherd.actions.RunnerNotFoundError`."""
        answer = await self._call("GET", f"{_RUNNERS}/{runner_id}")
        return answer.read(lambda body: _known(RunnerReference, body))

    async def get_runner_by_name(self, name: str) -> RunnerReference | None:
        """The runner of that name; ``None`` when there is none."""
        answer = await self._call("GET", _RUNNERS, query={"agentName": name})
        return answer.read(lambda body: _only(RunnerReference, body, f"runner {name!r}"))

    async def remove_runner(self, runner_id: int) -> None:
        """Remove a registration.

        Raises :class:`~runherd.actions.JobStillRunningError` while it executes a job, and
        :class:`~runherd.actions.RunnerNotFoundError` (or :class:`~runherd.actions.NotFoundError`) when it is gone.
        """
        await self._call("DELETE", f"{_RUNNERS}/{runner_id}", expected=204)

    # Sessions

    async def create_message_session(self, scale_set_id: int, owner: str) -> MessageSession:
        """Open the scale set's message session; ``owner`` is a name to show to others, usually the host's.

        Raises :class:`~runherd.actions.SessionConflictError` while somebody holds one.
        """
        answer = await self._call(
            "POST",
            f"{_SCALE_SETS}/{scale_set_id}/sessions",
            body=msgspec.json.encode({"sessionId": UUID(int=0), "ownerName": owner}),
        )
        session = answer.read(new_session)
        return MessageSession(self._connection, self._caller, f"{_SCALE_SETS}/{scale_set_id}", session)

    async def delete_message_session(self, scale_set_id: int, session_id: UUID) -> None:
        """Delete a session by its id, for example one that a process before us left behind."""
        await self._call("DELETE", f"{_SCALE_SETS}/{scale_set_id}/sessions/{session_id}", expected=204)

    async def _call(
        self,
        method: str,
        endpoint: str,
        *,
        expected: int = 200,
        query: Mapping[str, str | int] | None = None,
        body: bytes = b"",
    ) -> Answer:
        return await self._connection.service_call(
            self._caller, method, endpoint, expected=expected, query=query, body=body
        )


def _known(type_: type[Identified], body: Any) -> Identified:
    """A thing that the service knows has an id and a name."""
    thing = to(type_, body)
    if thing.id <= 0 or not thing.name:
        raise NotAsPromisedError("the body lacks an id or a name")
    return thing


class _List(ServiceObject, frozen=True, kw_only=True):
    # Without a count the body may be anything at all, and "nothing found" would be a guess.
    count: int
    value: tuple[Any, ...] = ()


def _only(type_: type[Identified], body: Any, what: str) -> Identified | None:
    """The one thing in a list, of which the count has authority (3.2)."""
    found = to(_List, body)
    if found.count == 0:
        return None
    if found.count > 1:
        raise AmbiguousNameError(f"the service knows {found.count} things by the name of {what}")
    if not found.value:
        raise NotAsPromisedError("the body counts one thing and lists none")
    return _known(type_, found.value[0])


def _list(type_: type[Identified], body: Any) -> list[Identified]:
    return [_known(type_, thing) for thing in to(_List, body).value]


def _jit_config(body: Any) -> JitRunnerConfig:
    config = to(JitRunnerConfig, body)
    if config.runner.id <= 0 or not config.runner.name:
        raise NotAsPromisedError("the body lacks the runner's id or name")
    if not config.encoded_jit_config:
        raise NotAsPromisedError("the body lacks the JIT configuration")
    return config
