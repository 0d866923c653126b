"""The elector: holds this node's share of the shards, and the terms to write under.

Shards and terms: how several nodes decide ticks without deciding any of them twice.

Purpose. Every schedule belongs to one of 256 shards, by a hash. A node decides the ticks of the shards that it
holds. It holds a shard by a lease in the store: a row with a holder, an end and a *term*, a number that grows by one
each time that the shard changes hands. The elector renews the leases of its node every few seconds, claims free shards
while the node has less than its fair share (256 divided by the nodes that are alive), and releases the surplus when
another node has joined. The ticker asks it for `terms` before every step, and passes them with every write of
decisions.

Why terms. A lease alone is not safe. A node may be suspended, or its write delayed, after it has checked its lease and
before the write arrives; by then another node holds the shard and has decided the same tick. So the store compares the
terms in the transaction that writes the decisions (`Ledger.decide`): if a shard has a newer term, nothing is written,
and the node learns from StaleTerm that it has lost the shard. The term is a fencing token: the lease decides who may
try, and the term decides whose write is accepted. The rows are locked until the commit, so that no claim can slip in
between.

Time. The node trusts a lease for 0.8 of its time on its own monotonic clock, counted from the moment before it asked:
a slow answer leaves less time, not more, and a step of the wall clock changes nothing. Failed renewals leave the terms
valid until that trust ends: a short outage of the store costs no shard. Leases end by the clock of the store. A node
whose clock differs from it by more than `leader.skew_limit_ms` leaves: it would decide ticks at the wrong time.

Hand-over. A node that stops leaves at once, and hints (`check_soon`) let others claim without delay. If a node dies,
others wait for the end of its leases, which they know from their last renewal (`others_end_at`), and claim right then.
A node on a database file is alone by its file lock, and takes all shards by force at the start.

Without it. If there were no shards, all nodes would plan the same schedules, and all but one would lose the
race to write. Without terms a suspended node could write a decision over those of its successor. Exactly one decision
per tick would then rest on the compare-and-set of each schedule's mark alone, which is the last line of defence and
not a plan.
"""

from collections.abc import Collection

from gnomon.config.sections import LeaderSettings
from gnomon.core.ids import SHARDS
from gnomon.core.leases import HeldShardTerms, fair_share, surplus_shards, wants_more_shards
from gnomon.errors import Unavailable
from gnomon.ports.ledger import Shards, Terms
from gnomon.ports.runtime import Clock, Events

_NO_TERMS: Terms = {}
_NEVER = float("inf")
_NO_TERM = HeldShardTerms(_NO_TERMS, float("-inf"), 0)


class Elector:
    """Holds shards under a name that is unique for every start of a process."""

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
        #: No other process can be alive, so that shards of a dead one are taken at once.
        self._alone = alone
        self._term = _NO_TERM
        self._tried_at = _NO_TERM.asked_at
        self._below_share = False
        #: Whether a hint since the last step says that shards are free.
        self._hinted = False
        #: When, by our own clock, the first lease of another node ends unless it is renewed.
        self._others_end = _NEVER
        #: Whether the last step could not reach the store.
        self.failing = False

    @property
    def terms(self) -> Terms:
        """The terms to write under now; none once the leases are no longer trusted."""
        return self._term.terms if self._term.trusted(self._clock.elapsed()) else _NO_TERMS

    @property
    def renewal_due_in(self) -> float:
        """Seconds until the next step is due; also after a failed one, so that an unavailable store is not hammered."""
        soonest = self._tried_at + self._settings.claim_interval_ms / 1000
        renewal = self._term.asked_at + self._settings.renew_interval_ms / 1000
        due = soonest if self._below_share or self._hinted else max(soonest, renewal)
        return max(0.0, min(due, self._others_end) - self._clock.elapsed())

    async def step(self) -> None:
        """Renew the leases, and claim or release shards until the share of this node is fair."""
        asked_at = self._tried_at = self._clock.elapsed()
        self._others_end, self._hinted = _NEVER, False
        try:
            terms = await self._share()
        except Unavailable as error:
            # The leases are still valid in the store; the terms stay valid here until the trust in them ends.
            self._events.emit("lease_renewal_failed", holder=self._holder, error=str(error))
            self.failing = True
            return
        self.failing = False
        if set(terms) != set(self._term.terms):
            self._events.emit("shards_held", holder=self._holder, count=len(terms))
        self._term = HeldShardTerms(terms, asked_at, self._settings.ttl_ms)

    async def _share(self) -> Terms:
        ttl = self._settings.ttl_ms
        if self._alone:
            taken = await self._shards.claim(self._holder, ttl_ms=ttl, limit=SHARDS, by_force=True)
            self._alone = False
            return taken
        asked = self._clock.now()
        renewed = await self._shards.renew(self._holder, ttl_ms=ttl)
        terms = dict(renewed.terms)
        # The store read its clock at some moment between the request and the reply.
        if self._clock_is_off((asked + self._clock.now()) // 2 - renewed.now):
            # Not only release the shards: a node that does not decide must not count in the shares of others.
            await self._shards.leave(self._holder)
            return {}
        for shard in surplus_shards(terms, renewed.nodes):
            del terms[shard]
        if len(terms) < len(renewed.terms):
            await self._shards.release(self._holder, set(renewed.terms) - set(terms))
        missing = fair_share(renewed.nodes) - len(terms)
        if missing > 0:
            terms |= await self._shards.claim(self._holder, ttl_ms=ttl, limit=missing)
        self._below_share = wants_more_shards(terms, renewed.nodes)
        if renewed.others_end_at is not None:
            # A node that is alive renews long before that; a dead one is succeeded without delay.
            self._others_end = self._clock.elapsed() + (renewed.others_end_at - renewed.now) / 1000
        return terms

    def _clock_is_off(self, skew: int) -> bool:
        if abs(skew) > self._settings.skew_warning_ms:
            self._events.emit("clock_skew", holder=self._holder, skew_ms=skew)
        return abs(skew) > self._settings.skew_limit_ms

    def lost(self, shards: Collection[int]) -> None:
        """Drop the terms of these shards, which other nodes have claimed, and claim soon to get a fair share."""
        left = {shard: term for shard, term in self._term.terms.items() if shard not in shards}
        self._term = HeldShardTerms(left, self._term.asked_at, self._term.ttl_ms)
        self._below_share = True

    def check_soon(self) -> None:
        """Step soon: another node may have released shards."""
        self._hinted = True

    async def stop(self) -> None:
        """Release every shard, so that other nodes need not wait for the leases to end."""
        self._term = _NO_TERM
        await self._shards.leave(self._holder)
