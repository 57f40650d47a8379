"""The AutoscalingListener of an AutoscalingRunnerSet (``docs/spec/controllers.md`` 8.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runherd.api.actions import AutoscalingListenerSpec, AutoscalingRunnerSet
from runherd.api.constants import (
    ANNOTATION_INTEGRITY_HASH,
    API_VERSION,
    COMPONENT_LISTENER,
    KIND_AUTOSCALING_LISTENER,
)
from runherd.api.core import LocalObjectReference
from runherd.resources.canonical import canonical_spec
from runherd.resources.integrity_hash import listener_spec_hash
from runherd.resources.labels import child_labels
from runherd.resources.listener_settings import ListenerSettings
from runherd.resources.merge import annotations_with_override, labels_with_override
from runherd.resources.merge_patch import merge_patch_between
from runherd.resources.names import listener_name
from runherd.resources.owner import built_metadata
from runherd.resources.plain import plain
from runherd.resources.scale_set import require_scale_set_id

__all__ = [
    "MAX_RUNNERS",
    "autoscaling_listener",
    "autoscaling_listener_name",
    "autoscaling_listener_spec",
    "listener_spec_patch",
    "needs_other_listener",
]

#: The upper bound of a runner set that has none.
MAX_RUNNERS = 2**31 - 1
#: What is changed in place, since a running listener reads it again (D-17).
_CHANGED_IN_PLACE = frozenset({"minRunners", "maxRunners", "metrics"})


def autoscaling_listener_name(runner_set: AutoscalingRunnerSet) -> str:
    """The name of the listener of ``runner_set``, which changes with its URL and runner group (8.3, D-7)."""
    spec, metadata = runner_set.spec, runner_set.metadata
    return listener_name(metadata.name, metadata.namespace, spec.runner_group, spec.github_config_url)


def autoscaling_listener_spec(runner_set: AutoscalingRunnerSet, settings: ListenerSettings) -> AutoscalingListenerSpec:
    """The spec of the listener of ``runner_set``, with the manager's pull secrets (D-3).

    Raises :class:`~runherd.resources.errors.BuildError` when the scale set has no id yet.
    """
    spec, metadata = runner_set.spec, runner_set.metadata
    return AutoscalingListenerSpec(
        github_config_url=spec.github_config_url,
        github_config_secret=spec.github_config_secret,
        vault_config=spec.vault_config,
        runner_scale_set_id=require_scale_set_id(runner_set),
        autoscaling_runner_set_namespace=metadata.namespace,
        autoscaling_runner_set_name=metadata.name,
        ephemeral_runner_set_name=metadata.name,
        min_runners=spec.min_runners or 0,
        max_runners=MAX_RUNNERS if spec.max_runners is None else spec.max_runners,
        image=settings.image,
        image_pull_secrets=[LocalObjectReference(name=name) for name in settings.image_pull_secrets],
        proxy=spec.proxy,
        github_server_tls=spec.github_server_tls,
        metrics=spec.listener_metrics,
        template=spec.listener_template,
        service_account_metadata=spec.listener_service_account_metadata,
        role_metadata=spec.listener_role_metadata,
        role_binding_metadata=spec.listener_role_binding_metadata,
        config_secret_metadata=spec.listener_config_secret_metadata,
    )


def autoscaling_listener(
    runner_set: AutoscalingRunnerSet, settings: ListenerSettings, excluded_prefixes: tuple[str, ...]
) -> dict[str, Any]:
    """The body of the listener of ``runner_set``. It lives in another namespace, so nothing owns it.

    Raises :class:`~runherd.resources.errors.BuildError` and :class:`~runherd.actions.errors.InvalidConfigURLError`.
    """
    override = runner_set.spec.autoscaling_listener
    spec = autoscaling_listener_spec(runner_set, settings)
    labels = child_labels(runner_set, COMPONENT_LISTENER, excluded_prefixes)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND_AUTOSCALING_LISTENER,
        "metadata": built_metadata(
            autoscaling_listener_name(runner_set),
            settings.namespace,
            labels=labels_with_override(override, labels, excluded_prefixes),
            annotations=annotations_with_override(override, {ANNOTATION_INTEGRITY_HASH: listener_spec_hash(spec)}),
        ),
        "spec": plain(spec),
    }


def needs_other_listener(live: AutoscalingListenerSpec, desired: AutoscalingListenerSpec) -> bool:
    """Whether the listener must be deleted and made anew, for what differs isn't changed in place (D-13, D-17)."""
    return _fixed_part(live) != _fixed_part(desired)


def listener_spec_patch(live: AutoscalingListenerSpec, desired: AutoscalingListenerSpec) -> dict[str, Any]:
    """The merge patch of ``spec`` for what is changed in place, ``{}`` when nothing is (D-17)."""
    return merge_patch_between(_changeable_part(live), _changeable_part(desired))


def _fixed_part(spec: AutoscalingListenerSpec) -> Mapping[str, Any]:
    canonical = canonical_spec(KIND_AUTOSCALING_LISTENER, spec)
    return {name: value for name, value in canonical.items() if name not in _CHANGED_IN_PLACE}


def _changeable_part(spec: AutoscalingListenerSpec) -> Mapping[str, Any]:
    return {name: value for name, value in plain(spec).items() if name in _CHANGED_IN_PLACE}
