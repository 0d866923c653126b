"""How long a node may go on believing that a shard is its own, and how many shards are its share."""

from collections.abc import Mapping

from msgspec import Struct

from gnomon.core.ids import SHARDS
from gnomon.core.jobs.fields import printable
from gnomon.core.model import DAY_MS, SECOND_MS
from gnomon.errors import FieldError

#: The share of a lease we trust; the rest is room for a clock that runs differently from the store's.
LEASE_TRUST_FRACTION = 0.8

#: The share of a lease within which a worker elsewhere must have started: then the first renewal comes in time.
LEASE_START_FRACTION = 0.5


class HeldTerms(Struct, frozen=True):
    """The terms a node was given, and since when.

    Trust counts from when we asked, not from when the answer came, so that a slow answer leaves less time, not more.
    """

    terms: Mapping[int, int]
    #: On the node's own clock that never goes back, in seconds.
    asked_at: float
    ttl_ms: int

    def trusted(self, elapsed: float) -> bool:
        """Whether to act under these terms."""
        return bool(self.terms) and elapsed < self.asked_at + self.ttl_ms / 1000 * LEASE_TRUST_FRACTION


def fair_share(nodes: int) -> int:
    """How many shards a node should hold when so many are alive."""
    return -(-SHARDS // max(1, nodes))


def wants_more_shards(terms: Mapping[int, int], nodes: int) -> bool:
    """Whether a node holds less than anybody should: others are about to give some up, or have died."""
    least = SHARDS - (nodes - 1) * fair_share(nodes)
    return len(terms) < max(1, least)


def surplus_shards(terms: Mapping[int, int], nodes: int) -> tuple[int, ...]:
    """The shards to give up so that others get theirs."""
    return tuple(sorted(terms)[fair_share(nodes) :])


LONGEST_KEY = 200
#: Some keepers count in whole seconds. What should end sooner is no lease, and what should last longer no help.
SHORTEST_MS, LONGEST_MS = SECOND_MS, DAY_MS


def checked_key(field: str, value: object) -> str:
    """The value, if it is a text that every keeper can hold; FieldError otherwise."""
    key = printable(field, value, longest=LONGEST_KEY)
    if not key:
        raise FieldError(field, value, "is empty")
    return key


def checked_ttl(ttl_ms: object) -> int:
    """The time to live, if it is one; FieldError otherwise."""
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or not SHORTEST_MS <= ttl_ms <= LONGEST_MS:
        raise FieldError("ttl_ms", ttl_ms, f"must be a whole number from {SHORTEST_MS} to {LONGEST_MS}")
    return ttl_ms
