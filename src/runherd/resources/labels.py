"""Labels that tell a child's scale set and whose runners it holds (``docs/spec/controllers.md`` 2.3, 8.2, 8.4, 8.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from runherd.actions.config_url import parse_config_url
from runherd.api.actions import AutoscalingRunnerSet
from runherd.api.constants import (
    LABEL_COMPONENT,
    LABEL_ENTERPRISE,
    LABEL_ORGANIZATION,
    LABEL_PART_OF,
    LABEL_REPOSITORY,
    LABEL_SCALE_SET_NAME,
    LABEL_SCALE_SET_NAMESPACE,
    LABEL_VERSION,
    PART_OF,
)
from runherd.resources.merge import merge_labels

__all__ = ["child_labels", "config_url_labels", "scale_set_labels", "scale_set_labels_of"]

_MAX_VALUE = 63
_TRIMMED = "-trim"
_BORDER = "-_."
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")


def scale_set_labels(name: str, namespace: str) -> dict[str, str]:
    """The labels that name an AutoscalingRunnerSet."""
    return {LABEL_SCALE_SET_NAME: name, LABEL_SCALE_SET_NAMESPACE: namespace}


def scale_set_labels_of(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that name an AutoscalingRunnerSet, copied from an object that has them; empty where it has not."""
    return scale_set_labels(labels.get(LABEL_SCALE_SET_NAME, ""), labels.get(LABEL_SCALE_SET_NAMESPACE, ""))


def config_url_labels(config_url: str) -> dict[str, str]:
    """The labels for enterprise, organization and repository of ``config_url``, those that it names (8.2).

    Raises :class:`~runherd.actions.errors.InvalidConfigURLError`.
    """
    url = parse_config_url(config_url)
    parts = {LABEL_ENTERPRISE: url.enterprise, LABEL_ORGANIZATION: url.organization, LABEL_REPOSITORY: url.repository}
    return {label: _label_value(part) for label, part in parts.items() if part}


def child_labels(
    runner_set: AutoscalingRunnerSet, component: str, excluded_prefixes: tuple[str, ...]
) -> dict[str, str]:
    """The labels of a runner set's direct children before metadata overrides (8.4, 8.5).

    Raises :class:`~runherd.actions.errors.InvalidConfigURLError`.
    """
    metadata = runner_set.metadata
    own = {
        **scale_set_labels(metadata.name, metadata.namespace),
        LABEL_PART_OF: PART_OF,
        LABEL_COMPONENT: component,
        LABEL_VERSION: metadata.labels.get(LABEL_VERSION, ""),
    }
    labels = merge_labels(metadata.labels, own, excluded_prefixes)
    return {**labels, **config_url_labels(runner_set.spec.github_config_url)}


def _label_value(text: str) -> str:
    """``text`` as a valid label value: what it may not hold becomes ``-``, and it is cut after 63 characters."""
    value = _FORBIDDEN.sub("-", text)
    if len(value) > _MAX_VALUE:
        value = value[: _MAX_VALUE - len(_TRIMMED)] + _TRIMMED
    return value.strip(_BORDER)
