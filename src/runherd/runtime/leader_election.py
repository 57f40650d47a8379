"""Leader election on a Lease, compatible with client-go's: processes of either kind can take part in one election.

Whoever writes its name into the lease first leads, and renews it all the time. The others watch it change. When it has
not changed for its own duration, by the watcher's own clock, it has run out, and any of them may take it. Clocks of
different machines are never compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec
import structlog

from runherd.api.core import EVENTS, LEASES, Event, EventSource, Lease, LeaseSpec, ObjectReference
from runherd.api.meta import ObjectMeta
from runherd.api.times import micro_time, whole_seconds
from runherd.kube.client import Client
from runherd.kube.errors import AlreadyExistsError, ApiError, ConflictError, DecodeError, NotFoundError
from runherd.runtime.metrics import Metrics
from runherd.runtime.write_gate import LeadershipLostError, WriteGate
from runherd.wire.clock import Clock
from runherd.wire.randomness import jittered, name_suffix
from runherd.wire.transport import TransportError

__all__ = ["LeaderElectionConfig", "LeaderElector"]

log = structlog.get_logger("leader-election")

_COMPONENT = "runherd"


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """Which lease, who we are, and how fast it goes; durations in seconds (client-go's names and defaults).

    ``identity`` must be different for each process. Raises ``ValueError`` for times that don't fit each other.
    """

    name: str
    namespace: str
    identity: str
    lease_duration: int = 15
    #: When the lease could not be renewed for so long, we stop leading. The rest of the duration is for stopping.
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.identity:
            raise ValueError("leader election needs an identity")
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(
                f"lease_duration ({self.lease_duration}) must exceed renew_deadline ({self.renew_deadline})"
            )
        if self.renew_deadline <= 1.2 * self.retry_period:
            raise ValueError(
                f"renew_deadline ({self.renew_deadline}) must exceed 1.2 times retry_period ({self.retry_period})"
            )
        if self.retry_period <= 0:
            raise ValueError(f"retry_period must be above 0, not {self.retry_period}")


class LeaderElector:
    """Takes part in one election: :meth:`acquire`, then :meth:`renew` until it ends, then :meth:`release`.

    ``client`` is a client of its own: without a limiter, whose queue a renewal would wait in, and not behind ``gate``,
    which it opens and shuts for all others (see :class:`~runherd.runtime.write_gate.WriteGate`).
    """

    def __init__(
        self,
        client: Client,
        config: LeaderElectionConfig,
        gate: WriteGate,
        *,
        clock: Clock,
        random: Random,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._config = config
        self._gate = gate
        self._clock = clock
        self._random = random
        self._set_status: Callable[[float], None] = metrics.leader(config.name)
        self._set_status(0)
        # The lease as we last saw it, and when that state of it was first seen, in the loop's time.
        self._lease: Lease | None = None
        self._changed_at = 0.0
        self._renewed_at = 0.0
        self._leading = False

    @property
    def is_leader(self) -> bool:
        """Whether we lead, as far as we know."""
        return self._leading

    @property
    def leader(self) -> str:
        """The identity in the lease, as we last saw it; may be empty."""
        return "" if self._lease is None else self._lease.spec.holder_identity

    async def acquire(self) -> None:
        """Wait until we lead, however long that takes."""
        config = self._config
        log.info("waiting for leadership", **self._described())
        seen = ""
        while not await self._try():
            if self.leader != seen:
                seen = self.leader
                log.info("new leader elected", leader=seen, **self._described())
            await asyncio.sleep(jittered(self._random, config.retry_period, 1.2))
        log.info("became leader", **self._described())
        await self._report("became leader")

    async def renew(self) -> None:
        """Keep the lease; never returns.

        Raises :class:`~runherd.runtime.write_gate.LeadershipLostError`, with the gate shut, when somebody else has the
        lease, and when it was not renewed for ``renew_deadline`` seconds.
        """
        try:
            while True:
                await asyncio.sleep(self._config.retry_period)
                try:
                    async with asyncio.timeout_at(self._renewed_at + self._config.renew_deadline):
                        while not await self._try():
                            if self.leader not in ("", self._config.identity):
                                raise LeadershipLostError(f"{self._where()} is held by {self.leader} now")
                            await asyncio.sleep(self._config.retry_period)
                except TimeoutError:
                    raise LeadershipLostError(
                        f"{self._where()} could not be renewed for {self._config.renew_deadline:g} s"
                    ) from None
        except LeadershipLostError as error:
            self._stop_leading()
            # The text says it all; a traceback would say nothing.
            log.error("lost the leadership", error=str(error), **self._described())  # noqa: TRY400
            raise

    async def release(self) -> None:
        """Give the lease up, so that another need not wait until it runs out. Shuts the gate.

        Only after everything that writes has stopped. A failure is logged; the lease runs out by itself then.
        """
        if not self._leading:
            return
        self._stop_leading()
        try:
            async with asyncio.timeout(self._config.retry_period):
                lease = await self._client.get(LEASES, self._config.name, self._config.namespace)
                if lease.spec.holder_identity != self._config.identity:
                    return
                now = micro_time(self._clock.now())
                released = LeaseSpec(
                    lease_duration_seconds=1,
                    acquire_time=now,
                    renew_time=now,
                    lease_transitions=lease.spec.lease_transitions,
                )
                await self._client.update(LEASES, msgspec.structs.replace(lease, spec=released))
        except (ApiError, DecodeError, TransportError, TimeoutError) as error:
            log.warning("could not release the lease; it runs out by itself", error=_text(error), **self._described())
            return
        log.info("released the lease", **self._described())
        await self._report("stopped leading")

    def _stop_leading(self) -> None:
        self._gate.close()
        self._leading = False
        self._set_status(0)

    # --- The lease -------------------------------------------------------------------------------------------------

    async def _try(self) -> bool:
        """Take or renew the lease if that is possible now; whether we lead after it."""
        loop = asyncio.get_running_loop()
        try:
            # One hung request must leave time for another attempt.
            async with asyncio.timeout(self._config.renew_deadline / 2):
                if self._leading and self._lease is not None:
                    try:
                        return await self._write(self._lease)
                    except (ConflictError, NotFoundError):
                        log.debug("the lease is not as we left it", **self._described())
                try:
                    lease = await self._client.get(LEASES, self._config.name, self._config.namespace)
                except NotFoundError:
                    return await self._write(None)
                self._observe(lease)
                holder = lease.spec.holder_identity
                runs_out_at = self._changed_at + lease.spec.lease_duration_seconds
                if holder not in ("", self._config.identity) and loop.time() < runs_out_at:
                    return False
                return await self._write(lease)
        except (AlreadyExistsError, ConflictError):
            return False  # somebody else was faster
        except (ApiError, DecodeError, TransportError, TimeoutError) as error:
            log.warning("could not read or write the lease", error=_text(error), **self._described())
            return False

    async def _write(self, lease: Lease | None) -> bool:
        """Write our name into ``lease`` as it was read (or into a new one), for one more duration."""
        config = self._config
        since = self._gate.now()
        now = micro_time(since[1])
        ours = lease is not None and lease.spec.holder_identity == config.identity
        spec = LeaseSpec(
            holder_identity=config.identity,
            lease_duration_seconds=config.lease_duration,
            acquire_time=lease.spec.acquire_time if lease is not None and ours else now,
            renew_time=now,
            lease_transitions=0 if lease is None else lease.spec.lease_transitions + (not ours),
        )
        if lease is None:
            metadata = ObjectMeta(name=config.name, namespace=config.namespace)
            written = await self._client.create(LEASES, Lease(metadata=metadata, spec=spec))
        else:
            # With the resource version that was read, so that of two who find it expired only one gets it.
            written = await self._client.update(LEASES, msgspec.structs.replace(lease, spec=spec))
        self._observe(written)
        self._renewed_at = since[0]
        self._gate.hold(since, config.lease_duration)
        self._leading = True
        self._set_status(1)
        return True

    def _observe(self, lease: Lease) -> None:
        if self._lease is None or self._lease.spec != lease.spec:
            self._changed_at = asyncio.get_running_loop().time()
        self._lease = lease

    # --- Telling ---------------------------------------------------------------------------------------------------

    async def _report(self, what: str) -> None:
        """Send an Event about the lease, as client-go does (``docs/spec/controllers.md 1.11``); not important."""
        lease = self._lease
        if lease is None:
            return
        now = self._clock.now()
        event = Event(
            metadata=ObjectMeta(
                name=f"{self._config.name}.{name_suffix(self._random, 10)}", namespace=self._config.namespace
            ),
            involved_object=ObjectReference(
                api_version=lease.api_version,
                kind=lease.kind,
                namespace=self._config.namespace,
                name=self._config.name,
                uid=lease.metadata.uid,
                resource_version=lease.metadata.resource_version,
            ),
            type="Normal",
            reason="LeaderElection",
            message=f"{self._config.identity} {what}",
            source=EventSource(component=_COMPONENT),
            reporting_component=_COMPONENT,
            reporting_instance=self._config.identity,
            count=1,
            first_timestamp=whole_seconds(now),
            last_timestamp=whole_seconds(now),
        )
        try:
            async with asyncio.timeout(self._config.retry_period / 2):
                await self._client.create(EVENTS, event)
        except (ApiError, DecodeError, TransportError, TimeoutError) as error:
            log.debug("could not send an event", error=_text(error), **self._described())

    def _where(self) -> str:
        return f"the lease {self._config.namespace}/{self._config.name}"

    def _described(self) -> dict[str, str]:
        return {"lease": f"{self._config.namespace}/{self._config.name}", "identity": self._config.identity}


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
