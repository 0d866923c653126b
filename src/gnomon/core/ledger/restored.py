"""A restored store: what it cannot know, and what is decided about that.

A backup knows nothing of the time between its moment and its restoration. Ticks that it has not decided may have run
meanwhile, and so may runs that it has as open. Jobs that run at least once run them again, by their own rules. Jobs
that run at most once do not: their ticks count as missed, and their open runs are cancelled.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from gnomon.core.ledger.plan import uncertain_range, with_skipped
from gnomon.core.ledger.ticks import Ticks, ticks_of
from gnomon.core.model import Run, Schedule, TickVerdict

#: The action and the kind of object of the audit entry about a restoration.
RESTORE_ACTION, RESTORED_KIND = "restore", "database"


class StoreRestore(Struct, frozen=True, kw_only=True):
    """One restoration of a backup."""

    #: The store's time when the backup was made; None if the copy does not say.
    backup_at: int | None
    restored_at: int

    def in_doubt(self, planned_at: int, decided_at: int) -> bool:
        """Whether the tick may have run before: it was planned before the restoration, and the backup lacked it.

        That includes ticks from before the backup, which may have been decided late, after it.
        """
        return planned_at <= self.restored_at <= decided_at


def read_restore(details: str) -> StoreRestore:
    """The restoration in the details of its audit entry."""
    return msgspec.json.decode(details, type=StoreRestore)


class DoubtfulTicks(Struct, frozen=True, kw_only=True):
    """The ticks of a schedule that may have run before a restoration."""

    tenant: str
    job: str
    count: int
    first_at: int
    last_at: int


def doubtful_ticks(schedule: Schedule, *, now: int) -> DoubtfulTicks | None:
    """The undecided ticks of the schedule that were due at the restoration; None if there are none."""
    ticks = ticks_of(schedule).unskipped
    newest, first = ticks.newest_due(now), ticks.after(schedule.mark_at)
    if schedule.paused_at is not None or newest is None or first is None or newest < first:
        return None
    return DoubtfulTicks(
        tenant=schedule.tenant,
        job=schedule.schedule_id,
        count=ticks.count(after=schedule.mark_at, until=newest),
        first_at=first,
        last_at=newest,
    )


def uncertain_verdict(schedule: Schedule, doubtful: DoubtfulTicks, *, now: int) -> TickVerdict:
    """The verdict that counts the doubtful ticks as missed."""
    ticks = Ticks(schedule.schedule_id, schedule.spec)
    verdict = TickVerdict(
        schedule=schedule,
        decisions=uncertain_range(schedule, until=doubtful.last_at),
        mark_at=doubtful.last_at,
        next_fire_at=ticks.next_fire_at(doubtful.last_at),
        active_runs=schedule.active_runs,
        queued_runs=schedule.queued_runs,
    )
    return with_skipped(ticks, verdict, until=ticks.newest_due(now)) if ticks.skipped else verdict


def doubtful_runs(runs: Sequence[Run], *, now: int) -> list[Run]:
    """Those of the open runs that may have started before the restoration."""
    return [run for run in runs if not run.over and run.fire_at <= now]
