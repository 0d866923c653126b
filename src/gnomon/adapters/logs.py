"""Events as lines of a structured log."""

from typing import Any

import structlog

#: What an operator should look into.
_WARNINGS = frozenset(
    {"store_unavailable", "clock_stepped", "clock_skew", "term_ended", "lease_renewal_failed", "schedule_broken"}
)


class LoggedEvents:
    """Each event is one line with its facts."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger("gnomon")

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        (self._log.warning if name in _WARNINGS else self._log.info)(name, **facts)
