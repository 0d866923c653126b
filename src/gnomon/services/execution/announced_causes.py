"""The causes for which tasks wait that were announced lately: one line of the log per cause, not per try."""

from collections import OrderedDict

#: Tenant and workflow of the task, and why it waits.
Cause = tuple[str, str, str | None]
#: How long a cause that goes on is not announced again, and how many causes are remembered.
REPEAT_SECONDS = 600.0
MOST_CAUSES = 1000


class AnnouncedCauses:
    """Remembers when each cause was announced; the oldest is forgotten if there are too many."""

    def __init__(self) -> None:
        self._announced: OrderedDict[Cause, float] = OrderedDict()

    def is_new(self, cause: Cause, now: float) -> bool:
        """Whether to announce the cause now; if so, it counts as announced."""
        before = self._announced.get(cause)
        if before is not None and now - before < REPEAT_SECONDS:
            return False
        self._announced[cause] = now
        self._announced.move_to_end(cause)
        if len(self._announced) > MOST_CAUSES:
            self._announced.popitem(last=False)
        return True
