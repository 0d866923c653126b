"""Previews, starts, cancels and lists backfills."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.instants import instant_of
from gnomon.core.jobs.fields import idempotency_key, page_limit, printable, schedule_name
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Schedule
from gnomon.core.runs.backfill import (
    Backfill,
    BackfillProgress,
    keyed_backfill_id,
    planned_times,
    same_backfill_request,
)
from gnomon.errors import FieldError, KeyTaken, NotFound
from gnomon.ports.runs import Backfills
from gnomon.ports.runtime import Clock, Ids
from gnomon.ports.schedules import Schedules
from gnomon.services.loop import ComputeQueue

#: The limits of one backfill: planned times, and runs at a time.
MAX_PLANNED = 100_000
_MOST_PARALLEL = 1000


class Preview(Struct, frozen=True):
    """The planned times that a backfill would run."""

    #: Planned times that would run, oldest first.
    to_run: tuple[int, ...]
    #: The number of planned times that already had a run.
    had: int


class _BackfillRange(NamedTuple):
    schedule: Schedule
    until_at: int
    planned: int


class BackfillService:
    """Previews, starts, cancels and lists backfills."""

    def __init__(
        self, backfills: Backfills, schedules: Schedules, clock: Clock, ids: Ids, compute: ComputeQueue | None = None
    ) -> None:
        self._compute = compute or ComputeQueue()
        self._backfills = backfills
        self._schedules = schedules
        self._clock = clock
        self._ids = ids

    async def preview(
        self, job: str, from_at: int, until_at: int, *, again: bool = False, tenant: str = "default"
    ) -> Preview:
        """The planned times that a backfill would run, and the number that already had a run."""
        checked = await self._checked_range(job, from_at, until_at, tenant)
        ticks = Ticks(job, checked.schedule.spec).unskipped
        # In a thread, here and below: many years take too long for the event loop, which the ticker shares.
        planned = await self._compute.run_in_thread(
            partial(planned_times, ticks, after=from_at - 1, until=checked.until_at, limit=MAX_PLANNED)
        )
        had = await self._backfills.times_already_run(checked.schedule.uid, first_at=planned[0], last_at=planned[-1])
        to_run = planned if again else [at for at in planned if at not in had]
        return Preview(tuple(to_run), len(planned) - len(to_run))

    async def start(  # noqa: PLR0913 - a backfill has that many terms
        self,
        job: str,
        from_at: int,
        until_at: int,
        *,
        actor: str,
        max_parallel: int = 1,
        again: bool = False,
        key: str | None = None,
        tenant: str = "default",
    ) -> BackfillProgress:
        """Start a run for every planned time from the first instant to the last, by the job's current schedule.

        The schedulers carry it out in the background. A planned time that had a run gets another one only with
        `again`. A repeated key returns the same backfill; KeyTaken if the key belongs to a backfill with other
        arguments.
        """
        if not 1 <= max_parallel <= _MOST_PARALLEL:
            raise FieldError("max_parallel", max_parallel, f"must be from 1 to {_MOST_PARALLEL}")
        printable("actor", actor)
        schedule, now = await self._job(job, tenant), self._clock.now()
        requested = Backfill(
            backfill_id=self._ids.new("bf", now)
            if key is None
            else keyed_backfill_id(tenant, schedule.uid, idempotency_key(key)),
            tenant=tenant,
            schedule_uid=schedule.uid,
            schedule_id=job,
            revision=schedule.revision,
            from_at=from_at,
            until_at=until_at,
            max_parallel=max_parallel,
            again=again,
            planned=0,
            mark_at=from_at - 1,
            created_at=now,
            actor=actor,
        )
        kept = None if key is None else await self._stored(requested, key)
        return kept or await self._add(requested, key)

    async def _add(self, requested: Backfill, key: str | None) -> BackfillProgress:
        checked = await self._checked_range(
            requested.schedule_id, requested.from_at, requested.until_at, requested.tenant
        )
        made = replace(
            requested, revision=checked.schedule.revision, until_at=checked.until_at, planned=checked.planned
        )
        if await self._backfills.add(made):
            return BackfillProgress(backfill=made)
        # A concurrent request with the same key has stored it first.
        kept = await self._stored(requested, key or "")
        if kept is None:
            raise NotFound("backfill", requested.backfill_id)
        return kept

    async def _stored(self, requested: Backfill, key: str) -> BackfillProgress | None:
        """The stored backfill of the key; None without one, KeyTaken if its arguments differ."""
        kept = await self._backfills.find(requested.tenant, requested.backfill_id)
        if kept is not None and not same_backfill_request(requested, kept.backfill):
            raise KeyTaken(key, requested.backfill_id)
        return kept

    async def _job(self, job: str, tenant: str) -> Schedule:
        schedule = await self._schedules.find(schedule_name("tenant", tenant), schedule_name("job", job))
        if schedule is None:
            raise NotFound("job", job)
        return schedule

    async def _checked_range(self, job: str, from_at: int, until_at: int, tenant: str) -> _BackfillRange:
        """The decided part of the range and its number of planned times; FieldError if that is none, or too many."""
        schedule = await self._job(job, tenant)
        if until_at > self._clock.now():
            raise FieldError("to", _iso(until_at), "is in the future: a backfill runs past planned times")
        if from_at > until_at:
            raise FieldError("from", _iso(from_at), "is after the end")
        ticks = Ticks(job, schedule.spec).unskipped
        # An undecided planned time may still fire by its own tick.
        decided = min(until_at, schedule.mark_at)
        if schedule.paused_at is not None and await self._count(ticks, after=decided, until=until_at):
            reason = "is during a pause: resume the job first, and choose which of its missed ticks run"
            raise FieldError("to", _iso(until_at), reason)
        planned = await self._count(ticks, after=from_at - 1, until=decided)
        if not planned:
            raise FieldError("from", _iso(from_at), "has no planned time between it and the end")
        if planned > MAX_PLANNED:
            raise FieldError(
                "from", _iso(from_at), f"starts a range of {planned} planned times; the maximum is {MAX_PLANNED}"
            )
        return _BackfillRange(schedule, decided, planned)

    async def _count(self, ticks: Ticks, *, after: int, until: int) -> int:
        return await self._compute.run_in_thread(partial(ticks.count, after=after, until=until))

    async def cancel(self, backfill_id: str, *, actor: str, tenant: str = "default") -> BackfillProgress:
        """Cancel the backfill: no more of its runs start, active runs continue."""
        printable("actor", actor)
        printable("backfill", backfill_id)
        await self._backfills.cancel(tenant, backfill_id, now=self._clock.now(), actor=actor)
        return await self.get(backfill_id, tenant=tenant)

    async def get(self, backfill_id: str, *, tenant: str = "default") -> BackfillProgress:
        """The backfill and its progress."""
        schedule_name("tenant", tenant)
        found = await self._backfills.find(tenant, printable("backfill", backfill_id))
        if found is None:
            raise NotFound("backfill", backfill_id)
        return found

    async def page(
        self,
        *,
        job: str | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        tenant: str = "default",
    ) -> Sequence[BackfillProgress]:
        """Backfills, newest first, after the one with that creation time and ID."""
        page_limit(limit)
        if job is not None:
            schedule_name("job", job)
        schedule_name("tenant", tenant)
        return await self._backfills.page(tenant, job=job, after=after, limit=limit)


def _iso(at: int) -> str:
    return instant_of(at).isoformat()
