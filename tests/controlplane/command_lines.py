"""The command lines of the three servers, tuned to start fast and to forget everything."""

from collections.abc import Sequence
from pathlib import Path

ETCD_SOCKET = "etcd.sock"
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"

CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
)
"""What the kube-controller-manager runs unless a test asks for more: no controller that makes pods."""


def etcd(program: Sequence[str], directory: Path) -> list[str]:
    """Return etcd's command line: one member, no fsync, on a socket file that only this user reaches."""
    return [
        *program,
        "--name=default",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls=unix://{directory / ETCD_SOCKET}",
        # etcd takes no socket file here. Nobody reads what a lone member advertises.
        "--advertise-client-urls=http://127.0.0.1:0",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--initial-advertise-peer-urls=http://127.0.0.1:0",
        "--initial-cluster=default=http://127.0.0.1:0",
        # The only voter elects itself after one election timeout.
        "--heartbeat-interval=10",
        "--election-timeout=50",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def kube_apiserver(program: Sequence[str], directory: Path, host: str, port: int, extra: Sequence[str]) -> list[str]:
    """Return kube-apiserver's command line; flags in ``extra`` come last and so win."""
    return [
        *program,
        f"--etcd-servers=unix://{directory / ETCD_SOCKET}",
        f"--bind-address={host}",
        f"--secure-port={port}",
        # The port is held by the test run as well, see ControlPlane.
        "--permit-port-sharing",
        f"--advertise-address={host}",
        # An endpoint of the service `kubernetes` must not be on the loopback interface.
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={directory / 'apiserver.crt'}",
        f"--tls-private-key-file={directory / 'apiserver.key'}",
        f"--client-ca-file={directory / 'ca.crt'}",
        "--authorization-mode=RBAC",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--service-account-key-file={directory / 'service-account.key'}",
        f"--service-account-signing-key-file={directory / 'service-account.key'}",
        "--service-cluster-ip-range=10.0.0.0/16",
        # Otherwise a SIGTERM takes a minute while anybody watches: it waits for clients to leave.
        "--shutdown-watch-termination-grace-period=2s",
        "--allow-privileged",
        "--profiling=false",
        *extra,
    ]


def kube_controller_manager(program: Sequence[str], directory: Path, controllers: Sequence[str]) -> list[str]:
    """Return kube-controller-manager's command line, without a port and without leader election."""
    return [
        *program,
        f"--kubeconfig={directory / 'controller-manager.kubeconfig'}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--root-ca-file={directory / 'ca.crt'}",
        f"--service-account-private-key-file={directory / 'service-account.key'}",
        # Tests delete hundreds of owners at once; the default of 20 requests a second is for clusters to share.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--profiling=false",
    ]
