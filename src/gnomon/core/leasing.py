"""What a lease may be called and how long it may last, whoever keeps it."""

from gnomon.core.model import DAY_MS, SECOND_MS
from gnomon.core.said import printable
from gnomon.errors import FieldError

LONGEST_KEY = 200
#: Some keepers count in whole seconds. What should end sooner is no lease, and what should last longer no help.
SHORTEST_MS, LONGEST_MS = SECOND_MS, DAY_MS


def lease_key(key: object) -> str:
    """The key, if it is a text that every keeper can hold; FieldError otherwise."""
    return _text("key", key)


def lease_owner(owner: object) -> str:
    """The same for the owner."""
    return _text("owner", owner)


def lease_ttl(ttl_ms: object) -> int:
    """The time to live, if it is one; FieldError otherwise."""
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or not SHORTEST_MS <= ttl_ms <= LONGEST_MS:
        raise FieldError("ttl_ms", ttl_ms, f"must be a whole number from {SHORTEST_MS} to {LONGEST_MS}")
    return ttl_ms


def _text(field: str, value: object) -> str:
    if not printable(field, value, longest=LONGEST_KEY):
        raise FieldError(field, value, "is empty")
    return str(value)
