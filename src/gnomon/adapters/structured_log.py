"""Events as lines of a structured log."""

from functools import cached_property
from typing import Any

#: Events that an operator should look into.
WARNINGS = frozenset(
    {
        "accept_failed",
        "audit_anchor_failed",
        "audit_broken",
        "audit_unsigned",
        "auth_failed",
        "clock_corrected",
        "clock_skew",
        "clock_stepped",
        "connection_limit_reached",
        "database_gone",
        "functions_unknown",
        "job_warning",
        "jobs_orphaned",
        "more_job_warnings",
        "handshake_failed",
        "slots_overrun",
        "result_refused",
        "lease_renewal_failed",
        "mark_set_back",
        "metrics_unavailable",
        "closed_to_everybody",
        "open_to_everybody",
        "request_failed",
        "http_request_refused",
        "sandbox_incomplete",
        "schedule_broken",
        "store_unavailable",
        "term_ended",
    }
)


class LoggedEvents:
    """Logs each event as one line with its facts. Events that cannot be written are counted."""

    def __init__(self) -> None:
        #: How many events could not be written.
        self.lost = 0

    @cached_property
    def _log(self) -> Any:  # noqa: ANN401 - structlog's own type
        # Imports Rich and Pygments, 6 MiB, which a process that logs nothing does without.
        import structlog

        return structlog.get_logger("gnomon")

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        try:
            (self._log.warning if name in WARNINGS else self._log.info)(name, **facts)
        except Exception:  # noqa: BLE001 - a log that fails, however it was configured, stops no scheduler
            self.lost += 1
