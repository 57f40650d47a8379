"""Which kinds are served: the built-in ones, and those of the CustomResourceDefinitions in the store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from runherd.local.apiserver import crds
from runherd.local.apiserver.builtins import BUILTIN_KINDS
from runherd.local.apiserver.kinds import Kind, Object, Rules
from runherd.local.apiserver.metadata import format_time
from runherd.local.apiserver.store import Event, Store
from runherd.local.apiserver.writes import object_of
from runherd.wire.clock import Clock

__all__ = ["CRD_RESOURCE", "Registry"]

CRD_RESOURCE = "customresourcedefinitions.apiextensions.k8s.io"


class Registry:
    """Kinds by where they are served. Follows the store: a definition counts as soon as it is written."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._clock = clock
        rules = Rules(
            default=crds.default,
            prepare_create=self._prepare_definition,
            prepare_update=crds.prepare_update,
            validate=crds.check,
            validate_update=crds.check_update,
        )
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._definitions: dict[str, tuple[Object, list[Kind]]] = {}
        for kind in BUILTIN_KINDS:
            self._add(replace(kind, rules=rules) if kind.resource == CRD_RESOURCE else kind)
        store.observe(self._follow)
        self._store = store

    def load(self) -> None:
        """Take over the definitions that the store was opened with."""
        for record in self._store.list(CRD_RESOURCE):
            self._define(record.key.name, object_of(record))

    def get(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def all(self) -> Iterable[Kind]:
        """Every kind in every version."""
        return self._kinds.values()

    def groups(self) -> dict[str, list[str]]:
        """The versions of every group, the preferred one first; the core group is ``""``."""
        result: dict[str, list[str]] = {}
        for kind in self._kinds.values():
            versions = result.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        for versions in result.values():
            versions.sort(key=_version_priority)
        return result

    def in_version(self, group: str, version: str) -> list[Kind]:
        return [kind for kind in self._kinds.values() if kind.group == group and kind.version == version]

    def stored(self, resource: str) -> Kind | None:
        """The kind of a resource, in the version in which the server itself deals with it."""
        return next((kind for kind in self._kinds.values() if kind.resource == resource), None)

    def of_object(self, api_version: str, kind: str) -> Kind | None:
        """The kind that an object's ``apiVersion`` and ``kind`` name."""
        return next(
            (each for each in self._kinds.values() if each.kind == kind and each.api_version == api_version), None
        )

    def definition(self, kind: Kind) -> Object | None:
        """The definition that a custom kind comes from."""
        found = self._definitions.get(kind.resource)
        return found[0] if found is not None else None

    def _add(self, kind: Kind) -> None:
        self._kinds[kind.group, kind.version, kind.plural] = kind

    def _follow(self, event: Event) -> None:
        key = event.record.key
        if key.resource != CRD_RESOURCE:
            return
        definition = object_of(event.record)
        known = self._definitions.get(key.name)
        if event.type == "DELETED":
            self._forget(key.name)
        elif (
            known is None
            or known[0]["spec"] != definition["spec"]
            or known[0].get("status") != definition.get("status")
        ):
            self._define(key.name, definition)

    def _define(self, name: str, definition: Object) -> None:
        self._forget(name)
        kinds = crds.kinds_of(definition) if crds.is_established(definition) else []
        self._definitions[name] = (definition, kinds)
        for kind in kinds:
            self._add(kind)

    def _forget(self, name: str) -> None:
        _, kinds = self._definitions.pop(name, ({}, []))
        for kind in kinds:
            del self._kinds[kind.group, kind.version, kind.plural]

    def _prepare_definition(self, definition: Object) -> None:
        """Decide on a new definition's names, which no other kind of its group may have."""
        spec = definition["spec"]
        names = spec.get("names", {})
        now = format_time(self._clock.now())
        accepted, established = (
            True,
            {"reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
        )
        naming = {"reason": "NoConflicts", "message": "no conflicts found"}
        conflict = self._conflict(spec.get("group", ""), names)
        if conflict is not None:
            accepted = False
            naming = {"reason": conflict[0], "message": f'"{conflict[1]}" is already in use'}
            established = {"reason": "NotAccepted", "message": "not all names are accepted"}
        status = "True" if accepted else "False"
        versions = [version.get("name", "") for version in spec.get("versions") or () if version.get("storage")]
        definition["status"] = {
            "conditions": [
                {"type": "NamesAccepted", "status": status, "lastTransitionTime": now, **naming},
                {"type": "Established", "status": status, "lastTransitionTime": now, **established},
            ],
            "acceptedNames": names if accepted else {"plural": "", "kind": ""},
            "storedVersions": versions,
        }
        finalizers = definition["metadata"].setdefault("finalizers", [])
        if crds.CLEANUP_FINALIZER not in finalizers:
            finalizers.append(crds.CLEANUP_FINALIZER)

    def _conflict(self, group: str, names: Object) -> tuple[str, str] | None:
        """The reason why names are not accepted, and the name of another kind of the group."""
        others = [kind for kind in self._kinds.values() if kind.group == group]
        resources = {name for kind in others for name in (kind.plural, kind.singular, *kind.short_names)}
        kinds = {name for kind in others for name in (kind.kind, kind.list_kind)}
        conflict = None
        # As on the real server, the last conflict is the one that is told.
        for field, taken in (("plural", resources), ("singular", resources)):
            if names.get(field) in taken:
                conflict = f"{field.capitalize()}Conflict", names[field]
        for name in names.get("shortNames") or ():
            if name in resources:
                conflict = "ShortNamesConflict", name
        for field, reason in (("kind", "KindConflict"), ("listKind", "ListKindConflict")):
            if names.get(field) in kinds:
                conflict = reason, names[field]
        return conflict


def _version_priority(version: str) -> tuple[int, int, int, str]:
    """Sorts as Kubernetes does: stable before beta before alpha, newer before older, then other names."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), "")
