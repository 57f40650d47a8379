"""The names that objects, pods and their containers carry (``docs/spec/controllers.md`` 2).

They are ARC's own, to the letter: objects made by ARC are adopted, and objects made here are understood by it.
"""

from __future__ import annotations

from typing import Final

# The API of the four kinds.
GROUP: Final = "actions.github.com"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

KIND_AUTOSCALING_RUNNER_SET: Final = "AutoscalingRunnerSet"
KIND_AUTOSCALING_LISTENER: Final = "AutoscalingListener"
KIND_EPHEMERAL_RUNNER_SET: Final = "EphemeralRunnerSet"
KIND_EPHEMERAL_RUNNER: Final = "EphemeralRunner"

# 2.1 Finalizers.
FINALIZER_AUTOSCALING_RUNNER_SET: Final = "autoscalingrunnerset.actions.github.com/finalizer"
FINALIZER_AUTOSCALING_LISTENER: Final = "autoscalinglistener.actions.github.com/finalizer"
FINALIZER_EPHEMERAL_RUNNER_SET: Final = "ephemeralrunnerset.actions.github.com/finalizer"
#: Pod and secret clean-up of an EphemeralRunner. Older releases put it on EphemeralRunnerSets too (6.6).
FINALIZER_EPHEMERAL_RUNNER: Final = "ephemeralrunner.actions.github.com/finalizer"
#: Release of an EphemeralRunner's registration with the Actions service.
FINALIZER_RUNNER_REGISTRATION: Final = "ephemeralrunner.actions.github.com/runner-registration-finalizer"
#: On Helm-managed roles, bindings, accounts and the GitHub secret; taken off last when a runner set is deleted.
FINALIZER_CLEANUP_PROTECTION: Final = "actions.github.com/cleanup-protection"

# 2.2 Annotations.
ANNOTATION_RUNNER_SCALE_SET_ID: Final = "runner-scale-set-id"
ANNOTATION_RUNNER_GROUP_NAME: Final = "actions.github.com/runner-group-name"
ANNOTATION_RUNNER_SCALE_SET_NAME: Final = "actions.github.com/runner-scale-set-name"
ANNOTATION_INTEGRITY_HASH: Final = "actions.github.com/integrity-hash"
ANNOTATION_PATCH_ID: Final = "actions.github.com/patch-id"
ANNOTATION_VALUES_HASH: Final = "actions.github.com/values-hash"
#: Without ``-name`` at its end, unlike its siblings.
ANNOTATION_CLEANUP_MANAGER_ROLE_BINDING: Final = "actions.github.com/cleanup-manager-role-binding"
ANNOTATION_CLEANUP_MANAGER_ROLE: Final = "actions.github.com/cleanup-manager-role-name"
ANNOTATION_CLEANUP_KUBERNETES_MODE_ROLE: Final = "actions.github.com/cleanup-kubernetes-mode-role-name"
ANNOTATION_CLEANUP_KUBERNETES_MODE_ROLE_BINDING: Final = "actions.github.com/cleanup-kubernetes-mode-role-binding-name"
ANNOTATION_CLEANUP_KUBERNETES_MODE_SERVICE_ACCOUNT: Final = (
    "actions.github.com/cleanup-kubernetes-mode-service-account-name"
)
ANNOTATION_CLEANUP_GITHUB_SECRET: Final = "actions.github.com/cleanup-github-secret-name"
ANNOTATION_CLEANUP_NO_PERMISSION_SERVICE_ACCOUNT: Final = (
    "actions.github.com/cleanup-no-permission-service-account-name"
)

# 2.3 Labels, and the values that are fixed.
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_VERSION: Final = "app.kubernetes.io/version"
LABEL_SCALE_SET_NAME: Final = "actions.github.com/scale-set-name"
LABEL_SCALE_SET_NAMESPACE: Final = "actions.github.com/scale-set-namespace"
LABEL_ENTERPRISE: Final = "actions.github.com/enterprise"
LABEL_ORGANIZATION: Final = "actions.github.com/organization"
LABEL_REPOSITORY: Final = "actions.github.com/repository"
LABEL_LISTENER_NAME: Final = "auto-scaling-listener-name"
LABEL_LISTENER_NAMESPACE: Final = "auto-scaling-listener-namespace"
LABEL_EPHEMERAL_RUNNER: Final = "actions-ephemeral-runner"
LABEL_POD_TEMPLATE_HASH: Final = "pod-template-hash"
#: Set by container hooks on the pods and secrets of a job: the name of the runner's pod.
LABEL_RUNNER_POD: Final = "runner-pod"

PART_OF: Final = "gha-runner-scale-set"
COMPONENT_RUNNER_SET: Final = "runner-set"
COMPONENT_RUNNER: Final = "runner"
COMPONENT_LISTENER: Final = "runner-scale-set-listener"
EPHEMERAL_RUNNER_TRUE: Final = "True"

# 2.4 Environment variables of listener and runner containers.
ENV_LISTENER_CONFIG_PATH: Final = "LISTENER_CONFIG_PATH"
ENV_JIT_CONFIG: Final = "ACTIONS_RUNNER_INPUT_JITCONFIG"
ENV_EXTRA_USER_AGENT: Final = "GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT"
ENV_RETURN_VERSION_DEPRECATED_EXIT_CODE: Final = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"
ENV_HTTP_PROXY: Final = "http_proxy"
ENV_HTTPS_PROXY: Final = "https_proxy"
ENV_NO_PROXY: Final = "no_proxy"
#: Its presence in the runner container tells that the job's pods and secrets have to be cleaned up as well.
ENV_CONTAINER_HOOKS: Final = "ACTIONS_RUNNER_CONTAINER_HOOKS"

# 2.5 Container names.
CONTAINER_RUNNER: Final = "runner"
CONTAINER_LISTENER: Final = "listener"

# 8.11 Keys of the JIT configuration's secret and of proxy secrets (the latter are also environment names, above).
SECRET_KEY_JIT_TOKEN: Final = "jitToken"
SECRET_KEY_RUNNER_NAME: Final = "runnerName"
SECRET_KEY_RUNNER_ID: Final = "runnerId"
SECRET_KEY_SCALE_SET_ID: Final = "scaleSetId"

# 7.1, 3.4 Exit codes of the runner program.
EXIT_CODE_SUCCESS: Final = 0
EXIT_CODE_VERSION_DEPRECATED: Final = 7
