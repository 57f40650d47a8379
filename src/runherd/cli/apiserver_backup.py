"""``runherd apiserver --backup``: from the server that has the data directory, or from the directory when none has."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from runherd.kube.config import load_kubeconfig
from runherd.kube.connection import open_transport
from runherd.kube.errors import ConfigError
from runherd.local.apiserver.data_directory import sync_directory
from runherd.local.apiserver.sqlite_errors import StoreLockedError
from runherd.local.apiserver.sqlite_journal import FILE_NAME, sqlite_store
from runherd.local.apiserver.store import StoreError
from runherd.wire.clock import Clock
from runherd.wire.transport import Request, ResponseStream, Timeouts, TransportError

__all__ = ["back_up"]

#: The server copies all of its store before it begins to answer.
_TIMEOUTS = Timeouts(total=None, idle=600)


def back_up(directory: Path, kubeconfig: Path, target: Path, clock: Clock) -> None:
    """Write a consistent copy of the store in ``directory`` to ``target``, readable by its owner only.

    A server that has the directory open goes on working; it is reached as ``kubeconfig`` says, the file that it wrote.
    ``target`` must not exist. Raises ``click.ClickException``.
    """
    if target.exists():
        raise click.ClickException(f"{target} exists: choose another name, or move it away")
    if not (directory / FILE_NAME).exists():
        raise click.ClickException(f"there is no store in {directory}: {directory / FILE_NAME} is missing")
    try:
        asyncio.run(_copy_directory(directory, target, clock))
    except StoreLockedError as error:
        locked = error
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    else:
        return
    try:
        with _new_file(target) as file:
            asyncio.run(_copy_from_server(kubeconfig, file, clock, locked))
    except OSError as error:
        raise click.ClickException(f"the backup can't be written to {target}: {error.strerror}") from None


async def _copy_directory(directory: Path, target: Path, clock: Clock) -> None:
    store, journal = sqlite_store(directory, clock)
    await store.open()
    try:
        await journal.backup(target)
    finally:
        await store.close()


async def _copy_from_server(kubeconfig: Path, file: BinaryIO, clock: Clock, locked: StoreLockedError) -> None:
    try:
        config = load_kubeconfig(environment={}, home=None, kubeconfig=kubeconfig)
        transport = open_transport(config, clock=clock)
    except ConfigError as error:
        raise click.ClickException(
            f"{locked}. To get the backup from that server, name the kubeconfig that it wrote by --kubeconfig: {error}"
        ) from None
    try:
        async with transport.stream(Request("GET", f"{config.server}/runherd/backup"), _TIMEOUTS) as answer:
            if answer.status != 200:
                raise click.ClickException(f"{config.server} gives no backup: {await _refusal(answer)}")
            async for chunk in answer.chunks():
                file.write(chunk)
    except TransportError as error:
        raise click.ClickException(f"no complete backup came from {config.server}: {error}") from None
    finally:
        await transport.close()


async def _refusal(answer: ResponseStream) -> str:
    body = await answer.read()
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status}"


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that becomes ``target`` when the block ends, complete and durable; if it raises there is none.

    ``mkstemp`` makes it, so it is its owner's only.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target)
        sync_directory(target.parent)
    finally:
        partial.unlink(missing_ok=True)
