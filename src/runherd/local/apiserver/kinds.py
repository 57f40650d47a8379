"""What the server knows about a kind: everything in which kinds differ is data in a :class:`Kind`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runherd.local.apiserver.errors import FieldError, qualified
from runherd.local.apiserver.names import NameRule, dns_subdomain_problems
from runherd.local.apiserver.schema import Schema
from runherd.local.apiserver.validation import Validator

__all__ = ["ALL_VERBS", "Column", "Kind", "Object", "Rules"]

Object = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the Table that kubectl prints. ``priority`` above 0 shows with ``-o wide`` only.

    ``cell`` gets the object and the present moment's age function, and returns the cell.
    """

    name: str
    cell: Callable[[Object, Callable[[str | None], str]], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


def _nothing(new: Object) -> None:
    return None


def _no_change(new: Object, old: Object) -> None:
    return None


def _no_errors(new: Object) -> Sequence[FieldError]:
    return ()


def _no_update_errors(new: Object, old: Object) -> Sequence[FieldError]:
    return ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a kind does beyond its schema. All work on decoded objects; the first three change them in place."""

    #: Fill in what is absent; before every create and update.
    default: Callable[[Object], None] = _nothing
    #: Set what only the server sets on a new object.
    prepare_create: Callable[[Object], None] = _nothing
    #: Keep (``old``) what an update through the main endpoint must not touch.
    prepare_update: Callable[[Object, Object], None] = _no_change
    validate: Callable[[Object], Sequence[FieldError]] = _no_errors
    validate_update: Callable[[Object, Object], Sequence[FieldError]] = _no_update_errors


@dataclass(frozen=True)
class Kind:
    """A served kind in one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    schema: Schema
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    list_kind: str = ""
    verbs: Sequence[str] = ALL_VERBS
    #: ``status``, ``log``, ``binding``, ``finalize``.
    subresources: frozenset[str] = frozenset()
    #: Whether its definition asks for ``scale``, which this server leaves out.
    wants_scale: bool = False
    columns: Sequence[Column] = ()
    #: What a field selector may name, besides ``metadata.name`` and ``metadata.namespace``: label to path.
    selectable: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rules: Rules = Rules()
    name_rule: NameRule = dns_subdomain_problems
    has_generation: bool = False
    allows_create_on_update: bool = False
    allows_unconditional_update: bool = True
    #: Whether a delete answers with the object (as pods do), or with a Status.
    returns_deleted: bool = False
    #: The API version that objects are stored in, where it isn't this one.
    storage_version: str = ""
    #: Set for the kinds of CustomResourceDefinitions.
    validator: Validator | None = None
    is_custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``plural.group``: where the store keeps the objects, of whatever version."""
        return qualified(self.plural, self.group)

    @property
    def stored_api_version(self) -> str:
        return f"{self.group}/{self.storage_version}" if self.storage_version else self.api_version

    @property
    def path(self) -> str:
        """The path under which the kind's group version is served."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
