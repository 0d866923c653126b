"""A wall clock synchronized with the clock of the store, for workers whose machines may have wrong clocks.

The timestamps of a worker are compared with those of other processes: when a step ended and the next may begin, and for
how long a task has run. So all processes use one clock, that of the store.
"""

from gnomon.adapters.host import SystemClock

#: The difference that is ignored: a smaller one cannot be told from the round-trip time.
_TOLERANCE_MS = 500


class StoreSyncedClock(SystemClock):
    """The machine's clocks, with an offset that corrects the wall clock."""

    def __init__(self) -> None:
        #: Milliseconds added to the machine's wall clock.
        self.offset_ms = 0

    def now(self) -> int:
        """See Clock.now."""
        return super().now() + self.offset_ms

    def until(self, at: int) -> float:
        """See Clock.until."""
        return super().until(at - self.offset_ms)

    def synchronize(self, theirs_at: int, *, asked_at: int) -> int:
        """Correct the clock by a response with the store's time; return by how much it was wrong, or 0.

        The store read its clock after the request: if ours was later then, it is ahead, by however little. That is
        corrected without a word, because a decision that is early by the store's clock would be refused.
        """
        received_at = self.now()
        # The store read its clock somewhere between the request and the response.
        wrong = (asked_at + received_at) // 2 - theirs_at
        if abs(wrong) <= max(_TOLERANCE_MS, received_at - asked_at):
            self.offset_ms -= max(0, asked_at - theirs_at)
            return 0
        self.offset_ms -= wrong
        return wrong
