"""Who a listener is and what it may do: service account, role, role binding (``docs/spec/controllers.md`` 8.6)."""

from __future__ import annotations

from typing import Any

from runherd.api.actions import AutoscalingListener, ResourceMeta
from runherd.api.constants import ANNOTATION_INTEGRITY_HASH, GROUP, LABEL_LISTENER_NAME, LABEL_LISTENER_NAMESPACE
from runherd.resources.errors import BuildError
from runherd.resources.integrity_hash import content_hash
from runherd.resources.labels import scale_set_labels
from runherd.resources.merge import annotations_with_override, labels_with_override, merge_labels
from runherd.resources.owner import built_metadata

__all__ = ["listener_role", "listener_role_binding", "listener_role_rules", "listener_service_account"]

_RBAC_GROUP = "rbac.authorization.k8s.io"
_MAX_LABEL_VALUE = 63
# A listener's name has at most 18 characters more than its runner set's (8.3).
_MAX_RUNNER_SET_NAME = 45


def listener_service_account(listener: AutoscalingListener, excluded_prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The body of the service account of ``listener``, in its namespace."""
    override = listener.spec.service_account_metadata
    content: dict[str, Any] = {"secrets": [], "imagePullSecrets": [], "automountServiceAccountToken": None}
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": built_metadata(
            listener.metadata.name,
            listener.metadata.namespace,
            labels=labels_with_override(override, _common_labels(listener, excluded_prefixes), excluded_prefixes),
            annotations=_annotations(override, content),
            owner=listener,
        ),
    }


def listener_role_rules(listener: AutoscalingListener) -> list[dict[str, Any]]:
    """The two rules: patch its one EphemeralRunnerSet, and the job fields of any EphemeralRunner."""
    return [
        {
            "apiGroups": [GROUP],
            "resources": ["ephemeralrunnersets"],
            "resourceNames": [listener.spec.ephemeral_runner_set_name],
            "verbs": ["patch"],
        },
        {"apiGroups": [GROUP], "resources": ["ephemeralrunners", "ephemeralrunners/status"], "verbs": ["patch"]},
    ]


def listener_role(listener: AutoscalingListener, excluded_prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The body of the role of ``listener``, in the namespace of its runner set; nothing owns it there.

    Raises :class:`~runherd.resources.errors.BuildError` when the listener's name is too long for a label.
    """
    rules = listener_role_rules(listener)
    return {
        "apiVersion": f"{_RBAC_GROUP}/v1",
        "kind": "Role",
        "metadata": _metadata_beside_runners(listener, listener.spec.role_metadata, rules, excluded_prefixes),
        "rules": rules,
    }


def listener_role_binding(listener: AutoscalingListener, excluded_prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The body of the binding of that role to the service account, in the role's namespace; errors as there."""
    name = listener.metadata.name
    content: dict[str, Any] = {
        "roleRef": {"apiGroup": _RBAC_GROUP, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": listener.metadata.namespace, "name": name}],
    }
    override = listener.spec.role_binding_metadata
    return {
        "apiVersion": f"{_RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata_beside_runners(listener, override, content, excluded_prefixes),
        **content,
    }


def _metadata_beside_runners(
    listener: AutoscalingListener, override: ResourceMeta | None, content: Any, excluded_prefixes: tuple[str, ...]
) -> dict[str, Any]:
    """Metadata of an object in the runner set's namespace; its labels say which listener it belongs to."""
    name, runner_set = listener.metadata.name, listener.spec.autoscaling_runner_set_name
    if len(name) > _MAX_LABEL_VALUE:
        raise BuildError(
            f"the name of listener {name} has more than {_MAX_LABEL_VALUE} characters, so that no label can hold it;"
            f" install AutoscalingRunnerSet {runner_set} again under a name of at most {_MAX_RUNNER_SET_NAME}"
            " characters (its runnerScaleSetName may stay as it is)"
        )
    labels = {
        **_common_labels(listener, excluded_prefixes),
        LABEL_LISTENER_NAME: name,
        LABEL_LISTENER_NAMESPACE: listener.metadata.namespace,
    }
    return built_metadata(
        name,
        listener.spec.autoscaling_runner_set_namespace,
        labels=labels_with_override(override, labels, excluded_prefixes),
        annotations=_annotations(override, content),
    )


def _common_labels(listener: AutoscalingListener, excluded_prefixes: tuple[str, ...]) -> dict[str, str]:
    spec = listener.spec
    own = scale_set_labels(spec.autoscaling_runner_set_name, spec.autoscaling_runner_set_namespace)
    return merge_labels(listener.metadata.labels, own, excluded_prefixes)


def _annotations(override: ResourceMeta | None, content: Any) -> dict[str, str]:
    return annotations_with_override(override, {ANNOTATION_INTEGRITY_HASH: content_hash(content)})
