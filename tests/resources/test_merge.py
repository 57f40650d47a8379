from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runherd.api.actions import ResourceMeta
from runherd.api.meta import ObjectMeta
from runherd.resources.merge import (
    annotations_with_override,
    labels_with_override,
    merge_annotations,
    merge_labels,
    metadata_patch,
)

keys = st.sampled_from(["a", "b", "example.com/x", "example.com/y", "example.community/x", "other.test/z"])
maps = st.dictionaries(keys, st.sampled_from(["1", "2", ""]))
prefixes = st.lists(st.sampled_from(["example.com/", "example.com/x", "b"]), unique=True).map(tuple)


def test_excluded_keys_are_dropped_from_both_sides() -> None:
    base = {"example.com/owner": "1", "kept": "base", "exact.test/key": "1", "exact.test/sibling": "1"}
    over = {"example.com/other": "2", "kept": "over"}
    merged = merge_labels(base, over, ("example.com/", "exact.test/key"))
    assert merged == {"kept": "over", "exact.test/sibling": "1"}


@given(maps, maps, prefixes)
def test_labels(base: dict[str, str], over: dict[str, str], excluded: tuple[str, ...]) -> None:
    before = copy.deepcopy((base, over))
    merged = merge_labels(base, over, excluded)
    assert (base, over) == before
    for key in {*base, *over}:
        if any(key.startswith(prefix) for prefix in excluded):
            assert key not in merged
        else:
            assert merged[key] == over.get(key, base.get(key))
    assert merged.keys() <= {*base, *over}


@given(maps, maps)
def test_annotations(base: dict[str, str], over: dict[str, str]) -> None:
    before = copy.deepcopy((base, over))
    merged = merge_annotations(base, over)
    merged["added"] = "by the caller"
    assert (base, over) == before
    assert merged == {**base, **over, "added": "by the caller"}


@given(maps, maps, prefixes)
def test_a_user_adds_but_does_not_change(added: dict[str, str], computed: dict[str, str], excluded: Any) -> None:
    override = ResourceMeta(labels=added, annotations=added)
    labels = labels_with_override(override, computed, excluded)
    assert labels == merge_labels(added, computed, excluded)
    assert annotations_with_override(override, computed) == {**added, **computed}
    assert override == ResourceMeta(labels=added, annotations=added)


@given(maps, prefixes)
def test_without_an_override_nothing_is_filtered(computed: dict[str, str], excluded: tuple[str, ...]) -> None:
    labels = labels_with_override(None, computed, excluded)
    assert labels == computed
    assert labels is not computed
    assert annotations_with_override(None, computed) == computed


@given(maps, maps, maps, maps, prefixes)
def test_a_patch_removes_the_drift_and_nothing_else(
    labels: dict[str, str],
    annotations: dict[str, str],
    wanted_labels: dict[str, str],
    wanted_annotations: dict[str, str],
    excluded: tuple[str, ...],
) -> None:
    live = ObjectMeta(labels=labels, annotations=annotations)
    desired = {"labels": wanted_labels, "annotations": wanted_annotations}
    patch = metadata_patch(live, desired, excluded)
    patched = ObjectMeta(
        labels=applied(labels, patch.get("labels", {})), annotations=applied(annotations, patch.get("annotations", {}))
    )
    assert patched.labels == merge_labels(labels, wanted_labels, excluded)
    assert patched.annotations == {**annotations, **wanted_annotations}
    assert metadata_patch(patched, desired, excluded) == {}


def test_a_foreign_key_is_no_drift_but_an_excluded_one_is() -> None:
    live = ObjectMeta(labels={"foreign": "1", "ours": "1"}, annotations={"foreign": "1"})
    assert metadata_patch(live, {"labels": {"ours": "1"}}) == {}
    assert metadata_patch(live, {"labels": {"ours": "1"}}, ("foreign",)) == {"labels": {"foreign": None}}


def test_an_annotation_that_another_writes_is_left_alone() -> None:
    live = ObjectMeta(annotations={"hash": "old"})
    desired = {"annotations": {"hash": "new", "other": "1"}}
    assert metadata_patch(live, desired, ignored_annotations={"hash"}) == {"annotations": {"other": "1"}}


def applied(live: dict[str, str], patch: dict[str, str | None]) -> dict[str, str]:
    """``live`` after the merge patch."""
    return {key: value for key, value in {**live, **patch}.items() if value is not None}
