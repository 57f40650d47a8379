"""``docs/spec/actions-service.md`` 8.1."""

from __future__ import annotations

import json

from runherd.actions import UserAgent


def test_keys_and_their_order() -> None:
    agent = UserAgent("gha-scale-set-controller", version="0.1.0", commit_sha="abc", build_version="v0.4.0")
    assert agent.for_scale_set(7).header() == (
        '{"system":"actions-runner-controller","version":"0.1.0","commit_sha":"abc","scale_set_id":7,'
        '"subsystem":"gha-scale-set-controller","build_version":"v0.4.0","build_commit_sha":"unknown","kind":"scaleset"}'
    )


def test_unset_values() -> None:
    values = json.loads(UserAgent("x").header())
    assert (values["version"], values["commit_sha"], values["scale_set_id"]) == ("NA", "NA", 0)


def test_a_header_stays_one_line_of_ascii() -> None:
    header = UserAgent("sub\r\nX-Evil: ä").header()
    assert header.isascii()
    assert header.isprintable()
