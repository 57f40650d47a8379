"""One client per configuration, so that scale sets with the same one share its login and its limits.

``docs/spec/actions-service.md`` 8.6. Other than there, the proxies' settings are part of the key, and clients that
nobody uses any more are closed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from runherd.actions.client import ActionsClient
from runherd.actions.config_url import parse_config_url
from runherd.actions.connection import ServiceConnection
from runherd.actions.credentials import Credentials
from runherd.actions.limits import RegistrationLimits
from runherd.actions.network import network_transport
from runherd.actions.user_agent import UserAgent
from runherd.wire.clock import Clock
from runherd.wire.proxy import ProxyConfig
from runherd.wire.transport import Transport

__all__ = ["ClientCache", "ClientSettings"]

#: A client without a call for so many seconds is closed. A listener's polls are at most a minute apart.
IDLE_SECONDS = 600.0
#: A client whose credentials were replaced lives on for so long after its last call, for who still has it in hand.
REPLACED_SECONDS = 120.0
#: Seconds between two looks for clients to close.
_SWEEP_INTERVAL = 15.0
#: Above so many clients, the one that was unused for longest goes first.
CAPACITY = 1000


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a client is made from.

    ``namespace`` keeps tenants apart. ``credentials_name`` says where the credentials came from (a Secret's name):
    when the same place holds others later, the client with the old ones is closed. ``roots`` is PEM. ``repr`` leaves
    out what may hold secrets, the URL included.
    """

    config_url: str = field(repr=False)
    namespace: str
    credentials: Credentials
    credentials_name: str = ""
    proxies: ProxyConfig | None = None
    roots: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.namespace:
            raise ValueError("a namespace is needed, so that tenants don't share clients")

    def place(self) -> str:
        """Digest of everything but the credentials themselves: settings of the same place replace one another."""
        proxies = "" if self.proxies is None else self.proxies.digest()
        roots = "" if self.roots is None else hashlib.sha256(self.roots).hexdigest()
        return _digest(self.config_url, self.namespace, proxies, roots)


@dataclass(slots=True)
class _Entry:
    connection: ServiceConnection
    taken_at: float
    #: The places (settings without credentials, and the credentials' name) that this client serves.
    places: set[tuple[str, str]]

    def unused_since(self) -> float | None:
        """Loop time since which nobody took or used the client; ``None`` while a call is under way."""
        since = self.connection.idle_since()
        return None if since is None else max(since, self.taken_at)


class ClientCache:
    """Hands out clients; equal settings get the same one (as views, see :class:`~runherd.actions.ActionsClient`).

    Take a client anew for every piece of work: that is cheap, and brings new credentials when there are some. One that
    is held may be closed when its credentials were replaced or it wasn't used for 10 minutes, and raises
    :class:`~runherd.actions.ClientClosedError` then. Nothing is closed while it has a call under way.
    """

    def __init__(
        self,
        *,
        user_agent: UserAgent,
        clock: Clock,
        transport: Callable[[ProxyConfig | None, bytes | None], Transport] = network_transport,
        registrations: RegistrationLimits | None = None,
        force_ghes: bool = False,
        max_calls: int = 16,
        idle_seconds: float = IDLE_SECONDS,
        capacity: int = CAPACITY,
    ) -> None:
        """``transport`` makes one for given proxies and roots (PEM); replace it to talk to a service in this process.

        ``force_ghes`` is :func:`~runherd.actions.parse_config_url`'s, ``max_calls`` bounds each client's calls.
        """
        self._user_agent = user_agent
        self._clock = clock
        self._transport = transport
        self._registrations = registrations or RegistrationLimits()
        self._force_ghes = force_ghes
        self._max_calls = max_calls
        self._idle_seconds = idle_seconds
        self._capacity = capacity
        self._entries: dict[str, _Entry] = {}
        #: Which client serves a place now.
        self._serving: dict[tuple[str, str], str] = {}
        self._next_sweep = float("-inf")
        #: Not handed out any more, and closed as soon as nobody uses them.
        self._replaced: list[_Entry] = []
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many clients there are."""
        return len(self._entries)

    def get(self, settings: ClientSettings) -> ActionsClient:
        """The client for ``settings``.

        Raises :class:`~runherd.actions.InvalidConfigURLError`, :class:`~runherd.actions.CredentialsError` for an App's
        key that can't be read, and :class:`~runherd.actions.RootCertificatesError`.
        """
        place = settings.place()
        key = _digest(place, settings.credentials.digest())
        now = asyncio.get_running_loop().time()
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(self._connect(settings), now, set())
        entry.taken_at = now
        self._serve((place, settings.credentials_name), key)
        if now >= self._next_sweep or len(self._entries) > self._capacity:
            self.sweep()
        return ActionsClient(entry.connection, self._user_agent)

    def sweep(self) -> None:
        """Close what was replaced, what is idle, and what is too much. :meth:`get` does that now and then."""
        now = asyncio.get_running_loop().time()
        self._next_sweep = now + _SWEEP_INTERVAL
        unused = sorted(
            (since, key) for key, entry in self._entries.items() if (since := entry.unused_since()) is not None
        )
        for since, key in unused:
            if now - since >= self._idle_seconds or (len(self._entries) > self._capacity and since < now):
                self._forget(key)
        for entry in list(self._replaced):
            since = entry.unused_since()
            if since is not None and now - since >= REPLACED_SECONDS:
                self._replaced.remove(entry)
                closing = asyncio.get_running_loop().create_task(entry.connection.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all clients, calls under way included."""
        entries = [*self._entries.values(), *self._replaced]
        self._entries.clear()
        self._serving.clear()
        self._replaced.clear()
        await asyncio.gather(*(entry.connection.close() for entry in entries), *self._closing)

    def _connect(self, settings: ClientSettings) -> ServiceConnection:
        config = parse_config_url(settings.config_url, force_ghes=self._force_ghes)
        return ServiceConnection(
            config,
            settings.credentials,
            self._transport(settings.proxies, settings.roots),
            user_agent=self._user_agent.header(),
            clock=self._clock,
            max_calls=self._max_calls,
            registrations=self._registrations.of(config),
        )

    def _serve(self, place: tuple[str, str], key: str) -> None:
        """The client ``key`` serves ``place`` from now on; whoever served it and no other place has been replaced."""
        before = self._serving.get(place)
        if before == key:
            return
        self._serving[place] = key
        self._entries[key].places.add(place)
        if before is not None:
            self._entries[before].places.discard(place)
            if not self._entries[before].places:
                self._forget(before)

    def _forget(self, key: str) -> None:
        entry = self._entries.pop(key)
        for place in entry.places:
            del self._serving[place]
        self._replaced.append(entry)


def _digest(*parts: str) -> str:
    framed = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(framed.encode("utf-8", "surrogatepass")).hexdigest()
