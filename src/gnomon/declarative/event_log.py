"""Publish events: each goes to the counters, to the log and to the listener, in the order of events."""

import inspect
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from gnomon.core.instants import instant_of
from gnomon.declarative.decide import Overrides
from gnomon.declarative.errors import printable_excerpt
from gnomon.declarative.events import Cause, Event, SchedulerInitializationFailed, TaskRunFailed
from gnomon.ports.runtime import Clock

E = TypeVar("E", bound=Event)
log = logging.getLogger("gnomon.declarative")
#: More names are counted in a log line and not listed.
_MOST_NAMES = 10
_FAILURES = (TaskRunFailed, SchedulerInitializationFailed)


@dataclass(slots=True)
class Counters:
    """Counts since the scheduler was created."""

    #: Events by name.
    events: Counter[str] = field(default_factory=Counter)
    #: Starts that were later than the specification allows, and the largest lateness of any start.
    late_starts: int = 0
    worst_lateness_ms: int = 0
    #: Writes that failed. They are retried.
    failed_writes: int = 0
    #: Outcomes that were not written when `stop` gave up; their tasks run again.
    lost_outcomes: int = 0
    #: Events for which the listener raised.
    unheard: int = 0
    #: How often the loop looked for due tasks.
    polls: int = 0
    #: Tasks that were found to be silent until some time, because they started when the clock was ahead.
    silenced_tasks: int = 0


def _refuse_coroutine(returned: object) -> None:
    """Refuse what an async listener returns. The constructor recognises most of them, but not a lambda around one."""
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError("the listener is async: the event was published and not awaited")


class EventPublisher:
    """Creates and publishes events. An error of the listener does not affect the scheduler."""

    def __init__(self, clock: Clock, on_event: Callable[[Event], object] | None) -> None:
        self._clock = clock
        self._on_event = on_event
        self.counters = Counters()

    def publish(
        self,
        kind: type[E],
        cause: Cause,
        *,
        task: str | None = None,
        at: int | None = None,
        **fields: Any,  # noqa: ANN401 - the fields of this kind
    ) -> None:
        """Publish an event of this kind that happened at `at`, by default now."""
        event = kind(at=self._now() if at is None else instant_of(at), cause=cause, task=task, **fields)
        self.counters.events[kind.__name__] += 1
        self._log(event)
        if self._on_event is None:
            return
        try:
            _refuse_coroutine(self._on_event(event))
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.counters.unheard += 1
            log.exception("a listener failed on %s", event.name)

    def _now(self) -> datetime:
        """The time of the clock, or of the host if the clock fails: an event is published in any case."""
        try:
            return instant_of(self._clock.now())
        except Exception as error:  # noqa: BLE001 - a Clock may raise anything
            self.clock_failed(error)
            return datetime.now(UTC)

    def clock_failed(self, error: BaseException) -> None:
        """Log an error of the clock."""
        log.error("the clock failed", exc_info=error)

    def _log(self, event: Event) -> None:
        level = logging.WARNING if type(event) in _FAILURES else logging.INFO
        if not log.isEnabledFor(level):
            return
        about = f" task={printable_excerpt(repr(event.task))}" if event.task is not None else ""
        if isinstance(event, SchedulerInitializationFailed):
            # The caller of `initialize` receives the error itself: the log has only its class.
            about = f" error={type(event.error).__name__}"
        error = event.error if isinstance(event, TaskRunFailed) else None
        log.log(level, "%s%s cause=%s", event.name, about, event.cause, exc_info=error)

    def overrides(self, overrides: Overrides) -> None:
        """Log the changes that new registrations made to the state."""
        modified = overrides.modified
        total = len(overrides.added) + len(overrides.removed) + len(modified)
        if not total and not overrides.orphaned:
            return
        log.info(
            "registrations: %d added, %d removed, %d fields modified, %d orphaned",
            *(len(part) for part in (overrides.added, overrides.removed, modified, overrides.orphaned)),
            extra={
                "removed": list(overrides.removed),
                "added": list(overrides.added),
                "modified": [{"name": m.name, "field": m.field, "from": m.before, "to": m.after} for m in modified],
                "orphaned": list(overrides.orphaned),
                "total": total,
            },
        )

    def record_lateness(self, late_ms: list[int], *, allowed_ms: int) -> None:
        """Count and log late starts: for each start, the time since it was owed."""
        worst = max(late_ms, default=0)
        self.counters.worst_lateness_ms = max(self.counters.worst_lateness_ms, worst)
        late = sum(1 for ms in late_ms if ms > allowed_ms)
        if late:
            self.counters.late_starts += late
            log.warning("%d tasks start late, up to %d ms; %d ms are allowed", late, worst, allowed_ms)

    def tasks_silenced(self, names: list[str], *, until: int) -> None:
        """Count and log the tasks that started later than it is now: they are silent until the clock is there."""
        self.counters.silenced_tasks += len(names)
        shown = ", ".join(map(printable_excerpt, names[:_MOST_NAMES]))
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        log.warning(
            "the clock was ahead: %s%s started later than it is now, and may not start again before %s",
            shown,
            more,
            instant_of(until).isoformat(),
        )

    def write_failed(self, error: BaseException) -> None:
        """Count and log a failed write, which will be retried."""
        self.counters.failed_writes += 1
        log.warning("state could not be written and will be retried", exc_info=error)

    def outcomes_lost(self, count: int) -> None:
        """Count and log the outcomes that were not written before the scheduler stopped."""
        self.counters.lost_outcomes += count
        log.error("stopped with %d outcomes unwritten: those tasks will run again", count)

    def poll_failed(self, error: BaseException) -> None:
        """Log an unexpected error of the loop, which continues."""
        log.error("polling failed and continues", exc_info=error)
