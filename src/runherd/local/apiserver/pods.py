"""Pods: what is filled in, what is refused, and what can't be changed any more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from runherd.local.apiserver.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from runherd.local.apiserver.kinds import Object, Rules
from runherd.local.apiserver.names import dns_label_problems, dns_subdomain_problems, env_name_problems

__all__ = ["POD_RULES"]

_CONTAINER_LISTS = ("initContainers", "containers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_QUANTITY_HINT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_VOLUME_MODES = {"secret": 0o644, "configMap": 0o644, "downwardAPI": 0o644, "projected": 0o644}
_CHANGEABLE = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates")


def _default(pod: Object) -> None:
    spec = pod.get("spec")
    if spec is None:
        return
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("enableServiceLinks", True)
    if "serviceAccountName" in spec:
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif "serviceAccount" in spec:
        spec["serviceAccountName"] = spec["serviceAccount"]
    for name in _CONTAINER_LISTS:
        for container in spec.get(name, ()):
            _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)


def _default_container(container: dict[str, Any]) -> None:
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    for name, quantity in resources.get("limits", {}).items():
        resources.setdefault("requests", {}).setdefault(name, quantity)
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        field_reference = variable.get("valueFrom", {}).get("fieldRef")
        if field_reference is not None:
            field_reference.setdefault("apiVersion", "v1")
    for name in _PROBES:
        probe = container.get(name)
        if probe is not None:
            for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1)):
                probe.setdefault(key, value)
            probe.setdefault("failureThreshold", 3)
            if "httpGet" in probe:
                probe["httpGet"].setdefault("path", "/")
                probe["httpGet"].setdefault("scheme", "HTTP")


def _pull_policy(image: str) -> str:
    """``Always`` for an image that may change under its name: tagged ``latest`` or not at all."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in {"", "latest"} else "IfNotPresent"


def _default_volume(volume: dict[str, Any]) -> None:
    if len(volume) <= 1:
        volume["emptyDir"] = {}
    for source, mode in _VOLUME_MODES.items():
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", mode)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    for projected in (volume.get("projected") or {}).get("sources", ()):
        if "serviceAccountToken" in projected:
            projected["serviceAccountToken"].setdefault("expirationSeconds", 3600)


def _prepare_create(pod: Object) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(pod.get("spec", {}))}


def _qos_class(spec: dict[str, Any]) -> str:
    """``Guaranteed`` where every container's requests are its limits, ``BestEffort`` where there are neither."""
    resources = [c.get("resources", {}) for name in _CONTAINER_LISTS for c in spec.get(name, ())]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(each.get("limits", {})) and each.get("requests") == each.get("limits")
        for each in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _validate(pod: Object) -> Sequence[FieldError]:
    return list(_errors(pod.get("spec", {})))


def _errors(spec: dict[str, Any]) -> Iterator[FieldError]:
    if not spec.get("containers"):
        yield required("spec.containers")
    yield from _choice("spec.restartPolicy", spec.get("restartPolicy", "Always"), _RESTART_POLICIES)
    yield from _choice("spec.dnsPolicy", spec.get("dnsPolicy", "ClusterFirst"), _DNS_POLICIES)
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if grace < 0:
        yield invalid_value("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        yield invalid_value("spec.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    if spec.get("nodeName") and dns_subdomain_problems(spec["nodeName"]):
        yield invalid_value("spec.nodeName", spec["nodeName"], dns_subdomain_problems(spec["nodeName"])[0])
    if spec.get("serviceAccountName") and dns_subdomain_problems(spec["serviceAccountName"]):
        problem = dns_subdomain_problems(spec["serviceAccountName"])[0]
        yield invalid_value("spec.serviceAccountName", spec["serviceAccountName"], problem)
    volumes: set[str] = set()
    yield from _volume_errors(spec.get("volumes", ()), volumes)
    names: set[str] = set()
    for list_name in _CONTAINER_LISTS:
        for index, container in enumerate(spec.get(list_name, ())):
            yield from _container_errors(container, f"spec.{list_name}[{index}]", names, volumes)


def _volume_errors(volumes: Sequence[dict[str, Any]], names: set[str]) -> Iterator[FieldError]:
    for index, volume in enumerate(volumes):
        path, name = f"spec.volumes[{index}]", volume.get("name", "")
        if not name:
            yield required(f"{path}.name")
        elif problems := dns_label_problems(name):
            yield invalid_value(f"{path}.name", name, problems[0])
        elif name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        sources = sorted(set(volume) - {"name"})
        for extra in sources[1:]:
            yield forbidden_field(f"{path}.{extra}", "may not specify more than 1 volume type")


def _container_errors(container: dict[str, Any], path: str, names: set[str], volumes: set[str]) -> Iterator[FieldError]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif problems := dns_label_problems(name):
        yield invalid_value(f"{path}.name", name, problems[0])
    elif name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image.strip() != image:
        yield invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from _choice(f"{path}.imagePullPolicy", container.get("imagePullPolicy", "Always"), _PULL_POLICIES)
    for index, port in enumerate(container.get("ports", ())):
        yield from _port_errors(port, f"{path}.ports[{index}]")
    for index, variable in enumerate(container.get("env", ())):
        yield from _variable_errors(variable, f"{path}.env[{index}]")
    mounted: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        yield from _mount_errors(mount, f"{path}.volumeMounts[{index}]", volumes, mounted)
    for kind in ("limits", "requests"):
        for resource, quantity in container.get("resources", {}).get(kind, {}).items():
            if _QUANTITY.fullmatch(str(quantity)) is None:
                yield invalid_value(f"{path}.resources.{kind}[{resource}]", quantity, _QUANTITY_HINT)
            elif str(quantity).startswith("-"):
                yield invalid_value(
                    f"{path}.resources.{kind}[{resource}]", quantity, "must be greater than or equal to 0"
                )


def _port_errors(port: dict[str, Any], path: str) -> Iterator[FieldError]:
    number = port.get("containerPort", 0)
    if not number:
        yield required(f"{path}.containerPort")
    elif not 1 <= number <= 65535:
        yield invalid_value(f"{path}.containerPort", number, "must be between 1 and 65535, inclusive")
    yield from _choice(f"{path}.protocol", port.get("protocol", "TCP"), _PROTOCOLS)


def _variable_errors(variable: dict[str, Any], path: str) -> Iterator[FieldError]:
    name = variable.get("name", "")
    if not name:
        yield required(f"{path}.name")
    else:
        for problem in env_name_problems(name):
            yield invalid_value(f"{path}.name", name, problem)
    if variable.get("value") and variable.get("valueFrom"):
        yield invalid_value(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")


def _mount_errors(mount: dict[str, Any], path: str, volumes: set[str], mounted: set[str]) -> Iterator[FieldError]:
    name, where = mount.get("name", ""), mount.get("mountPath", "")
    if not name:
        yield required(f"{path}.name")
    elif name not in volumes:
        yield FieldError("FieldValueNotFound", f"{path}.name", f'Not found: "{name}"')
    if not where:
        yield required(f"{path}.mountPath")
    elif where in mounted:
        yield invalid_value(f"{path}.mountPath", where, "must be unique")
    mounted.add(where)


def _choice(path: str, value: str, choices: Sequence[str]) -> Iterator[FieldError]:
    if value not in choices:
        yield not_supported(path, value, choices)


def _validate_update(new: Object, old: Object) -> Sequence[FieldError]:
    """A pod's spec is fixed, but for images, deadlines and additional tolerations."""
    if _fixed(new.get("spec", {})) == _fixed(old.get("spec", {})):
        return ()
    text = (
        "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
        "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    return [forbidden_field("spec", text)]


def _fixed(spec: dict[str, Any]) -> dict[str, Any]:
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE}
    for name in _CONTAINER_LISTS:
        if name in fixed:
            fixed[name] = [{k: v for k, v in container.items() if k != "image"} for container in fixed[name]]
    return fixed


POD_RULES = Rules(
    default=_default, prepare_create=_prepare_create, validate=_validate, validate_update=_validate_update
)
