"""The pod of a listener (``docs/spec/controllers.md`` 8.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runherd.api.actions import AutoscalingListener
from runherd.api.constants import (
    ANNOTATION_INTEGRITY_HASH,
    CONTAINER_LISTENER,
    ENV_LISTENER_CONFIG_PATH,
    KIND_AUTOSCALING_LISTENER,
)
from runherd.api.templates import decode_template
from runherd.resources.canonical import canonical_spec
from runherd.resources.integrity_hash import content_hash
from runherd.resources.listener_config import CONFIG_KEY, ListenerConfig
from runherd.resources.listener_settings import ListenerSettings
from runherd.resources.listener_template import merge_listener_template
from runherd.resources.names import listener_config_secret_name, listener_proxy_secret_name
from runherd.resources.owner import built_metadata
from runherd.resources.proxy_environment import proxy_environment

__all__ = ["listener_pod"]

_CONFIG_VOLUME = "listener-config"
_CONFIG_DIRECTORY = "/etc/gha-listener"


def listener_pod(
    listener: AutoscalingListener,
    settings: ListenerSettings,
    config: ListenerConfig,
    proxy_data: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The body of the pod of ``listener``, which reads ``config`` and, where it has proxies, ``proxy_data``.

    Its integrity hash changes when another pod is needed: another spec, image or template, other credentials or
    proxies. What a running listener reads again by itself doesn't change it (D-17), nor do its rights.
    Raises :class:`~runherd.resources.errors.BuildError` for a malformed metrics address.
    """
    spec = _pod_spec(listener, settings)
    canonical = canonical_spec(KIND_AUTOSCALING_LISTENER, listener.spec)
    integrity_hash = content_hash(
        {
            "spec": spec,
            "template": canonical.get("template"),
            "config": config.restart_hash(),
            "proxy": proxy_data,
        }
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": built_metadata(
            listener.metadata.name,
            listener.metadata.namespace,
            labels=listener.metadata.labels,
            annotations={ANNOTATION_INTEGRITY_HASH: integrity_hash},
            owner=listener,
        ),
        "spec": spec,
    }
    return merge_listener_template(pod, decode_template(listener.spec.template))


def _pod_spec(listener: AutoscalingListener, settings: ListenerSettings) -> dict[str, Any]:
    name = listener.metadata.name
    container: dict[str, Any] = {
        "name": CONTAINER_LISTENER,
        "image": listener.spec.image,
        "command": [settings.entrypoint],
        "env": [
            {"name": ENV_LISTENER_CONFIG_PATH, "value": f"{_CONFIG_DIRECTORY}/{CONFIG_KEY}"},
            *proxy_environment(listener.spec.proxy, listener_proxy_secret_name(name)),
        ],
        "volumeMounts": [{"name": _CONFIG_VOLUME, "mountPath": _CONFIG_DIRECTORY, "readOnly": True}],
    }
    if settings.has_metrics:
        container["ports"] = [{"name": "metrics", "protocol": "TCP", "containerPort": settings.metrics_port}]
    spec: dict[str, Any] = {
        "serviceAccountName": name,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
        "volumes": [{"name": _CONFIG_VOLUME, "secret": {"secretName": listener_config_secret_name(name)}}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
    }
    if listener.spec.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": reference.name} for reference in listener.spec.image_pull_secrets]
    return spec
