"""Setting the clock of a process by the store's: all who share a store go by one clock."""

from contextlib import suppress

from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.synced_clock import GuidedClock
from gnomon.errors import Unavailable
from gnomon.ports.runtime import Events

#: How often it is compared with the store's.
_COMPARE_SECONDS = 10.0


async def set_by_store(clock: GuidedClock, store: SqlStore, events: Events, **who: str) -> float:
    """The clock agrees with the store's, unless that cannot be asked. Returns how many seconds that is good for."""
    asked_at, engine = clock.now(), store.transactions
    with suppress(Unavailable):
        wrong = clock.hear(await engine.read(engine.now), asked_at=asked_at)
        if wrong:
            events.emit("clock_corrected", **who, wrong_ms=wrong)
    return _COMPARE_SECONDS
