"""The elector: holds the terms of this node's share of the shards."""

from collections.abc import Collection

from gnomon.config.sections import LeaderSettings
from gnomon.core.ids import SHARDS
from gnomon.core.leases import HeldTerms, fair_share, surplus_shards, wants_more_shards
from gnomon.errors import Unavailable
from gnomon.ports.ledger import Shards, Terms
from gnomon.ports.runtime import Clock, Events

_NO_TERMS: Terms = {}
_NEVER = float("inf")
_NO_TERM = HeldTerms(_NO_TERMS, float("-inf"), 0)


class Elector:
    """One holder, by a name that no other process start has ever had."""

    def __init__(
        self,
        shards: Shards,
        clock: Clock,
        events: Events,
        settings: LeaderSettings,
        *,
        holder: str,
        alone: bool = False,
    ) -> None:
        self._shards = shards
        self._clock = clock
        self._events = events
        self._settings = settings
        self._holder = holder
        #: Nobody else can be alive, so what a dead process held is taken at once.
        self._alone = alone
        self._term = _NO_TERM
        self._tried_at = _NO_TERM.asked_at
        self._below_share = False
        #: Somebody has said, since the last step began, that there is something to take.
        self._told = False
        #: When, by our own clock, the first lease of anybody else ends unless it is renewed.
        self._others_end = _NEVER
        #: The last step could not reach the store.
        self.failing = False

    @property
    def terms(self) -> Terms:
        """The terms to act under now: none once they are no longer to be trusted."""
        return self._term.terms if self._term.trusted(self._clock.elapsed()) else _NO_TERMS

    @property
    def renewal_due_in(self) -> float:
        """Seconds until the next step is due; also after one that failed, so that nobody hammers a store in need."""
        soonest = self._tried_at + self._settings.claim_interval_ms / 1000
        renewal = self._term.asked_at + self._settings.renew_interval_ms / 1000
        due = soonest if self._below_share or self._told else max(soonest, renewal)
        return max(0.0, min(due, self._others_end) - self._clock.elapsed())

    async def step(self) -> None:
        """Renew what we hold, and take or give up shards until our share is fair."""
        asked_at = self._tried_at = self._clock.elapsed()
        self._others_end, self._told = _NEVER, False
        try:
            terms = await self._share()
        except Unavailable as error:
            # The leases run on at the store; what we hold stays ours until our own trust in it ends.
            self._events.emit("lease_renewal_failed", holder=self._holder, error=str(error))
            self.failing = True
            return
        self.failing = False
        if set(terms) != set(self._term.terms):
            self._events.emit("shards_held", holder=self._holder, count=len(terms))
        self._term = HeldTerms(terms, asked_at, self._settings.ttl_ms)

    async def _share(self) -> Terms:
        ttl = self._settings.ttl_ms
        if self._alone:
            taken = await self._shards.claim(self._holder, ttl_ms=ttl, limit=SHARDS, by_force=True)
            self._alone = False
            return taken
        asked = self._clock.now()
        attendance = await self._shards.renew(self._holder, ttl_ms=ttl)
        terms = dict(attendance.terms)
        # The store looked at its clock somewhere between the question and the answer.
        if self._clock_is_off((asked + self._clock.now()) // 2 - attendance.now):
            # Not only given up: whoever does not lead must not count when the others share.
            await self._shards.leave(self._holder)
            return {}
        for shard in surplus_shards(terms, attendance.nodes):
            del terms[shard]
        if len(terms) < len(attendance.terms):
            await self._shards.release(self._holder, set(attendance.terms) - set(terms))
        missing = fair_share(attendance.nodes) - len(terms)
        if missing > 0:
            terms |= await self._shards.claim(self._holder, ttl_ms=ttl, limit=missing)
        self._below_share = wants_more_shards(terms, attendance.nodes)
        if attendance.others_end_at is not None:
            # Whoever is alive renews long before that; whoever is not is succeeded without delay.
            self._others_end = self._clock.elapsed() + (attendance.others_end_at - attendance.now) / 1000
        return terms

    def _clock_is_off(self, skew: int) -> bool:
        if abs(skew) > self._settings.skew_warning_ms:
            self._events.emit("clock_skew", holder=self._holder, skew_ms=skew)
        return abs(skew) > self._settings.skew_limit_ms

    def lost(self, shards: Collection[int]) -> None:
        """Others have taken these shards: act under their terms no longer, and look soon for what is our share."""
        left = {shard: term for shard, term in self._term.terms.items() if shard not in shards}
        self._term = HeldTerms(left, self._term.asked_at, self._term.ttl_ms)
        self._below_share = True

    def check_soon(self) -> None:
        """Somebody may have given shards up: look soon."""
        self._told = True

    async def stop(self) -> None:
        """Give every shard up, so that others need not wait for the leases to end."""
        self._term = _NO_TERM
        await self._shards.leave(self._holder)
