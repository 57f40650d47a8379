"""Which proxy a request goes through, by Go's rules (``docs/spec/actions-service.md`` 8.3).

Python's own HTTP libraries match ``no_proxy`` by suffix, let one scheme's proxy stand in for the other's, and look at
the environment for every request; Go does none of that, and what users have configured was written for Go. Hence the
rules are here, explicitly, and are evaluated from settings that were read once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import unquote

from runherd.wire.target import Target
from runherd.wire.transport import ProxyError

__all__ = ["ProxyConfig", "ProxyServer"]

_DEFAULT_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}

_PROXY_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?:(?P<username>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    r"(?P<host>\[[0-9a-f:.]+\]|[^\s:@/?#\[\]]+)(?::(?P<port>[0-9]{0,5}))?"
    r"(?:[/?#].*)?",
    re.IGNORECASE,
)
_MASK_LENGTH = re.compile(r"[0-9]{1,3}")

_Address = IPv4Address | IPv6Address
#: Takes host, address (where the host is one) and port of a target, and tells whether it goes without a proxy.
_Exemption = Callable[[str, "_Address | None", int], bool]


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """A proxy: ``scheme`` is http, https or socks5. ``repr`` and ``str`` show no credentials."""

    scheme: str
    host: str
    port: int
    username: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, value: str, name: str = "proxy") -> ProxyServer:
        """Read a proxy's URL; without a scheme it is ``http://``, and credentials in it are percent-decoded.

        Raises ``ValueError``, which names the setting (``name``) and not its value, when that is no proxy's address.
        """
        match = _PROXY_URL.fullmatch(value if "://" in value else f"http://{value}")
        if match is None:
            raise ValueError(f"{name}: not the address of a proxy; expected scheme://user:password@host:port")
        scheme, username, password, host, port = match.group("scheme", "username", "password", "host", "port")
        scheme = scheme.lower()
        if scheme not in _DEFAULT_PORTS:
            raise ValueError(f"{name}: proxies of scheme {scheme} are not supported; use http, https or socks5")
        number = int(port) if port else _DEFAULT_PORTS[scheme]
        if not 0 < number < 65536:
            raise ValueError(f"{name}: {number} is no port")
        # Host names always go to a socks5 proxy unresolved, which is what the h asks for.
        scheme = "socks5" if scheme == "socks5h" else scheme
        username = None if username is None else unquote(username)
        password = unquote(password or "")
        if scheme == "socks5" and not all(part.isascii() and len(part) < 256 for part in (username or "", password)):
            raise ValueError(f"{name}: socks5 allows credentials of at most 255 ASCII characters only")
        return cls(scheme, host.strip("[]"), number, username, password)

    def __str__(self) -> str:
        return f"{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> str:
        """Scheme, host and port; without credentials."""
        return f"{self.scheme}://{self._bracketed}:{self.port}"

    @property
    def authorization(self) -> str | None:
        """The value of ``Proxy-Authorization``, where the proxy has credentials."""
        if self.username is None:
            return None
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """Proxies per scheme of the target, and the targets that are exempt.

    ``http`` and ``https`` are the proxies for targets of that scheme; neither stands in for the other. ``no_proxy`` is
    a comma-separated list: ``*`` (everything), an address, a range in CIDR notation, ``example.com`` (that host and
    all below it), ``.example.com`` or ``*.example.com`` (only those below it); all but ranges may end in ``:port``.
    ``localhost`` and loopback addresses are always exempt.
    """

    http: ProxyServer | None = None
    https: ProxyServer | None = None
    no_proxy: str = ""
    #: Whether we run as a CGI program. Then HTTP_PROXY may come from a request's header, and is refused.
    cgi: bool = False
    #: Whether there are no exemptions at all: the proxy was named for one server (``proxy-url`` of a kubeconfig).
    always: bool = False
    _exemptions: tuple[_Exemption, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        exemptions = (_exemption(entry.strip().lower()) for entry in self.no_proxy.split(","))
        object.__setattr__(self, "_exemptions", tuple(exempt for exempt in exemptions if exempt is not None))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ProxyConfig:
        """Read ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``; upper case wins over lower case, and empty is unset.

        Raises ``ValueError`` for a proxy that can't be understood. (Go ignores such a value and connects directly,
        which is the one thing that a user who set a proxy doesn't want.)
        """

        def value(name: str) -> str:
            return environment.get(name) or environment.get(name.lower()) or ""

        def proxy(name: str) -> ProxyServer | None:
            return ProxyServer.parse(text, name) if (text := value(name)) else None

        return cls(
            http=proxy("HTTP_PROXY"),
            https=proxy("HTTPS_PROXY"),
            no_proxy=value("NO_PROXY"),
            cgi=bool(environment.get("REQUEST_METHOD")),
        )

    @classmethod
    def for_everything(cls, proxy: ProxyServer) -> ProxyConfig:
        """``proxy`` for every target, loopback included."""
        return cls(http=proxy, https=proxy, always=True)

    def proxy_for(self, target: Target) -> ProxyServer | None:
        """The proxy for ``target``; ``None`` is a direct connection.

        Raises :class:`~runherd.wire.transport.ProxyError` for http targets of a CGI program.
        """
        proxy = self.https if target.scheme == "https" else self.http
        if proxy is None or self.always:
            return proxy
        if self.cgi and target.scheme == "http":
            raise ProxyError(
                "HTTP_PROXY is not used when REQUEST_METHOD is set too, since then whoever sent that request may have"
                " chosen the proxy; unset one of the two"
            )
        return None if self._is_exempt(target) else proxy

    def _is_exempt(self, target: Target) -> bool:
        if target.host == "localhost":
            return True
        address = _parse_address(target.host)
        if address is not None and address.is_loopback:
            return True
        return any(exempt(target.host, address, target.port) for exempt in self._exemptions)

    def digest(self) -> str:
        """SHA-256 (hex) of everything in here, credentials included: equal for equal configurations, shows nothing."""
        proxies = [
            proxy and [proxy.scheme, proxy.host, proxy.port, proxy.username, proxy.password]
            for proxy in (self.http, self.https)
        ]
        return hashlib.sha256(json.dumps([*proxies, self.no_proxy, self.cgi, self.always]).encode()).hexdigest()


def _exemption(entry: str) -> _Exemption | None:
    """The rule that one entry of ``no_proxy`` states; ``None`` where it states nothing."""
    if entry == "*":
        return lambda _host, _address, _port: True
    network = _parse_network(entry)
    if network is not None:
        return lambda _host, address, _port: address is not None and address in network
    host, port = _split_port(entry)
    if not host:
        return None
    exempt_address = _parse_address(host)
    if exempt_address is not None:
        return lambda _host, address, target_port: address == exempt_address and port in ("", str(target_port))
    # An entry that begins with a dot leaves the domain itself out.
    host = host[1:] if host.startswith("*.") else host
    name = _to_ascii(host.removeprefix("."))
    below = f".{name}"
    domain = None if host.startswith(".") else name
    return lambda target_host, address, target_port: (
        address is None and (target_host.endswith(below) or target_host == domain) and port in ("", str(target_port))
    )


def _split_port(entry: str) -> tuple[str, str]:
    """Host and port of an entry, in which only an address in brackets may have colons if there is a port."""
    if entry.startswith("["):
        host, bracket, port = entry[1:].partition("]")
        if bracket and port.startswith(":") and not set(port[1:]) & set(":[]"):
            return host, port[1:]
        return entry, ""
    host, colon, port = entry.rpartition(":")
    if colon and ":" not in host:
        return host, port
    return entry, ""


def _parse_address(text: str) -> _Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _parse_network(text: str) -> IPv4Network | IPv6Network | None:
    _, slash, length = text.partition("/")
    # ipaddress would take a network mask as well.
    if not slash or "%" in text or not _MASK_LENGTH.fullmatch(length):
        return None
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None or network.prefixlen < 96 else ip_network((mapped, network.prefixlen - 96))


def _to_ascii(name: str) -> str:
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name
