"""How a user's template changes the pod of a listener (``docs/spec/controllers.md`` 8.8, "Template merge")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runherd.api.constants import CONTAINER_LISTENER

__all__ = ["merge_listener_template"]

_Plain = Mapping[str, Any]

# Of the container "listener". Every other field is the template's, even where the template has none.
_REPLACED_WHEN_GIVEN = ("image", "command")
_APPENDED = ("env", "args", "ports", "envFrom", "volumeMounts", "volumeDevices")

# Of the pod. Every other field is the template's, even where the template has none.
_NEVER_TAKEN = frozenset({"serviceAccount", "serviceAccountName", "automountServiceAccountToken"})
_KEPT_UNLESS_SET = ("imagePullSecrets", "nodeSelector")


def merge_listener_template(pod: _Plain, template: _Plain) -> dict[str, Any]:
    """``pod``, a listener's body, as ``template`` wants it. Both stay as they are; the result shares their parts."""
    metadata = template.get("metadata") or {}
    merged = {**pod, "metadata": dict(pod["metadata"])}
    for name in ("labels", "annotations"):
        if added := metadata.get(name):
            merged["metadata"][name] = {**added, **pod["metadata"].get(name, {})}
    if spec := _without_nulls(template.get("spec") or {}):
        merged["spec"] = _merge_spec(pod["spec"], spec)
    return merged


def _merge_spec(base: _Plain, template: _Plain) -> dict[str, Any]:
    listener = base["containers"][0]
    given = template.get("containers", ())
    # By name and not by position, so that a sidecar may come first (D-25).
    for container in given:
        if container.get("name") == CONTAINER_LISTENER:
            listener = _merge_container(listener, _without_nulls(container))
    spec = {name: value for name, value in template.items() if name not in _NEVER_TAKEN}
    spec["serviceAccountName"] = base["serviceAccountName"]
    spec["containers"] = [listener, *(item for item in given if item.get("name") != CONTAINER_LISTENER)]
    spec["volumes"] = [*base["volumes"], *template.get("volumes", ())]
    spec["restartPolicy"] = template.get("restartPolicy") or base["restartPolicy"]
    for name in _KEPT_UNLESS_SET:
        if name in base and name not in template:
            spec[name] = base[name]
    return spec


def _merge_container(base: _Plain, template: _Plain) -> dict[str, Any]:
    container = {"name": base["name"], **template}
    for name in _REPLACED_WHEN_GIVEN:
        container[name] = template.get(name) or base[name]
    for name in _APPENDED:
        if joined := [*base.get(name, ()), *template.get(name, ())]:
            container[name] = joined
    return container


def _without_nulls(value: _Plain) -> dict[str, Any]:
    """``value`` without its fields that are null: for the API server, those are absent."""
    return {name: item for name, item in value.items() if item is not None}
