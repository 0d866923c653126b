"""What becomes of persisted tasks when new registrations come: new, preserved, overridden, orphaned, removed."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.declarative.deciding import MINUTE_MS
from gnomon.declarative.expression import Occurrences
from gnomon.declarative.records import Record
from gnomon.declarative.registrations import Registered


class Modified(NamedTuple):
    """One field of one task that says something else than before."""

    name: str
    field: str
    before: str | int
    after: str | int


class Overrides(Struct, frozen=True, kw_only=True):
    """All that a set of registrations does to what is persisted. Carried out whole, or not at all."""

    #: Every registered task as it is from here on.
    records: dict[str, Record]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    modified: tuple[Modified, ...]
    orphaned: tuple[str, ...]

    @property
    def written(self) -> list[Record]:
        """The records that differ from what is persisted."""
        names = {*self.added, *(change.name for change in self.modified)}
        return [self.records[name] for name in self.records if name in names]


def resolve(
    registered: Mapping[str, Registered],
    persisted: Mapping[str, Record],
    occurrences: Mapping[str, Occurrences],
    *,
    now: int,
) -> Overrides:
    """What the registrations do to what is persisted. `occurrences` has every registered expression."""
    records: dict[str, Record] = {}
    modified: list[Modified] = []
    for name, task in registered.items():
        before = persisted.get(name)
        if before is None:
            records[name] = _new(task, occurrences[task.cron_expression], now)
            continue
        changes = _changes(before, task)
        modified += changes
        records[name] = _overridden(before, task) if changes else before
    return Overrides(
        records=records,
        added=tuple(name for name in registered if name not in persisted),
        removed=tuple(name for name in persisted if name not in registered),
        modified=tuple(modified),
        orphaned=tuple(name for name, record in records.items() if record.scheduler_identifier is not None),
    )


def _new(task: Registered, occurrences: Occurrences, now: int) -> Record:
    """A task that was never seen. It is due at once if, and only if, the present minute matches."""
    last = occurrences.last_until(now)
    return Record(
        name=task.name,
        cron_expression=task.cron_expression,
        retry_delay_ms=task.retry_delay_ms,
        registered_at=now,
        due_at_registration=last is not None and now - last < MINUTE_MS,
    )


def _changes(before: Record, task: Registered) -> list[Modified]:
    """Strings are compared as they are written: what means the same and is spelled otherwise is a change."""
    changes = []
    if before.cron_expression != task.cron_expression:
        changes.append(Modified(task.name, "cronExpression", before.cron_expression, task.cron_expression))
    if before.retry_delay_ms != task.retry_delay_ms:
        changes.append(Modified(task.name, "retryDelayMs", before.retry_delay_ms, task.retry_delay_ms))
    return changes


def _overridden(before: Record, task: Registered) -> Record:
    """The new configuration with the old history; a retry that is pending stays where it was."""
    return replace(before, cron_expression=task.cron_expression, retry_delay_ms=task.retry_delay_ms)
