"""What a delete does to an object at once: gone, or marked and waiting for finalizers or a grace period."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any

from runherd.local.apiserver.kinds import Kind, Object
from runherd.local.apiserver.metadata import format_time, parse_time
from runherd.local.apiserver.options import DeleteOptions

__all__ = ["Deletion", "is_finished", "mark_deleting"]


class Deletion(Enum):
    #: The object goes at once.
    NOW = auto()
    #: It stays, marked as being deleted.
    PENDING = auto()
    #: It is marked first, which watchers see, and goes right after (pods without grace).
    MARKED_THEN_NOW = auto()


def is_finished(kind: Kind, new: Object) -> bool:
    """Whether an object that is being deleted has nothing left that holds it, so that this update is its last."""
    meta = new["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return kind.resource != "namespaces" or not new.get("spec", {}).get("finalizers")


def mark_deleting(kind: Kind, target: Object, options: DeleteOptions, now: datetime) -> Deletion:
    """Change ``target``, in place, into what a delete makes of it, and tell what becomes of it."""
    if kind.resource == "namespaces":
        return _mark_namespace(target, now)
    meta: dict[str, Any] = target["metadata"]
    if kind.resource == "pods":
        return _mark_pod(target, options, now)
    if not meta.get("finalizers"):
        return Deletion.NOW
    if "deletionTimestamp" not in meta:
        _mark(meta, now, 0)
    return Deletion.PENDING


def _mark(meta: dict[str, Any], when: datetime, grace: int) -> None:
    meta["deletionTimestamp"] = format_time(when)
    meta["deletionGracePeriodSeconds"] = grace
    if meta.get("generation"):
        meta["generation"] += 1


def _mark_namespace(namespace: Object, now: datetime) -> Deletion:
    """A namespace is only ever marked; it goes when its contents are gone and its ``spec.finalizers`` are removed."""
    meta = namespace["metadata"]
    if "deletionTimestamp" in meta:
        return (
            Deletion.PENDING if namespace.get("spec", {}).get("finalizers") or meta.get("finalizers") else Deletion.NOW
        )
    meta["deletionTimestamp"] = format_time(now)
    namespace.setdefault("status", {})["phase"] = "Terminating"
    return Deletion.PENDING


def _mark_pod(pod: Object, options: DeleteOptions, now: datetime) -> Deletion:
    """A pod stays for its grace period: until its kubelet deletes it with a grace of 0."""
    meta: dict[str, Any] = pod["metadata"]
    asked = options.grace_period_seconds
    if asked is not None and asked < 0:
        asked = 1
    if "deletionTimestamp" not in meta:
        grace = _grace_of(pod, asked)
        _mark(meta, _after(now, grace), grace)
        return Deletion.PENDING if grace or meta.get("finalizers") else Deletion.MARKED_THEN_NOW
    current = meta.get("deletionGracePeriodSeconds", 0)
    if current == 0:
        return Deletion.PENDING if meta.get("finalizers") else Deletion.NOW
    if asked is None or asked >= current:
        return Deletion.PENDING
    # A grace period can only be shortened, and not into the past.
    when = _after(parse_time(meta["deletionTimestamp"]), asked - current)
    if when < now:
        when, asked = now, min(asked, 1)
    meta["deletionTimestamp"] = format_time(when)
    meta["deletionGracePeriodSeconds"] = asked
    return Deletion.PENDING if asked or meta.get("finalizers") else Deletion.MARKED_THEN_NOW


def _after(moment: datetime, seconds: int) -> datetime:
    """The moment so many seconds later (or earlier), or the end of the calendar where that lies beyond it."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if seconds > 0 else datetime.min.replace(tzinfo=UTC)


def _grace_of(pod: Object, asked: int | None) -> int:
    """In seconds. No kubelet is there to stop a pod that has no node, and nothing to stop in one that has ended."""
    spec, phase = pod.get("spec", {}), pod.get("status", {}).get("phase")
    if not spec.get("nodeName") or phase in {"Failed", "Succeeded"}:
        return 0
    grace = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 0)
    return int(grace) if grace >= 0 else 1
