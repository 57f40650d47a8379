"""The built-in kinds, as data."""

from __future__ import annotations

from runherd.local.apiserver import rules
from runherd.local.apiserver.columns import COLUMNS
from runherd.local.apiserver.decoding import builtin_schema
from runherd.local.apiserver.errors import qualified
from runherd.local.apiserver.kinds import ALL_VERBS, Kind, Rules
from runherd.local.apiserver.names import NameRule, dns_label_problems, dns_subdomain_problems, path_segment_problems
from runherd.local.apiserver.pods import POD_RULES

__all__ = ["BUILTIN_KINDS"]

_CORE = ("", "v1", "io.k8s.api.core.v1")
_RBAC = ("rbac.authorization.k8s.io", "v1", "io.k8s.api.rbac.v1")
_COORDINATION = ("coordination.k8s.io", "v1", "io.k8s.api.coordination.v1")
_APIEXTENSIONS = ("apiextensions.k8s.io", "v1", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1")

#: The fields that a selector names by something other than their path.
_SELECTED = {"source": ["source", "component"]}


def _kind(
    package: tuple[str, str, str],
    kind: str,
    plural: str,
    *,
    short_names: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    namespaced: bool = True,
    subresources: tuple[str, ...] = (),
    selectable: tuple[str, ...] = (),
    kind_rules: Rules | None = None,
    name_rule: NameRule = dns_subdomain_problems,
    has_generation: bool = False,
    creates_on_update: bool = False,
    unconditional_update: bool = True,
    returns_deleted: bool = False,
    has_collection_delete: bool = True,
    singular: str = "",
) -> Kind:
    group, version, schemas = package
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=singular or kind.lower(),
        namespaced=namespaced,
        schema=builtin_schema(f"{schemas}.{kind}"),
        short_names=short_names,
        categories=categories,
        list_kind=f"{kind}List",
        subresources=frozenset(subresources),
        columns=COLUMNS[qualified(plural, group)],
        selectable={label: _SELECTED.get(label, label.split(".")) for label in selectable},
        rules=kind_rules or Rules(),
        name_rule=name_rule,
        has_generation=has_generation,
        allows_create_on_update=creates_on_update,
        allows_unconditional_update=unconditional_update,
        returns_deleted=returns_deleted,
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection" or has_collection_delete),
    )


def _access(kind: str, plural: str, kind_rules: Rules, *, namespaced: bool) -> Kind:
    return _kind(
        _RBAC,
        kind,
        plural,
        namespaced=namespaced,
        kind_rules=kind_rules,
        name_rule=path_segment_problems,
        creates_on_update=True,
    )


BUILTIN_KINDS = (
    _kind(
        _CORE,
        "Namespace",
        "namespaces",
        short_names=("ns",),
        namespaced=False,
        subresources=("status", "finalize"),
        selectable=("status.phase",),
        kind_rules=rules.NAMESPACE_RULES,
        name_rule=dns_label_problems,
        returns_deleted=True,
        has_collection_delete=False,
    ),
    _kind(
        _CORE,
        "Node",
        "nodes",
        short_names=("no",),
        namespaced=False,
        subresources=("status",),
        selectable=("spec.unschedulable",),
    ),
    _kind(
        _CORE,
        "Pod",
        "pods",
        short_names=("po",),
        categories=("all",),
        subresources=("status", "log", "binding"),
        selectable=(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        kind_rules=POD_RULES,
        has_generation=True,
        returns_deleted=True,
    ),
    _kind(_CORE, "Secret", "secrets", selectable=("type",), kind_rules=rules.SECRET_RULES),
    _kind(_CORE, "ConfigMap", "configmaps", short_names=("cm",), kind_rules=rules.CONFIG_MAP_RULES),
    _kind(_CORE, "ServiceAccount", "serviceaccounts", short_names=("sa",), returns_deleted=True),
    _kind(
        _CORE,
        "Event",
        "events",
        short_names=("ev",),
        selectable=(
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
        kind_rules=rules.EVENT_RULES,
        creates_on_update=True,
    ),
    _kind(
        _COORDINATION,
        "Lease",
        "leases",
        kind_rules=rules.LEASE_RULES,
        creates_on_update=True,
        unconditional_update=False,
    ),
    _access("Role", "roles", rules.ROLE_RULES, namespaced=True),
    _access("RoleBinding", "rolebindings", rules.BINDING_RULES, namespaced=True),
    _access("ClusterRole", "clusterroles", rules.ROLE_RULES, namespaced=False),
    _access("ClusterRoleBinding", "clusterrolebindings", rules.BINDING_RULES, namespaced=False),
    # Its rules come with the registry, which knows the names that are taken.
    _kind(
        _APIEXTENSIONS,
        "CustomResourceDefinition",
        "customresourcedefinitions",
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        namespaced=False,
        subresources=("status",),
        has_generation=True,
        unconditional_update=False,
    ),
)
