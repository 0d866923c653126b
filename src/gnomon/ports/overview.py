"""Counts of what needs attention now, and of what went wrong lately. None of them grows with the history."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import Reason, RunStatus, Schedule
from gnomon.core.runs.states import WaitReason


class TickTotal(Struct, frozen=True):
    """The rows of the ledger with one reason."""

    rows: int
    #: How many planned times these rows stand for.
    planned_times: int
    #: The planned time of the newest row; of its last tick, if it stands for several.
    newest_at: int


class BoundedTotal(Struct, frozen=True):
    """A number of rows; with `more`, there are at least so many."""

    count: int
    more: bool = False


class TenantTotals(Struct, frozen=True, kw_only=True):
    """All objects of a tenant, counted up to a limit each."""

    jobs: int
    #: Dead letters that nobody has resolved.
    dead_letters: int
    #: Approvals that wait for votes.
    approvals: int


class OverviewCounts(Protocol):
    """Counts for a first page about a tenant. Every one stops at a limit."""

    async def coming(self, tenant: str, *, after: int, limit: int) -> Sequence[Schedule]:
        """The schedules with a next fire after `after`, earliest first."""
        ...

    async def overdue(self, tenant: str, *, before: int, limit: int) -> Sequence[Schedule]:
        """The schedules whose next fire is before `before` and not decided, earliest first."""
        ...

    async def ticks(self, tenant: str, *, since: int, until: int, most: int) -> Mapping[Reason, TickTotal]:
        """The rows of the ledger that are not on time, by reason: planned up to `since` or later, and before `until`.

        A row for several ticks counts if the last of them is not before `since`.
        """
        ...

    async def failed_runs(self, tenant: str, *, since: int, until: int, most: int) -> int:
        """The number of failed runs that were created at or after `since`, and before `until`."""
        ...

    async def open_runs(self, tenant: str, *, most: int) -> Mapping[RunStatus, int]:
        """The number of runs that are not over, by status."""
        ...

    async def waiting_runs(self, tenant: str, *, most: int) -> Mapping[WaitReason, BoundedTotal]:
        """The number of runs of which a task waits, by its reason, without tasks that wait for other steps."""
        ...

    async def totals(self, tenant: str, *, most: int) -> TenantTotals:
        """Jobs, unresolved dead letters and waiting approvals."""
        ...
