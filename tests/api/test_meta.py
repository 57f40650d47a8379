from __future__ import annotations

import gc

import msgspec

from runherd.api.core import Pod
from runherd.api.meta import ApiStruct, ObjectMeta, OwnerReference, always


class Counts(ApiStruct, frozen=True, kw_only=True):
    always_written: int = always(0)
    left_out: int = 0


def test_always_writes_a_default() -> None:
    assert msgspec.json.encode(Counts()) == b'{"alwaysWritten":0}'
    assert msgspec.json.decode(b"{}", type=Counts) == Counts()
    assert msgspec.json.encode(msgspec.json.decode(b'{"leftOut":0}', type=Counts)) == b'{"alwaysWritten":0}'


def test_controller_owner_is_the_one_that_controls() -> None:
    def owner(name: str, controller: bool) -> OwnerReference:
        return OwnerReference(api_version="v1", kind="Pod", name=name, uid=name, controller=controller)

    references = [owner("a", controller=False), owner("b", controller=True), owner("c", controller=True)]
    assert ObjectMeta(owner_references=references).controller_owner() == references[1]
    assert ObjectMeta(owner_references=references[:1]).controller_owner() is None


def test_decoded_objects_are_not_tracked_by_the_garbage_collector() -> None:
    pod = msgspec.json.decode(b'{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c"}]}}', type=Pod)
    assert not gc.is_tracked(pod)
    assert not gc.is_tracked(pod.metadata)
    assert not gc.is_tracked(pod.spec.containers[0])
