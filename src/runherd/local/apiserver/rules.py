"""What the built-in kinds other than pods do beyond their schemas."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any

from runherd.local.apiserver.errors import (
    FieldError,
    bad_request,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from runherd.local.apiserver.kinds import Object, Rules
from runherd.local.apiserver.names import config_key_problems

__all__ = [
    "BINDING_RULES",
    "CONFIG_MAP_RULES",
    "EVENT_RULES",
    "LEASE_RULES",
    "NAMESPACE_RULES",
    "ROLE_RULES",
    "SECRET_RULES",
]

_MAX_DATA = 1024 * 1024
_RBAC_GROUP = "rbac.authorization.k8s.io"
#: The keys that a secret of a well-known type must have.
_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _default_secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        data = secret.setdefault("data", {})
        for key, value in plain.items():
            data[key] = base64.b64encode(value.encode()).decode()
    _drop_empty(secret, "data")


def _drop_empty(value: Object, *names: str) -> None:
    for name in names:
        if name in value and not value[name]:
            del value[name]


def _validate_secret(secret: Object) -> Sequence[FieldError]:
    data: dict[str, str] = secret.get("data", {})
    size = 0
    for value in data.values():
        try:
            size += len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            # The value itself is a secret: it isn't shown.
            raise bad_request(
                'Secret in version "v1" cannot be handled as a Secret: illegal base64 data in a value of data'
            ) from None
    errors = _key_errors("data", data)
    if size > _MAX_DATA:
        errors.append(too_long("data", _MAX_DATA))
    errors += [required(f"data[{key}]") for key in _REQUIRED_KEYS.get(secret["type"], ()) if key not in data]
    return errors


def _key_errors(field: str, data: dict[str, str]) -> list[FieldError]:
    return [invalid_value(f"{field}[{key}]", key, text) for key in data for text in config_key_problems(key)]


def _validate_secret_update(new: Object, old: Object) -> Sequence[FieldError]:
    errors = list(_immutability_errors(new, old, "data"))
    if new["type"] != old["type"]:
        errors.append(invalid_value("type", new["type"], "field is immutable"))
    return errors


def _immutability_errors(new: Object, old: Object, *fields: str) -> Iterator[FieldError]:
    if not old.get("immutable"):
        return
    text = "field is immutable when `immutable` is set"
    for field in ("immutable", *fields):
        if new.get(field) != old.get(field):
            yield forbidden_field(field, text)


SECRET_RULES = Rules(default=_default_secret, validate=_validate_secret, validate_update=_validate_secret_update)


def _default_config_map(config_map: Object) -> None:
    _drop_empty(config_map, "data", "binaryData")


def _validate_config_map(config_map: Object) -> Sequence[FieldError]:
    data, binary = config_map.get("data", {}), config_map.get("binaryData", {})
    errors = _key_errors("data", data) + _key_errors("binaryData", binary)
    errors += [
        invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary
    ]
    if sum(len(value.encode()) for value in data.values()) + sum(map(len, binary.values())) * 3 // 4 > _MAX_DATA:
        errors.append(too_long("", _MAX_DATA))
    return errors


CONFIG_MAP_RULES = Rules(
    default=_default_config_map,
    validate=_validate_config_map,
    validate_update=lambda new, old: list(_immutability_errors(new, old, "data", "binaryData")),
)


def _default_namespace(namespace: Object) -> None:
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _create_namespace(namespace: Object) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _update_namespace(new: Object, old: Object) -> None:
    new["spec"] = old.get("spec", {})


NAMESPACE_RULES = Rules(default=_default_namespace, prepare_create=_create_namespace, prepare_update=_update_namespace)


def _validate_event(event: Object) -> Sequence[FieldError]:
    involved = event.get("involvedObject", {}).get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    if involved != namespace and (involved or namespace != "default"):
        return [invalid_value("involvedObject.namespace", involved, "does not match event.namespace")]
    return ()


def _default_event(event: Object) -> None:
    event.setdefault("source", {})


EVENT_RULES = Rules(default=_default_event, validate=_validate_event)


def _validate_lease(lease: Object) -> Sequence[FieldError]:
    spec = lease.get("spec", {})
    errors = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        errors.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return errors


LEASE_RULES = Rules(validate=_validate_lease)


def _validate_role(role: Object) -> Sequence[FieldError]:
    errors: list[FieldError] = []
    namespaced = "namespace" in role["metadata"]
    for index, rule in enumerate(role.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            if namespaced:
                text = "namespaced rules cannot apply to non-resource URLs"
                errors.append(invalid_value(f"{path}.nonResourceURLs", rule["nonResourceURLs"], text))
            continue
        if not rule.get("apiGroups"):
            errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


ROLE_RULES = Rules(validate=_validate_role)


def _default_binding(binding: Object) -> None:
    binding.setdefault("roleRef", {}).setdefault("apiGroup", _RBAC_GROUP)
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in {"User", "Group"}:
            subject.setdefault("apiGroup", _RBAC_GROUP)


def _validate_binding(binding: Object) -> Sequence[FieldError]:
    errors: list[FieldError] = []
    role: dict[str, Any] = binding["roleRef"]
    kinds = ["Role", "ClusterRole"] if "namespace" in binding["metadata"] else ["ClusterRole"]
    if role.get("apiGroup") != _RBAC_GROUP:
        errors.append(not_supported("roleRef.apiGroup", role.get("apiGroup"), [_RBAC_GROUP]))
    if role.get("kind") not in kinds:
        errors.append(not_supported("roleRef.kind", role.get("kind", ""), sorted(kinds)))
    if not role.get("name"):
        errors.append(required("roleRef.name"))
    for index, subject in enumerate(binding.get("subjects") or ()):
        path = f"subjects[{index}]"
        if not subject.get("name"):
            errors.append(required(f"{path}.name"))
        if subject.get("kind") not in {"ServiceAccount", "User", "Group"}:
            errors.append(not_supported(f"{path}.kind", subject.get("kind", ""), ["Group", "ServiceAccount", "User"]))
        elif subject["kind"] == "ServiceAccount" and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    return errors


def _validate_binding_update(new: Object, old: Object) -> Sequence[FieldError]:
    if new["roleRef"] == old["roleRef"]:
        return ()
    return [invalid_value("roleRef", new["roleRef"], "cannot change roleRef")]


BINDING_RULES = Rules(default=_default_binding, validate=_validate_binding, validate_update=_validate_binding_update)
