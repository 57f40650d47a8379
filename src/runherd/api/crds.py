"""The custom resource definitions of the four kinds, generated from ``crds.schema`` beside this file.

They accept, refuse, default and prune what ARC's do, field by field (``docs/spec/crds.md``), plus optional status
fields. Without descriptions each is small enough for client-side ``kubectl apply``, which stores the whole object in
an annotation of at most 262,144 bytes; ARC's are not (``docs/spec/crds.md`` 6).
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import msgspec

from runherd.api.constants import GROUP, VERSION
from runherd.api.schema import Declaration, Kind

__all__ = ["crd_json", "crd_names", "crds"]


def crd_names() -> list[str]:
    """The names of the four definitions, ``<plural>.actions.github.com``."""
    return list(_encoded())


def crd_json(name: str) -> bytes:
    """The definition called ``name``, as compact JSON. Raises KeyError for a name not in :func:`crd_names`."""
    return _encoded()[name]


def crds() -> list[dict[str, Any]]:
    """The four definitions as fresh objects, which the caller may change."""
    return [msgspec.json.decode(encoded, type=dict[str, Any]) for encoded in _encoded().values()]


@cache
def _encoded() -> dict[str, bytes]:
    text = resources.files("runherd.api").joinpath("crds.schema").read_text(encoding="utf-8")
    definitions = [_definition(kind) for kind in Declaration.parse(text).kinds()]
    return {definition["metadata"]["name"]: msgspec.json.encode(definition) for definition in definitions}


def _definition(kind: Kind) -> dict[str, Any]:
    """The whole CustomResourceDefinition object (``docs/spec/crds.md`` 2 and 3)."""
    singular = kind.name.lower()
    plural = f"{singular}s"
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind.name, "listKind": f"{kind.name}List", "plural": plural, "singular": singular},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {"name": column.name, "type": column.type, "jsonPath": column.json_path}
                        for column in kind.columns
                    ],
                    "schema": {"openAPIV3Schema": {**kind.schema, "properties": {**head, **kind.schema["properties"]}}},
                    "subresources": {"status": {}},
                }
            ],
        },
    }
