from __future__ import annotations

from typing import Any

import pytest

from runherd.local.apiserver.jsonpath import JsonPathError, compile_path, simple_path

_VALUE = {
    "spec": {"a.b": 1, "list": [{"n": "x", "on": True}, {"n": "y", "on": False}], "map": {"k": "v"}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.map.k", ["v"]),
        (".spec.none.k", []),
        (".spec['a.b']", [1]),
        (r".spec.a\.b", [1]),
        ('.spec["map"].k', ["v"]),
        (".spec.list[0].n", ["x"]),
        (".spec.list[-1].n", ["y"]),
        (".spec.list[9].n", []),
        (".spec.list[*].n", ["x", "y"]),
        (".spec.map.*", ["v"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type!='Ready')].status", ["False"]),
        (".spec.list[?(@.on==true)].n", ["x"]),
        ('.status.conditions[?(@.type=="None")].status', []),
    ],
)
def test_what_a_path_finds(path: str, found: list[Any]) -> None:
    assert compile_path(path)(_VALUE) == found


@pytest.mark.parametrize("path", ["spec", ".spec[", ".spec[a]", ".spec..x", ".spec[?(@.a=~'x')]", "{.spec}"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(JsonPathError):
        compile_path(path)


def test_simple_paths() -> None:
    assert simple_path(".spec.color") == ["spec", "color"]
    for path in ("spec.color", ".spec[0]", "."):
        with pytest.raises(JsonPathError):
            simple_path(path)
