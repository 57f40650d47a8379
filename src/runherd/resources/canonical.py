"""Specs in a form in which two that mean the same are equal (``docs/spec/controllers.md`` 9.1 R, D-13, D-18).

The same spec reaches us in several spellings. A user writes ``env: []`` or ``cpu: 1000m``; ARC, which reads and writes
through Go's types, stores that as no ``env`` and ``cpu: "1"``, and adds a ``resources: {}`` to every container. So
what Go's types leave out when it is empty is left out here, and quantities are reduced to their value. What means
something although it is empty stays: ``emptyDir: {}``, an empty label, ``runAsUser: 0``,
``allowPrivilegeEscalation: false``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

from runherd.api.constants import KIND_AUTOSCALING_LISTENER, KIND_AUTOSCALING_RUNNER_SET
from runherd.api.crds import crds
from runherd.api.meta import ApiStruct

__all__ = ["canonical_content", "canonical_spec"]

Schema = Mapping[str, Any]

#: Objects that Go writes although they are empty.
_PLAIN_OBJECTS: Final = frozenset({"metadata", "resources"})
#: Numbers and booleans that Go leaves out when they are zero; of all others, zero is a value.
_PLAIN_SCALARS: Final = frozenset(
    {
        *("hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly"),
        *("chapAuthDiscovery", "chapAuthSession", "sslEnabled"),
        *("hostPort", "partition", "initialDelaySeconds", "timeoutSeconds", "periodSeconds"),
        *("successThreshold", "failureThreshold", "divisor"),
    }
)
#: Strings of which the empty one is a value: no storage class is not the default storage class.
_STRINGS_WITH_EMPTY: Final = frozenset({"storageClassName"})
#: Fields whose empty value takes a default away in a listener's template (8.8).
_CLEARING: Final = frozenset({"nodeSelector", "imagePullSecrets"})
_NOTHING: Final[frozenset[str]] = frozenset()
_LISTENER_TEMPLATES: Final = (
    (KIND_AUTOSCALING_RUNNER_SET, "listenerTemplate"),
    (KIND_AUTOSCALING_LISTENER, "template"),
)

_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40}))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,3}))?"
)
_BINARY: Final = {f"{prefix}i": Fraction(1024 ** (power + 1)) for power, prefix in enumerate("KMGTPE")}
_DECIMAL: Final = {
    letter: Fraction(10) ** power
    for letter, power in {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.items()
}

# A bound for a process that runs for a year; beyond it, results are correct but computed anew.
_MAX_CONTENTS = 1024
_encode = msgspec.json.Encoder().encode


def canonical_spec(kind: str, spec: ApiStruct) -> Mapping[str, Any]:
    """``spec``, of an object of ``kind``, in canonical form. Shared by all callers: don't change it."""
    return canonical_content(kind, _encode(spec))


@lru_cache(_MAX_CONTENTS)
def canonical_content(kind: str, content: bytes) -> Mapping[str, Any]:
    """The canonical form of the spec that is encoded in ``content``, as for :func:`canonical_spec`."""
    properties = _schemas()[kind]["properties"]
    clearing = {name: _CLEARING for template, name in _LISTENER_TEMPLATES if template == kind}
    fields = (
        (name, _value(value, properties.get(name, {}), name, clearing.get(name, _NOTHING)))
        for name, value in msgspec.json.decode(content, type=dict[str, Any]).items()
    )
    return {name: value for name, value in fields if value is not None}


@cache
def _schemas() -> dict[str, Schema]:
    """The schema of ``spec`` of each kind."""
    return {
        crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for crd in crds()
    }


def _value(value: Any, schema: Schema, name: str, clearing: frozenset[str]) -> Any:
    """``value`` of the field ``name`` in canonical form; ``None`` where it reads as absent."""
    if isinstance(value, dict):
        return _object(value, schema, name, clearing)
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_item(item, items, clearing) for item in value] if value or name in clearing else None
    if "x-kubernetes-int-or-string" in schema and "pattern" in schema:
        value = _quantity(value)
        return None if value == "0" and name in _PLAIN_SCALARS else value
    if value == "":
        return value if name in _STRINGS_WITH_EMPTY else None
    return None if not value and name in _PLAIN_SCALARS else value


def _object(value: dict[str, Any], schema: Schema, name: str, clearing: frozenset[str]) -> Any:
    if "additionalProperties" in schema:
        items = schema["additionalProperties"]
        return {key: _item(item, items, clearing) for key, item in value.items()} if value or name in clearing else None
    properties = schema.get("properties", {})
    fields = ((key, _value(item, properties.get(key, {}), key, clearing)) for key, item in value.items())
    canonical = {key: item for key, item in fields if item is not None}
    return canonical if canonical or name not in _PLAIN_OBJECTS else None


def _item(value: Any, schema: Schema, clearing: frozenset[str]) -> Any:
    """An element of a list or map, which is there whatever its value is."""
    canonical = _value(value, schema, "", clearing)
    return value if canonical is None else canonical


def _quantity(value: Any) -> Any:
    """A quantity as a fraction in lowest terms; ``value`` itself where it is none."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None:
        return value
    number, binary, decimal, exponent = match.groups()
    factor = _BINARY[binary] if binary else _DECIMAL[decimal] if decimal else Fraction(10) ** int(exponent or 0)
    return str(Fraction(number) * factor)
