"""The EphemeralRunners of an EphemeralRunnerSet (``docs/spec/controllers.md`` 8.9)."""

from __future__ import annotations

from typing import Any

from runherd.api.actions import EphemeralRunnerSet
from runherd.api.constants import (
    ANNOTATION_PATCH_ID,
    API_VERSION,
    COMPONENT_RUNNER,
    FINALIZER_EPHEMERAL_RUNNER,
    FINALIZER_RUNNER_REGISTRATION,
    KIND_EPHEMERAL_RUNNER,
    LABEL_COMPONENT,
)
from runherd.resources.merge import annotations_with_override, labels_with_override
from runherd.resources.names import ephemeral_runner_generate_name, runner_proxy_secret_name
from runherd.resources.owner import built_metadata
from runherd.resources.plain import plain

__all__ = ["ephemeral_runner"]


def ephemeral_runner(runner_set: EphemeralRunnerSet, name: str, excluded_prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The body of a runner of ``runner_set``, held by both finalizers from its birth.

    ``name`` is one of :func:`~runherd.resources.names.ephemeral_runner_name`. The bodies of a set share their spec.
    """
    metadata, override = runner_set.metadata, runner_set.spec.ephemeral_runner_metadata
    labels = {**metadata.labels, LABEL_COMPONENT: COMPONENT_RUNNER}
    annotations = {**metadata.annotations, ANNOTATION_PATCH_ID: str(runner_set.spec.patch_id)}
    runner_metadata = built_metadata(
        name,
        metadata.namespace,
        labels=labels_with_override(override, labels, excluded_prefixes),
        annotations=annotations_with_override(override, annotations),
        owner=runner_set,
        finalizers=(FINALIZER_EPHEMERAL_RUNNER, FINALIZER_RUNNER_REGISTRATION),
    )
    runner_metadata["generateName"] = ephemeral_runner_generate_name(metadata.name)
    spec = plain(runner_set.spec.ephemeral_runner_spec)
    if runner_set.spec.ephemeral_runner_spec.proxy is not None:
        spec = {**spec, "proxySecretRef": runner_proxy_secret_name(metadata.name, metadata.namespace)}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND_EPHEMERAL_RUNNER,
        "metadata": runner_metadata,
        "spec": spec,
    }
