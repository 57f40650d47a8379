from __future__ import annotations

from runherd.api.core import Pod
from runherd.runtime.predicate import Predicate, changed, resource_version_changed
from tests.runtime.objects import pod


def test_what_is_not_given_passes() -> None:
    predicate: Predicate[Pod] = Predicate(delete=lambda _: False)
    assert predicate.create(pod("a", 1))
    assert predicate.update(pod("a", 1), pod("a", 1))
    assert not predicate.delete(pod("a", 1))


def test_updates_with_equal_resource_version_are_dropped_and_nothing_else() -> None:
    """docs/spec/controllers.md 1.3"""
    assert not resource_version_changed.update(pod("a", 1), pod("a", 1, phase="Running"))
    assert resource_version_changed.update(pod("a", 1), pod("a", 2))
    assert resource_version_changed.create(pod("a", 1))
    assert resource_version_changed.delete(pod("a", 1))


def test_changed_compares_what_the_reconciler_reads() -> None:
    predicate: Predicate[Pod] = changed(lambda object_: (object_.status.phase, object_.metadata.labels))
    assert not predicate.update(pod("a", 1), pod("a", 2))
    assert predicate.update(pod("a", 1), pod("a", 2, phase="Running"))
    assert predicate.update(pod("a", 1), pod("a", 2, labels={"x": "y"}))
    assert predicate.create(pod("a", 1))
    assert predicate.delete(pod("a", 1))
