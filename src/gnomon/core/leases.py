"""Leases: how long a node may trust its shard terms, its fair share of shards, and valid keys and times to live."""

from collections.abc import Mapping

from msgspec import Struct

from gnomon.core.ids import SHARDS
from gnomon.core.jobs.fields import printable
from gnomon.core.model import DAY_MS, SECOND_MS
from gnomon.errors import FieldError

#: The fraction of a lease that its holder trusts; the rest is a margin for a clock that differs from the store's.
LEASE_TRUST_FRACTION = 0.8

#: The fraction of a lease within which a remote worker must start: then its first renewal comes in time.
LEASE_START_FRACTION = 0.5


class HeldShardTerms(Struct, frozen=True):
    """The terms of the shards that a node holds, by shard, and when it asked for them.

    Trust counts from the request and not from the reply, so that a slow reply leaves less time, not more.
    """

    terms: Mapping[int, int]
    #: On the node's monotonic clock, in seconds.
    asked_at: float
    ttl_ms: int

    def trusted(self, elapsed: float) -> bool:
        """Whether the node may act under these terms."""
        return bool(self.terms) and elapsed < self.asked_at + self.ttl_ms / 1000 * LEASE_TRUST_FRACTION


def fair_share(nodes: int) -> int:
    """How many shards a node should hold when `nodes` are alive."""
    return -(-SHARDS // max(1, nodes))


def wants_more_shards(terms: Mapping[int, int], nodes: int) -> bool:
    """Whether a node holds less than the smallest share: other nodes are about to release shards, or have died."""
    least = SHARDS - (nodes - 1) * fair_share(nodes)
    return len(terms) < max(1, least)


def surplus_shards(terms: Mapping[int, int], nodes: int) -> tuple[int, ...]:
    """The shards beyond its share, which a node releases for others."""
    return tuple(sorted(terms)[fair_share(nodes) :])


# ---- keys and times to live ----------------------------------------------------------------------

LONGEST_KEY = 200
#: The bounds of a time to live. Some stores count in whole seconds; a lease of more than a day is of no use.
SHORTEST_MS, LONGEST_MS = SECOND_MS, DAY_MS


def checked_key(field: str, value: object) -> str:
    """The value; raise FieldError unless it is a text that every lease store can hold."""
    key = printable(field, value, longest=LONGEST_KEY)
    if not key:
        raise FieldError(field, value, "is empty")
    return key


def checked_ttl(ttl_ms: object) -> int:
    """The time to live; raise FieldError unless it is within bounds."""
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or not SHORTEST_MS <= ttl_ms <= LONGEST_MS:
        raise FieldError("ttl_ms", ttl_ms, f"must be a whole number from {SHORTEST_MS} to {LONGEST_MS}")
    return ttl_ms
