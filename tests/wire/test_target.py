from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.wire.target import Target, describe
from runherd.wire.transport import Request


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h", ("http", "h", 80, "h", "/", "http://h/")),
        ("https://h/", ("https", "h", 443, "h", "/", "https://h/")),
        ("HTTPS://H.Example:443/A?B=C", ("https", "h.example", 443, "h.example", "/A", "https://h.example/A?B=C")),
        ("http://h:443/", ("http", "h", 443, "h:443", "/", "http://h:443/")),
        ("http://[FE80::1]:8080/a", ("http", "fe80::1", 8080, "[fe80::1]:8080", "/a", "http://[fe80::1]:8080/a")),
        ("http://h?q#f", ("http", "h", 80, "h", "/", "http://h/?q")),
        ("http://h/a#f?g", ("http", "h", 80, "h", "/a", "http://h/a")),
        ("http://under_score.h-h./~", ("http", "under_score.h-h.", 80, "under_score.h-h.", "/~", "http://under_score.h-h./~")),
    ],
)  # fmt: skip
def test_parse(url: str, expected: tuple[str, str, int, str, str, str]) -> None:
    assert Target.parse(url) == expected


@given(st.text())
def test_parse_takes_any_text(text: str) -> None:
    for url in (text, f"http://{text}", f"https://h/{text}", f"http://h?{text}"):
        try:
            target = Target.parse(url)
        except ValueError:
            continue
        assert target.url.isascii()
        assert target.url.isprintable()
        assert " " not in target.url
        assert Target.parse(target.url) == target


def test_describe_leaves_out_what_may_be_secret() -> None:
    assert describe(Request("GET", "https://h:444/a/b?token=secret#secret")) == "GET https://h:444/a/b"
    assert describe(Request("GET", "https://user:secret@h/")) == "GET (not a valid URL)"
