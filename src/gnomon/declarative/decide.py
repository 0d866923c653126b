"""Decide when and why a task is started, and how new registrations change the state. Pure: the time is an argument."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.declarative.cron import Occurrences
from gnomon.declarative.events import Cause
from gnomon.declarative.records import TaskRecord
from gnomon.declarative.registrations import ParsedRegistration

MINUTE_MS = 60_000
#: The shortest time between two starts of one task for retries: a delay of zero must not become a busy loop.
RETRY_SPACING_MS = 1000
#: Earlier than any instant: the start is owed at any time of the clock.
IMMEDIATELY = -1 << 62


class StartDecision(NamedTuple):
    """Start a task now, for this cause."""

    cause: Cause
    #: Whether the start replaces a pending retry.
    preempts_retry: bool = False


def due_at(record: TaskRecord, occurrences: Occurrences) -> int | None:
    """The instant at which a start is owed to a task that is not running; None if never.

    It does not depend on the present, so setting the clock does not change it.
    """
    if record.scheduler_identifier is not None or record.due_at_registration:
        return IMMEDIATELY
    due = occurrences.first_after(record.settled_at)
    retry = _retry_at(record)
    if due is None or retry is None:
        return retry if due is None else due
    return min(due, retry)


def decide(record: TaskRecord, occurrences: Occurrences, *, now: int) -> StartDecision:
    """The cause for starting a task that is not running and to which a start is owed at `now`."""
    if record.scheduler_identifier is not None:
        return StartDecision(Cause.ORPHAN)
    if record.due_at_registration:
        return StartDecision(Cause.REGISTRATION)
    retry = _retry_at(record)
    if retry is not None and retry <= now and not _due_since_failure(record, occurrences, now):
        return StartDecision(Cause.RETRY)
    due = occurrences.first_after(record.settled_at)
    cause = Cause.MISSED if due is None or now - due >= MINUTE_MS else Cause.CRON
    return StartDecision(cause, preempts_retry=record.pending_retry_until is not None)


def _retry_at(record: TaskRecord) -> int | None:
    if record.pending_retry_until is None:
        return None
    # If the clock was set back during the run, the failure is earlier than the start: count from the earlier one.
    began_at = min(record.settled_at, record.last_failure_at or record.settled_at)
    return max(record.pending_retry_until, began_at + RETRY_SPACING_MS)


def _due_since_failure(record: TaskRecord, occurrences: Occurrences, now: int) -> bool:
    since = max(record.settled_at, record.last_failure_at or record.settled_at)
    due = occurrences.first_after(since)
    return due is not None and due <= now


class ModifiedField(NamedTuple):
    """A field of a task whose value changed."""

    name: str
    field: str
    before: str | int
    after: str | int


class Overrides(Struct, frozen=True, kw_only=True):
    """All changes that a list of registrations makes to the state. They are written in one transaction."""

    #: The new record of every registered task.
    records: dict[str, TaskRecord]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    modified: tuple[ModifiedField, ...]
    orphaned: tuple[str, ...]

    @property
    def written(self) -> list[TaskRecord]:
        """The records that differ from the persisted ones."""
        names = {*self.added, *(change.name for change in self.modified)}
        return [self.records[name] for name in self.records if name in names]


def resolve_overrides(
    registered: Mapping[str, ParsedRegistration],
    persisted: Mapping[str, TaskRecord],
    occurrences: Mapping[str, Occurrences],
    *,
    now: int,
) -> Overrides:
    """The changes that the registrations make to the state. `occurrences` has every registered expression."""
    records: dict[str, TaskRecord] = {}
    modified: list[ModifiedField] = []
    for name, task in registered.items():
        before = persisted.get(name)
        if before is None:
            records[name] = _new_record(task, occurrences[task.cron_expression], now)
            continue
        changes = _changes(before, task)
        modified += changes
        records[name] = _overridden(before, task, occurrences[task.cron_expression]) if changes else before
    return Overrides(
        records=records,
        added=tuple(name for name in registered if name not in persisted),
        removed=tuple(name for name in persisted if name not in registered),
        modified=tuple(modified),
        orphaned=tuple(name for name, record in records.items() if record.scheduler_identifier is not None),
    )


def _new_record(task: ParsedRegistration, occurrences: Occurrences, now: int) -> TaskRecord:
    """The record of a new task. It is due at once if, and only if, the present minute matches."""
    return TaskRecord(
        name=task.name,
        cron_expression=task.cron_expression,
        retry_delay_ms=task.retry_delay_ms,
        registered_at=now,
        due_at_registration=_matches_minute(occurrences, now),
    )


def _matches_minute(occurrences: Occurrences, at: int) -> bool:
    last = occurrences.last_until(at)
    return last is not None and at - last < MINUTE_MS


def _changes(before: TaskRecord, task: ParsedRegistration) -> list[ModifiedField]:
    """The fields that changed. Expressions are compared as strings: an equivalent one with another spelling differs."""
    changes = []
    if before.cron_expression != task.cron_expression:
        changes.append(ModifiedField(task.name, "cronExpression", before.cron_expression, task.cron_expression))
    if before.retry_delay_ms != task.retry_delay_ms:
        changes.append(ModifiedField(task.name, "retryDelayMs", before.retry_delay_ms, task.retry_delay_ms))
    return changes


def _overridden(before: TaskRecord, task: ParsedRegistration, occurrences: Occurrences) -> TaskRecord:
    """The new configuration with the old history; a pending retry keeps its instant.

    A task that has not started yet is still due at once only if its new expression matches the minute of registration.
    """
    return replace(
        before,
        cron_expression=task.cron_expression,
        retry_delay_ms=task.retry_delay_ms,
        due_at_registration=before.due_at_registration and _matches_minute(occurrences, before.registered_at),
    )
