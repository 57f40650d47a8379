"""What we log in with: a personal access token or a GitHub App (``docs/spec/actions-service.md`` 2.1, 8.4, 8.5)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from runherd.actions.errors import CredentialsError

__all__ = [
    "CredentialSource",
    "Credentials",
    "GitHubApp",
    "PersonalAccessToken",
    "SecretCredentialSource",
    "credential_source",
    "credentials_from_secret",
    "credentials_from_values",
]

_BOTH = (
    "both a token and a GitHub App are given; keep either github_token, "
    "or github_app_id, github_app_installation_id and github_app_private_key"
)
_NEITHER = (
    "no complete credentials are given; set either github_token, "
    "or all of github_app_id, github_app_installation_id and github_app_private_key"
)


@dataclass(frozen=True, slots=True)
class PersonalAccessToken:
    """A personal access token, used as it is."""

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.token:
            raise CredentialsError("the token is empty")
        if not re.fullmatch(r"[\x21-\x7e]+", self.token):
            raise CredentialsError("the token holds white space or other characters that no token has; check its end")

    def digest(self) -> str:
        """Equal for equal credentials; tells nothing about them."""
        return _digest("token", self.token)

    def secrets(self) -> tuple[str, ...]:
        """What must appear nowhere."""
        return (self.token,)


@dataclass(frozen=True, slots=True)
class GitHubApp:
    """An installation of a GitHub App. ``app_id`` is its numeric id or its client id, as text; the key is PEM."""

    app_id: str
    installation_id: int
    private_key: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.app_id or not self.private_key:
            raise CredentialsError(_NEITHER)
        if self.installation_id <= 0:
            raise CredentialsError(f"github_app_installation_id must be above 0, not {self.installation_id}")

    def digest(self) -> str:
        """Equal for equal credentials; tells nothing about them."""
        return _digest("app", self.app_id, str(self.installation_id), self.private_key)

    def secrets(self) -> tuple[str, ...]:
        """What must appear nowhere."""
        return (self.private_key,)


Credentials = PersonalAccessToken | GitHubApp


def _digest(*parts: str) -> str:
    framed = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(framed.encode("utf-8", "surrogatepass")).hexdigest()


def credentials_from_values(
    *, token: str = "", app_id: str = "", installation_id: int = 0, private_key: str = ""
) -> Credentials:
    """Exactly one of a token and a GitHub App; incomplete App data counts as absent.

    Raises :class:`CredentialsError` for both and for neither.
    """
    app = bool(app_id) and installation_id != 0 and bool(private_key)
    if token and app:
        raise CredentialsError(_BOTH)
    if token:
        return PersonalAccessToken(token)
    if not app:
        raise CredentialsError(_NEITHER)
    return GitHubApp(app_id, installation_id, private_key)


def credentials_from_secret(data: Mapping[str, bytes]) -> Credentials:
    """The credentials in a Kubernetes Secret's (decoded) ``data``, 8.4. Raises :class:`CredentialsError`."""
    values = {}
    for key in ("github_token", "github_app_id", "github_app_installation_id", "github_app_private_key"):
        try:
            values[key] = data.get(key, b"").decode()
        except UnicodeDecodeError:
            raise CredentialsError(f"the value of {key} is not UTF-8 text") from None
    installation_id = values["github_app_installation_id"]
    # As Go's ParseInt takes it: int() alone would also allow spaces, underscores and other scripts' digits.
    if installation_id and not re.fullmatch(r"[+-]?[0-9]{1,18}", installation_id):
        raise CredentialsError("github_app_installation_id is not a decimal number of 64 bits")
    return credentials_from_values(
        token=values["github_token"],
        app_id=values["github_app_id"],
        installation_id=int(installation_id or 0),
        private_key=values["github_app_private_key"],
    )


class CredentialSource(Protocol):
    """Where credentials are looked up by name. A vault takes its place here, beside the Kubernetes Secret."""

    async def credentials(self, namespace: str, name: str) -> Credentials:
        """The credentials called ``name``, for an object in ``namespace``.

        Raises :class:`CredentialsError`, and whatever the lookup itself raises.
        """
        ...


#: Reads the decoded ``data`` of the Secret (namespace, name).
ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes]]]


class SecretCredentialSource:
    """Credentials from Kubernetes Secrets, read anew every time so that a rotated Secret counts at once."""

    def __init__(self, read_secret: ReadSecret) -> None:
        self._read_secret = read_secret

    async def credentials(self, namespace: str, name: str) -> Credentials:
        data = await self._read_secret(namespace, name)
        try:
            return credentials_from_secret(data)
        except CredentialsError as error:
            raise CredentialsError(f"Secret {namespace}/{name}: {error}") from None


def credential_source(vault_type: str, read_secret: ReadSecret) -> CredentialSource:
    """The source that ``vaultConfig.type`` selects, 8.5.

    Raises :class:`CredentialsError` for every vault: Azure Key Vault is known and not supported yet.
    """
    if not vault_type:
        return SecretCredentialSource(read_secret)
    if vault_type == "azure_key_vault":
        raise CredentialsError(
            "vault type azure_key_vault is not supported yet; keep the credentials in a Kubernetes Secret, "
            "name it in githubConfigSecret, and leave vaultConfig away"
        )
    raise CredentialsError(f"unknown vault type {vault_type!r}; leave vaultConfig away to use a Kubernetes Secret")
