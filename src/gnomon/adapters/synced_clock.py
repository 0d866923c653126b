"""A clock on the wall that is set by somebody else's: for workers, whose machines nobody minds.

What a worker writes down is compared with what others write down: when a step ended and the next may begin, and for how
long something has run. So all of them go by one clock, that of the store.
"""

from gnomon.adapters.host import SystemClock

#: By so much clocks may differ, and nobody minds. Less is not to be told from the time that an answer takes.
_TOLERANCE_MS = 500


class StoreSyncedClock(SystemClock):
    """The machine's clocks, the one on the wall set forward or back by as much as it is wrong."""

    def __init__(self) -> None:
        #: What is added to the machine's own.
        self.offset_ms = 0

    def now(self) -> int:
        """See Clock.now."""
        return super().now() + self.offset_ms

    def until(self, at: int) -> float:
        """See Clock.until."""
        return super().until(at - self.offset_ms)

    def synchronize(self, theirs_at: int, *, asked_at: int) -> int:
        """Set by an answer that says what time it is, given when we asked. Returns by how much we were wrong, or 0."""
        heard_at = self.now()
        # Theirs was looked at somewhere between the question and the answer.
        wrong = (asked_at + heard_at) // 2 - theirs_at
        if abs(wrong) <= max(_TOLERANCE_MS, heard_at - asked_at):
            return 0
        self.offset_ms -= wrong
        return wrong
