"""``docs/spec/actions-service.md`` 8.6."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from rich.pretty import pretty_repr

from runherd.actions import (
    ActionsClient,
    ClientCache,
    ClientClosedError,
    ClientSettings,
    CredentialsError,
    GitHubApp,
    InvalidConfigURLError,
    PersonalAccessToken,
    RootCertificatesError,
    UserAgent,
)
from runherd.wire.clock import EventLoopClock
from runherd.wire.proxy import ProxyConfig, ProxyServer
from runherd.wire.transport import Transport
from tests.actions.scripted import Scripted, hang, reply, virtual

SETTINGS = ClientSettings("https://github.com/o", "runners", PersonalAccessToken("one"), "github")
ROTATED = replace(SETTINGS, credentials=PersonalAccessToken("two"))
RUNNER = {"id": 7, "name": "r", "runnerScaleSetId": 1}


class Services:
    """Makes transports, and remembers for what."""

    def __init__(self) -> None:
        self.made: list[tuple[ProxyConfig | None, bytes | None]] = []
        self.services: list[Scripted] = []

    def __call__(self, proxies: ProxyConfig | None, roots: bytes | None) -> Transport:
        self.made.append((proxies, roots))
        service = Scripted()
        service.will(*[reply(200, RUNNER)] * 20)
        self.services.append(service)
        return service


def cache_of(services: Services, **options: Any) -> ClientCache:
    return ClientCache(user_agent=UserAgent("tests"), clock=EventLoopClock(), transport=services, **options)


def same(one: ActionsClient, other: ActionsClient) -> bool:
    return one._connection is other._connection


@virtual
async def test_equal_settings_share_a_client_and_its_login() -> None:
    services = Services()
    cache = cache_of(services)
    for _ in range(3):
        await cache.get(replace(SETTINGS)).get_runner(7)
    assert (len(cache), len(services.services)) == (1, 1)
    assert len(services.services[0].logged_in) == 2


PROXY = ProxyConfig(https=ProxyServer("http", "proxy", 3128, "user", "password"))
OTHERS = [
    replace(SETTINGS, config_url="https://github.com/o/"),
    replace(SETTINGS, config_url="https://github.com/other"),
    replace(SETTINGS, namespace="elsewhere"),
    replace(SETTINGS, credentials=PersonalAccessToken("two"), credentials_name="other"),
    replace(SETTINGS, proxies=PROXY),
    replace(SETTINGS, proxies=ProxyConfig(https=ProxyServer("http", "proxy", 3128, "user", "other"))),
    replace(SETTINGS, proxies=ProxyConfig(https=ProxyServer("http", "proxy", 3129, "user", "password"))),
    replace(SETTINGS, proxies=replace(PROXY, no_proxy="internal.example")),
    replace(SETTINGS, roots=b"one"),
    replace(SETTINGS, roots=b"two"),
]


@virtual
async def test_everything_that_matters_makes_another_client() -> None:
    services = Services()
    cache = cache_of(services)
    clients = [cache.get(settings) for settings in [SETTINGS, *OTHERS]]
    assert len({id(client._connection) for client in clients}) == len(clients) == len(cache)
    assert services.made[5] == (PROXY, None)
    assert services.made[9] == (None, b"one")
    assert all(same(client, cache.get(settings)) for client, settings in zip(clients, [SETTINGS, *OTHERS], strict=True))


@virtual
async def test_equal_credentials_of_two_places_share_a_client() -> None:
    cache = cache_of(Services())
    assert same(cache.get(SETTINGS), cache.get(replace(SETTINGS, credentials_name="copy")))


@virtual
async def test_replaced_credentials_close_the_old_client_once_nobody_uses_it() -> None:
    services = Services()
    cache = cache_of(services)
    old = cache.get(SETTINGS)
    await old.get_runner(7)
    new = cache.get(ROTATED)
    assert not same(old, new)
    assert len(cache) == 1
    # Whoever still has it in hand goes on.
    await old.get_runner(7)
    services.services[0].script.appendleft(hang)
    poll = asyncio.ensure_future(old.get_runner(7))

    def closed() -> list[bool]:
        return [service.closed for service in services.services]

    await asyncio.sleep(300)
    cache.sweep()
    await asyncio.sleep(0)
    assert closed() == [False, False]
    poll.cancel()
    await asyncio.sleep(119)
    cache.sweep()
    await asyncio.sleep(0)
    assert closed() == [False, False]
    await asyncio.sleep(2)
    cache.sweep()
    await asyncio.sleep(0)
    assert closed() == [True, False]
    with pytest.raises(ClientClosedError):
        await old.get_runner(7)


@virtual
async def test_a_client_that_serves_another_place_stays() -> None:
    services = Services()
    cache = cache_of(services)
    other = replace(SETTINGS, credentials_name="other")
    first = cache.get(SETTINGS)
    cache.get(other)
    cache.get(ROTATED)
    assert len(cache) == 2
    assert same(cache.get(other), first)


@virtual
async def test_credentials_that_come_back() -> None:
    cache = cache_of(Services())
    cache.get(SETTINGS)
    cache.get(ROTATED)
    assert len(cache) == 1
    await cache.get(SETTINGS).get_runner(7)
    assert len(cache) == 1


@virtual
async def test_idle_clients_are_closed() -> None:
    services = Services()
    cache = cache_of(services)
    busy, idle = cache.get(SETTINGS), cache.get(OTHERS[2])
    for _ in range(11):
        await asyncio.sleep(60)
        await busy.get_runner(7)
    cache.get(SETTINGS)
    assert len(cache) == 1
    await asyncio.sleep(0)
    assert [service.closed for service in services.services] == [False, True]
    with pytest.raises(ClientClosedError):
        await idle.get_runner(7)
    assert not same(cache.get(OTHERS[2]), idle)


@virtual
async def test_the_one_unused_for_longest_goes_when_there_are_too_many() -> None:
    cache = cache_of(Services(), capacity=3)
    clients = []
    for settings in OTHERS[:3]:
        clients.append(cache.get(settings))
        await asyncio.sleep(1)
    await clients[0].get_runner(7)
    await asyncio.sleep(1)
    cache.get(OTHERS[4])
    assert len(cache) == 3
    assert same(cache.get(OTHERS[0]), clients[0])
    assert not same(cache.get(OTHERS[1]), clients[1])


@virtual
async def test_close() -> None:
    services = Services()
    cache = cache_of(services)
    clients = [cache.get(settings) for settings in (SETTINGS, ROTATED, OTHERS[1])]
    await cache.close()
    assert len(cache) == 0
    assert all(service.closed for service in services.services)
    for client in clients:
        with pytest.raises(ClientClosedError):
            await client.get_runner(7)


@virtual
async def test_what_cannot_be_a_client() -> None:
    services = Services()
    cache = cache_of(services)
    with pytest.raises(InvalidConfigURLError):
        cache.get(replace(SETTINGS, config_url="https://github.com"))
    with pytest.raises(CredentialsError):
        cache.get(replace(SETTINGS, credentials=GitHubApp("1", 2, "no key")))
    with pytest.raises(ValueError, match="namespace"):
        replace(SETTINGS, namespace="")
    assert len(cache) == 0
    # And nothing of the failure is kept.
    cache.get(SETTINGS)


@virtual
async def test_roots_that_are_none() -> None:
    cache = ClientCache(user_agent=UserAgent("tests"), clock=EventLoopClock())
    with pytest.raises(RootCertificatesError, match="no certificate in the PEM data"):
        cache.get(replace(SETTINGS, roots=b"nothing"))


@virtual
async def test_all_clients_share_githubs_limit_and_obey_the_same_switches() -> None:
    services = Services()
    cache = cache_of(services)
    one, other = cache.get(SETTINGS), cache.get(OTHERS[2])
    assert one._connection._registrations is other._connection._registrations is not None
    forced = cache_of(services, force_ghes=True).get(SETTINGS)
    assert not forced.config.hosted
    assert forced._connection._registrations is None


def test_settings_show_no_secret() -> None:
    shown = repr(replace(SETTINGS, proxies=PROXY, roots=b"roots"))
    assert "password" not in shown
    assert "'one'" not in shown


def test_repr_of_settings_shows_nothing_secret_of_the_url() -> None:
    settings = replace(SETTINGS, config_url="https://user:password@github.com/org?token=hidden")
    for text in (repr(settings), pretty_repr(settings)):
        assert not any(secret in text for secret in ("password", "user", "hidden"))
