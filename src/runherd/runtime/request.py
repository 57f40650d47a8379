"""What a reconcile is about: the name of one object."""

from __future__ import annotations

from typing import NamedTuple

from runherd.api.resource import ApiObject

__all__ = ["Request"]


class Request(NamedTuple):
    """Names the object to reconcile; says nothing of what happened to it (level-triggered).

    ``namespace`` is ``""`` for kinds that have none. It is also the key of an object in a store.
    """

    namespace: str
    name: str

    @classmethod
    def of(cls, object_: ApiObject) -> Request:
        """The request that names ``object_``."""
        metadata = object_.metadata
        return cls(metadata.namespace, metadata.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
