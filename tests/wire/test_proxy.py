from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.wire.proxy import ProxyConfig, ProxyServer
from runherd.wire.target import Target
from runherd.wire.transport import ProxyError

PROXY = ProxyServer("http", "proxy", 3128)


def goes_direct(no_proxy: str, url: str) -> bool:
    return ProxyConfig(http=PROXY, https=PROXY, no_proxy=no_proxy).proxy_for(Target.parse(url)) is None


# Which proxy (docs/spec/actions-service.md 8.3).


@pytest.mark.parametrize(
    ("environment", "http", "https"),
    [
        ({}, None, None),
        ({"HTTP_PROXY": "h:1"}, "http://h:1", None),
        ({"HTTPS_PROXY": "h:1"}, None, "http://h:1"),
        ({"http_proxy": "h:1", "https_proxy": "https://s:2"}, "http://h:1", "https://s:2"),
        ({"HTTP_PROXY": "upper:1", "http_proxy": "lower:1"}, "http://upper:1", None),
        ({"HTTPS_PROXY": "", "https_proxy": "lower:1"}, None, "http://lower:1"),
        ({"ALL_PROXY": "h:1", "Http_Proxy": "h:1"}, None, None),
        ({"HTTP_PROXY": "h:1", "NO_PROXY": "other", "no_proxy": "*"}, "http://h:1", None),
        ({"HTTP_PROXY": "h:1", "NO_PROXY": "", "no_proxy": "*"}, None, None),
    ],
)
def test_from_environment(environment: dict[str, str], http: str | None, https: str | None) -> None:
    config = ProxyConfig.from_environment(environment)
    for url, expected in (("http://example.com/", http), ("https://example.com/", https)):
        proxy = config.proxy_for(Target.parse(url))
        assert (proxy and proxy.url) == expected


def test_a_cgi_program_does_not_trust_http_proxy() -> None:
    config = ProxyConfig.from_environment({"REQUEST_METHOD": "GET", "HTTP_PROXY": "h:1", "HTTPS_PROXY": "h:1"})
    assert config.proxy_for(Target.parse("https://example.com/")) is not None
    with pytest.raises(ProxyError, match="REQUEST_METHOD"):
        config.proxy_for(Target.parse("http://example.com/"))


def test_a_proxy_for_everything_knows_no_exemptions() -> None:
    config = ProxyConfig.for_everything(PROXY)
    for url in ("http://localhost/", "https://127.0.0.1/", "https://example.com/"):
        assert config.proxy_for(Target.parse(url)) == PROXY


# A proxy's address.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("proxy", ProxyServer("http", "proxy", 80)),
        ("proxy:3128", ProxyServer("http", "proxy", 3128)),
        ("10.0.0.1:3128", ProxyServer("http", "10.0.0.1", 3128)),
        ("http://proxy", ProxyServer("http", "proxy", 80)),
        ("HTTPS://proxy", ProxyServer("https", "proxy", 443)),
        ("https://proxy:8443/", ProxyServer("https", "proxy", 8443)),
        ("socks5://proxy", ProxyServer("socks5", "proxy", 1080)),
        ("socks5h://proxy:9", ProxyServer("socks5", "proxy", 9)),
        ("http://[::1]:3128", ProxyServer("http", "::1", 3128)),
        ("http://proxy:", ProxyServer("http", "proxy", 80)),
        ("http://user:pass@proxy:1", ProxyServer("http", "proxy", 1, "user", "pass")),
        ("user:pass@proxy:1", ProxyServer("http", "proxy", 1, "user", "pass")),
        ("http://user@proxy", ProxyServer("http", "proxy", 80, "user", "")),
        ("http://u%40d:p%3A%2F%25%C3%A4@proxy", ProxyServer("http", "proxy", 80, "u@d", "p:/%ä")),
        ("http://proxy/path?query", ProxyServer("http", "proxy", 80)),
    ],
)
def test_parse(value: str, expected: ProxyServer) -> None:
    assert ProxyServer.parse(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "http://",
        "http://user:secret@",
        "ftp://user:secret@h",
        "http://user:secret@h:99999",
        "http://user:secret@h:1x",
        "//secret",
        "socks5://user:secret%C3%A4@h",
        f"socks5://user:{'secret' * 50}@h",
    ],
)
def test_an_address_that_cannot_be_understood(value: str) -> None:
    with pytest.raises(ValueError, match="HTTPS_PROXY") as raised:
        ProxyConfig.from_environment({"https_proxy": value})
    assert "secret" not in str(raised.value)


def test_credentials() -> None:
    assert PROXY.authorization is None
    # RFC 7617's own examples.
    assert ProxyServer("http", "h", 1, "Aladdin", "open sesame").authorization == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert ProxyServer("http", "h", 1, "test", "123£").authorization == "Basic dGVzdDoxMjPCow=="
    assert ProxyServer("http", "h", 1, "user").authorization == "Basic dXNlcjo="


def test_nothing_shows_credentials() -> None:
    proxy = ProxyServer.parse("http://user:secret@h:1")
    config = ProxyConfig(http=proxy, https=proxy)
    for shown in (repr(proxy), str(proxy), proxy.url, f"{proxy}", repr(config), str(config), config.digest()):
        assert "user" not in shown
        assert "secret" not in shown
    assert str(ProxyServer("http", "::1", 1)) == "[::1]:1"


def test_the_digest_tells_configurations_apart() -> None:
    one = ProxyServer("http", "h", 1, "user", "secret")
    configs = [
        ProxyConfig(),
        ProxyConfig(http=one),
        ProxyConfig(https=one),
        ProxyConfig(http=one, https=one),
        ProxyConfig(http=one, https=one, no_proxy="a"),
        ProxyConfig(http=one, https=one, cgi=True),
        ProxyConfig.for_everything(one),
        ProxyConfig(http=ProxyServer("http", "h", 1, "user", "other")),
        ProxyConfig(http=ProxyServer("http", "h", 1, "use", "rsecret")),
        ProxyConfig(http=ProxyServer("http", "h", 1)),
        ProxyConfig(http=ProxyServer("http", "h", 1, "")),
        ProxyConfig(http=ProxyServer("https", "h", 1, "user", "secret")),
    ]
    digests = [config.digest() for config in configs]
    assert len(set(digests)) == len(configs)
    assert digests[3] == ProxyConfig(http=one, https=ProxyServer.parse("http://user:secret@h:1")).digest()


# Exemptions.


@pytest.mark.parametrize(
    ("no_proxy", "direct", "proxied"),
    [
        ("", "localhost LOCALHOST localhost:8080 127.0.0.1 127.9.9.9:1 [::1] [::ffff:127.0.0.1]", "local 128.0.0.1"),
        ("", "", "localhost.localdomain sub.localhost localhost. 127.0.0.1.example.com"),
        ("*", "example.com 10.0.0.1 [fe80::1] a.b.c:99", ""),
        ("a, * ,b", "example.com 10.0.0.1", ""),
        ("*:80", "", "example.com 10.0.0.1"),
        ("example.com", "example.com sub.example.com a.b.example.com example.com:81", "notexample.com example.com.a"),
        (" Example.COM ,", "example.com SUB.example.com", "example.org"),
        (".example.com", "sub.example.com a.b.example.com", "example.com notexample.com"),
        ("*.example.com", "sub.example.com a.b.example.com", "example.com notexample.com"),
        ("*example.com", "", "example.com sub.example.com notexample.com"),
        ("example.com:80", "example.com sub.example.com example.com:80", "example.com:81"),
        ("example.com:", "example.com example.com:81", "example.org"),
        (".example.com:8443", "sub.example.com:8443", "sub.example.com example.com:8443"),
        ("com", "example.com com a.b.com", "example.org"),
        ("10.0.0.1", "10.0.0.1 10.0.0.1:99 [::ffff:10.0.0.1] [::ffff:a00:1]", "10.0.0.2 110.0.0.1 x.10.0.0.1.example"),
        ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ("10.0.0.1:8080", "10.0.0.1:8080", "10.0.0.1 10.0.0.1:8081"),
        ("010.0.0.1", "", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.1 10.255.255.255:99 [::ffff:10.1.2.3]", "11.0.0.1 example.com"),
        ("::ffff:10.0.0.0/104", "10.0.0.1 [::ffff:10.1.2.3]", "11.0.0.1"),
        ("10.1.2.3/8", "10.0.0.1", "11.0.0.1"),
        ("10.0.0.0/255.0.0.0", "", "10.0.0.1"),
        ("10.0.0.0/8:80", "", "10.0.0.1"),
        ("fe80::1", "[fe80::1] [FE80::1]:99 [fe80:0::1]", "[fe80::2]"),
        ("[fe80::1]", "", "[fe80::1]"),
        ("[fe80::1]:80", "[fe80::1] [fe80::1]:80", "[fe80::1]:81"),
        ("fe80::/16", "[fe80::1] [fe80:1::]:99", "[fe81::1] 10.0.0.1"),
        ("0.0.0.0/0", "10.0.0.1", "[fe80::1] example.com"),
        ("1.2.3", "", "1.2.3.4 4.1.2.3"),
        (":80,,  ,:,[]:80,.", "", "example.com 10.0.0.1"),
        ("a.example,10.0.0.0/8,.b.example", "a.example 10.9.9.9 x.b.example", "b.example c.example 11.0.0.1"),
        ("http://example.com", "", "example.com"),
        ("münchen.example", "xn--mnchen-3ya.example www.xn--mnchen-3ya.example", "munchen.example"),
    ],
)  # fmt: skip
def test_no_proxy(no_proxy: str, direct: str, proxied: str) -> None:
    for target in direct.split():
        assert goes_direct(no_proxy, f"http://{target}/"), target
    for target in proxied.split():
        assert not goes_direct(no_proxy, f"http://{target}/"), target


def test_the_default_port_is_filled_in_by_scheme() -> None:
    assert goes_direct("example.com:443", "https://example.com/")
    assert not goes_direct("example.com:443", "http://example.com/")
    assert goes_direct("example.com:80", "http://example.com/")


@given(
    st.text(alphabet="*.:[]/,0123456789abcdef-x ", max_size=30),
    st.ip_addresses() | st.from_regex(r"[a-f.]{1,9}", fullmatch=True),
)
def test_no_entry_breaks_the_rules(no_proxy: str, host: IPv4Address | IPv6Address | str) -> None:
    url = f"http://[{host}]/" if isinstance(host, IPv6Address) else f"http://{host}/"
    direct = goes_direct(no_proxy, url)
    # An entry of its own can only add exemptions.
    assert goes_direct(f"{no_proxy},*", url)
    assert goes_direct(f"{no_proxy},{host}", url)
    assert goes_direct(f"{no_proxy},other.example", url) == direct


@given(st.text(max_size=20), st.text(max_size=20))
def test_credentials_survive_the_url(username: str, password: str) -> None:
    proxy = ProxyServer.parse(f"http://{quote(username, safe='')}:{quote(password, safe='')}@h:1")
    assert (proxy.username, proxy.password) == (username, password)
