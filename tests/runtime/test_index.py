from __future__ import annotations

import msgspec
import pytest

from runherd.api.core import Pod
from runherd.api.meta import OwnerReference
from runherd.runtime.index import Index, controller_owner_index, label_index
from runherd.runtime.request import Request
from tests.runtime.objects import owned_by, pod


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (owned_by("er"), ["er"]),
        (owned_by("al", "AutoscalingListener"), ["al"]),
        (owned_by("other", "ReplicaSet"), []),
        (owned_by("er", api_version="actions.github.com/v1"), []),
        (msgspec.structs.replace(owned_by("er"), controller=False), []),
        (None, []),
    ],
)
def test_controller_owner_index_takes_the_name_of_an_owner_of_just_that_version_and_kind(
    owner: OwnerReference | None, expected: list[str]
) -> None:
    """docs/spec/controllers.md 1.1"""
    function = controller_owner_index("actions.github.com/v1alpha1", "AutoscalingListener", "EphemeralRunner")
    assert list(function(pod("a", 1, owner=owner))) == expected


def test_label_index() -> None:
    function = label_index("runner-pod")
    assert list(function(pod("a", 1, labels={"runner-pod": "er"}))) == ["er"]
    assert list(function(pod("a", 1, labels={"other": "er"}))) == []
    assert list(function(pod("a", 1, labels={"runner-pod": ""}))) == [""]


def test_an_object_can_be_found_under_several_values_and_leaves_nothing_behind() -> None:
    index: Index[Pod] = Index(lambda object_: object_.metadata.labels.values())
    key = Request("default", "a")
    first = pod("a", 1, labels={"k1": "x", "k2": "y", "k3": "x"})
    index.replace(key, None, first)
    assert list(index.find("default", "x")) == [first]
    second = pod("a", 2, labels={"k1": "z", "k2": "y"})
    index.replace(key, first, second)
    assert list(index.find("default", "x")) == []
    assert list(index.find("default", "y")) == [second]
    assert list(index.find("other", "y")) == []
    index.replace(key, second, None)
    assert index._buckets == {}
