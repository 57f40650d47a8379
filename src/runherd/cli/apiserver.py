"""``runherd apiserver``: the embedded, Kubernetes-compatible API server on a port."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from random import SystemRandom

import click

from runherd.cli.apiserver_backup import back_up
from runherd.local.apiserver.credentials import Authority, ServingCertificate, load_credentials, write_kubeconfig
from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.sqlite_journal import SqliteJournal, sqlite_store
from runherd.local.apiserver.store import Store, StoreError
from runherd.wire.clock import Clock, SystemClock
from runherd.wire.server import Server

__all__ = ["apiserver"]


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory to keep objects in, made where it is missing. Without it they are gone when the server stops.",
)
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="Address and port; port 0 takes a free one.")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, with the address, the certificate authority and the token; only its owner may read it. "
    "With --backup: the file that the running server wrote.",
)
@click.option(
    "--backup",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a consistent copy of the store in --data to this file, and end. A running server goes on.",
)
def apiserver(data: Path | None, listen: str, kubeconfig: Path | None, backup: Path | None) -> None:
    """Serve the Kubernetes API on this machine: custom resources, pods, secrets and what runherd needs besides.

    Clients need the token and the certificate authority of the kubeconfig. Serves until it is interrupted.
    """
    clock = SystemClock()
    if backup is not None:
        if data is None:
            raise click.UsageError("--backup needs --data, the directory of the store")
        back_up(data, kubeconfig or data / "kubeconfig", backup, clock)
        return
    if kubeconfig is None:
        if data is None:
            raise click.UsageError("give --kubeconfig, the file to write, or --data, to have it written there")
        kubeconfig = data / "kubeconfig"
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter("must be host:port", param_hint="--listen")
    try:
        asyncio.run(_serve(data, host.strip("[]"), int(port), kubeconfig, clock))
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise click.ClickException(f"the credentials in {data} can't be used: {error}") from None
    except OSError as error:
        where = error.filename or listen
        raise click.ClickException(f"{where}: {error.strerror or error}") from None


async def _serve(data: Path | None, host: str, port: int, kubeconfig: Path, clock: Clock) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    journal: SqliteJournal | None = None
    store = Store()
    if data is not None:
        store, journal = sqlite_store(data, clock)
    # Opening locks the directory, so the credentials in it are this process's to make.
    await store.open()
    try:
        authority, token = load_credentials(data, clock)
        await _serve_store(store, journal, authority, token, host, port, kubeconfig, clock, stopped)
    finally:
        await store.close()


async def _serve_store(
    store: Store,
    journal: SqliteJournal | None,
    authority: Authority,
    token: str,
    host: str,
    port: int,
    kubeconfig: Path,
    clock: Clock,
    stopped: asyncio.Event,
) -> None:
    snapshot = journal.snapshot if journal is not None else None
    api = ApiServer(store, random=SystemRandom(), clock=clock, token=token, snapshot=snapshot)
    certificate = ServingCertificate(authority, clock, host)
    server = Server(api.handle, tls=certificate.context, body_limit=api.body_limit, too_large=api.too_large)
    await api.start()
    keeping = asyncio.create_task(certificate.keep())
    try:
        await server.start(host, port)
        write_kubeconfig(kubeconfig, server.url, authority, token)
        click.echo(f"serving on {server.url}; kubeconfig: {kubeconfig}")
        await stopped.wait()
    finally:
        keeping.cancel()
        await server.close()
        await api.close()
