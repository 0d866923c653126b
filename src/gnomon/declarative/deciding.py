"""Whether a task must be started, why, and when to look again. Pure: the time is an argument."""

from typing import NamedTuple

from gnomon.declarative.events import Cause
from gnomon.declarative.expression import Occurrences
from gnomon.declarative.records import Record

MINUTE_MS = 60_000
#: Retries of one task are at least so far apart, start to start: a delay of nothing must not become a spin.
RETRY_SPACING_MS = 1000
#: Before any instant: what is owed whatever the clock says.
AT_ONCE = -1 << 62


class Start(NamedTuple):
    """A task is to be started now."""

    cause: Cause
    #: It was waiting for a retry, which is forgotten.
    preempts_retry: bool = False


def owed_at(record: Record, occurrences: Occurrences) -> int | None:
    """The instant from which on a start is owed to a task that is not running; None if never.

    It does not depend on the present, so a clock that is set forth or back changes nothing about it.
    """
    if record.scheduler_identifier is not None or record.due_at_registration:
        return AT_ONCE
    due = occurrences.first_after(record.settled_at)
    retry = _retry_at(record)
    if due is None or retry is None:
        return retry if due is None else due
    return min(due, retry)


def decide(record: Record, occurrences: Occurrences, *, now: int) -> Start:
    """Why a task is started that is not running and to which a start is owed at `now`."""
    if record.scheduler_identifier is not None:
        return Start(Cause.ORPHAN)
    if record.due_at_registration:
        return Start(Cause.REGISTRATION)
    retry = _retry_at(record)
    if retry is not None and retry <= now and not _due_since_failure(record, occurrences, now):
        return Start(Cause.RETRY)
    due = occurrences.first_after(record.settled_at)
    cause = Cause.MISSED if due is None or now - due >= MINUTE_MS else Cause.CRON
    return Start(cause, preempts_retry=record.pending_retry_until is not None)


def _retry_at(record: Record) -> int | None:
    if record.pending_retry_until is None:
        return None
    # If the clock was set back during the run, it failed before it began; that must not make it wait.
    began_at = min(record.settled_at, record.last_failure_at or record.settled_at)
    return max(record.pending_retry_until, began_at + RETRY_SPACING_MS)


def _due_since_failure(record: Record, occurrences: Occurrences, now: int) -> bool:
    since = max(record.settled_at, record.last_failure_at or record.settled_at)
    due = occurrences.first_after(since)
    return due is not None and due <= now
