"""Credentials from a program that the kubeconfig names (``client.authentication.k8s.io``), as clouds have them."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from runherd.api.meta import ApiStruct
from runherd.kube.credentials import Credential
from runherd.kube.errors import CredentialError, redacted
from runherd.wire.clock import Clock

__all__ = ["ExecConfig", "ExecPlugin"]

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

#: How long a plugin that asks nobody may take, in seconds. One that talks to its user may take as long as it likes.
_DEADLINE = 60.0
_SHOWN_OUTPUT = 1000


@dataclass(frozen=True, slots=True)
class ExecConfig:
    """How to run a plugin. ``repr`` leaves out what may be secret."""

    command: str
    api_version: str
    args: tuple[str, ...] = field(default=(), repr=False)
    #: The whole environment of the program.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Told to the user when the program does not exist.
    install_hint: str = ""
    #: The cluster as ``KUBERNETES_EXEC_INFO`` describes it; ``None`` where the plugin doesn't ask for it.
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    #: Whether the program may read from our standard input.
    interactive: bool = False
    #: File and entry, for errors.
    origin: str = ""


class _Status(ApiStruct, frozen=True, kw_only=True):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(ApiStruct, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecPlugin:
    """A :class:`~runherd.kube.credentials.CredentialSource` that runs a program.

    What the program prints is kept until it expires, and for good if it doesn't say when it does; the program runs
    again when the server rejects it. However many tasks wait for a credential, one program runs at a time.
    """

    def __init__(self, config: ExecConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._credential: Credential | None = None
        self._expires: datetime | None = None
        self._running: asyncio.Task[Credential] | None = None

    async def current(self) -> Credential:
        if self._credential is not None and (self._expires is None or self._clock.now() < self._expires):
            return self._credential
        return await self._refresh()

    async def renew(self, rejected: Credential) -> Credential:
        if self._credential is not None and self._credential is not rejected:
            return self._credential  # somebody else had it renewed meanwhile
        return await self._refresh()

    async def _refresh(self) -> Credential:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(self._finished)
        # Whoever started the program may be cancelled, but others wait for it too.
        return await asyncio.shield(self._running)

    def _finished(self, task: asyncio.Task[Credential]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # it is seen by those who wait; maybe nobody does any more

    async def _run(self) -> Credential:
        output = await self._output()
        status = self._parse(output)
        credential = Credential(
            status.token,
            status.client_certificate_data.encode() or None,
            status.client_key_data.encode() or None,
        )
        self._credential, self._expires = credential, status.expiration_timestamp
        return credential

    async def _output(self) -> bytes:
        """What the program prints. Its complaints are shown when it fails; its output never is."""
        config = self._config
        try:
            process = await asyncio.create_subprocess_exec(
                config.command,
                *config.args,
                stdin=None if config.interactive else DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env={**config.environment, "KUBERNETES_EXEC_INFO": self._exec_info()},
            )
        except OSError as error:
            hint = f"\n{_printable(config.install_hint)}" if config.install_hint else ""
            raise self._error(f"can't be run: {error.strerror}{hint}") from None
        try:
            async with asyncio.timeout(None if config.interactive else _DEADLINE):
                output, complaints = await process.communicate()
        except TimeoutError:
            raise self._error(f"did not end within {_DEADLINE:g} s") from None
        finally:
            await _end(process)
        if process.returncode != 0:
            shown = redacted(_printable(complaints.decode("utf-8", "replace").strip()[-_SHOWN_OUTPUT:]))
            raise self._error(f"failed with exit code {process.returncode}" + (f": {shown}" if shown else ""))
        return output

    def _exec_info(self) -> str:
        spec: dict[str, Any] = {"interactive": self._config.interactive}
        if self._config.cluster is not None:
            spec["cluster"] = self._config.cluster
        info = {"kind": "ExecCredential", "apiVersion": self._config.api_version, "spec": spec}
        return msgspec.json.encode(info).decode()

    def _parse(self, output: bytes) -> _Status:
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._error("printed something that is no ExecCredential in JSON") from None
        if credential.kind != "ExecCredential":
            raise self._error("printed an object that is no ExecCredential")
        if credential.api_version != self._config.api_version:
            raise self._error(
                f"printed an ExecCredential of another version than {self._config.api_version}, which is configured"
            )
        status = credential.status
        if status is None:
            raise self._error("printed an ExecCredential without status")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._error("printed a certificate without its key, or a key without its certificate")
        if not status.token and not status.client_certificate_data:
            raise self._error("printed an ExecCredential with neither token nor certificate")
        return status

    def _error(self, text: str) -> CredentialError:
        return CredentialError(f"{self._config.origin}: credential plugin {self._config.command!r} {text}")


async def _end(process: Process) -> None:
    """Make sure that ``process`` has ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _printable(text: str) -> str:
    """``text`` without the control characters that could change what a terminal shows."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
