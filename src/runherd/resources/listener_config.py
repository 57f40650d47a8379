"""The configuration file of a listener, and the secret that holds it.

``docs/spec/controllers.md`` 8.7, ``docs/spec/actions-service.md`` 7.
"""

from __future__ import annotations

from typing import Any

import msgspec

from runherd.actions.credentials import Credentials, PersonalAccessToken, credentials_from_values
from runherd.actions.errors import CredentialsError
from runherd.api.actions import AutoscalingListener, AzureKeyVaultConfig, MetricsConfig, ResourceMeta, VaultConfig
from runherd.api.constants import ANNOTATION_INTEGRITY_HASH
from runherd.resources.errors import BuildError
from runherd.resources.integrity_hash import content_hash
from runherd.resources.listener_settings import ListenerSettings
from runherd.resources.merge import merge_annotations, merge_labels
from runherd.resources.names import listener_config_secret_name
from runherd.resources.owner import built_metadata
from runherd.resources.secret_data import encoded_data

__all__ = ["CONFIG_KEY", "AzureKeyVault", "ListenerConfig", "listener_config", "listener_config_secret"]

#: The key of the secret, and the name of the file.
CONFIG_KEY = "config.json"

_AZURE_KEY_VAULT = "azure_key_vault"
#: What a running listener takes over when the file changes; any other change needs another listener (D-17).
_READ_AGAIN = frozenset({"min_runners", "max_runners", "metrics"})


class AzureKeyVault(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach an Azure Key Vault."""

    tenant_id: str = ""
    client_id: str = ""
    url: str = ""
    certificate_path: str = ""


class ListenerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The file (``docs/spec/actions-service.md`` 7.2). Unknown keys are ignored; ``repr`` shows no credentials."""

    configure_url: str = ""
    vault_type: str = ""
    vault_lookup_key: str = ""
    azure_key_vault: AzureKeyVault | None = None
    github_app_id: str = ""
    github_app_installation_id: int = 0
    github_app_private_key: str = ""
    github_token: str = ""
    ephemeral_runner_set_namespace: str = ""
    ephemeral_runner_set_name: str = ""
    max_runners: int = 0
    min_runners: int = 0
    runner_scale_set_id: int = 0
    runner_scale_set_name: str = ""
    server_root_ca: str = ""
    log_level: str = ""
    log_format: str = ""
    metrics_addr: str = ""
    metrics_endpoint: str = ""
    metrics: MetricsConfig | None = None

    def __repr__(self) -> str:
        runner_set = f"{self.ephemeral_runner_set_namespace}/{self.ephemeral_runner_set_name}"
        return f"ListenerConfig(configure_url={self.configure_url!r}, ephemeral_runner_set={runner_set!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("configure_url", self.configure_url)]

    def document(self) -> bytes:
        """The file's content: a JSON object and a newline. Credentials are left out where a vault has them."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        if self.azure_key_vault is None:
            del content["azure_key_vault"]
        if self.vault_type:
            for key in ("github_app_id", "github_app_installation_id", "github_app_private_key", "github_token"):
                del content[key]
        return msgspec.json.encode(content) + b"\n"

    def restart_hash(self) -> str:
        """Equal as long as a running listener can take over the difference by itself (D-17)."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content_hash({key: value for key, value in content.items() if key not in _READ_AGAIN})

    def validate(self) -> None:
        """Raises :class:`BuildError` for the first rule of ``docs/spec/actions-service.md`` 7.3 that is broken.

        Nothing of what the credentials say is in its message.
        """
        if not self.configure_url:
            raise BuildError("githubConfigUrl is empty; set it to the URL of a repository, organization or enterprise")
        if not self.ephemeral_runner_set_namespace or not self.ephemeral_runner_set_name:
            raise BuildError("the listener's configuration names no EphemeralRunnerSet with its namespace")
        if self.runner_scale_set_id == 0:
            raise BuildError("the listener's configuration has no runner scale set id")
        if self.max_runners < self.min_runners:
            raise BuildError(
                f"maxRunners ({self.max_runners}) is less than minRunners ({self.min_runners}); raise the one or lower"
                " the other"
            )
        if self.vault_type:
            self._validate_vault()
        elif self.vault_lookup_key:
            raise BuildError("the listener's configuration has a key to look up, but no vault to look in")
        else:
            self._validate_credentials()

    def _validate_vault(self) -> None:
        if self.vault_type != _AZURE_KEY_VAULT:
            raise BuildError(f"vaultConfig.type is {self.vault_type!r}, but only {_AZURE_KEY_VAULT} is known")
        if not self.vault_lookup_key:
            raise BuildError("githubConfigSecret is empty; with a vault, it names the secret in the vault")

    def _validate_credentials(self) -> None:
        try:
            credentials = credentials_from_values(
                token=self.github_token,
                app_id=self.github_app_id,
                installation_id=self.github_app_installation_id,
                private_key=self.github_app_private_key,
            )
        except CredentialsError as error:
            raise BuildError(f"the secret named by githubConfigSecret: {error}") from None
        if not isinstance(credentials, PersonalAccessToken) and credentials.installation_id < 0:
            raise BuildError("the secret named by githubConfigSecret: github_app_installation_id is negative")


def listener_config(
    listener: AutoscalingListener, settings: ListenerSettings, credentials: Credentials | None, root_ca: str
) -> ListenerConfig:
    """The configuration of ``listener``; ``root_ca`` is PEM text or empty.

    ``credentials`` are ``None`` where a vault holds them. Raises :class:`BuildError`.
    """
    spec = listener.spec
    vault = spec.vault_config or VaultConfig()
    config = ListenerConfig(
        configure_url=spec.github_config_url,
        vault_type=vault.type,
        vault_lookup_key=spec.github_config_secret if vault.type else "",
        azure_key_vault=_azure_key_vault(vault.azure_key_vault) if vault.type else None,
        **_credential_fields(None if vault.type else credentials),
        ephemeral_runner_set_namespace=spec.autoscaling_runner_set_namespace,
        ephemeral_runner_set_name=spec.ephemeral_runner_set_name,
        max_runners=spec.max_runners,
        min_runners=spec.min_runners,
        runner_scale_set_id=spec.runner_scale_set_id,
        runner_scale_set_name=spec.autoscaling_runner_set_name,
        server_root_ca=root_ca,
        log_level=settings.log_level,
        log_format=settings.log_format,
        metrics_addr=settings.metrics_address if settings.has_metrics else "",
        metrics_endpoint=settings.metrics_endpoint if settings.has_metrics else "",
        metrics=spec.metrics,
    )
    config.validate()
    return config


def listener_config_secret(
    listener: AutoscalingListener, config: ListenerConfig, excluded_prefixes: tuple[str, ...]
) -> dict[str, Any]:
    """The body of the secret with ``config``. It has none of the common labels. Never log it."""
    override = listener.spec.config_secret_metadata or ResourceMeta()
    data = {CONFIG_KEY: config.document().decode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": built_metadata(
            listener_config_secret_name(listener.metadata.name),
            listener.metadata.namespace,
            labels=merge_labels(override.labels, {}, excluded_prefixes),
            annotations=merge_annotations(override.annotations, {ANNOTATION_INTEGRITY_HASH: content_hash(data)}),
            owner=listener,
        ),
        "data": encoded_data(data),
    }


def _credential_fields(credentials: Credentials | None) -> dict[str, Any]:
    if credentials is None:
        return {}
    if isinstance(credentials, PersonalAccessToken):
        return {"github_token": credentials.token}
    return {
        "github_app_id": credentials.app_id,
        "github_app_installation_id": credentials.installation_id,
        "github_app_private_key": credentials.private_key,
    }


def _azure_key_vault(vault: AzureKeyVaultConfig | None) -> AzureKeyVault | None:
    if vault is None:
        return None
    return AzureKeyVault(
        tenant_id=vault.tenant_id,
        client_id=vault.client_id,
        url=vault.url,
        certificate_path=vault.certificate_path,
    )
