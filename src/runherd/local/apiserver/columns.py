"""The columns that kubectl prints for the built-in kinds, and the ages in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from runherd.local.apiserver.kinds import Column, Object
from runherd.local.apiserver.metadata import parse_time

__all__ = ["AGE", "COLUMNS", "NAME", "human_duration"]

Age = Callable[[str | None], str]


def human_duration(seconds: float) -> str:
    """A duration as kubectl shows it: two units where that says something, as in ``5m30s``, ``3h`` and ``2d4h``."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 2920:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}{minor}{minor_unit}" if minor else f"{major}{major_unit}"


def age_at(now: datetime) -> Age:
    """Tells the age of a timestamp at ``now``."""

    def age(timestamp: str | None) -> str:
        if not timestamp:
            return "<unknown>"
        try:
            return human_duration((now - parse_time(timestamp)).total_seconds())
        except (ValueError, TypeError):
            # No timestamp at all, or one without a time zone.
            return "<invalid>"

    return age


def _at(value: Any, *path: str | int) -> Any:
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _text(*path: str | int, absent: str = "") -> Callable[[Object, Age], str]:
    def cell(value: Object, age: Age) -> str:
        found = _at(value, *path)
        return absent if found is None or found == "" else str(found)

    return cell


def _size(*fields: str) -> Callable[[Object, Age], int]:
    return lambda value, age: sum(len(value.get(field) or ()) for field in fields)


def _statuses(pod: Object) -> list[dict[str, Any]]:
    return _at(pod, "status", "containerStatuses") or []


def _ready(pod: Object, age: Age) -> str:
    total = len(_at(pod, "spec", "containers") or ())
    return f"{sum(bool(status.get('ready')) for status in _statuses(pod))}/{total}"


def _restarts(pod: Object, age: Age) -> str:
    return str(sum(status.get("restartCount", 0) for status in _statuses(pod)))


def _pod_status(pod: Object, age: Age) -> str:
    """Why the pod is as it is: the reason of its initialization, of a container, of its end, or its phase."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if _at(pod, "status", "reason") == "NodeLost" else "Terminating"
    initializing = _initializing(pod)
    if initializing:
        return initializing
    reason = _at(pod, "status", "reason") or _at(pod, "status", "phase") or "Unknown"
    running = False
    for status in reversed(_statuses(pod)):
        waiting, terminated = _at(status, "state", "waiting"), _at(status, "state", "terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = terminated.get("reason") or _ending(terminated)
        elif status.get("ready") and _at(status, "state", "running") is not None:
            running = True
    return "Running" if reason == "Completed" and running else str(reason)


def _ending(terminated: Mapping[str, Any]) -> str:
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _initializing(pod: Object) -> str:
    statuses = _at(pod, "status", "initContainerStatuses") or []
    for index, status in enumerate(statuses):
        terminated, waiting = _at(status, "state", "terminated"), _at(status, "state", "waiting")
        if (terminated is not None and not terminated.get("exitCode")) or status.get("started"):
            continue
        if terminated is not None:
            return f"Init:{terminated.get('reason') or _ending(terminated)}"
        if waiting and waiting.get("reason") not in {None, "", "PodInitializing"}:
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(_at(pod, 'spec', 'initContainers') or statuses)}"
    return ""


def _node_status(node: Object, age: Age) -> str:
    conditions = _at(node, "status", "conditions") or []
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), None)
    words = ["Ready" if ready == "True" else "Unknown" if ready is None else "NotReady"]
    if _at(node, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object, age: Age) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels", {})
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or "<none>"


def _last_seen(event: Object, age: Age) -> str:
    return age(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))


def _involved(event: Object, age: Age) -> str:
    reference = event.get("involvedObject", {})
    return f"{str(reference.get('kind', '')).lower()}/{reference.get('name', '')}"


def _role_reference(binding: Object, age: Age) -> str:
    return f"{_at(binding, 'roleRef', 'kind')}/{_at(binding, 'roleRef', 'name')}"


def _subjects(kind: str) -> Callable[[Object, Age], str]:
    def cell(binding: Object, age: Age) -> str:
        names = [s for s in binding.get("subjects") or () if s.get("kind") == kind]
        return ", ".join(f"{s['namespace']}/{s['name']}" if s.get("namespace") else s["name"] for s in names)

    return cell


NAME = Column("Name", lambda value, age: value["metadata"].get("name", ""), format="name")
AGE = Column("Age", lambda value, age: age(value["metadata"].get("creationTimestamp")))
_CREATED_AT = Column("Created At", lambda value, age: value["metadata"].get("creationTimestamp", ""))

_BINDING: Sequence[Column] = (
    NAME,
    Column("Role", _role_reference),
    AGE,
    Column("Users", _subjects("User"), priority=1),
    Column("Groups", _subjects("Group"), priority=1),
    Column("ServiceAccounts", _subjects("ServiceAccount"), priority=1),
)

#: By resource.
COLUMNS: Mapping[str, Sequence[Column]] = {
    "pods": (
        NAME,
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        AGE,
        Column("IP", _text("status", "podIP", absent="<none>"), priority=1),
        Column("Node", _text("spec", "nodeName", absent="<none>"), priority=1),
        Column("Nominated Node", _text("status", "nominatedNodeName", absent="<none>"), priority=1),
        Column("Readiness Gates", lambda value, age: "<none>", priority=1),
    ),
    "namespaces": (NAME, Column("Status", _text("status", "phase")), AGE),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _text("status", "nodeInfo", "kubeletVersion")),
        Column("Internal-IP", _text("status", "addresses", 0, "address", absent="<none>"), priority=1),
        Column("OS-Image", _text("status", "nodeInfo", "osImage", absent="<unknown>"), priority=1),
        Column("Kernel-Version", _text("status", "nodeInfo", "kernelVersion", absent="<unknown>"), priority=1),
        Column(
            "Container-Runtime",
            _text("status", "nodeInfo", "containerRuntimeVersion", absent="<unknown>"),
            priority=1,
        ),
    ),
    "secrets": (NAME, Column("Type", _text("type")), Column("Data", _size("data")), AGE),
    "configmaps": (NAME, Column("Data", _size("data", "binaryData")), AGE),
    "serviceaccounts": (NAME, AGE),
    "events": (
        Column("Last Seen", _last_seen),
        Column("Type", _text("type")),
        Column("Reason", _text("reason")),
        Column("Object", _involved),
        Column("Subobject", _text("involvedObject", "fieldPath"), priority=1),
        Column("Source", _text("source", "component"), priority=1),
        Column("Message", _text("message")),
        Column("First Seen", lambda event, age: age(event.get("firstTimestamp")), priority=1),
        Column("Count", _text("count", absent="1"), priority=1),
        Column(NAME.name, NAME.cell, format="name", priority=1),
    ),
    "leases.coordination.k8s.io": (NAME, Column("Holder", _text("spec", "holderIdentity")), AGE),
    "roles.rbac.authorization.k8s.io": (NAME, _CREATED_AT),
    "clusterroles.rbac.authorization.k8s.io": (NAME, _CREATED_AT),
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "customresourcedefinitions.apiextensions.k8s.io": (NAME, _CREATED_AT),
}
