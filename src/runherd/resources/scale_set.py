"""The id under which the Actions service knows a runner set (``docs/spec/controllers.md`` 2.2, 4.1)."""

from __future__ import annotations

import re

from runherd.api.actions import AutoscalingRunnerSet
from runherd.api.constants import ANNOTATION_RUNNER_SCALE_SET_ID
from runherd.resources.errors import BuildError

__all__ = ["require_scale_set_id", "scale_set_id"]


def scale_set_id(runner_set: AutoscalingRunnerSet) -> int:
    """The id in the annotation ``runner-scale-set-id``; 0 when there is none, or something else than a positive int."""
    text = runner_set.metadata.annotations.get(ANNOTATION_RUNNER_SCALE_SET_ID, "")
    return max(int(text), 0) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else 0


def require_scale_set_id(runner_set: AutoscalingRunnerSet) -> int:
    """The id, for children that need one. Raises :class:`BuildError` when there is none."""
    found = scale_set_id(runner_set)
    if not found:
        raise BuildError(
            f"annotation {ANNOTATION_RUNNER_SCALE_SET_ID} of AutoscalingRunnerSet {runner_set.metadata.namespace}/"
            f"{runner_set.metadata.name} holds no scale set id; remove the annotation, and the scale set is looked up"
            " or registered anew"
        )
    return found
