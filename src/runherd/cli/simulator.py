"""``runherd simulator``: the pretend GitHub Actions service on a port."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import signal
from datetime import timedelta
from pathlib import Path
from random import SystemRandom

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from runherd.simulator.settings import AssignmentMode, Settings
from runherd.simulator.simulator import Simulator
from runherd.simulator.yaml_nodes import WorkflowError
from runherd.wire.clock import SystemClock
from runherd.wire.server import Server
from runherd.wire.tls import server_context

__all__ = ["simulator"]


@click.command()
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="Address and port; port 0 takes a free one.")
@click.option(
    "--tls",
    type=click.Path(file_okay=False, path_type=Path),
    help="Serve https, with tls.crt and tls.key of this folder. They are made (self-signed) where they are missing.",
)
@click.option(
    "--owner", default="acme", show_default=True, help="Organization (or org/repo) of the printed config URL."
)
@click.option(
    "--mode",
    type=click.Choice(list(AssignmentMode), case_sensitive=False),
    default=AssignmentMode.AUTOMATIC,
    show_default=True,
    help="How jobs find their scale set: assigned by the service as on github.com, or offered and acquired as on GHES.",
)
@click.option(
    "--token",
    envvar="RUNHERD_SIMULATOR_TOKEN",
    show_envvar=True,
    help="Personal access token that is accepted, and the token of the simulator's own administration. "
    "By default a random one.",
)
@click.option("--minimum-runner-version", default="", help="Older runners are told that their version is deprecated.")
@click.option(
    "--workflow",
    "workflows",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Workflow file to run at the start; its jobs wait for their scale sets. May be given more than once.",
)
@click.option(
    "--repository", default="acme/app", show_default=True, help="The repository that the workflows belong to."
)
def simulator(
    listen: str,
    tls: Path | None,
    owner: str,
    mode: AssignmentMode,
    token: str | None,
    minimum_runner_version: str,
    workflows: tuple[Path, ...],
    repository: str,
) -> None:
    """Run a pretend GitHub Actions service, for trying things out and for tests.

    Prints the config URL and the token to use with it, and serves until it is interrupted.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter("must be host:port", param_hint="--listen")
    token = token or secrets.token_hex(20)
    service = Simulator(
        clock=SystemClock(),
        random=SystemRandom(),
        settings=Settings(mode=AssignmentMode(mode), minimum_runner_version=minimum_runner_version),
        personal_tokens=[token],
        admin_token=token,
    )
    context = server_context(*_certificate(tls, host)) if tls is not None else None
    server = Server(service, tls=context)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve(service, server, host.strip("[]"), int(port), owner, token, workflows, repository))
    except OSError as error:
        raise click.ClickException(f"can't listen on {listen}: {error.strerror or error}") from None
    except (WorkflowError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where the platform has it: it serves a third more calls."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(
    service: Simulator,
    server: Server,
    host: str,
    port: int,
    owner: str,
    token: str,
    workflows: tuple[Path, ...],
    repository: str,
) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    for path in workflows:
        service.start_workflow(path.read_bytes(), path=str(path), repository=repository)
    await server.start(host, port)
    click.echo(f"config URL: {server.url}/{owner}")
    click.echo(f"token:      {token}")
    await stopped.wait()
    await server.close()


def _certificate(folder: Path, host: str) -> tuple[bytes, bytes]:
    """The certificate and key in ``folder``, made when neither is there."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    if not certificate.exists() and not key.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made_certificate, made_key = _self_signed(host.strip("[]"))
        key.touch(mode=0o600)
        key.write_bytes(made_key)
        certificate.write_bytes(made_certificate)
    try:
        return certificate.read_bytes(), key.read_bytes()
    except OSError as error:
        raise click.ClickException(f"can't read {error.filename}: {error.strerror}") from None


def _self_signed(host: str) -> tuple[bytes, bytes]:
    """A certificate for ``host`` and the loopback addresses, and its key, both PEM. It is its own CA."""
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    addresses = {"127.0.0.1", "::1"}
    try:
        addresses.add(str(ipaddress.ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    names.extend(x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "runherd simulator")])
    now = SystemClock().now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
