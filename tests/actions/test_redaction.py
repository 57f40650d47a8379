"""Foreign texts, made fit to be shown."""

from __future__ import annotations

import pytest

from runherd.actions.redaction import harmless


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A runner exists with the same name arc-set-abcde-runner-x7k2p.", None),
        ("GitHub.DistributedTask.WebApi.TaskAgentExistsException", None),
        ("The session 6b1c7a1e-5f0a-4c39-9c0e-0d9a1d0f2b11 is held by team-a-754b578d-listener", None),
        ("see https://docs.github.com/rest/overview/rate-limits for more", None),
        ("your secret", "your [hidden]"),
        ("secretive secret-1", "[hidden]ive [hidden]"),
        ("bad token ghs_0123456789abcdef", "bad token [hidden]"),
        ("bad token github_pat_11AAA_bbb", "bad token [hidden]"),
        ("bad token eyJhbGciOi.eyJleHAi.c2ln!", "bad token [hidden]!"),
        ("config " + "QUJD" * 10 + "=", "config [hidden]"),
        ("GET https://user:password@host:8080/path?key=value#x failed", "GET https://host:8080/path failed"),
        ("one\r\n two\tthree", "one two three"),
    ],
)
def test_harmless(text: str, expected: str | None) -> None:
    assert harmless(text, ("secret", "secret-1", "x", ""), 200) == (text if expected is None else expected)


def test_long_texts_are_cut_after_secrets_are_hidden() -> None:
    assert harmless("abc secret", ("secret",), 6) == "abc [h..."
