"""The three ways to patch an object: JSON patch (RFC 6902), JSON merge patch (RFC 7386), strategic merge patch.

A strategic merge patch is a merge patch that merges lists by a key where the kind's schema names one: containers, env,
volumes by ``name``, volumeMounts by ``mountPath``, ports by ``containerPort``. Its directives are understood:
``$patch: delete|replace|merge``, ``$retainKeys``, ``$deleteFromPrimitiveList/x`` and ``$setElementOrder/x``.
"""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import jsonpointer

from runherd.local.apiserver.errors import ApiError, bad_request, unsupported_feature
from runherd.local.apiserver.schema import Schema

__all__ = ["apply_json_patch", "apply_merge_patch", "apply_strategic_patch"]

#: The real server's bound on the operations of one JSON patch.
MAX_JSON_PATCH_OPERATIONS = 10_000
_JSON_PATCH_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")


def apply_json_patch(target: Any, operations: Any) -> Any:
    """``target`` with the operations applied. Raises a 422 where one fails, a 400 where they are no list."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > MAX_JSON_PATCH_OPERATIONS:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {MAX_JSON_PATCH_OPERATIONS}, got {len(operations)}",
        )
    result = copy.deepcopy(target)
    for index, operation in enumerate(operations):
        try:
            result = jsonpatch.JsonPatch([operation]).apply(result, in_place=True)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError):
            # The library's texts show what is patched, which may be a secret: not even as a cause do they go on.
            raise ApiError(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request: "
                f"{_described(index, operation)} can't be applied",
            ) from None
    return result


def _described(index: int, operation: Any) -> str:
    """An operation of a JSON patch by its place, kind and path, without its value."""
    name, path = (operation.get("op"), operation.get("path")) if isinstance(operation, dict) else (None, None)
    if name not in _JSON_PATCH_OPERATIONS or not isinstance(path, str):
        return f"operation {index} of the JSON patch (it needs an op that there is, and a path)"
    return f'operation {index} ({name} "{path}") of the JSON patch'


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """``target`` with ``patch`` merged in. Neither is changed; what is untouched is shared."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def apply_strategic_patch(target: Any, patch: Any, schema: Schema) -> Any:
    """``target`` with ``patch`` merged in as ``schema`` says. Neither is changed. Raises a 400 for a bad directive."""
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a strategic merge patch is an object")
    return _merge_object(target if isinstance(target, dict) else {}, patch, schema)


def _merge_object(target: dict[str, Any], patch: dict[str, Any], schema: Schema | None) -> dict[str, Any]:
    match patch.get("$patch"):
        case "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise bad_request(f"Unknown patch type: {other}")
    result = dict(target)
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$"):
            _apply_list_directive(result, key, value)
            continue
        child = schema.at(key) if schema is not None else None
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            current = result.get(key)
            result[key] = _merge_object(current if isinstance(current, dict) else {}, value, child)
        elif isinstance(value, list) and child is not None and "merge" in child.patch_strategies:
            current = result.get(key)
            result[key] = _merge_list(current if isinstance(current, list) else [], value, child)
        else:
            result[key] = value
    for key, order in patch.items():
        if key.startswith("$setElementOrder/") and isinstance(order, list):
            name = key.partition("/")[2]
            child = schema.at(name) if schema is not None else None
            if child is not None and isinstance(result.get(name), list):
                result[name] = _ordered(result[name], order, child.patch_merge_key)
    return result


def _apply_list_directive(result: dict[str, Any], key: str, value: Any) -> None:
    directive, _, name = key.partition("/")
    if directive == "$deleteFromPrimitiveList":
        current = result.get(name)
        if isinstance(current, list) and isinstance(value, list):
            result[name] = [item for item in current if item not in value]
    elif directive not in {"$patch", "$retainKeys", "$setElementOrder"}:
        raise unsupported_feature(f"the directive {directive} of strategic merge patches")


def _merge_list(target: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    key = schema.patch_merge_key
    if not key:
        return target + [item for item in patch if item not in target]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and key not in item for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    result = list(target)
    for item in patch:
        if not isinstance(item, dict) or item.get(key) is None:
            raise bad_request(f"an item of a list does not contain declared merge key: {key}")
        place = next((i for i, old in enumerate(result) if isinstance(old, dict) and old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(_merge_object({}, item, schema.items))
        else:
            result[place] = _merge_object(result[place], item, schema.items)
    return result


def _ordered(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """The items in the order that the patch wants; those that it doesn't name keep their places."""
    wanted = [item.get(key) if isinstance(item, dict) else item for item in order]

    def name(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    named = [item for item in items if name(item) in wanted]
    named.sort(key=lambda item: wanted.index(name(item)))
    remaining = iter(named)
    return [next(remaining) if name(item) in wanted else item for item in items]
