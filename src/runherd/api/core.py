"""The built-in kinds of Kubernetes that this project works with, and where each is served.

The structs hold only the fields that controllers read (``docs/spec/controllers.md`` 5 to 8); all others are dropped on
decoding. So never send one back as a full update of an object that others write to as well: that would delete what the
struct doesn't know. Change such objects by merge patches that name the changed fields. Objects that are wholly ours
(leases, events, JIT secrets) may be created from a struct.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from runherd.api.meta import ApiStruct, Condition, ObjectMeta, always
from runherd.api.resource import Resource
from runherd.api.times import MicroTime

__all__ = [
    "CONFIG_MAPS",
    "CUSTOM_RESOURCE_DEFINITIONS",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "ROLES",
    "ROLE_BINDINGS",
    "SECRETS",
    "SERVICE_ACCOUNTS",
    "ConfigMap",
    "Container",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "CustomResourceDefinition",
    "CustomResourceDefinitionNames",
    "CustomResourceDefinitionSpec",
    "CustomResourceDefinitionStatus",
    "CustomResourceDefinitionVersion",
    "Event",
    "EventSource",
    "Lease",
    "LeaseSpec",
    "LocalObjectReference",
    "Namespace",
    "NamespaceStatus",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "ObjectReference",
    "Pod",
    "PodSpec",
    "PodStatus",
    "PolicyRule",
    "Role",
    "RoleBinding",
    "RoleRef",
    "Secret",
    "ServiceAccount",
    "Subject",
]


class LocalObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Names an object in the namespace of the object that refers to it."""

    name: str = ""


# --- Pod ---------------------------------------------------------------------------------------------------------


class Container(ApiStruct, frozen=True, kw_only=True):
    """A container of a pod that exists: its name. (Templates have a richer one: ``runherd.api.templates``.)"""

    name: str = ""


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """What of a pod's ``spec`` is read: how many containers it has, how they restart, where it was placed."""

    containers: list[Container] = []
    restart_policy: str = ""
    node_name: str = ""


class ContainerStateWaiting(ApiStruct, frozen=True, kw_only=True):
    """Why a container doesn't run yet (``ImagePullBackOff`` and the like)."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(ApiStruct, frozen=True, kw_only=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class ContainerStateTerminated(ApiStruct, frozen=True, kw_only=True):
    """How a container ended. ``exit_code`` is always there, also when it is 0."""

    exit_code: int = always(0)
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """At most one of the three is set; none means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """The kubelet's account of one container."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """What of a pod's ``status`` is read (``docs/spec/controllers.md`` 7, the pod predicate; 7.7; 7.9)."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Pod(ApiStruct, frozen=True, kw_only=True):
    """A pod that exists. Pods to be created are built as plain JSON from their template, with every field it has."""

    api_version: Literal["v1"] = always("v1")
    kind: Literal["Pod"] = always("Pod")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- Configuration and identity ----------------------------------------------------------------------------------


class Secret(ApiStruct, frozen=True, kw_only=True):
    """A secret. ``data`` holds the decoded bytes; on the wire they are base64. Never log or print one."""

    api_version: Literal["v1"] = always("v1")
    kind: Literal["Secret"] = always("Secret")
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data)})"


class ConfigMap(ApiStruct, frozen=True, kw_only=True):
    """A config map; ``binary_data`` holds the decoded bytes."""

    api_version: Literal["v1"] = always("v1")
    kind: Literal["ConfigMap"] = always("ConfigMap")
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}


class ServiceAccount(ApiStruct, frozen=True, kw_only=True):
    """A service account, with what enters its change hash (``docs/spec/controllers.md`` 8.6)."""

    api_version: Literal["v1"] = always("v1")
    kind: Literal["ServiceAccount"] = always("ServiceAccount")
    metadata: ObjectMeta = ObjectMeta()
    secrets: list[LocalObjectReference] = []
    image_pull_secrets: list[LocalObjectReference] = []
    automount_service_account_token: bool | None = None


class PolicyRule(ApiStruct, frozen=True, kw_only=True):
    """One permission of a role."""

    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []


class Role(ApiStruct, frozen=True, kw_only=True):
    """A role. The server writes ``rules: null`` for one without rules."""

    api_version: Literal["rbac.authorization.k8s.io/v1"] = always("rbac.authorization.k8s.io/v1")
    kind: Literal["Role"] = always("Role")
    metadata: ObjectMeta = ObjectMeta()
    rules: list[PolicyRule] | None = None


class RoleRef(ApiStruct, frozen=True, kw_only=True):
    """The role that a binding gives."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class Subject(ApiStruct, frozen=True, kw_only=True):
    """Who gets the role of a binding."""

    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleBinding(ApiStruct, frozen=True, kw_only=True):
    """A role binding."""

    api_version: Literal["rbac.authorization.k8s.io/v1"] = always("rbac.authorization.k8s.io/v1")
    kind: Literal["RoleBinding"] = always("RoleBinding")
    metadata: ObjectMeta = ObjectMeta()
    subjects: list[Subject] = []
    role_ref: RoleRef = RoleRef()


# --- The cluster -------------------------------------------------------------------------------------------------


class NamespaceStatus(ApiStruct, frozen=True, kw_only=True):
    """``Active`` or ``Terminating``."""

    phase: str = ""


class Namespace(ApiStruct, frozen=True, kw_only=True):
    """A namespace."""

    api_version: Literal["v1"] = always("v1")
    kind: Literal["Namespace"] = always("Namespace")
    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    """Whether a node takes new pods."""

    unschedulable: bool = False


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """How a node is."""

    conditions: list[Condition] = []


class Node(ApiStruct, frozen=True, kw_only=True):
    """A node."""

    api_version: Literal["v1"] = always("v1")
    kind: Literal["Node"] = always("Node")
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    """Who holds a lease and until when: ``renew_time`` plus ``lease_duration_seconds``."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int = 0


class Lease(ApiStruct, frozen=True, kw_only=True):
    """A lease, for leader election and node heartbeats."""

    api_version: Literal["coordination.k8s.io/v1"] = always("coordination.k8s.io/v1")
    kind: Literal["Lease"] = always("Lease")
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """The object that an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(ApiStruct, frozen=True, kw_only=True):
    """Who reports an event, in the older of its two ways to say so (``kubectl get events`` reads it)."""

    component: str = ""
    host: str = ""


class Event(ApiStruct, frozen=True, kw_only=True):
    """An event. ``involved_object.namespace`` must be the event's own; ``type`` is ``Normal`` or ``Warning``."""

    api_version: Literal["v1"] = always("v1")
    kind: Literal["Event"] = always("Event")
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    action: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: MicroTime | None = None


class CustomResourceDefinitionNames(ApiStruct, frozen=True, kw_only=True):
    """What a custom kind is called."""

    plural: str = ""
    singular: str = ""
    kind: str = ""
    list_kind: str = ""


class CustomResourceDefinitionVersion(ApiStruct, frozen=True, kw_only=True):
    """One version of a custom kind; its schema is not read."""

    name: str = ""
    served: bool = always(False)
    storage: bool = always(False)


class CustomResourceDefinitionSpec(ApiStruct, frozen=True, kw_only=True):
    """What a custom resource definition defines."""

    group: str = ""
    scope: str = ""
    names: CustomResourceDefinitionNames = CustomResourceDefinitionNames()
    versions: list[CustomResourceDefinitionVersion] = []


class CustomResourceDefinitionStatus(ApiStruct, frozen=True, kw_only=True):
    """Whether the definition is in force: the condition ``Established``."""

    conditions: list[Condition] = []


class CustomResourceDefinition(ApiStruct, frozen=True, kw_only=True):
    """A custom resource definition as far as it is read; ``runherd.api.crds`` generates ours in full."""

    api_version: Literal["apiextensions.k8s.io/v1"] = always("apiextensions.k8s.io/v1")
    kind: Literal["CustomResourceDefinition"] = always("CustomResourceDefinition")
    metadata: ObjectMeta = ObjectMeta()
    spec: CustomResourceDefinitionSpec = CustomResourceDefinitionSpec()
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()


# --- Where they are served ---------------------------------------------------------------------------------------

_RBAC = "rbac.authorization.k8s.io"

PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True, type=Secret)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, type=ServiceAccount)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True, type=Event)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, type=Namespace)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Node)
ROLES = Resource(_RBAC, "v1", "roles", "Role", namespaced=True, type=Role)
ROLE_BINDINGS = Resource(_RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True, type=RoleBinding)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=Lease)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    type=CustomResourceDefinition,
)
