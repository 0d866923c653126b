"""Responses of the overview: counts, each with the address of the rows that it counts."""

from datetime import datetime

from gnomon.core.responses.base import Response


class RowCount(Response, frozen=True, kw_only=True):
    """A number of rows."""

    count: int
    #: There are more than these.
    more: bool
    #: The path of the list of these rows in this API.
    href: str


class TickCount(RowCount, frozen=True, kw_only=True):
    """The rows of the ledger with one reason."""

    #: `fired`, `queued`, `skipped`, `coalesced` or `missed`.
    kind: str
    reason: str
    #: How many planned times the rows stand for.
    planned_times: int
    newest_at: datetime


class WaitCount(RowCount, frozen=True, kw_only=True):
    """The executions of which a step waits for one reason."""

    #: `ready`, `retry`, `delay`, `queue`, `route`, `policy` or `breaker`.
    reason: str


class DueFire(Response, frozen=True, kw_only=True):
    """A job and its next fire."""

    job: str
    planned_at: datetime
    #: The planned time, moved by jitter and by catch-up.
    due_at: datetime
    #: The planned time in the time zone of the job.
    local: str
    timezone: str
    #: By how much it is overdue; 0 if its time has not come.
    late_ms: int
    #: The path of the explanation of this fire in this API.
    href: str


class OverdueFires(RowCount, frozen=True, kw_only=True):
    """The jobs whose next fire is overdue and not decided, the latest first."""

    items: list[DueFire]


class LiveWorkers(Response, frozen=True, kw_only=True):
    """The live workers."""

    count: int
    #: How many of them take no new tasks.
    draining: int
    href: str


class HealthSummary(Response, frozen=True, kw_only=True):
    """The health of the node."""

    #: `ok` or `error`.
    status: str
    #: The components with an error.
    failing: list[str]
    href: str


class Overview(Response, frozen=True, kw_only=True):
    """Everything that needs attention. A part is null if it is not known; `unknown` has the reason by its name."""

    #: The window of the counts that have one.
    since: datetime
    until: datetime
    unknown: dict[str, str]
    jobs: RowCount | None
    #: The next fire of each of the jobs that are due next.
    due_next: list[DueFire] | None
    overdue: OverdueFires | None
    #: Ticks in the window that fired late, by reason.
    late: list[TickCount] | None
    #: Ticks in the window that did not run, by reason.
    not_run: list[TickCount] | None
    #: Ticks in the window that waited behind another execution, by reason.
    queued: list[TickCount] | None
    #: Executions that were created in the window and have failed.
    failed: RowCount | None
    running: RowCount | None
    pending: RowCount | None
    waiting: list[WaitCount] | None
    dead_letters: RowCount | None
    approvals: RowCount | None
    workers: LiveWorkers | None
    health: HealthSummary | None
