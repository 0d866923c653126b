"""The schedule service: registers, edits, pauses and deletes schedules.

Every change first decides the ticks that are due under the schedule as it was, in the same transaction: no edit, pause
or deletion lets a tick disappear.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.instants import FOREVER
from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.jobs.schedule_fields import Defaults, read_schedule_request
from gnomon.core.ledger.edits import (
    SKIP_MISSED,
    MissedTicks,
    ResumeChoice,
    edited_schedule,
    has_remaining_due,
    is_missed_one_shot,
    keep_interval_anchor,
    missed_one_shot_error,
    missed_ticks,
    new_schedule,
    paused_schedule,
    resume_verdict,
    resumed_schedule,
    same_spec,
    verdict_before_edit,
    with_exception,
    without_exception,
)
from gnomon.core.ledger.plan import DEFAULT_LIMIT, HELD_UP, CatchupLimit, schedule_after
from gnomon.core.ledger.ticks import Ticks, ticks_of
from gnomon.core.model import DAY_MS, Schedule, ScheduleUid, Spec, Tick, TickVerdict
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import Contended, FieldError, NotFound
from gnomon.ports.runtime import Clock, Ids
from gnomon.ports.schedules import Jobs, ScheduleHistory, Schedules
from gnomon.services.loop import ComputeQueue

#: How often a change is retried against concurrent changes of the same schedule.
_TRIES = 100
_BATCH = 1000
_LARGEST_PAGE = 10_000
#: Planned times after the next one are listed for a century.
LONGEST_OUTLOOK_MS = 36_525 * DAY_MS


class RegistrationResult(Struct, frozen=True):
    """The result of a registration."""

    schedule_id: str
    next_run_at: int | None


class ResumeResult(Struct, frozen=True):
    """The result of resuming a schedule."""

    swallowed: MissedTicks
    #: How many of the missed ticks run after all.
    runs: int = 0


class ScheduleView(Struct, frozen=True):
    """A schedule with its next times and last decisions."""

    schedule: Schedule
    #: The next planned times.
    next_runs: tuple[int, ...]
    #: The last decisions, newest first.
    last_ticks: tuple[Tick, ...]


class ScheduleService:
    """Changes and reads schedules."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        schedules: Schedules,
        history: ScheduleHistory,
        clock: Clock,
        ids: Ids,
        *,
        jobs: Jobs | None = None,
        compute: ComputeQueue | None = None,
        defaults: Defaults | None = None,
        tzdata: str = "",
        catchup_limit: CatchupLimit = DEFAULT_LIMIT,
    ) -> None:
        """With `jobs`, a schedule takes over the deadlines of the workflow that it starts."""
        self._jobs = jobs
        self._compute = compute or ComputeQueue()
        self._schedules = schedules
        self._history = history
        self._clock = clock
        self._ids = ids
        self._defaults = defaults or Defaults()
        self._tzdata = tzdata
        self._catchup_limit = catchup_limit

    def requested_workflow(self, request: Mapping[str, Any]) -> tuple[str, int]:
        """The id and the version of the workflow of a request; FieldError if the request is wrong."""
        _, spec = read_schedule_request(request, self._defaults, now=self._clock.now())
        return spec.workflow_id, spec.workflow_version

    async def upsert(
        self, request: Mapping[str, Any], *, actor: str, tenant: str = "default", origin: str = ""
    ) -> RegistrationResult:
        """Create or edit the schedule. Idempotent; a paused schedule stays paused."""
        [registered] = await self.upsert_all([request], actor=actor, tenant=tenant, origin=origin)
        return registered

    async def upsert_all(
        self, requests: Sequence[Mapping[str, Any]], *, actor: str, tenant: str = "default", origin: str = ""
    ) -> list[RegistrationResult]:
        """Create or edit many schedules. Nothing is registered if any request is wrong."""
        schedule_name("tenant", tenant)
        printable("actor", actor)
        now = self._clock.now()
        specs = {name: replace(spec, origin=origin) for name, spec in self._read_all(requests, now).items()}
        specs = await self._with_deadlines(specs, tenant)
        for name, spec in specs.items():
            if is_missed_one_shot(spec, now=now):
                await self._refuse_missed(tenant, name, spec, now)
        taken: set[str] = set()
        names = iter(list(specs))
        while batch := list(islice(names, _BATCH)):
            made = [self._fresh(tenant, name, specs[name], now) for name in batch]
            taken |= await self._schedules.add(made, actor=actor, tzdata=self._tzdata)
        coming = {name: Ticks(name, spec).after(now) for name, spec in specs.items()}
        for name in taken:
            await self._edit(tenant, name, specs[name], actor)
            coming[name] = next(iter((await self.get(name, tenant=tenant, coming=1, last=0)).next_runs), None)
        return [RegistrationResult(name, coming[name]) for name in specs]

    def _read_all(self, requests: Sequence[Mapping[str, Any]], now: int) -> dict[str, Spec]:
        specs: dict[str, Spec] = {}
        for request in requests:
            name, spec = read_schedule_request(request, self._defaults, now=now)
            name = name or self._ids.new("sch", now)
            if name in specs:
                raise FieldError("schedule_id", name, "is named twice")
            specs[name] = spec
        return specs

    async def _with_deadlines(self, specs: Mapping[str, Spec], tenant: str) -> dict[str, Spec]:
        """The specs with the deadlines of their workflows, as far as these exist."""
        if self._jobs is None:
            return dict(specs)
        found: dict[tuple[str, int], Workflow | None] = {}
        for spec in specs.values():
            key = spec.workflow_id, spec.workflow_version
            if key not in found:
                found[key] = await self._jobs.workflow(tenant, *key)
        workflows = {name: found.get((spec.workflow_id, spec.workflow_version)) for name, spec in specs.items()}
        return {
            name: spec if (workflow := workflows[name]) is None else replace(spec, deadlines=workflow.deadlines)
            for name, spec in specs.items()
        }

    async def _refuse_missed(self, tenant: str, name: str, spec: Spec, now: int) -> None:
        """Raise FieldError if the only time is past its grace, unless the schedule has that time already."""
        found = await self._schedules.find(tenant, name)
        if found is None or found.spec.trigger != spec.trigger:
            raise missed_one_shot_error(spec, "schedule", now=now)

    def _fresh(self, tenant: str, name: str, spec: Spec, now: int) -> Schedule:
        return new_schedule(ScheduleUid(self._ids.new("sch", now)), tenant, name, spec, now=now)

    async def _edit(self, tenant: str, name: str, spec: Spec, actor: str) -> None:
        async def change(verdict: TickVerdict, now: int) -> bool:
            current = verdict.schedule
            if same_spec(current.spec, spec):
                return True
            changed = edited_schedule(verdict, keep_interval_anchor(current.spec, spec), now=now)
            return await self._schedules.change(verdict, changed, now=now, actor=actor, tzdata=self._tzdata)

        await self._change(tenant, name, change)

    async def pause(self, schedule_id: str, *, actor: str, tenant: str = "default") -> None:
        """Pause the schedule: no tick fires until it is resumed."""
        printable("actor", actor)

        async def change(verdict: TickVerdict, now: int) -> bool:
            if verdict.schedule.paused_at is not None:
                return True
            changed = paused_schedule(verdict, now=now)
            return await self._schedules.change(verdict, changed, now=now, actor=actor, tzdata=self._tzdata)

        await self._change(tenant, schedule_id, change)

    async def resume(
        self, schedule_id: str, *, actor: str, missed: ResumeChoice = SKIP_MISSED, tenant: str = "default"
    ) -> ResumeResult:
        """Resume the schedule from now. Ticks of the pause are written as skipped, unless `missed` runs them."""
        printable("actor", actor)
        done = ResumeResult(MissedTicks(0))

        async def change(verdict: TickVerdict, now: int) -> bool:
            nonlocal done
            current = verdict.schedule
            if current.paused_at is None:
                return True
            verdict = resume_verdict(current, missed, now=now)
            runs = sum(one.starts_run for one in verdict.decisions)
            done = ResumeResult(missed_ticks(current, now=now), runs)
            changed = resumed_schedule(verdict, now=now)
            return await self._schedules.change(verdict, changed, now=now, actor=actor, tzdata=self._tzdata)

        await self._change(tenant, schedule_id, change)
        return done

    async def skip(
        self, schedule_id: str, at: int, *, actor: str, move_to: int | None = None, tenant: str = "default"
    ) -> None:
        """Skip the coming tick that is planned at `at`, or move it to another time. Idempotent."""
        await self._except(
            tenant, schedule_id, actor, lambda one, now: with_exception(one, at, move_to=move_to, now=now)
        )

    async def undo_skip(self, schedule_id: str, at: int, *, actor: str, tenant: str = "default") -> None:
        """Let a tick that was skipped or moved fire at its planned time."""
        await self._except(tenant, schedule_id, actor, lambda one, now: without_exception(one, at, now=now))

    async def _except(self, tenant: str, name: str, actor: str, say: Callable[[Schedule, int], Spec]) -> None:
        printable("actor", actor)

        async def change(verdict: TickVerdict, now: int) -> bool:
            spec = say(schedule_after(verdict), now)
            if spec == verdict.schedule.spec:
                return True
            changed = edited_schedule(verdict, spec, now=now)
            return await self._schedules.change(verdict, changed, now=now, actor=actor, tzdata=self._tzdata)

        await self._change(tenant, name, change)

    async def delete(
        self,
        schedule_id: str,
        *,
        actor: str,
        tenant: str = "default",
        only_if: Callable[[Schedule], None] = lambda _: None,
    ) -> None:
        """Delete the schedule and free its name. Its history stays. `only_if` may raise to prevent it."""
        printable("actor", actor)

        async def change(verdict: TickVerdict, now: int) -> bool:
            only_if(verdict.schedule)
            return await self._schedules.delete(verdict, now=now, actor=actor)

        await self._change(tenant, schedule_id, change)

    async def _change(self, tenant: str, name: str, change: Callable[[TickVerdict, int], Awaitable[bool]]) -> None:
        """Decide all due ticks, then change; retry while other writers are quicker."""
        schedule_name("tenant", tenant)
        schedule_name("schedule_id", name)
        lost = 0
        while lost < _TRIES:
            current = await self._schedules.find(tenant, name)
            if current is None:
                raise NotFound("schedule", name)
            now = self._clock.now()
            verdict = verdict_before_edit(current, now=now, limit=self._catchup_limit)
            if has_remaining_due(verdict, now=now):
                after = schedule_after(verdict)
                won = await self._schedules.change(verdict, after, now=now, actor="", tzdata=self._tzdata)
            elif await change(verdict, now):
                return
            else:
                won = False
            lost += not won
        raise Contended("schedule", name)

    async def get(self, schedule_id: str, *, tenant: str = "default", coming: int = 5, last: int = 10) -> ScheduleView:
        """The schedule with its next planned times and its last decisions."""
        schedule_name("schedule_id", schedule_id)
        found = await self._schedules.find(schedule_name("tenant", tenant), schedule_id)
        if found is None:
            raise NotFound("schedule", schedule_id)
        ticks = await self._history.ticks(found.uid, before=FOREVER, limit=last)
        runs = await self._compute.run(walk_next_runs(found, now=self._clock.now(), limit=coming))
        return ScheduleView(found, runs, tuple(ticks))

    async def page(self, *, tenant: str = "default", after: str = "", limit: int = 100) -> Sequence[Schedule]:
        """Schedules in the order of their names."""
        if not 1 <= limit <= _LARGEST_PAGE:
            raise FieldError("limit", limit, f"must be from 1 to {_LARGEST_PAGE}")
        printable("after", after)
        schedule_name("tenant", tenant)
        return await self._schedules.page(tenant, after=after, limit=limit)


def next_run(schedule: Schedule, *, now: int) -> int | None:
    """The next planned time, ignoring a pause, that is not skipped."""
    spec, at, coming = schedule.spec, max(now, schedule.mark_at), schedule.next_fire_at
    plain = not spec.jitter_ms and not spec.exceptions and schedule.mark_correction is None
    # Overdue ticks may hold up the next one beyond its planned time.
    plain = plain and spec.catchup not in HELD_UP
    if coming is not None and coming > at and plain:
        # Known already: lists of thousands of jobs need only this one.
        return coming
    return ticks_of(schedule).unskipped.after(at)


def walk_next_runs(schedule: Schedule, *, now: int, limit: int) -> Generator[None, None, tuple[int, ...]]:
    """The next planned times, ignoring a pause, without skipped ticks. The first is given however far it is.

    A rare schedule has few of them in a century, and its calendar takes long to compute: it pauses after each.
    """
    ticks, at = ticks_of(schedule).unskipped, max(now, schedule.mark_at)
    found: list[int] = []
    while len(found) < limit and (planned := ticks.after(at)) is not None:
        if found and planned > now + LONGEST_OUTLOOK_MS:
            break
        found.append(planned)
        at = planned
        yield
    return tuple(found)
