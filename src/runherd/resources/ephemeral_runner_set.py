"""The EphemeralRunnerSet of an AutoscalingRunnerSet (``docs/spec/controllers.md`` 8.5)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from runherd.api.actions import AutoscalingRunnerSet, EphemeralRunnerSpec
from runherd.api.constants import (
    ANNOTATION_INTEGRITY_HASH,
    ANNOTATION_RUNNER_GROUP_NAME,
    ANNOTATION_RUNNER_SCALE_SET_NAME,
    API_VERSION,
    COMPONENT_RUNNER_SET,
    KIND_EPHEMERAL_RUNNER_SET,
)
from runherd.api.meta import ApiStruct
from runherd.api.templates import NO_TEMPLATE
from runherd.resources.integrity_hash import runner_spec_hash
from runherd.resources.labels import child_labels
from runherd.resources.merge import annotations_with_override, labels_with_override
from runherd.resources.owner import built_metadata
from runherd.resources.plain import plain
from runherd.resources.scale_set import require_scale_set_id

__all__ = ["ephemeral_runner_set", "ephemeral_runner_spec"]

_MAX_TEMPLATES = 1024


class _PodTemplate(ApiStruct, frozen=True, kw_only=True):
    metadata: msgspec.Raw = NO_TEMPLATE
    spec: msgspec.Raw = NO_TEMPLATE


def ephemeral_runner_spec(runner_set: AutoscalingRunnerSet) -> EphemeralRunnerSpec:
    """What each runner of ``runner_set`` is to look like; ``proxySecretRef`` is left to the EphemeralRunnerSet.

    Raises :class:`~runherd.resources.errors.BuildError` when the scale set has no id yet.
    """
    spec = runner_set.spec
    template = _pod_template(bytes(spec.template)) if spec.template else _PodTemplate()
    return EphemeralRunnerSpec(
        runner_scale_set_id=require_scale_set_id(runner_set),
        github_config_url=spec.github_config_url,
        github_config_secret=spec.github_config_secret,
        proxy=spec.proxy,
        github_server_tls=spec.github_server_tls,
        vault_config=spec.vault_config,
        ephemeral_runner_config_secret_metadata=spec.ephemeral_runner_config_secret_metadata,
        metadata=template.metadata,
        spec=template.spec,
    )


def ephemeral_runner_set(runner_set: AutoscalingRunnerSet, excluded_prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The body of the EphemeralRunnerSet of ``runner_set``, with no replicas.

    Raises :class:`~runherd.resources.errors.BuildError` when the scale set has no id yet and
    :class:`~runherd.actions.errors.InvalidConfigURLError`.
    """
    metadata, override = runner_set.metadata, runner_set.spec.ephemeral_runner_set_metadata
    spec = ephemeral_runner_spec(runner_set)
    names = {
        name: metadata.annotations.get(name, "")
        for name in (ANNOTATION_RUNNER_GROUP_NAME, ANNOTATION_RUNNER_SCALE_SET_NAME)
    }
    labels = child_labels(runner_set, COMPONENT_RUNNER_SET, excluded_prefixes)
    body_spec: dict[str, Any] = {"replicas": 0, "patchID": 0, "ephemeralRunnerSpec": plain(spec)}
    if (runner_metadata := runner_set.spec.ephemeral_runner_metadata) is not None:
        body_spec["ephemeralRunnerMetadata"] = plain(runner_metadata)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND_EPHEMERAL_RUNNER_SET,
        "metadata": built_metadata(
            metadata.name,
            metadata.namespace,
            labels=labels_with_override(override, labels, excluded_prefixes),
            annotations={
                **annotations_with_override(override, names),
                ANNOTATION_INTEGRITY_HASH: runner_spec_hash(spec),
            },
            owner=runner_set,
        ),
        "spec": body_spec,
    }


@lru_cache(_MAX_TEMPLATES)
def _pod_template(content: bytes) -> _PodTemplate:
    return msgspec.json.decode(content, type=_PodTemplate)
