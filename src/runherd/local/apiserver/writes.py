"""Creating, updating, patching and deleting objects: one set of rules for all kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from runherd.local.apiserver import metadata
from runherd.local.apiserver.decoding import check_kind, conform, encode, report_strict
from runherd.local.apiserver.deletion import Deletion, is_finished, mark_deleting
from runherd.local.apiserver.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    generate_name_conflict,
    invalid,
    invalid_value,
    not_found,
)
from runherd.local.apiserver.kinds import Kind, Object
from runherd.local.apiserver.options import DeleteOptions, FieldValidation, parse_resource_version
from runherd.local.apiserver.schema import DecodeError, apply_defaults
from runherd.local.apiserver.store import Change, Key, Record, Store
from runherd.wire.clock import Clock

__all__ = ["Deleted", "Writes", "Written", "object_of", "object_of_version"]

#: How many names are made from a ``generateName`` before the create fails.
_GENERATED_NAMES_TRIED = 8

#: Makes the new object from the current one, which it may change.
Transform = Callable[[Object], Object]


@dataclass(slots=True)
class Written:
    """What a create, update or patch led to. ``record`` is the object as it is now (or was, when it is gone)."""

    record: Record
    created: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Deleted:
    """What a delete led to: the object's last record, and whether it is gone (or only marked)."""

    record: Record
    gone: bool


def object_of(record: Record) -> Object:
    """The object that a record holds, decoded afresh: the caller may change it."""
    result: Object = msgspec.json.decode(record.value)
    return result


class Writes:
    """All writes go through here, whoever asks: clients, the garbage collector, the namespace controller."""

    def __init__(self, store: Store, clock: Clock, random: Random) -> None:
        self._store = store
        self._clock = clock
        self._random = random

    async def create(self, kind: Kind, namespace: str, new: Object) -> Written:
        """Create an object from a decoded body, which is changed. Raises :class:`ApiError` where it is refused."""
        meta: dict[str, Any] = new["metadata"]
        _match_namespace(kind, meta, namespace)
        if parse_resource_version(meta.get("resourceVersion", "")):
            raise bad_request("resourceVersion should not be set on objects to be created")
        generated = not meta.get("name") and bool(meta.get("generateName"))
        self._check_namespace(kind, Key(kind.resource, namespace, meta.get("name", "")))
        metadata.initialize(meta, self._random, self._clock.now(), generation=kind.has_generation)
        self._admit_new(kind, new)
        key = Key(kind.resource, namespace, meta["name"])

        def decide(current: Record | None, revision: int) -> Change:
            if current is not None:
                refuse = generate_name_conflict if generated else already_exists
                raise refuse(kind.group, kind.plural, key.name)
            self._check_namespace(kind, key)
            return _change(kind, new, revision)

        for _ in range(_GENERATED_NAMES_TRIED - 1 if generated else 0):
            try:
                return Written(await self._store.write(key, decide), created=True)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            meta["name"] = metadata.generated_name(meta["generateName"], self._random)
            key = Key(kind.resource, namespace, meta["name"])
        return Written(await self._store.write(key, decide), created=True)

    async def update(self, kind: Kind, key: Key, new: Object, subresource: str = "") -> Written:
        """Replace an object by a decoded body, which is changed."""
        meta: dict[str, Any] = new["metadata"]
        _match_namespace(kind, meta, key.namespace)
        if meta.setdefault("name", key.name) != key.name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({key.name})"
            )
        sent_version = parse_resource_version(meta.get("resourceVersion", ""))
        sent_uid = meta.get("uid")
        created = False
        last: Record | None = None

        def decide(current: Record | None, revision: int) -> Change | None:
            nonlocal created, last
            if current is None:
                if not kind.allows_create_on_update or subresource:
                    raise not_found(kind.group, kind.plural, key.name)
                if sent_version or sent_uid:
                    raise conflict(kind.group, kind.plural, key.name, "the object does not exist any more")
                created = True
                metadata.initialize(meta, self._random, self._clock.now(), generation=kind.has_generation)
                self._admit_new(kind, new)
                self._check_namespace(kind, key)
                return _change(kind, new, revision)
            old = object_of(current)
            if sent_uid and sent_uid != old["metadata"]["uid"]:
                raise _uid_conflict(kind, key, sent_uid, old["metadata"]["uid"])
            if not sent_version and not kind.allows_unconditional_update:
                error = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
                # The real server names the resource here where it names the kind everywhere else.
                raise invalid(kind.group, kind.plural, key.name, [error])
            if sent_version and sent_version != current.revision:
                raise conflict(kind.group, kind.plural, key.name)
            change, replaced = self._replace(kind, new, old, subresource, revision)
            last = _last_state(kind, change, replaced, current)
            return change

        record = await self._store.write(key, decide)
        return Written(last or record, created)

    async def patch(
        self, kind: Kind, key: Key, transform: Transform, subresource: str, validation: FieldValidation
    ) -> Written:
        """Change an object by ``transform``."""
        warnings: list[str] = []
        last: Record | None = None

        def decide(current: Record | None, revision: int) -> Change | None:
            nonlocal last
            if current is None:
                raise not_found(kind.group, kind.plural, key.name)
            old = object_of(current)
            old["apiVersion"] = kind.api_version
            new = transform(object_of_version(current, kind))
            warnings.extend(_conform_patched(kind, new, validation))
            meta = new["metadata"]
            if meta.get("name") != key.name:
                raise bad_request(
                    f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({key.name})"
                )
            _match_namespace(kind, meta, key.namespace)
            if parse_resource_version(meta.get("resourceVersion", "")) not in {0, current.revision}:
                raise conflict(kind.group, kind.plural, key.name)
            change, replaced = self._replace(kind, new, old, subresource, revision)
            last = _last_state(kind, change, replaced, current)
            return change

        record = await self._store.write(key, decide)
        return Written(last or record, warnings=warnings)

    async def modify(self, kind: Kind, key: Key, change: Callable[[Object], None]) -> Written:
        """Change an object as the server itself does: without validation, as for a pod's binding."""

        def decide(current: Record | None, revision: int) -> Change | None:
            if current is None:
                raise not_found(kind.group, kind.plural, key.name)
            new = object_of(current)
            change(new)
            if is_finished(kind, new):
                return _removal(kind, new, revision)
            return None if _is_same(new, current) else _change(kind, new, revision)

        return Written(await self._store.write(key, decide))

    async def delete(self, kind: Kind, key: Key, options: DeleteOptions) -> Deleted:
        """Delete an object, or mark it as being deleted where finalizers or a grace period hold it."""
        deletion = Deletion.PENDING

        def mark(current: Record | None, revision: int) -> Change | None:
            nonlocal deletion
            if current is None:
                raise not_found(kind.group, kind.plural, key.name)
            new = object_of(current)
            _check_preconditions(kind, key, new, options)
            deletion = mark_deleting(kind, new, options, self._clock.now())
            if deletion is Deletion.NOW:
                return _removal(kind, new, revision)
            return None if _is_same(new, current) else _change(kind, new, revision)

        record = await self._store.write(key, mark)
        if deletion is not Deletion.MARKED_THEN_NOW:
            return Deleted(record, gone=deletion is Deletion.NOW)
        uid = object_of(record)["metadata"]["uid"]

        def remove(current: Record | None, revision: int) -> Change:
            # Whoever was faster has already done what is wanted.
            if current is None or object_of(current)["metadata"]["uid"] != uid:
                raise not_found(kind.group, kind.plural, key.name)
            return _removal(kind, object_of(current), revision)

        try:
            record = await self._store.write(key, remove)
        except ApiError as error:
            if error.status != 404:
                raise
        return Deleted(record, gone=True)

    def _admit_new(self, kind: Kind, new: Object) -> None:
        """Default and check a new object whose metadata is complete."""
        if kind.is_custom:
            apply_defaults(new, kind.schema)
            if "status" in kind.subresources:
                new.pop("status", None)
        kind.rules.default(new)
        kind.rules.prepare_create(new)
        self._validate(kind, new, None)

    def _replace(
        self, kind: Kind, new: Object, old: Object, subresource: str, revision: int
    ) -> tuple[Change | None, Object]:
        """The change from ``old`` to ``new``, or None where there is none; and the new object as it was admitted."""
        if kind.is_custom:
            apply_defaults(new, kind.schema)
        kind.rules.default(new)
        if subresource == "status":
            new = _with_status_only(kind, new, old)
        else:
            if "status" in kind.subresources:
                _keep(new, old, "status")
            kind.rules.prepare_update(new, old)
        metadata.keep_system_fields(new["metadata"], old["metadata"])
        if kind.has_generation and subresource != "status" and _spec_differs(kind, new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._validate(kind, new, old)
        new["metadata"].pop("resourceVersion", None)
        old["metadata"].pop("resourceVersion", None)
        if is_finished(kind, new):
            return _removal(kind, old, revision), new
        if new == {**old, "apiVersion": new["apiVersion"]}:
            return None, new
        return _change(kind, new, revision), new

    def _validate(self, kind: Kind, new: Object, old: Object | None) -> None:
        errors = [*metadata.validate(new["metadata"], kind.name_rule)]
        if old is not None:
            errors += metadata.validate_update(new["metadata"], old["metadata"])
        if kind.validator is not None:
            errors += kind.validator.check(new)
        errors += kind.rules.validate(new)
        if old is not None:
            errors += kind.rules.validate_update(new, old)
        if errors:
            raise invalid(kind.group, kind.kind, new["metadata"].get("name", ""), errors)

    def _check_namespace(self, kind: Kind, key: Key) -> None:
        """Raises unless the namespace is there and open to new objects."""
        if not kind.namespaced:
            return
        record = self._store.get(Key("namespaces", "", key.namespace))
        if record is None:
            raise not_found("", "namespaces", key.namespace)
        if b'"deletionTimestamp"' in record.value and "deletionTimestamp" in object_of(record)["metadata"]:
            raise forbidden(
                kind.group,
                kind.plural,
                key.name,
                f"unable to create new content in namespace {key.namespace} because it is being terminated",
                [
                    {
                        "reason": "NamespaceTerminating",
                        "message": f"namespace {key.namespace} is being terminated",
                        "field": "metadata.namespace",
                    }
                ],
            )


def object_of_version(record: Record, kind: Kind) -> Object:
    """The object that a record holds, in the kind's version."""
    result = object_of(record)
    result["apiVersion"] = kind.api_version
    return result


def _change(kind: Kind, new: Object, revision: int) -> Change:
    new["apiVersion"] = kind.stored_api_version
    new["metadata"]["resourceVersion"] = str(revision)
    return Change(encode(new))


def _removal(kind: Kind, last: Object, revision: int) -> Change:
    last["apiVersion"] = kind.stored_api_version
    last["metadata"]["resourceVersion"] = str(revision)
    return Change(encode(last), deleted=True)


def _last_state(kind: Kind, change: Change | None, new: Object, replaced: Record) -> Record | None:
    """What the writer of an object's last update is told: what it wrote, which never was stored, as the old version.

    Watchers see the object end as it was before.
    """
    if change is None or not change.deleted:
        return None
    new["apiVersion"] = kind.stored_api_version
    new["metadata"]["resourceVersion"] = str(replaced.revision)
    return Record(replaced.key, encode(new), replaced.revision)


def _is_same(new: Object, current: Record) -> bool:
    return new == object_of(current)


def _match_namespace(kind: Kind, meta: dict[str, Any], namespace: str) -> None:
    if not kind.namespaced:
        if meta.pop("namespace", None):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    elif meta.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _conform_patched(kind: Kind, new: Any, validation: FieldValidation) -> list[str]:
    """Bring a patched object to its schema. Raises a 422 where the patch made it unreadable."""
    try:
        check_kind(kind, new)
        unknown = conform(kind, new)
    except DecodeError as error:
        raise _invalid_patch(str(error)) from error
    problems = [f'unknown field "{path}"' for path in unknown]
    if problems and validation == "Strict":
        raise _invalid_patch(report_strict(problems))
    return problems if validation == "Warn" else []


def _invalid_patch(problem: str) -> ApiError:
    # The real server shows the whole patched object here, secrets too; that is left out.
    return invalid("", "", "", [invalid_value("patch", "<patched object>", problem)])


def _uid_conflict(kind: Kind, key: Key, sent: str, actual: str) -> ApiError:
    cause = f"Precondition failed: UID in precondition: {sent}, UID in object meta: {actual}"
    return conflict(kind.group, kind.plural, key.name, cause)


def _check_preconditions(kind: Kind, key: Key, current: Object, options: DeleteOptions) -> None:
    # The real server names the kind here where it names the resource everywhere else.
    meta = current["metadata"]
    if options.uid and options.uid != meta["uid"]:
        raise conflict(
            kind.group,
            kind.kind,
            key.name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated",
        )
    if options.resource_version and options.resource_version != meta["resourceVersion"]:
        raise conflict(
            kind.group,
            kind.kind,
            key.name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({meta['resourceVersion']}). The object might have been modified",
        )


def _with_status_only(kind: Kind, new: Object, old: Object) -> Object:
    """What a write to the status endpoint makes of ``old``."""
    if kind.is_custom:
        result = {**old, "apiVersion": new["apiVersion"], "metadata": dict(old["metadata"])}
        _keep(result, new, "status")
        return result
    # Built-in kinds let their metadata be changed together with the status, apart from the owners.
    for name in sorted({*new, *old} - {"status", "metadata", "apiVersion", "kind"}):
        _keep(new, old, name)
    _keep(new["metadata"], old["metadata"], "ownerReferences")
    return new


def _keep(target: Object, source: Object, name: str) -> None:
    """Let a field of ``target`` be as it is in ``source``, absent too."""
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def _spec_differs(kind: Kind, new: Object, old: Object) -> bool:
    ignored = {"metadata", "apiVersion"} | ({"status"} if "status" in kind.subresources else set())
    return any(new.get(name) != old.get(name) for name in ({*new, *old} - ignored))
