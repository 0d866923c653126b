"""The audit sealer: adds hashes to new entries of the audit trail, which chain them."""

from collections.abc import Callable

from msgspec.structs import asdict

from gnomon.core import component_names
from gnomon.core.audit import ChainProgress, SignedCheckpoint, verify_chain
from gnomon.core.model import MINUTE_MS
from gnomon.errors import FileError
from gnomon.ports.audit import AuditTrail, CheckpointAnchor, CheckpointKey, Sealing
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

#: How many entries are sealed in one transaction.
_BATCH = 500
#: How long to wait for entries; and how long before the next batch while other services are busy: at least, and for
#: every second that the last one took.
_POLL_SECONDS, _REST_SECONDS, _REST_FACTOR = 2.0, 0.25, 20
#: How often a new checkpoint is logged.
_LOG_EVERY_MS = 60 * MINUTE_MS


class CheckpointSigner:
    """Signs the end of the chain, and keeps the newest checkpoint outside the store too, if there is a place for it."""

    def __init__(self, key: CheckpointKey, anchor: CheckpointAnchor | None, events: Events) -> None:
        self._key = key
        self._anchor = anchor
        self._events = events
        #: Whether the chain may be signed for the first time; None until the chain has been read.
        self._may_begin: bool | None = None
        self._logged_at = 0

    async def sealing(self, trail: AuditTrail, *, now: int) -> Sealing:
        """How to sign the entries that are sealed next."""
        if self._may_begin is None:
            self._may_begin = await self._is_first(trail)
        return Sealing(key=self._key, anchored=self._anchored(), begin=self._may_begin, now=now)

    async def _is_first(self, trail: AuditTrail) -> bool:
        """Whether nothing was signed before: no entry of the chain says that a checkpoint covers it."""
        if await trail.checkpoint(self._key.kid) is not None:
            return False
        progress = ChainProgress()
        while page := await trail.sealed(after=progress.head.seq, limit=_BATCH):
            progress, _ = verify_chain(progress, page)
            if progress.signed_seq:
                return False
        return True

    def keep(self, checkpoint: SignedCheckpoint) -> None:
        """Keep a checkpoint that the store has."""
        self._may_begin = False
        if checkpoint.at - self._logged_at >= _LOG_EVERY_MS:
            # A log that is kept on another machine proves what was there, even if store and file are replaced.
            self._events.emit("audit_checkpoint", **asdict(checkpoint))
            self._logged_at = checkpoint.at
        if self._anchor is None:
            return
        try:
            self._anchor.write(checkpoint)
        except FileError as error:
            self._events.emit("audit_anchor_failed", error=str(error))

    def _anchored(self) -> SignedCheckpoint | None:
        if self._anchor is None:
            return None
        try:
            found = self._anchor.read()
        except FileError as error:
            self._events.emit("audit_anchor_failed", error=str(error))
            return None
        return found if found is not None and self._key.is_valid(found) else None


class AuditSealer:
    """Seals new entries. Several sealers at once do no harm: the store admits one at a time."""

    def __init__(
        self,
        trail: AuditTrail,
        clock: Clock,
        events: Events,
        *,
        lease: Singleton,
        signer: CheckpointSigner | None = None,
        busy: Callable[[], bool] = lambda: True,
    ) -> None:
        """While `busy` says so, other services may have more urgent things to write."""
        self._trail = trail
        self._clock = clock
        self._events = events
        self.backoff = Backoff(events, component_names.AUDIT_SEALER)
        self._lease, self._busy = lease, busy
        self._signer = signer
        self._broken = ""

    async def step(self) -> float:
        """Seal a batch. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._step)

    async def _step(self) -> float:
        began = self._clock.elapsed()
        if not await self._lease.ours():
            return self._lease.retry_seconds
        sealing = None if self._signer is None else await self._signer.sealing(self._trail, now=self._clock.now())
        done = await self._trail.seal(limit=_BATCH, sealing=sealing)
        if self._signer is not None and done.checkpoint is not None:
            self._signer.keep(done.checkpoint)
        self._report(done.broken)
        if done.sealed < _BATCH:
            return _POLL_SECONDS
        return max(_REST_SECONDS, _REST_FACTOR * (self._clock.elapsed() - began)) if self._busy() else 0.0

    def _report(self, broken: str) -> None:
        """Announce, once for each reason, that the chain lacks what was signed before."""
        if broken and broken != self._broken:
            self._events.emit("audit_broken", reason=broken)
        self._broken = broken or self._broken
