"""The hashes by which a change is noticed (``docs/spec/controllers.md`` 9.1).

They are made of meaning, not of spelling (:mod:`runherd.resources.canonical`), the same in every process and release.
Hashes that ARC wrote can't be compared with ours; :func:`is_own_hash` tells them apart, and then content is compared
(D-18): two specs have the same content if and only if their hashes are equal.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any

import msgspec

from runherd.api.actions import AutoscalingListenerSpec, AutoscalingRunnerSet, EphemeralRunnerSpec
from runherd.api.constants import KIND_AUTOSCALING_LISTENER, KIND_AUTOSCALING_RUNNER_SET, KIND_EPHEMERAL_RUNNER
from runherd.resources.canonical import canonical_content, canonical_spec

__all__ = ["content_hash", "is_own_hash", "listener_spec_hash", "runner_set_hash", "runner_spec_hash"]

# Says how the rest was made; another way gets another prefix, and is compared by content like ARC's.
_PREFIX = "v1."
_HEX_DIGITS = 32
# A bound for a process that runs for a year; beyond it, results are correct but computed anew.
_MAX_CONTENTS = 1024
_OWN = re.compile(re.escape(_PREFIX) + f"[0-9a-f]{{{_HEX_DIGITS}}}")


def content_hash(content: Any) -> str:
    """The hash of plain data or of structs, whatever the order of their keys."""
    encoded = msgspec.json.encode(content, order="sorted")
    return _PREFIX + hashlib.sha256(encoded).hexdigest()[:_HEX_DIGITS]


def is_own_hash(annotation: str) -> bool:
    """Whether ``annotation`` was made by :func:`content_hash`, so that it can be compared with what that says now."""
    return _OWN.fullmatch(annotation) is not None


def runner_set_hash(runner_set: AutoscalingRunnerSet) -> str:
    """Of an AutoscalingRunnerSet: its whole spec and all its labels."""
    spec = canonical_spec(KIND_AUTOSCALING_RUNNER_SET, runner_set.spec)
    return content_hash({"spec": spec, "labels": runner_set.metadata.labels})


def runner_spec_hash(spec: EphemeralRunnerSpec) -> str:
    """Of an EphemeralRunnerSet: its ``ephemeralRunnerSpec``.

    The spec of a runner has the same hash as the one of the set that it was made from: ``proxySecretRef``, which the
    set adds to its runners, doesn't count.
    """
    return _runner_spec_hash(msgspec.json.encode(spec))


def listener_spec_hash(spec: AutoscalingListenerSpec) -> str:
    """Of an AutoscalingListener: its spec."""
    return content_hash(canonical_spec(KIND_AUTOSCALING_LISTENER, spec))


@lru_cache(_MAX_CONTENTS)  # this one is asked for every runner
def _runner_spec_hash(content: bytes) -> str:
    canonical = canonical_content(KIND_EPHEMERAL_RUNNER, content)
    return content_hash({name: value for name, value in canonical.items() if name != "proxySecretRef"})
