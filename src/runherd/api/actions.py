"""The four kinds of ``actions.github.com/v1alpha1`` (``docs/spec/controllers.md`` 3, ``docs/spec/crds.md`` 5).

A field that is absent reads as its zero value, and a zero value is left out when written, except where Go's types
write it all the same: ``patchID``, ``currentReplicas`` and the required fields of a runner's spec. So a merge patch
that sets ``replicas`` to zero must say ``null`` or ``0`` by itself.

These structs know every field of their schema but no unknown one: patch objects, don't replace them. Fields that ARC's
schema lacks (``conditions`` and ``recentFailures``) are optional and pruned by its definitions.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from runherd.api.constants import (
    GROUP,
    KIND_AUTOSCALING_LISTENER,
    KIND_AUTOSCALING_RUNNER_SET,
    KIND_EPHEMERAL_RUNNER,
    KIND_EPHEMERAL_RUNNER_SET,
    VERSION,
)
from runherd.api.core import LocalObjectReference
from runherd.api.meta import ApiStruct, Condition, ObjectMeta, always
from runherd.api.resource import Resource
from runherd.api.templates import NO_TEMPLATE, has_container_hook, share_template

__all__ = [
    "AUTOSCALING_LISTENERS",
    "AUTOSCALING_RUNNER_SETS",
    "EPHEMERAL_RUNNERS",
    "EPHEMERAL_RUNNER_SETS",
    "MAX_RECENT_FAILURES",
    "AutoscalingListener",
    "AutoscalingListenerSpec",
    "AutoscalingListenerStatus",
    "AutoscalingRunnerSet",
    "AutoscalingRunnerSetPhase",
    "AutoscalingRunnerSetSpec",
    "AutoscalingRunnerSetStatus",
    "AzureKeyVaultConfig",
    "CertificateSource",
    "ConfigMapKeySelector",
    "CounterMetric",
    "EphemeralRunner",
    "EphemeralRunnerPhase",
    "EphemeralRunnerSet",
    "EphemeralRunnerSetPhase",
    "EphemeralRunnerSetSpec",
    "EphemeralRunnerSetStatus",
    "EphemeralRunnerSpec",
    "EphemeralRunnerStatus",
    "HistogramMetric",
    "MetricsConfig",
    "ProxyConfig",
    "ProxyServerConfig",
    "RecentFailure",
    "ResourceMeta",
    "TLSConfig",
    "VaultConfig",
]

#: How many of an EphemeralRunner's failures ``status.recentFailures`` keeps, the newest last.
MAX_RECENT_FAILURES = 5


class AutoscalingRunnerSetPhase(StrEnum):
    """Values of ``status.phase``. Objects hold plain strings, so that an unknown phase can be read too."""

    PENDING = "Pending"
    RUNNING = "Running"
    OUTDATED = "Outdated"


class EphemeralRunnerSetPhase(StrEnum):
    """Values of ``status.phase``; empty until the first status is written."""

    RUNNING = "Running"
    OUTDATED = "Outdated"


class EphemeralRunnerPhase(StrEnum):
    """Values of ``status.phase``; empty until the runner's container is first reported."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUTDATED = "Outdated"


_DONE_PHASES = frozenset({EphemeralRunnerPhase.SUCCEEDED, EphemeralRunnerPhase.FAILED, EphemeralRunnerPhase.OUTDATED})


def _share_templates(struct: ApiStruct, *names: str) -> None:
    """Replaces raw templates, views into the message they were decoded from, by the shared objects of their content."""
    for name in names:
        raw = getattr(struct, name)
        if raw is not NO_TEMPLATE:
            msgspec.structs.force_setattr(struct, name, share_template(raw))


def _no_labels() -> list[str]:
    return []  # not `list` itself: a field made by that is left out while empty, and `labels` is required


# --- Shared small types (docs/spec/crds.md 4) --------------------------------------------------------------------


class ResourceMeta(ApiStruct, frozen=True, kw_only=True):
    """Labels and annotations that a user adds to a child object (``docs/spec/controllers.md`` 8.12)."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ProxyServerConfig(ApiStruct, frozen=True, kw_only=True):
    """A proxy; ``credential_secret_ref`` names a Secret with the keys ``username`` and ``password``."""

    url: str = ""
    credential_secret_ref: str = ""


class ProxyConfig(ApiStruct, frozen=True, kw_only=True):
    """Proxies for http and https targets, and the hosts reached without."""

    http: ProxyServerConfig | None = None
    https: ProxyServerConfig | None = None
    no_proxy: list[str] = []


class ConfigMapKeySelector(ApiStruct, frozen=True, kw_only=True):
    """A key of a ConfigMap."""

    name: str = ""
    key: str = always("")
    optional: bool | None = None


class CertificateSource(ApiStruct, frozen=True, kw_only=True):
    """Where the certificates of a certificate authority are."""

    config_map_key_ref: ConfigMapKeySelector | None = None


class TLSConfig(ApiStruct, frozen=True, kw_only=True):
    """The certificate authorities trusted for the GitHub server besides the system's."""

    certificate_from: CertificateSource | None = None


class AzureKeyVaultConfig(ApiStruct, frozen=True, kw_only=True):
    """How to reach an Azure Key Vault."""

    url: str = always("")
    tenant_id: str = always("")
    client_id: str = always("")
    certificate_path: str = always("")


class VaultConfig(ApiStruct, frozen=True, kw_only=True):
    """The vault that holds the GitHub credentials; the one ``type`` known is ``azure_key_vault``."""

    type: str = ""
    proxy: ProxyConfig | None = None
    azure_key_vault: AzureKeyVaultConfig | None = None


class CounterMetric(ApiStruct, frozen=True, kw_only=True):
    """The labels of a counter or gauge."""

    labels: list[str] = msgspec.field(default_factory=_no_labels)


class HistogramMetric(ApiStruct, frozen=True, kw_only=True):
    """The labels and bucket bounds of a histogram."""

    labels: list[str] = msgspec.field(default_factory=_no_labels)
    buckets: list[float] = []


class MetricsConfig(ApiStruct, frozen=True, kw_only=True):
    """Which metrics a listener serves, by name."""

    counters: dict[str, CounterMetric] = {}
    gauges: dict[str, CounterMetric] = {}
    histograms: dict[str, HistogramMetric] = {}


# --- AutoscalingRunnerSet ----------------------------------------------------------------------------------------


class AutoscalingRunnerSetSpec(ApiStruct, frozen=True, kw_only=True):
    """A scale set: where its jobs come from, how many runners there may be, and what one looks like.

    ``template`` and ``listener_template`` are pod templates (``metadata`` and ``spec``), ``NO_TEMPLATE`` where absent;
    see ``runherd.api.templates``.
    """

    github_config_url: str = ""
    github_config_secret: str = ""
    runner_group: str = ""
    runner_scale_set_name: str = ""
    runner_scale_set_labels: list[str] = []
    proxy: ProxyConfig | None = None
    github_server_tls: TLSConfig | None = msgspec.field(name="githubServerTLS", default=None)
    vault_config: VaultConfig | None = None
    template: msgspec.Raw = NO_TEMPLATE
    listener_metrics: MetricsConfig | None = None
    listener_template: msgspec.Raw = NO_TEMPLATE
    max_runners: int | None = None
    min_runners: int | None = None
    autoscaling_listener: ResourceMeta | None = None
    listener_service_account_metadata: ResourceMeta | None = None
    listener_role_metadata: ResourceMeta | None = None
    listener_role_binding_metadata: ResourceMeta | None = None
    listener_config_secret_metadata: ResourceMeta | None = None
    ephemeral_runner_set_metadata: ResourceMeta | None = None
    ephemeral_runner_metadata: ResourceMeta | None = None
    ephemeral_runner_config_secret_metadata: ResourceMeta | None = None

    def __post_init__(self) -> None:
        _share_templates(self, "template", "listener_template")


class AutoscalingRunnerSetStatus(ApiStruct, frozen=True, kw_only=True):
    """What its EphemeralRunnerSet counted last, and the set's phase."""

    phase: str = ""
    current_runners: int = 0
    pending_ephemeral_runners: int = 0
    running_ephemeral_runners: int = 0
    failed_ephemeral_runners: int = 0
    conditions: list[Condition] = []


class AutoscalingRunnerSet(ApiStruct, frozen=True, kw_only=True):
    """What users create: one scale set."""

    api_version: Literal["actions.github.com/v1alpha1"] = always("actions.github.com/v1alpha1")
    kind: Literal["AutoscalingRunnerSet"] = always("AutoscalingRunnerSet")
    metadata: ObjectMeta = ObjectMeta()
    spec: AutoscalingRunnerSetSpec = AutoscalingRunnerSetSpec()
    status: AutoscalingRunnerSetStatus = AutoscalingRunnerSetStatus()


# --- AutoscalingListener -----------------------------------------------------------------------------------------


class AutoscalingListenerSpec(ApiStruct, frozen=True, kw_only=True):
    """One listener pod, made from the runner set that it names. ``template`` is a pod template."""

    github_config_url: str = ""
    github_config_secret: str = ""
    runner_scale_set_id: int = 0
    autoscaling_runner_set_namespace: str = ""
    autoscaling_runner_set_name: str = ""
    ephemeral_runner_set_name: str = ""
    max_runners: int = 0
    min_runners: int = 0
    image: str = ""
    image_pull_secrets: list[LocalObjectReference] = []
    proxy: ProxyConfig | None = None
    github_server_tls: TLSConfig | None = msgspec.field(name="githubServerTLS", default=None)
    vault_config: VaultConfig | None = None
    metrics: MetricsConfig | None = None
    template: msgspec.Raw = NO_TEMPLATE
    config_secret_metadata: ResourceMeta | None = None
    service_account_metadata: ResourceMeta | None = None
    role_metadata: ResourceMeta | None = None
    role_binding_metadata: ResourceMeta | None = None

    def __post_init__(self) -> None:
        _share_templates(self, "template")


class AutoscalingListenerStatus(ApiStruct, frozen=True, kw_only=True):
    """Empty in ARC; conditions here."""

    conditions: list[Condition] = []


class AutoscalingListener(ApiStruct, frozen=True, kw_only=True):
    """One listener. It lives in the controller's namespace, its runner set in another."""

    api_version: Literal["actions.github.com/v1alpha1"] = always("actions.github.com/v1alpha1")
    kind: Literal["AutoscalingListener"] = always("AutoscalingListener")
    metadata: ObjectMeta = ObjectMeta()
    spec: AutoscalingListenerSpec = AutoscalingListenerSpec()
    status: AutoscalingListenerStatus = AutoscalingListenerStatus()


# --- EphemeralRunner ---------------------------------------------------------------------------------------------


class EphemeralRunnerSpec(ApiStruct, frozen=True, kw_only=True):
    """One runner. ``metadata`` and ``spec`` are its pod's, inlined."""

    github_config_url: str = always("")
    github_config_secret: str = always("")
    runner_scale_set_id: int = always(0)
    github_server_tls: TLSConfig | None = msgspec.field(name="githubServerTLS", default=None)
    proxy: ProxyConfig | None = None
    proxy_secret_ref: str = ""
    vault_config: VaultConfig | None = None
    ephemeral_runner_config_secret_metadata: ResourceMeta | None = None
    metadata: msgspec.Raw = NO_TEMPLATE
    spec: msgspec.Raw = NO_TEMPLATE

    def __post_init__(self) -> None:
        _share_templates(self, "metadata", "spec")


class RecentFailure(ApiStruct, frozen=True, kw_only=True):
    """Why a runner's pod failed, kept when the pod is gone. ``exit_code`` is the runner container's, if it had one."""

    pod_name: str = ""
    pod_uid: str = msgspec.field(name="podUID", default="")
    node_name: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    time: datetime | None = None


class EphemeralRunnerStatus(ApiStruct, frozen=True, kw_only=True):
    """The controller writes all but the job's fields, the listener writes those.

    ``failures`` maps the UID of each failed pod to the time; objects written before ARC 0.12 may hold booleans there,
    which still count as failures but have no time.
    """

    ready: bool = False
    phase: str = ""
    reason: str = ""
    message: str = ""
    runner_id: int = 0
    runner_name: str = ""
    failures: dict[str, datetime | bool] = {}
    job_request_id: int = 0
    job_id: str = ""
    job_repository_name: str = ""
    job_workflow_ref: str = ""
    workflow_run_id: int = 0
    job_display_name: str = ""
    conditions: list[Condition] = []
    recent_failures: list[RecentFailure] = []

    def last_failure(self) -> datetime | None:
        """The latest time in ``failures``, None when there is none (``docs/spec/controllers.md`` 3.4)."""
        return max((time for time in self.failures.values() if isinstance(time, datetime)), default=None)


class EphemeralRunner(ApiStruct, frozen=True, kw_only=True):
    """One runner, for at most one job."""

    api_version: Literal["actions.github.com/v1alpha1"] = always("actions.github.com/v1alpha1")
    kind: Literal["EphemeralRunner"] = always("EphemeralRunner")
    metadata: ObjectMeta = ObjectMeta()
    spec: EphemeralRunnerSpec = EphemeralRunnerSpec()
    status: EphemeralRunnerStatus = EphemeralRunnerStatus()

    @property
    def is_done(self) -> bool:
        """Whether the phase is a final one: Succeeded, Failed or Outdated (``docs/spec/controllers.md`` 3.4)."""
        return self.status.phase in _DONE_PHASES

    @property
    def has_job(self) -> bool:
        """Whether a job was assigned to this runner (``docs/spec/controllers.md`` 3.4)."""
        return self.status.job_id != ""

    @property
    def has_container_hook(self) -> bool:
        """Whether its job may have made further pods and secrets (``docs/spec/controllers.md`` 3.4)."""
        return has_container_hook(self.spec.spec)


# --- EphemeralRunnerSet ------------------------------------------------------------------------------------------


class EphemeralRunnerSetSpec(ApiStruct, frozen=True, kw_only=True):
    """How many runners there should be, by which of the listener's patches, and what each looks like."""

    replicas: int = 0
    patch_id: int = msgspec.field(name="patchID", default_factory=int)  # a factory, so that 0 is written too
    ephemeral_runner_spec: EphemeralRunnerSpec = EphemeralRunnerSpec()
    ephemeral_runner_metadata: ResourceMeta | None = None


class EphemeralRunnerSetStatus(ApiStruct, frozen=True, kw_only=True):
    """Counts of runners. ``current_replicas`` is always written: the schema requires it."""

    current_replicas: int = always(0)
    pending_ephemeral_runners: int = 0
    running_ephemeral_runners: int = 0
    failed_ephemeral_runners: int = 0
    phase: str = ""
    conditions: list[Condition] = []


class EphemeralRunnerSet(ApiStruct, frozen=True, kw_only=True):
    """The runners of one scale set, scaled by its listener."""

    api_version: Literal["actions.github.com/v1alpha1"] = always("actions.github.com/v1alpha1")
    kind: Literal["EphemeralRunnerSet"] = always("EphemeralRunnerSet")
    metadata: ObjectMeta = ObjectMeta()
    spec: EphemeralRunnerSetSpec = EphemeralRunnerSetSpec()
    status: EphemeralRunnerSetStatus = EphemeralRunnerSetStatus()


# --- Where they are served ---------------------------------------------------------------------------------------

AUTOSCALING_RUNNER_SETS = Resource(
    GROUP, VERSION, "autoscalingrunnersets", KIND_AUTOSCALING_RUNNER_SET, namespaced=True, type=AutoscalingRunnerSet
)
AUTOSCALING_LISTENERS = Resource(
    GROUP, VERSION, "autoscalinglisteners", KIND_AUTOSCALING_LISTENER, namespaced=True, type=AutoscalingListener
)
EPHEMERAL_RUNNER_SETS = Resource(
    GROUP, VERSION, "ephemeralrunnersets", KIND_EPHEMERAL_RUNNER_SET, namespaced=True, type=EphemeralRunnerSet
)
EPHEMERAL_RUNNERS = Resource(
    GROUP, VERSION, "ephemeralrunners", KIND_EPHEMERAL_RUNNER, namespaced=True, type=EphemeralRunner
)
