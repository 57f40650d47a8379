"""Message sessions (5.1, 5.2): one for each scale set, dropped when nobody uses it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from random import Random
from uuid import UUID

from runherd.simulator.errors import ServiceError, unauthorized
from runherd.simulator.job_queue import JobQueue
from runherd.simulator.ledger import Ledger
from runherd.simulator.model import ScaleSet, Session
from runherd.simulator.settings import Settings
from runherd.simulator.timers import Timers
from runherd.wire.randomness import uuid4

__all__ = ["Sessions"]


class Sessions:
    """The sessions of all scale sets."""

    def __init__(
        self, settings: Settings, timers: Timers, now: Callable[[], datetime], random: Random, ledger: Ledger
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._now = now
        self._random = random
        self._ledger = ledger
        self._by_id: dict[str, ScaleSet] = {}
        self.jobs: JobQueue

    def create(self, scale_set: ScaleSet, owner_name: str) -> Session:
        """Open a session. Raises 409 ``RunnerScaleSetSessionConflictException`` while there is one, whoever owns it."""
        if scale_set.session is not None:
            raise ServiceError(
                409,
                "RunnerScaleSetSessionConflictException",
                f"The runner scale set {scale_set.name} already has an active session for owner "
                f"{scale_set.session.owner_name}.",
            )
        session = Session(
            id=str(uuid4(self._random)),
            owner_name=owner_name,
            token=self._new_token(),
            token_expires=self._token_expiry(),
            last_used=self._timers.time(),
        )
        scale_set.session = session
        self._by_id[session.id] = scale_set
        self._ledger.record("session_created", None, None, scale_set.name)
        self._watch(scale_set, session, self._settings.session_expiry)
        self.jobs.offer_all(scale_set)
        return session

    def refresh(self, scale_set: ScaleSet, session_id: str) -> Session:
        """Give the session a new queue token. Raises 404 when it is gone, 400 when the id is none."""
        session = self._get(scale_set, session_id)
        session.token = self._new_token()
        session.token_expires = self._token_expiry()
        session.last_used = self._timers.time()
        return session

    def delete(self, scale_set: ScaleSet, session_id: str) -> None:
        """Close a session. Raises what :meth:`refresh` raises."""
        self.end(scale_set, self._get(scale_set, session_id), "deleted")

    def end(self, scale_set: ScaleSet, session: Session, why: str) -> None:
        """Drop the session; its polls are answered at once. What was assigned stays assigned."""
        if session.ended:
            return
        session.ended = True
        self._by_id.pop(session.id, None)
        if scale_set.session is session:
            scale_set.session = None
        self._ledger.record(f"session_{why}", None, None, scale_set.name)
        scale_set.queue.wake()

    def evict(self, scale_set: ScaleSet) -> bool:
        """Drop the session as the broker does now and then. Tells whether there was one."""
        if scale_set.session is None:
            return False
        self.end(scale_set, scale_set.session, "evicted")
        return True

    def authenticate(self, session_id: str, token: str) -> tuple[ScaleSet, Session]:
        """Whose session that is. Raises 401 for a session that ended, and for a wrong or expired queue token."""
        scale_set = self._by_id.get(session_id)
        session = scale_set.session if scale_set is not None else None
        if scale_set is None or session is None or session.token != token or session.token_expires <= self._now():
            raise unauthorized("The message queue token is not valid (any more).")
        session.last_used = self._timers.time()
        return scale_set, session

    def authenticate_for(self, scale_set: ScaleSet, token: str) -> Session:
        """As :meth:`authenticate`, for calls that name the scale set and not its session."""
        if scale_set.session is None:
            raise unauthorized("The message queue token is not valid (any more).")
        return self.authenticate(scale_set.session.id, token)[1]

    def scale_set_id(self, session_id: str) -> int:
        """Whose session that is; 0 for one that ended."""
        scale_set = self._by_id.get(session_id)
        return scale_set.id if scale_set is not None else 0

    def _get(self, scale_set: ScaleSet, session_id: str) -> Session:
        try:
            UUID(session_id)
        except ValueError:
            raise ServiceError(
                400, "RunnerScaleSetSessionExpiredException", f"{session_id!r} is not a session id."
            ) from None
        session = scale_set.session
        if session is None or session.id != session_id:
            raise ServiceError(
                404, "RunnerScaleSetSessionExpiredException", f"Session {session_id} does not exist (any more)."
            )
        return session

    def _watch(self, scale_set: ScaleSet, session: Session, delay: float) -> None:
        self._timers.after(delay, partial(self._check, scale_set, session))

    def _check(self, scale_set: ScaleSet, session: Session) -> None:
        if session.ended:
            return
        # A poll that is being held keeps its session alive (open question 5 of the specification).
        now = self._timers.time()
        # In this order: a remainder that rounding made too small to move the clock would be watched for ever.
        expires = (now if session.polls else session.last_used) + self._settings.session_expiry
        remaining = expires - now
        if remaining <= 0:
            self.end(scale_set, session, "expired")
        else:
            self._watch(scale_set, session, remaining)

    def _new_token(self) -> str:
        return f"{self._random.getrandbits(256):064x}"

    def _token_expiry(self) -> datetime:
        return self._now() + timedelta(seconds=self._settings.queue_token_lifetime)
