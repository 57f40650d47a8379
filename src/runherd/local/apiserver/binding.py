"""Binding a pod to a node, as a scheduler does."""

from __future__ import annotations

from runherd.local.apiserver.bodies import media_type_of, parse
from runherd.local.apiserver.decoding import builtin_schema
from runherd.local.apiserver.errors import bad_request, conflict, invalid, not_supported, required
from runherd.local.apiserver.kinds import Kind, Object
from runherd.local.apiserver.metadata import format_time
from runherd.local.apiserver.schema import DecodeError, decode_typed
from runherd.local.apiserver.store import Key
from runherd.local.apiserver.writes import Writes
from runherd.wire.clock import Clock

__all__ = ["bind"]

_SCHEMA = "io.k8s.api.core.v1.Binding"


async def bind(writes: Writes, clock: Clock, kind: Kind, key: Key, body: bytes, content_type: str) -> None:
    """Carry out a Binding. Raises a 409 for a pod that has a node already or is being deleted, a 400 for no Binding."""
    try:
        binding = parse(body, media_type_of(content_type))
        decode_typed(binding, builtin_schema(_SCHEMA), [])
    except (ValueError, DecodeError) as error:
        raise bad_request(f"the object provided is unrecognized (must be of type Binding): {error}") from error
    target = binding.get("target") or {}
    if target.get("kind", "Node") not in {"Node", ""}:
        raise invalid("", "Binding", key.name, [not_supported("target.kind", target["kind"], ["Node", "<empty>"])])
    node = target.get("name", "")
    if not node:
        raise invalid("", "Binding", key.name, [required("target.name")])

    def assign(pod: Object) -> None:
        spec = pod.setdefault("spec", {})
        if "deletionTimestamp" in pod["metadata"]:
            cause = f"pod {key.name} is being deleted, cannot be assigned to a host"
            raise conflict("", "pods/binding", key.name, cause)
        if spec.get("nodeName"):
            cause = f'pod {key.name} is already assigned to node "{spec["nodeName"]}"'
            raise conflict("", "pods/binding", key.name, cause)
        spec["nodeName"] = node
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        conditions[:] = [each for each in conditions if each.get("type") != "PodScheduled"]
        now = format_time(clock.now())
        conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now})

    await writes.modify(kind, key, assign)
