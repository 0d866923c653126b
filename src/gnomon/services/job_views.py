"""Jobs as operators look at them: one with all there is to know, its decisions, and the fires of all to come."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import MINUTE_MS, Run, RunId, Schedule, Tick, TickKind, TickStatus
from gnomon.core.runs.workflow import Workflow

#: Later than any planned time.
FOREVER = 1 << 62
#: How much longer than an attempt may take a lock is said to last.
_LOCK_MARGIN_MS = MINUTE_MS


class Lock(Struct, frozen=True, kw_only=True):
    """Who excludes other runs of a job, as others may look at it. What excludes them is the run itself."""

    key: str
    execution_id: RunId
    acquired_at: int
    ttl_ms: int


class JobView(Struct, frozen=True, kw_only=True):
    """A job as an operator looks at it."""

    schedule: Schedule
    #: In the version that runs; None if nobody has registered it.
    workflow: Workflow | None
    #: Planned times to come, as if no pause were on.
    next_runs: tuple[int, ...]
    #: The last decisions, newest first.
    last_ticks: tuple[Tick, ...] = ()
    #: Runs that are not over, newest first, waiting ones included.
    under_way: tuple[Run, ...] = ()
    lock: Lock | None = None


class Fire(Struct, frozen=True):
    """A planned time to come."""

    planned_at: int
    schedule: Schedule


class TicksAsked(Struct, frozen=True, kw_only=True):
    """Which decisions to look at."""

    kind: TickKind | None = None
    status: TickStatus | None = None
    since: int = -FOREVER
    before: int = FOREVER
    limit: int = 100


class TickPage(Struct, frozen=True):
    """Some decisions, and before which planned time to look for more; None if there are none."""

    ticks: list[Tick]
    before: int | None
    #: How many were looked at for that.
    looked: int = 0


def lock_of(
    schedule: Schedule, workflow: Workflow | None, under_way: Sequence[Run], *, default_timeout_ms: int
) -> Lock | None:
    """The lock of a job that has one, while one of its runs is under way."""
    holders = [run for run in under_way if not run.queued]
    if workflow is None or not workflow.lock or not holders:
        return None
    timeout = max(step.timeout_ms or default_timeout_ms for step in workflow.steps)
    return Lock(
        key=f"scheduler.lock.{schedule.schedule_id}",
        execution_id=holders[-1].run_id,
        acquired_at=holders[-1].created_at,
        ttl_ms=timeout + _LOCK_MARGIN_MS,
    )


def fires_of(schedule: Schedule, after: int, until: int, limit: int) -> Iterator[Fire]:
    """The first fires of a job after `after` and up to `until`; none while it is paused."""
    if schedule.paused_at is not None:
        return
    ticks, at = Ticks(schedule.schedule_id, schedule.spec).kept, max(after, schedule.mark_at)
    for _ in range(limit):
        planned = ticks.after(at)
        if planned is None or planned > until:
            return
        yield Fire(planned, schedule)
        at = planned
