"""Objects of any kind as plain data, for manifests and for fields that no struct names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from runherd.api.meta import ObjectMeta
from runherd.api.resource import Resource

__all__ = ["DynamicObject", "dynamic_resource"]


class DynamicObject:
    """An object as the server sent it. ``repr`` shows which one it is and no content, which may be secret."""

    # No dataclass, which msgspec would decode by its fields.
    __slots__ = ("body",)

    def __init__(self, body: dict[str, Any]) -> None:
        #: All of the object, as decoded JSON.
        self.body = body

    def __repr__(self) -> str:
        return f"DynamicObject({self.kind} {self.metadata.namespace}/{self.metadata.name})"

    @property
    def api_version(self) -> str:
        return str(self.body.get("apiVersion", ""))

    @property
    def kind(self) -> str:
        return str(self.body.get("kind", ""))

    @property
    def metadata(self) -> ObjectMeta:
        """The part of the metadata that :class:`~runherd.api.meta.ObjectMeta` names."""
        return msgspec.convert(self.body.get("metadata", {}), ObjectMeta)


def dynamic_resource(
    group: str, version: str, plural: str, kind: str, *, namespaced: bool = True
) -> Resource[DynamicObject]:
    """Describes a kind whose objects are to be read as :class:`DynamicObject`."""
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced, type=DynamicObject)


def from_plain(type_: type[Any], value: Any) -> Any:
    """msgspec's ``dec_hook``: makes a :class:`DynamicObject` of decoded JSON."""
    if type_ is DynamicObject and isinstance(value, dict):
        return DynamicObject(value)
    raise TypeError(f"can't make {type_.__name__} of {type(value).__name__}")


def to_plain(value: Any) -> Mapping[str, Any]:
    """msgspec's ``enc_hook``: the body of a :class:`DynamicObject`."""
    if isinstance(value, DynamicObject):
        return value.body
    raise TypeError(f"can't encode {type(value).__name__}")
