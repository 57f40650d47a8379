"""Makes ``builtin_schemas.json`` of the embedded server from what a real kube-apiserver serves under ``/openapi/v3``.

    python -m tests.conformance.builtin_schemas DIRECTORY

writes it anew from a directory that holds the group versions' documents as the server gives them, in files named
``api__v1_openapi.json`` and so on. The suite checks on the real control plane that the two still agree.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["GROUP_VERSIONS", "bundled", "extract"]

#: The paths of the documents that the built-in kinds are described in.
GROUP_VERSIONS = (
    "api/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
)
_BUNDLED = Path(__file__).parents[2] / "src/runherd/local/apiserver/builtin_schemas.json"
_KINDS = (
    *(
        f"io.k8s.api.core.v1.{kind}"
        for kind in ("Binding", "ConfigMap", "Event", "Namespace", "Node", "Pod", "Secret", "ServiceAccount")
    ),
    *(f"io.k8s.api.rbac.v1.{kind}" for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")),
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
)


def bundled() -> dict[str, Any]:
    """What the embedded server has."""
    result: dict[str, Any] = json.loads(_BUNDLED.read_text())
    return result


def extract(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The schemas of the built-in kinds and of all they refer to, without descriptions."""
    schemas: dict[str, Any] = {}
    for document in documents:
        schemas.update(document["components"]["schemas"])
    result: dict[str, Any] = {}
    wanted = list(_KINDS)
    while wanted:
        name = wanted.pop()
        if name not in result:
            result[name] = _without_descriptions(schemas[name])
            wanted += re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schemas[name]))
    return dict(sorted(result.items()))


def _without_descriptions(schema: Any, are_properties: bool = False) -> Any:
    if isinstance(schema, dict):
        return {
            key: _without_descriptions(value, key == "properties" and not are_properties)
            for key, value in sorted(schema.items())
            if are_properties or key not in {"description", "x-kubernetes-group-version-kind", "x-kubernetes-unions"}
        }
    return [_without_descriptions(item) for item in schema] if isinstance(schema, list) else schema


def _main(directory: Path) -> None:
    documents = (
        json.loads((directory / f"{path.replace('/', '__')}_openapi.json").read_text()) for path in GROUP_VERSIONS
    )
    lines = [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in extract(documents).items()]
    _BUNDLED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
