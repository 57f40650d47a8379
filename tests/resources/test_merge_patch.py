from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runherd.resources.merge_patch import merge_patch_between

scalars = st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def test_what_a_patch_says() -> None:
    live = {"same": 1, "gone": 1, "map": {"kept": 1, "gone": 2}, "list": [1, 2], "kind": {"a": 1}}
    desired = {"same": 1, "new": "x", "map": {"kept": 1, "new": 3}, "list": [1], "kind": "scalar"}
    assert merge_patch_between(live, desired) == {
        "gone": None,
        "new": "x",
        "map": {"gone": None, "new": 3},
        "list": [1],
        "kind": "scalar",
    }


def test_a_number_is_no_boolean() -> None:
    assert merge_patch_between({"a": 1, "b": [0]}, {"a": True, "b": [False]}) == {"a": True, "b": [False]}


@given(objects, objects)
def test_a_patch_leads_to_what_is_desired(live: dict[str, Any], desired: dict[str, Any]) -> None:
    before = copy.deepcopy((live, desired))
    patch = merge_patch_between(live, desired)
    assert (live, desired) == before
    assert as_json(applied(live, patch)) == as_json(desired)
    assert merge_patch_between(desired, desired) == {}


def applied(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result


def as_json(value: Any) -> Any:
    """``value`` with booleans that don't equal numbers."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return (type(value).__name__, value)
