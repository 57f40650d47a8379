"""Describes a kind of API object: where it is served, and the struct that its objects decode into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from runherd.api.meta import ObjectMeta

__all__ = ["ApiObject", "Resource"]


class ApiObject(Protocol):
    """What every object struct has."""

    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A served kind: ``group`` (``""`` for core), ``version``, ``plural``, ``kind``, and ``type``, its struct."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        """``apiVersion`` as objects carry it: ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """The path under which this API version is served: ``/api/v1`` or ``/apis/group/version``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
