"""Discovery: which groups, versions and resources there are, in the plain and in the aggregated form."""

from __future__ import annotations

from collections.abc import Sequence

from runherd.local.apiserver.kinds import ALL_VERBS, Kind, Object
from runherd.local.apiserver.registry import Registry

__all__ = ["aggregated", "api_versions", "group", "group_list", "resource_list"]

_STATUS_VERBS = ("get", "patch", "update")


def _subresources(kind: Kind) -> list[tuple[str, str, Sequence[str]]]:
    """The name, the kind and the verbs of each of the subresources."""
    verbs = {"status": _STATUS_VERBS, "log": ("get",), "binding": ("create",), "finalize": ("update",)}
    kinds = {"binding": "Binding"}
    return [(name, kinds.get(name, kind.kind), verbs[name]) for name in sorted(kind.subresources)]


def api_versions() -> Object:
    """``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    }


def group_list(registry: Registry) -> Object:
    """``/apis``."""
    groups = [_group(name, versions) for name, versions in registry.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Object | None:
    """``/apis/group``, or None where there is no such group."""
    versions = registry.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions and name else None


def _group(name: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def resource_list(registry: Registry, name: str, version: str) -> Object | None:
    """``/api/v1`` or ``/apis/group/version``, or None where there is no such version."""
    kinds = registry.in_version(name, version)
    if not kinds:
        return None
    resources: list[Object] = []
    for kind in sorted(kinds, key=lambda each: each.plural):
        entry: Object = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": _verbs(kind),
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        resources.append(entry)
        resources += [
            {
                "name": f"{kind.plural}/{subresource}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": subresource_kind,
                "verbs": list(verbs),
            }
            for subresource, subresource_kind, verbs in _subresources(kind)
        ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{name}/{version}" if name else version,
        "resources": resources,
    }


def _verbs(kind: Kind) -> list[str]:
    return [verb for verb in ALL_VERBS if verb in kind.verbs]


def aggregated(registry: Registry, *, core: bool) -> Object:
    """All resources at once: those of the core group (``/api``), or of all others (``/apis``)."""
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
            "versions": [
                {
                    "version": version,
                    "resources": [
                        _aggregated_resource(kind)
                        for kind in sorted(registry.in_version(name, version), key=lambda each: each.plural)
                    ],
                    "freshness": "Current",
                }
                for version in versions
            ],
        }
        for name, versions in registry.groups().items()
        if (not name) is core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_resource(kind: Kind) -> Object:
    # Built-in kinds leave it to the reader that they are of the group and version that they are listed under.
    group_version = (kind.group, kind.version) if kind.is_custom else ("", "")
    response_kind = {"group": group_version[0], "version": group_version[1], "kind": kind.kind}
    resource: Object = {
        "resource": kind.plural,
        "responseKind": response_kind,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    subresources = [
        {
            "subresource": name,
            "responseKind": {**response_kind, "kind": subresource_kind},
            "verbs": list(verbs),
        }
        for name, subresource_kind, verbs in _subresources(kind)
    ]
    if subresources:
        resource["subresources"] = subresources
    return resource
