"""What things that end by themselves may be called, and how long they may last, whoever keeps them."""

from gnomon.core.model import DAY_MS, SECOND_MS
from gnomon.core.said import printable
from gnomon.errors import FieldError

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
