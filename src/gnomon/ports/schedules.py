"""Schedules, their history, and jobs: a workflow and its schedules together. Every method is one transaction.

An edit from a node whose clock is ahead of the clock of a server raises ClockAhead, and changes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from gnomon.core.instants import FOREVER
from gnomon.core.model import (
    Reason,
    Run,
    RunId,
    Schedule,
    ScheduleUid,
    Task,
    Tick,
    TickKind,
    TickStatus,
    TickVerdict,
)
from gnomon.core.runs.workflow import Workflow


class Revision(Struct, frozen=True, kw_only=True):
    """A version of a schedule: its definition, from when it applied, and who wrote it."""

    revision: int
    schedule: Schedule
    from_at: int
    actor: str
    tzdata: str


class Pause(Struct, frozen=True, kw_only=True):
    """A period in which a schedule was paused; still open while `resumed_at` is None."""

    paused_at: int
    paused_by: str
    resumed_at: int | None = None
    resumed_by: str | None = None


class DeletedSchedule(Struct, frozen=True, kw_only=True):
    """A deleted schedule, as it was when it was deleted."""

    schedule: Schedule
    deleted_at: int
    deleted_by: str


class ScheduleOrder(StrEnum):
    """The orders in which schedules are listed."""

    #: By name.
    NAME = "name"
    #: By the next fire, the earliest first; then those without one, by name.
    NEXT = "next"
    #: By the time up to which their ticks are decided, the latest first; then by name.
    LAST = "last"


#: A position in a listing of schedules: by name, no time and the name; by the next fire, its time and the uid, then as
#: by name; by the last tick, the time and the name.
SchedulePosition = tuple[int | None, str]


def schedule_position(schedule: Schedule, order: ScheduleOrder) -> SchedulePosition:
    """The position of a schedule in a listing."""
    if order is ScheduleOrder.LAST:
        return schedule.mark_at, schedule.schedule_id
    if order is ScheduleOrder.NEXT and schedule.next_fire_at is not None:
        return schedule.next_fire_at, schedule.uid
    return None, schedule.schedule_id


class Schedules(Protocol):
    """Registering, changing and finding schedules."""

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """The schedule with that name; None if there is none, or if it was deleted."""
        ...

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """The schedules whose names come after `after`, in the order of their names."""
        ...

    async def in_order(
        self, tenant: str, order: ScheduleOrder, *, after: SchedulePosition | None, limit: int
    ) -> Sequence[Schedule]:
        """The schedules after a position in that order, from the first one without a position."""
        ...

    async def names_from(self, tenant: str, origins: Collection[str]) -> frozenset[str]:
        """The names of the schedules whose definition comes from one of these origins."""
        ...

    async def orphans(self, tenant: str, *, limit: int) -> Sequence[Schedule]:
        """Schedules that their origin does not declare any more, in the order of their names."""
        ...

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """Register the schedules whose names are free; return the names that were taken. One may start paused."""
        ...

    async def change(self, verdict: TickVerdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """Decide the ticks of the old schedule and replace it by the changed one, if it is still as it was read.

        A revision is added if its number changed; a pause is opened or closed as `paused_at` says.
        """
        ...

    async def delete(self, verdict: TickVerdict, *, now: int, actor: str) -> bool:
        """Decide the ticks of the schedule and free its name, if it is still as it was read.

        Its history stays, its active run continues, and its queued runs are cancelled.
        """
        ...


class RecentHistory(Struct, frozen=True, kw_only=True):
    """The newest ticks and runs of a schedule, newest first, and all its revisions and pauses, oldest first."""

    ticks: Sequence[Tick] = ()
    runs: Sequence[Run] = ()
    revisions: Sequence[Revision] = ()
    pauses: Sequence[Pause] = ()


class ScheduleHistory(Protocol):
    """The past of schedules: ticks, runs, tasks, revisions and pauses."""

    async def ticks(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Tick]:
        """The decisions on ticks planned before `before`, newest first."""
        ...

    async def runs(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Run]:
        """The runs planned before `before`, newest first, then by id."""
        ...

    async def running(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
        """The number of runs that have started and not ended, of each of these schedules that has any."""
        ...

    async def last_tick_kinds(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, TickKind]:
        """The kind of the newest tick of each of these schedules that has any."""
        ...

    async def tasks(self, runs: Sequence[Run]) -> Sequence[Task]:
        """The tasks of these runs."""
        ...

    async def revisions(
        self, uid: ScheduleUid, *, before: int | None = None, newest: int | None = None
    ) -> Sequence[Revision]:
        """The revisions of the schedule, oldest first: those before a number, and no more than the newest of these."""
        ...

    async def pauses(self, uid: ScheduleUid) -> Sequence[Pause]:
        """The pauses of the schedule, oldest first."""
        ...

    async def deleted(self, tenant: str, schedule_id: str, *, limit: int) -> Sequence[DeletedSchedule]:
        """The deleted schedules that had that name, newest first."""
        ...


class TickMark(Struct, frozen=True, gc=False):
    """A decision on a tick in short."""

    planned_at: int
    count: int
    kind: TickKind
    reason: Reason
    status: TickStatus
    run_id: RunId | None


#: A position in the ticks of a tenant, in order of time: the planned time, and the schedule among those of one instant.
TickPosition = tuple[int, str]


class TenantTickQuery(Struct, frozen=True, kw_only=True):
    """Ticks of all schedules of a tenant, also of deleted ones."""

    tenant: str
    kind: TickKind | None = None
    reason: Reason | None = None
    status: TickStatus | None = None
    #: The first position after the wanted ones in time, and the last one of them.
    before: TickPosition = (FOREVER, "")
    down_to: TickPosition = (-FOREVER, "")
    #: Only ticks that stand for several planned times, the last of which is not before this instant.
    reaching: int | None = None
    limit: int

    @property
    def selects(self) -> bool:
        """Whether it selects some of the ticks between its positions."""
        return any(one is not None for one in (self.kind, self.reason, self.status, self.reaching))


class TickHistory(Protocol):
    """The history of many schedules at once."""

    async def page(self, query: TenantTickQuery) -> Sequence[Tick]:
        """The ticks that match: those planned last first, those of one instant by their schedule, descending."""
        ...

    async def position(self, query: TenantTickQuery, number: int) -> TickPosition | None:
        """The position of the tick with that number between the positions of the query; None if there are fewer.

        It counts ticks that do not match, but with `reaching` only those that stand for several planned times.
        """
        ...

    async def recent(self, schedules: Sequence[Schedule], *, each: int) -> Mapping[ScheduleUid, RecentHistory]:
        """The history of each of these standing schedules, with `each` ticks and runs at most."""
        ...

    async def newest(self, uids: Sequence[ScheduleUid], *, each: int) -> Mapping[ScheduleUid, Sequence[TickMark]]:
        """The newest ticks of each of these schedules that has any, newest first, `each` of them at most."""
        ...


class ScheduleEdit(Struct, frozen=True):
    """A change of a schedule, as Schedules.change takes it."""

    verdict: TickVerdict
    changed: Schedule


class JobChangeset(Struct, frozen=True, kw_only=True):
    """Changes to jobs that are carried out together, or not at all."""

    #: New versions of workflows.
    workflows: Sequence[Workflow] = ()
    #: New schedules.
    added: Sequence[Schedule] = ()
    edits: Sequence[ScheduleEdit] = ()
    #: Schedules to delete, as Schedules.delete takes them.
    removed: Sequence[TickVerdict] = ()


class Jobs(Protocol):
    """Workflows, and changes to jobs."""

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """That version of the workflow, by default the newest; None if there is none."""
        ...

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """The newest version of each workflow whose id comes after `after`, in the order of their ids."""
        ...

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """The newest version of each workflow that exists."""
        ...

    async def apply(self, changes: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """Carry out all changes, if every schedule is still as it was read and every name and version is free.

        Otherwise return False and change nothing.
        """
        ...
