"""Objects and handlers for tests of the runtime."""

from __future__ import annotations

from runherd.api.core import Pod, PodStatus
from runherd.api.meta import ObjectMeta, OwnerReference
from runherd.api.resource import ApiObject
from runherd.runtime.request import Request

__all__ = ["Recorder", "Replica", "owned_by", "pod"]


def pod(
    name: str,
    version: int,
    uid: str = "",
    *,
    namespace: str = "default",
    phase: str = "",
    labels: dict[str, str] | None = None,
    owner: OwnerReference | None = None,
) -> Pod:
    """A pod of this resource version; by default its UID is its name."""
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or name,
            resource_version=str(version),
            labels=labels or {},
            owner_references=[owner] if owner else [],
        ),
        status=PodStatus(phase=phase),
    )


def owned_by(
    name: str, kind: str = "EphemeralRunner", api_version: str = "actions.github.com/v1alpha1"
) -> OwnerReference:
    """A controller owner reference."""
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=f"uid-of-{name}", controller=True)


class Recorder:
    """Keeps the events it is told of, as text: ``add a@1``, ``update a@1->2``, ``delete a@2``."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def take(self) -> list[str]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    def on_add(self, object_: ApiObject) -> None:
        self.events.append(f"add {object_.metadata.name}@{object_.metadata.resource_version}")

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        versions = f"{old.metadata.resource_version}->{new.metadata.resource_version}"
        self.events.append(f"update {new.metadata.name}@{versions}")

    def on_delete(self, object_: ApiObject) -> None:
        self.events.append(f"delete {object_.metadata.name}@{object_.metadata.resource_version}")


class Replica:
    """Follows a store by its events alone; complains about any that doesn't fit what came before."""

    def __init__(self) -> None:
        self.objects: dict[Request, ApiObject] = {}

    def on_add(self, object_: ApiObject) -> None:
        key = Request.of(object_)
        assert key not in self.objects, f"{key} was added twice"
        self.objects[key] = object_

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        key = Request.of(new)
        assert self.objects[key] is old
        assert old.metadata.uid == new.metadata.uid
        self.objects[key] = new

    def on_delete(self, object_: ApiObject) -> None:
        known = self.objects.pop(Request.of(object_))
        assert known.metadata.uid == object_.metadata.uid
