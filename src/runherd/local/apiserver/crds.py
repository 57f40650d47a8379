"""CustomResourceDefinitions: their own rules, and the kinds that they define."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from runherd.local.apiserver.columns import AGE, NAME
from runherd.local.apiserver.errors import (
    FieldError,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from runherd.local.apiserver.jsonpath import JsonPathError, compile_path, simple_path
from runherd.local.apiserver.kinds import Column, Kind, Object
from runherd.local.apiserver.names import dns_subdomain_problems
from runherd.local.apiserver.schema import Schema
from runherd.local.apiserver.validation import SchemaError, Validator

__all__ = [
    "CLEANUP_FINALIZER",
    "check",
    "check_update",
    "default",
    "is_established",
    "kinds_of",
    "prepare_update",
    "warnings",
]

#: Holds a definition that is being deleted until its objects are gone.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"

_DNS_1035 = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
#: What a structural schema can't have.
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


def default(definition: Object) -> None:
    """Fill in names and the conversion."""
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def prepare_update(new: Object, old: Object) -> None:
    """A new storage version joins those in which objects may be stored."""
    stored = new.setdefault("status", {}).setdefault("storedVersions", [])
    for version in new["spec"].get("versions", ()):
        if version.get("storage") and version.get("name") not in stored:
            new["status"] = {**new["status"], "storedVersions": [*stored, version.get("name")]}


def check(definition: Object) -> list[FieldError]:
    """What is wrong with a definition."""
    spec = definition["spec"]
    errors = list(_name_errors(definition))
    errors += _version_errors(spec)
    strategy = spec["conversion"].get("strategy")
    if strategy != "None":
        # The real server takes Webhook too.
        errors.append(not_supported("spec.conversion.strategy", strategy, ["None"]))
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.append(invalid_value("spec.preserveUnknownFields", True, text))
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        errors.append(not_supported("spec.scope", spec.get("scope", ""), ["Cluster", "Namespaced"]))
    return errors


def _name_errors(definition: Object) -> Iterator[FieldError]:
    spec = definition["spec"]
    names, group = spec["names"], spec.get("group", "")
    if not group:
        yield required("spec.group")
    elif problems := dns_subdomain_problems(group):
        yield invalid_value("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field, "")
        if not value:
            yield required(f"spec.names.{field}")
        elif _DNS_1035.fullmatch(value.lower()) is None:
            yield invalid_value(f"spec.names.{field}", value, "a DNS-1035 label must match [a-z]([-a-z0-9]*[a-z0-9])?")
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid_value("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")
    wanted = f"{names.get('plural', '')}.{group}"
    if definition["metadata"].get("name") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        yield invalid_value("metadata.name", definition["metadata"].get("name", ""), text)


def _version_errors(spec: Object) -> Iterator[FieldError]:
    versions = spec.get("versions") or []
    names = [version.get("name", "") for version in versions]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value("spec.versions", versions, "must have exactly one version marked as storage version")
    if len(set(names)) != len(names):
        yield invalid_value("spec.versions", versions, "must contain unique version names")
    for index, version in enumerate(versions):
        name = version.get("name", "")
        if _DNS_1035.fullmatch(name) is None:
            text = "a DNS-1035 label must match [a-z]([-a-z0-9]*[a-z0-9])?"
            yield invalid_value(f"spec.versions[{index}].name", name, text)
    # What all versions share is checked, and named, as if it stood outside of them.
    yield from _schema_parts(versions)
    for field, check in (("additionalPrinterColumns", _column_errors), ("selectableFields", _selectable_errors)):
        parts = [version.get(field) or () for version in versions]
        for index, entries in enumerate(_distinct(parts)):
            path = f"spec.{field}" if _are_same(parts) else f"spec.versions[{index}].{field}"
            for position, entry in enumerate(entries):
                yield from check(entry, f"{path}[{position}]")


def _schema_parts(versions: Sequence[Object]) -> Iterator[FieldError]:
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    for index, schema in enumerate(schemas):
        if schema is None:
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")
    for index, schema in enumerate(_distinct(schemas)):
        path = "spec.validation" if _are_same(schemas) else f"spec.versions[{index}].schema"
        if schema is not None:
            yield from _root_schema_errors(schema, f"{path}.openAPIV3Schema")


def _are_same(parts: Sequence[Any]) -> bool:
    return all(part == parts[0] for part in parts)


def _distinct(parts: Sequence[Any]) -> Sequence[Any]:
    return parts[:1] if _are_same(parts) else parts


def _selectable_errors(selectable: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    try:
        simple_path(selectable.get("jsonPath", ""))
    except JsonPathError as error:
        yield invalid_value(f"{path}.jsonPath", selectable.get("jsonPath", ""), str(error))


def _column_errors(column: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{path}.name")
    if column.get("type") not in _COLUMN_TYPES:
        yield invalid_value(f"{path}.type", column.get("type", ""), f"must be one of {','.join(_COLUMN_TYPES)}")
    json_path = column.get("jsonPath", "")
    if not json_path:
        yield required(f"{path}.JSONPath")
        return
    try:
        compile_path(json_path)
    except JsonPathError as error:
        yield invalid_value(f"{path}.jsonPath", json_path, str(error))


def _root_schema_errors(schema: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(schema, dict):
        yield invalid_value(path, schema, "must be an object")
        return
    if not schema.get("type"):
        yield required(f"{path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        yield invalid_value(f"{path}.type", schema["type"], "must be object at the root")
    if schema.get("nullable"):
        yield forbidden_field(f"{path}.nullable", "nullable cannot be true at the root")
    errors = list(_schema_errors(schema, path))
    yield from errors
    if not errors:
        try:
            Validator(schema)
            yield from list(_default_errors(schema, path))
        except SchemaError as error:
            yield invalid_value(path, "", f"error building validator: {error}")


def _schema_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """What keeps a schema from being structural: from saying, for every field, what it is."""
    for keyword in _UNSUPPORTED:
        if keyword in schema:
            yield forbidden_field(f"{path}.{keyword}", f"{keyword} is not supported")
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_field(f"{path}.uniqueItems", text)
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if kind == "array" and not isinstance(schema.get("items"), dict):
        if isinstance(schema.get("items"), list):
            yield forbidden_field(f"{path}.items", "items must be a schema object and not an array")
        else:
            yield required(f"{path}.items", "must be specified")
    if not isinstance(schema.get("additionalProperties", True), bool | dict):
        yield invalid_value(
            f"{path}.additionalProperties", schema["additionalProperties"], "must be a schema or a boolean"
        )
    if schema.get("properties") and schema.get("additionalProperties"):
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden_field(f"{path}.additionalProperties", text)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid_value(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    for name, child in (schema.get("properties") or {}).items():
        yield from _child_errors(child, f"{path}.properties[{name}]", "specified object fields")
    if isinstance(schema.get("items"), dict):
        yield from _child_errors(schema["items"], f"{path}.items", "specified array items")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _child_errors(
            schema["additionalProperties"], f"{path}.additionalProperties", "specified object fields"
        )


def _default_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """What is wrong with the defaults of a schema that is fine otherwise."""
    if schema.get("default") is not None:
        for error in Validator(schema).check(schema["default"]):
            yield FieldError(error.reason, f"{path}.default{f'.{error.field}' if error.field else ''}", error.message)
    children = {f".properties[{name}]": child for name, child in (schema.get("properties") or {}).items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            children[f".{name}"] = schema[name]
    for name, child in children.items():
        yield from _default_errors(child, path + name)


def _child_errors(schema: Any, path: str, what: str) -> Iterator[FieldError]:
    if not isinstance(schema, dict):
        yield invalid_value(path, schema, "must be an object")
        return
    untyped = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and not untyped:
        yield required(f"{path}.type", f"must not be empty for {what}")
    yield from _schema_errors(schema, path)


def check_update(new: Object, old: Object) -> list[FieldError]:
    """What an update must not change."""
    fixed = [
        *((f"spec.{field}", new["spec"].get(field), old["spec"].get(field)) for field in ("group", "scope")),
        *(
            (f"spec.names.{field}", new["spec"]["names"].get(field), old["spec"]["names"].get(field))
            for field in ("kind", "plural")
        ),
    ]
    errors = [invalid_value(path, value, "field is immutable") for path, value, before in fixed if value != before]
    versions = {version.get("name") for version in new["spec"].get("versions", ())}
    for index, stored in enumerate(old.get("status", {}).get("storedVersions", ())):
        if stored not in versions:
            text = "missing from spec.versions; it was previously a storage version, and must remain in spec.versions"
            errors.append(invalid_value(f"status.storedVersions[{index}]", stored, text))
    return errors


def warnings(definition: Object) -> list[str]:
    """What a definition asks for and this server doesn't do."""
    return [
        f"spec.versions[{index}]: x-kubernetes-validations are kept but not enforced by this server"
        for index, version in enumerate(definition["spec"].get("versions", ()))
        if _has_rules((version.get("schema") or {}).get("openAPIV3Schema"))
    ]


def _has_rules(schema: Any) -> bool:
    if isinstance(schema, dict):
        return bool(schema.get("x-kubernetes-validations")) or any(_has_rules(each) for each in schema.values())
    return isinstance(schema, list) and any(_has_rules(each) for each in schema)


def is_established(definition: Object) -> bool:
    """Whether the kinds that it defines are served."""
    conditions = definition.get("status", {}).get("conditions", ())
    return any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)


def kinds_of(definition: Object) -> list[Kind]:
    """The kinds that a definition serves, one for each served version."""
    spec = definition["spec"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    return [_kind(spec, version, storage) for version in spec["versions"] if version.get("served")]


def _kind(spec: Object, version: Object, storage: str) -> Kind:
    names = spec["names"]
    schema = version["schema"]["openAPIV3Schema"]
    subresources = version.get("subresources") or {}
    return Kind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names["singular"],
        namespaced=spec["scope"] == "Namespaced",
        schema=Schema(schema),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        list_kind=names["listKind"],
        subresources=frozenset({"status"} & set(subresources)),
        wants_scale="scale" in subresources,
        columns=_columns(version.get("additionalPrinterColumns")),
        selectable={
            each["jsonPath"].removeprefix("."): simple_path(each["jsonPath"])
            for each in version.get("selectableFields") or ()
        },
        has_generation=True,
        allows_unconditional_update=False,
        storage_version=storage if storage != version["name"] else "",
        validator=Validator(schema),
        is_custom=True,
    )


def _columns(given: Sequence[Mapping[str, Any]] | None) -> Sequence[Column]:
    if given is None:
        return (NAME, AGE)
    return (NAME, *(_column(each) for each in given))


def _column(given: Mapping[str, Any]) -> Column:
    return Column(
        given["name"],
        _cell(given["jsonPath"], given["type"]),
        type=given["type"],
        format=given.get("format", ""),
        description=given.get("description", ""),
        priority=given.get("priority", 0),
    )


def _cell(path: str, kind: str) -> Callable[[Object, Callable[[str | None], str]], Any]:
    find = compile_path(path)

    def cell(value: Object, age: Callable[[str | None], str]) -> Any:
        found = find(value)
        if not found or found[0] is None:
            return None
        first = found[0]
        match kind:
            case "string":
                return first if isinstance(first, str) else msgspec.json.encode(first).decode()
            case "date":
                return age(first) if isinstance(first, str) else None
            case "integer":
                return int(first) if isinstance(first, int | float) else None
        return first

    return cell
