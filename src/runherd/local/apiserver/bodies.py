"""Request bodies: JSON, YAML and protobuf into plain values, with the fields that are given twice."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import yaml

from runherd.local.apiserver.errors import ApiError, unsupported_media_type
from runherd.local.apiserver.negotiation import JSON, PROTOBUF, YAML
from runherd.local.apiserver.protobuf import decode_protobuf

__all__ = ["MAX_BODY_SIZE", "check_size", "duplicate_fields", "media_type_of", "parse", "request_too_large"]

#: In bytes; the real server's own bound.
MAX_BODY_SIZE = 3 * 2**20
#: A YAML document's nodes once its aliases are expanded, so that a small document can't become a huge object.
_MAX_NODES = 1_000_000


def request_too_large() -> ApiError:
    """The refusal of a body that is too large."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_SIZE}", details={})


def check_size(body: bytes) -> None:
    """Raises a 413 for a body that is too large."""
    if len(body) > MAX_BODY_SIZE:
        raise request_too_large()


def media_type_of(content_type: str, accepted: tuple[str, ...] = (JSON, YAML, PROTOBUF)) -> str:
    """The media type of a body, JSON where none is named. Raises a 415 for one that isn't accepted."""
    media_type = content_type.partition(";")[0].strip().lower() or JSON
    if media_type not in accepted:
        raise unsupported_media_type(accepted, media_type)
    return media_type


def parse(body: bytes, media_type: str = JSON) -> Any:
    """The value that a body holds. Raises ValueError, with the reason, where it is malformed."""
    if media_type == YAML:
        return _parse_yaml(body)
    if media_type == PROTOBUF:
        return decode_protobuf(body)
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"json parse error: {error}") from error
    except RecursionError:
        raise ValueError("json parse error: exceeded max depth") from None
    return value


class _Loader(yaml.CSafeLoader):
    """Reads YAML as JSON: a timestamp stays text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _parse_yaml(body: bytes) -> Any:
    try:
        value = yaml.load(body, _Loader)  # noqa: S506  # a safe loader: it makes plain values only
        return _plain(value, [_MAX_NODES])
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"yaml: {error}") from error
    except RecursionError:
        raise ValueError("yaml: exceeded max depth") from None


def _plain(value: Any, budget: list[int]) -> Any:
    """``value`` with JSON's types only, nothing shared. ``budget`` holds the number of nodes that may still come."""
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError("document contains excessive aliasing")
    if isinstance(value, dict):
        return {_key(key): _plain(item, budget) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item, budget) for item in value]
    if value is None or isinstance(value, str | bool):
        return value
    if (isinstance(value, int) and -(2**63) <= value < 2**64) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"a value of type {type(value).__name__} has no JSON form here")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float):
        return json.dumps(key)
    raise ValueError(f"unsupported map key {key!r}")


def duplicate_fields(body: bytes, value: Any, media_type: str = JSON) -> list[str]:
    """The paths of fields that are given more than once in a body; ``value`` is what :func:`parse` made of it."""
    if media_type == YAML:
        return _duplicate_yaml_fields(body)
    if media_type == PROTOBUF:
        # Where a field comes twice, the last counts: that is the format's rule.
        return []
    # Most clients write JSON as we do; then nothing can have been lost in reading.
    if msgspec.json.encode(value) == body:
        return []
    found = False

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        result = dict(pairs)
        found = found or len(result) != len(pairs)
        return result

    json.loads(body, object_pairs_hook=check)
    return _paths(json.loads(body, object_pairs_hook=_Pairs), "") if found else []


class _Pairs(list[tuple[str, Any]]):
    """An object with all its fields, those that come twice too."""


def _paths(value: Any, path: str) -> list[str]:
    result: list[str] = []
    if isinstance(value, _Pairs):
        seen = set()
        for key, item in value:
            below = f"{path}.{key}" if path else key
            if key in seen and below not in result:
                result.append(below)
            seen.add(key)
            result += _paths(item, below)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            result += _paths(item, f"{path}[{index}]")
    return result


def _duplicate_yaml_fields(body: bytes) -> list[str]:
    result: list[str] = []

    def walk(node: yaml.Node | None, path: str, above: frozenset[int]) -> None:
        if node is None or id(node) in above:
            return
        above |= {id(node)}
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, item in node.value:
                below = f"{path}.{key.value}" if path else str(key.value)
                if key.value in seen:
                    result.append(below)
                seen.add(key.value)
                walk(item, below, above)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                walk(item, f"{path}[{index}]", above)

    walk(yaml.compose(body, _Loader), "", frozenset())
    return result
