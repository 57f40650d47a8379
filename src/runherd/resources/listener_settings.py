"""What the manager's flags and environment decide about listeners (``docs/spec/controllers.md`` 12)."""

from __future__ import annotations

from dataclasses import dataclass

from runherd.resources.errors import BuildError

__all__ = ["ListenerSettings"]


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """How the pods of listeners are made, and the parts of their configuration that are the same for all.

    ``namespace`` is the controller's. A ``metrics_address`` of ``0`` or nothing turns a listener's metrics off.
    """

    namespace: str
    image: str
    image_pull_secrets: tuple[str, ...] = ()
    entrypoint: str = "/ghalistener"
    metrics_address: str = ":8080"
    metrics_endpoint: str = "/metrics"
    log_level: str = "debug"
    log_format: str = "text"

    @property
    def has_metrics(self) -> bool:
        """Whether listeners serve metrics."""
        return self.metrics_address not in ("", "0")

    @property
    def metrics_port(self) -> int:
        """The port in ``metrics_address``, which is ``host:port`` with an optional host.

        Raises :class:`~runherd.resources.errors.BuildError` for anything else (8.8).
        """
        host, colon, port = self.metrics_address.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
        if not colon or not 0 < number < 65536 or (":" in host and not bracketed):
            raise BuildError(
                f"--listener-metrics-addr is {self.metrics_address!r}; expected host:port, :port, or 0 for no metrics"
            )
        return number
