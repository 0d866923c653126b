"""The book of schedules: what operators register, change and look at. Every method is one transaction."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import Run, Schedule, ScheduleUid, Task, Tick, Verdict
from gnomon.core.runs.workflow import Workflow


class Revision(Struct, frozen=True, kw_only=True):
    """What a schedule said from some moment on, and who said it."""

    revision: int
    schedule: Schedule
    from_at: int
    actor: str
    tzdata: str


class Pause(Struct, frozen=True, kw_only=True):
    """A stretch of time in which a schedule was paused; still open while `resumed_at` is None."""

    paused_at: int
    paused_by: str
    resumed_at: int | None = None
    resumed_by: str | None = None


class DeletedSchedule(Struct, frozen=True, kw_only=True):
    """A schedule that was deleted, as it was at the end."""

    schedule: Schedule
    deleted_at: int
    deleted_by: str


class Schedules(Protocol):
    """Registering and changing."""

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """The schedule of that name; None if there is none, or it was deleted."""
        ...

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """The schedules whose names come after `after`, in the order of their names."""
        ...

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """Register all whose names are free; the names that were taken come back. One may be paused from the start."""
        ...

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """Decide the ticks of the old schedule and put the changed one in its place, if it is still as it was read.

        A new revision is kept if the number changed; a pause is opened or closed as `paused_at` says.
        """
        ...

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """Decide the ticks of the schedule and free its name, if it is still as it was read.

        Its history stays, a run under way goes on, and runs that wait for it are cancelled.
        """
        ...


class ScheduleHistory(Protocol):
    """Looking back."""

    async def ticks(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Tick]:
        """The decisions on ticks planned before `before`, newest first."""
        ...

    async def runs(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Run]:
        """The runs planned before `before`, newest first, then by id."""
        ...

    async def tasks(self, runs: Sequence[Run]) -> Sequence[Task]:
        """The tasks of these runs."""
        ...

    async def revisions(self, uid: ScheduleUid) -> Sequence[Revision]:
        """What the schedule has said, oldest first."""
        ...

    async def pauses(self, uid: ScheduleUid) -> Sequence[Pause]:
        """When it was paused, oldest first."""
        ...

    async def gone(self, tenant: str, schedule_id: str, *, limit: int) -> Sequence[DeletedSchedule]:
        """The schedules that had that name and were deleted, newest first."""
        ...


class ScheduleEdit(Struct, frozen=True):
    """A change of a schedule, as Schedules.change takes it."""

    verdict: Verdict
    changed: Schedule


class JobChangeset(Struct, frozen=True, kw_only=True):
    """What an operator's wish comes to: carried out whole, or not at all."""

    #: New versions.
    workflows: Sequence[Workflow] = ()
    #: New schedules.
    added: Sequence[Schedule] = ()
    edits: Sequence[ScheduleEdit] = ()
    #: Schedules that are to go, as Schedules.delete takes them.
    removed: Sequence[Verdict] = ()


class Jobs(Protocol):
    """Every method is one transaction."""

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """That version of the workflow; the newest, if none is named."""
        ...

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """The newest version of each workflow whose id comes after `after`, in the order of their ids."""
        ...

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """The newest version of each that exists."""
        ...

    async def apply(self, wish: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """Carry the whole wish out, if every schedule is still as it was read and every name and version is free.

        False, and nothing is done, otherwise.
        """
        ...
