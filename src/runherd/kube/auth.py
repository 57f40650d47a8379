"""Adds to requests what lets them in: bearer token, client certificate, impersonation."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

from multidict import CIMultiDict

from runherd.kube.credentials import Credential, CredentialSource
from runherd.kube.errors import CredentialError
from runherd.wire.transport import (
    DEFAULT_TIMEOUTS,
    CertificateError,
    Request,
    Response,
    ResponseStream,
    Timeouts,
    Transport,
)

log = logging.getLogger(__name__)

__all__ = ["AuthenticatedTransport", "Impersonation"]

# What a header's name may consist of (RFC 9110 5.6.2) besides letters and digits, and percent signs, which escape.
_HEADER_NAME = "!#$&'*+-.^_`|~"


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom to act as: the server lets us only if our own identity has the permission ``impersonate``."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def headers(self) -> list[tuple[str, str]]:
        """The headers that say so."""
        headers = [("Impersonate-User", self.user)]
        if self.uid:
            headers.append(("Impersonate-Uid", self.uid))
        headers.extend(("Impersonate-Group", group) for group in self.groups)
        for name, values in self.extra.items():
            # Header names know no upper case and few characters: the rest is percent-encoded, as client-go does it.
            header = "Impersonate-Extra-" + quote(name, safe=_HEADER_NAME)
            headers.extend((header, value) for value in values)
        return headers


class AuthenticatedTransport:
    """A :class:`~runherd.wire.transport.Transport` that signs requests with the credential of ``source``.

    When the server answers 401, or rejects our certificate, it asks ``source`` for another credential, and sends the
    request once more if there is one: a rejected request was not acted on. ``use_certificate`` is called with a
    client certificate that is not the one in use: at the beginning ``certificate_in_use``, by default none.

    Raises :class:`~runherd.kube.errors.CredentialError` when there is no credential.
    """

    def __init__(
        self,
        inner: Transport,
        source: CredentialSource,
        *,
        use_certificate: Callable[[Credential], None] | None = None,
        certificate_in_use: Credential | None = None,
        impersonation: Impersonation | None = None,
    ) -> None:
        self._inner = inner
        self._source = source
        self._use_certificate = use_certificate
        self._impersonation = impersonation.headers() if impersonation is not None else []
        self._credential: Credential | None = None
        in_use = certificate_in_use or Credential()
        self._certificate = (in_use.certificate, in_use.key)
        self._authorization: dict[str, str] = {}

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        credential = await self._source.current()
        try:
            response = await self._inner.request(self._signed(request, credential), timeouts)
        except CertificateError:
            other = await self._other(credential)
            if other is None:
                raise
        else:
            if response.status != 401:
                return response
            other = await self._other(credential)
            if other is None:
                return response
        return await self._inner.request(self._signed(request, other), timeouts)

    @asynccontextmanager
    async def stream(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[ResponseStream]:
        credential = await self._source.current()
        entered = False
        try:
            async with self._inner.stream(self._signed(request, credential), timeouts) as stream:
                other = await self._other(credential) if stream.status == 401 else None
                if other is None:
                    entered = True
                    yield stream
                    return
        except CertificateError:
            other = None if entered else await self._other(credential)
            if other is None:
                raise
        async with self._inner.stream(self._signed(request, other), timeouts) as stream:
            yield stream

    async def close(self) -> None:
        await self._inner.close()

    async def _other(self, rejected: Credential) -> Credential | None:
        renewed = await self._source.renew(rejected)
        return None if renewed == rejected else renewed

    def _signed(self, request: Request, credential: Credential) -> Request:
        if credential is not self._credential:
            self._take(credential)
        if isinstance(request.headers, dict) and not self._impersonation:
            headers: Mapping[str, str] = {**request.headers, **self._authorization}
        else:
            headers = several = CIMultiDict(request.headers)
            several.update(self._authorization)
            several.extend(self._impersonation)
        return Request(request.method, request.url, headers, request.body)

    def _take(self, credential: Credential) -> None:
        """Use ``credential`` from now on."""
        if self._use_certificate is not None:
            certificate = (credential.certificate, credential.key)
            if certificate != self._certificate:
                self._change_certificate(self._use_certificate, credential)
                self._certificate = certificate
        self._credential = credential
        self._authorization = {"Authorization": f"Bearer {credential.token}"} if credential.token else {}

    def _change_certificate(self, use: Callable[[Credential], None], credential: Credential) -> None:
        try:
            use(credential)
        except ValueError as error:
            if self._certificate == (None, None):
                raise CredentialError(f"the client certificate can't be used: {error}") from None
            # Certificate and key are two files, and we may have come between the writing of the two.
            log.warning("the new client certificate can't be used, the last one stays in use: %s", error)
