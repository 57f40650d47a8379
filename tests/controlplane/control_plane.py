"""Runs etcd, kube-apiserver and kube-controller-manager for tests."""

import http.client
import socket
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.controlplane import command_lines, etcd
from tests.controlplane.certificates import Authority, KeyPair, signing_key
from tests.controlplane.client import Client
from tests.controlplane.kubeconfig import write_kubeconfig, write_secret
from tests.controlplane.processes import Guardian, Server
from tests.controlplane.programs import Programs
from tests.controlplane.waiting import wait_until

START_TIMEOUT_SECONDS = 60


class ControlPlane:
    """A control plane of our own on a free port of the loopback interface.

    There is no scheduler and no kubelet: pods stay Pending until the test
    writes their status. All methods block; call them through
    ``asyncio.to_thread`` in a coroutine. The port and all credentials stay the
    same when the API server is restarted.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        programs: Programs,
        log_directory: Path,
        *,
        apiserver_flags: Sequence[str] = (),
        controllers: Sequence[str] = command_lines.CONTROLLERS,
    ) -> None:
        """Prepare one; ``start`` runs it.

        ``log_directory`` gets the servers' logs, which stay there. ``apiserver_flags``
        are added to ours, as in ``["--watch-cache=false"]``. ``controllers`` names
        what the kube-controller-manager runs; with none it is not started, and pods
        are admitted without a service account.
        """
        self._programs = programs
        self._apiserver_flags = tuple(apiserver_flags)
        self._controllers = tuple(controllers)
        self._directory = Path(tempfile.mkdtemp(prefix="runherd-control-plane-"))
        self._guardian = Guardian(self._directory)
        # Bound, yet never listening: it takes no connection, and nobody else gets the port
        # while the API server, which may share it, is not there.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reservation.bind((self.host, 0))
        self.port: int = self._reservation.getsockname()[1]
        self.etcd, self.apiserver, self.controller_manager = (
            Server(name, self._directory, log_directory / f"{name}.log", self._guardian)
            for name in ("etcd", "kube-apiserver", "kube-controller-manager")
        )
        self._authority = Authority("runherd-test-ca")
        self._write_credentials()

    @property
    def url(self) -> str:
        """The API server's address, as ``https://127.0.0.1:34567``."""
        return f"https://{self.host}:{self.port}"

    @property
    def ca_file(self) -> Path:
        """The file with the certificate that the API server's own is checked against."""
        return self._directory / "ca.crt"

    @property
    def ca_data(self) -> bytes:
        """What ``ca_file`` holds, PEM."""
        return self._authority.certificate

    @property
    def admin_kubeconfig(self) -> Path:
        """A kubeconfig file whose user may do everything (``system:masters``)."""
        return self._directory / "admin.kubeconfig"

    @property
    def has_controllers(self) -> bool:
        """Whether anything collects garbage, ends namespaces and makes service accounts."""
        return bool(self._controllers) and self._programs.kube_controller_manager is not None

    # Life

    def __enter__(self) -> Self:
        """Start; stop when the block ends."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Start all servers and return when the API server is ready.

        Raises ServerError with the end of the server's log, having stopped
        everything, when that fails.
        """
        try:
            self.start_etcd()
            self.start_apiserver()
            self.start_controller_manager()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill every server that still runs and remove all data; only the logs stay."""
        for server in (self.controller_manager, self.apiserver, self.etcd):
            server.kill()
        self._guardian.close()
        self._reservation.close()

    def start_etcd(self) -> None:
        """Start etcd and wait until it takes connections; raises ServerError when it does not, or ran already."""

        def listens() -> bool:
            self.etcd.check()
            return etcd.is_listening(self._etcd_socket)

        self.etcd.start(command_lines.etcd(self._programs.etcd, self._directory))
        try:
            wait_until(listens, "etcd listens", START_TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise self.etcd.error(f"does not listen after {START_TIMEOUT_SECONDS} s") from error

    # The API server

    def start_apiserver(self, flags: Sequence[str] | None = None) -> None:
        """Start the API server and wait until it is ready; ``flags``, if given, replace ``apiserver_flags``.

        Raises ServerError when it does not become ready, or ran already.
        """
        if flags is not None:
            self._apiserver_flags = tuple(flags)
        extra = [*self._apiserver_flags]
        if not self.has_controllers:
            # Without controllers no namespace gets the service account that this would give to every pod.
            extra.insert(0, "--disable-admission-plugins=ServiceAccount")
        program = self._programs.kube_apiserver
        self.apiserver.start(
            command_lines.kube_apiserver(program, self._directory, self.host, self.port, extra),
        )
        self.wait_ready()

    def restart_apiserver(self, flags: Sequence[str] | None = None) -> None:
        """Stop the API server as a rollout would, start it again and wait until it is ready.

        ``apiserver.stop()``, ``kill()``, ``pause()`` and ``resume()`` are there for what is less gentle.
        """
        self.apiserver.stop()
        self.start_apiserver(flags)

    def wait_ready(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Return when the API server says on /readyz that it is ready.

        Raises ServerError when it ends, or is not ready within ``timeout_seconds``.
        """
        client = self.client()

        def ready() -> bool:
            self.apiserver.check()
            try:
                return client.request("GET", "/readyz", timeout_seconds=5).status == 200
            except (OSError, http.client.HTTPException):
                return False

        try:
            wait_until(ready, "the API server is ready", timeout_seconds)
        except TimeoutError as error:
            raise self.apiserver.error(f"is not ready after {timeout_seconds} s") from error

    def compact(self) -> int:
        """Have etcd forget all revisions before the newest, which is returned.

        A continue token from before answers 410 then, and so does a watch from
        before where the watch cache does not hold its revision (it holds none
        with ``--watch-cache=false``, or after a restart).
        """
        return etcd.compact(self._etcd_socket)

    # The controllers

    def start_controller_manager(self) -> None:
        """Start the controllers, if there are any; they begin to work within a second or two."""
        program = self._programs.kube_controller_manager
        if program is not None and self._controllers:
            self.controller_manager.start(
                command_lines.kube_controller_manager(program, self._directory, self._controllers)
            )

    def restart_controller_manager(self) -> None:
        """Kill the controllers and start them anew.

        The garbage collector looks for new kinds every 30 s and at its start, so a
        test that installs a CRD and counts on its owners being followed restarts it.
        """
        self.controller_manager.kill()
        self.start_controller_manager()

    # Users

    def client(self, user: str = "admin", groups: Sequence[str] = ("system:masters",)) -> Client:
        """Return a client that is ``user`` in ``groups``, by a certificate; without arguments one that may do all."""
        pair = self._authority.client(user, groups)
        tls = self._tls()
        with tempfile.NamedTemporaryFile(dir=self._directory) as file:
            file.write(pair.certificate + pair.key)
            file.flush()
            tls.load_cert_chain(file.name)
        return Client(self.host, self.port, tls)

    def token_client(self, token: str | None) -> Client:
        """Return a client with a bearer token; None makes an anonymous one."""
        return Client(self.host, self.port, self._tls(), token)

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Write a kubeconfig for ``user`` in ``groups``, by a client certificate."""
        return self._kubeconfig(user, self._authority.client(user, groups))

    def service_account_kubeconfig(self, namespace: str, name: str, lifetime_seconds: int = 3600) -> Path:
        """Write a kubeconfig for a service account, by a token as ``service_account_token`` makes it."""
        token = self.service_account_token(namespace, name, lifetime_seconds)
        return self._kubeconfig(f"system:serviceaccount:{namespace}:{name}", token)

    def service_account_token(self, namespace: str, name: str, lifetime_seconds: int = 3600) -> str:
        """Have the API server (TokenRequest) make a token for a service account that exists.

        It grants no less than 600 s. Raises UnexpectedStatusError if there is no such service account.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_seconds},
        }
        token: str = self.client().create(path, request)["status"]["token"]
        return token

    def create_namespace(self, prefix: str = "test") -> str:
        """Create a namespace named ``prefix`` and a random ending, and return the name.

        It is ready for pods: its service account ``default`` is there.
        """
        client = self.client()
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{prefix}-"}}
        name: str = client.create("/api/v1/namespaces", body)["metadata"]["name"]
        if self.has_controllers:
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            wait_until(lambda: client.exists(account), f"namespace {name} has its service account")
        return name

    @property
    def _etcd_socket(self) -> Path:
        return self._directory / command_lines.ETCD_SOCKET

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca_data.decode())

    def _kubeconfig(self, user: str, credentials: KeyPair | str) -> Path:
        file = Path(tempfile.mkdtemp(dir=self._directory)) / "kubeconfig"
        write_kubeconfig(file, self.url, self.ca_data, user, credentials)
        return file

    def _write_credentials(self) -> None:
        self.ca_file.write_bytes(self.ca_data)
        server = self._authority.server(self.host, "localhost")
        write_secret(self._directory / "apiserver.crt", server.certificate)
        write_secret(self._directory / "apiserver.key", server.key)
        write_secret(self._directory / "service-account.key", signing_key())
        # One identity for all controllers, so that none waits for a service account of its own at the start.
        for name, user in (("admin", "admin"), ("controller-manager", "system:kube-controller-manager")):
            pair = self._authority.client(user, ["system:masters"])
            write_kubeconfig(self._directory / f"{name}.kubeconfig", self.url, self.ca_data, user, pair)
