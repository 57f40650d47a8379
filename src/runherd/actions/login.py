"""From credentials to the Actions service's address and a token for it (``docs/spec/actions-service.md`` 2.2, 2.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from runherd.actions.answers import Answer
from runherd.actions.config_url import ConfigURL
from runherd.actions.credentials import Credentials, GitHubApp, PersonalAccessToken
from runherd.actions.decoding import NotAsPromisedError, to
from runherd.actions.errors import CredentialsError
from runherd.actions.objects import ServiceObject
from runherd.actions.service_url import require_http
from runherd.actions.single_flight import SingleFlight
from runherd.wire.clock import Clock
from runherd.wire.transport import Request

__all__ = ["AdminConnection", "AppKey", "Login", "expiry"]

#: Seconds before its expiry from which on a token is replaced.
_MARGIN = 60.0

# An App's own token: valid from a minute ago, in case GitHub's clock is behind ours, for nine minutes in all.
_BACKDATED = timedelta(seconds=60)
_LIFETIME_SECONDS = 540

_KNOWN_ALGORITHMS = frozenset(jwt.algorithms.get_default_algorithms())


class AppKey:
    """Signs as a GitHub App. The key is parsed once, here."""

    def __init__(self, app: GitHubApp) -> None:
        try:
            key = load_pem_private_key(app.private_key.encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            # From None: what the parser says of a broken key may quote it.
            raise CredentialsError(
                "github_app_private_key can't be read: it must be an unencrypted RSA key in PEM form"
            ) from None
        if not isinstance(key, RSAPrivateKey):
            raise CredentialsError("github_app_private_key is no RSA key, which is what a GitHub App has")
        self._key = key
        self._app_id = app.app_id
        #: The API path that answers with a token of the installation, 2.2 step A.
        self.tokens_path = f"/app/installations/{app.installation_id}/access_tokens"

    def token(self, clock: Clock) -> str:
        """A JSON web token that says that we are the App, valid for eight minutes."""
        issued_at = int((clock.now() - _BACKDATED).timestamp())
        claims = {"iat": issued_at, "exp": issued_at + _LIFETIME_SECONDS, "iss": self._app_id}
        return jwt.encode(claims, self._key, algorithm="RS256")


@dataclass(frozen=True, slots=True, eq=False)
class AdminConnection:
    """Where the Actions service is and what opens it. ``expires_at`` is in seconds since 1970."""

    service_url: str = field(repr=False)
    token: str = field(repr=False)
    expires_at: float


def expiry(token: str) -> float:
    """When ``token`` expires, in seconds since 1970, by its own word: its signature isn't ours to check.

    Raises :class:`NotAsPromisedError`.
    """
    try:
        parts = jwt.decode_complete(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        raise NotAsPromisedError("its token is no JSON web token") from None
    if parts["header"].get("alg") not in _KNOWN_ALGORITHMS:
        raise NotAsPromisedError("its token names no known algorithm")
    expires_at = parts["payload"].get("exp")
    if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
        raise NotAsPromisedError("its token doesn't say when it expires")
    return float(expires_at)


class _Token(ServiceObject, frozen=True, kw_only=True):
    token: str = ""


class _Registration(ServiceObject, frozen=True, kw_only=True):
    url: str = ""
    token: str = ""


class Login:
    """Logs in when that is needed, once for all who need it at the same time."""

    def __init__(
        self,
        config: ConfigURL,
        credentials: Credentials,
        send: Callable[[Request], Awaitable[Answer]],
        user_agent: str,
        clock: Clock,
    ) -> None:
        """``send`` makes one attempt and raises when no answer comes.

        Raises :class:`CredentialsError` when the App's key can't be read.
        """
        self._config = config
        self._credentials = credentials
        self._app_key = AppKey(credentials) if isinstance(credentials, GitHubApp) else None
        self._token = credentials.token if isinstance(credentials, PersonalAccessToken) else ""
        self._send = send
        self._user_agent = user_agent
        self._clock = clock
        self._connection: AdminConnection | None = None
        self._flight = SingleFlight("log in to the Actions service", self._log_in)

    @property
    def current(self) -> AdminConnection | None:
        """The connection, when there is one that lasts for another minute."""
        connection = self._connection
        if connection is None or self._clock.now().timestamp() + _MARGIN > connection.expires_at:
            return None
        return connection

    async def connection(self) -> AdminConnection:
        """The current connection, or a new one. A failure to log in leaves the previous connection alone."""
        return self.current or await self._flight.result()

    def reject(self, connection: AdminConnection) -> None:
        """The service refused ``connection``'s token: forget it, unless that was done already."""
        if self._connection is connection:
            self._connection = None

    def secrets(self) -> tuple[str, ...]:
        """What must appear in no text."""
        connection = self._connection
        return (*self._credentials.secrets(), *(() if connection is None else (connection.token,)))

    async def wait_closed(self) -> None:
        """Wait for the end of a login that is under way; the transport was closed, so it comes soon."""
        await self._flight.wait()

    async def _log_in(self) -> AdminConnection:
        self._connection = await self._register(await self._registration_token())
        return self._connection

    async def _registration_token(self) -> str:
        if self._app_key is None:
            bearer = self._token
        else:
            bearer = await self._issued(
                self._app_key.tokens_path, f"Bearer {self._app_key.token(self._clock)}", "application/vnd.github+json"
            )
        return await self._issued(
            self._config.registration_token_path, f"Bearer {bearer}", "application/vnd.github.v3+json"
        )

    async def _issued(self, path: str, authorization: str, content_type: str) -> str:
        answer = await self._post(path, authorization, content_type)
        if answer.response.status != 201:
            raise answer.error()
        return answer.read(_token)

    async def _register(self, registration_token: str) -> AdminConnection:
        body = msgspec.json.encode({"url": self._config.url, "runner_event": "register"}) + b"\n"
        answer = await self._post(
            "/actions/runner-registration", f"RemoteAuth {registration_token}", "application/json", body
        )
        if not 200 <= answer.response.status < 300:
            # A token that was issued a moment ago isn't known everywhere at once.
            raise answer.error(also_retried=(401, 403))
        registration = answer.read(_registered)
        # Whatever is wrong with the new token, it has replaced the old one (2.3).
        self._connection = None
        return answer.read(lambda _: AdminConnection(registration.url, registration.token, expiry(registration.token)))

    async def _post(self, path: str, authorization: str, content_type: str, body: bytes = b"") -> Answer:
        headers = {"Authorization": authorization, "Content-Type": content_type, "User-Agent": self._user_agent}
        return await self._send(Request("POST", self._config.api_url(path), headers, body))


def _token(body: Any) -> str:
    issued = to(_Token, body).token
    if not issued:
        raise NotAsPromisedError("there is no token in the body")
    return issued


def _registered(body: Any) -> _Registration:
    registration = to(_Registration, body)
    if not registration.token:
        raise NotAsPromisedError("there is no token in the body")
    require_http(registration.url, "the service's url in the body")
    return registration
