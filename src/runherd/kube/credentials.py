"""What we show to an API server to be let in, and where it comes from."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runherd.kube.errors import CredentialError

__all__ = ["Credential", "CredentialSource", "FileCredentials", "StaticCredentials"]

#: How long what was read from a file is used before the file is looked at again, in seconds (client-go: 1 minute).
_FILE_LIFETIME = 60.0


@dataclass(frozen=True, slots=True)
class Credential:
    """A bearer token, a client certificate with its key (PEM), both, or none. ``repr`` shows nothing of it."""

    token: str = field(default="", repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)


class CredentialSource(Protocol):
    """Where credentials come from. Safe to use from many tasks."""

    async def current(self) -> Credential:
        """The credential to use now; mostly at once.

        Raises :class:`~runherd.kube.errors.CredentialError` when there is none.
        """
        ...

    async def renew(self, rejected: Credential) -> Credential:
        """What to use instead of ``rejected``, which the server did not accept; an equal one if there is no other.

        Raises :class:`~runherd.kube.errors.CredentialError` when there is none.
        """
        ...


class StaticCredentials:
    """Always the same credential."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    async def renew(self, rejected: Credential) -> Credential:
        return self._credential


class FileCredentials:
    """Credentials in files that others replace: a projected service account token, a certificate that is renewed.

    Files are read again once a minute, and when the server rejects what was in them. A file that can't be read then
    leaves the last content in use, as in client-go. ``fallback`` is what holds until a token file could be read, and
    what holds for parts that are in no file.
    """

    def __init__(
        self,
        *,
        token_file: Path | None = None,
        certificate_file: Path | None = None,
        key_file: Path | None = None,
        fallback: Credential | None = None,
    ) -> None:
        self._token_file = token_file
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._credential = fallback or Credential()
        self._due = float("-inf")

    async def current(self) -> Credential:
        if asyncio.get_running_loop().time() >= self._due:
            self._read()
        return self._credential

    async def renew(self, rejected: Credential) -> Credential:
        if self._credential is rejected:
            self._read()
        return self._credential

    def _read(self) -> None:
        last = self._credential
        try:
            read = self._read_files()
        except (OSError, ValueError) as error:
            if last == Credential():
                reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
                raise CredentialError(f"credentials can't be read: {reason}") from None
        else:
            # The same object for the same content: that is how everybody sees that nothing has changed.
            self._credential = last if read == last else read
        self._due = asyncio.get_running_loop().time() + _FILE_LIFETIME

    def _read_files(self) -> Credential:
        last = self._credential
        return Credential(
            last.token if self._token_file is None else _read_token(self._token_file),
            last.certificate if self._certificate_file is None else self._certificate_file.read_bytes(),
            last.key if self._key_file is None else self._key_file.read_bytes(),
        )


def _read_token(file: Path) -> str:
    token = file.read_bytes().strip()
    if not token or not token.isascii() or not token.decode().isprintable():
        raise ValueError(f"{file}: holds no token")
    return token.decode()
