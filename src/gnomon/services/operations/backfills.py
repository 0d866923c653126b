"""The desk for backfills: asking for them, stopping them and looking at them."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.instants import instant_of
from gnomon.core.jobs.fields import printable, schedule_name
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

#: How many planned times one backfill may have, and how many runs it may have under way.
MAX_PLANNED = 100_000
_MOST_PARALLEL = 1000
_LARGEST_PAGE = 10_000
_LONGEST_KEY = 255


class Preview(Struct, frozen=True):
    """What a backfill would do."""

    #: Planned times that would run, oldest first.
    to_run: tuple[int, ...]
    #: How many others have had a run.
    had: int


class _BackfillRange(NamedTuple):
    schedule: Schedule
    until_at: int
    planned: int


class BackfillService:
    """Preview, start, cancel, look."""

    def __init__(self, backfills: Backfills, schedules: Schedules, clock: Clock, ids: Ids) -> None:
        self._backfills = backfills
        self._schedules = schedules
        self._clock = clock
        self._ids = ids

    async def preview(
        self, job: str, from_at: int, until_at: int, *, again: bool = False, tenant: str = "default"
    ) -> Preview:
        """What a backfill would run, and what has had a run. Nothing is changed."""
        asked = await self._asked(job, from_at, until_at, tenant)
        ticks = Ticks(job, asked.schedule.spec).unskipped
        # Of many years that takes long, here and below, and must not keep the clock waiting.
        planned = await asyncio.to_thread(
            planned_times, ticks, after=from_at - 1, until=asked.until_at, limit=MAX_PLANNED
        )
        had = await self._backfills.times_already_run(asked.schedule.uid, first_at=planned[0], last_at=planned[-1])
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
        """Ask for a run of every planned time from the first instant to the last, as the job says it now.

        It is carried out by whoever executes, however long that takes. What has had a run has none again, unless
        that is wanted. The same key is the same backfill of the job, however often it is asked for; KeyTaken, if
        something else is.
        """
        if not 1 <= max_parallel <= _MOST_PARALLEL:
            raise FieldError("max_parallel", max_parallel, f"must be from 1 to {_MOST_PARALLEL}")
        printable("actor", actor)
        schedule, now = await self._job(job, tenant), self._clock.now()
        wanted = Backfill(
            backfill_id=self._ids.new("bf", now)
            if key is None
            else keyed_backfill_id(tenant, schedule.uid, _checked_key(key)),
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
        kept = None if key is None else await self._kept(wanted, key)
        return kept or await self._added(wanted, key)

    async def _added(self, wanted: Backfill, key: str | None) -> BackfillProgress:
        asked = await self._asked(wanted.schedule_id, wanted.from_at, wanted.until_at, wanted.tenant)
        made = replace(wanted, revision=asked.schedule.revision, until_at=asked.until_at, planned=asked.planned)
        if await self._backfills.add(made):
            return BackfillProgress(backfill=made)
        # Someone was quicker with the same key.
        kept = await self._kept(wanted, key or "")
        if kept is None:
            raise NotFound("backfill", wanted.backfill_id)
        return kept

    async def _kept(self, wanted: Backfill, key: str) -> BackfillProgress | None:
        """The backfill that the key stands for, if there is one; KeyTaken if that is another than is wanted."""
        kept = await self._backfills.find(wanted.tenant, wanted.backfill_id)
        if kept is not None and not same_backfill_request(wanted, kept.backfill):
            raise KeyTaken(key, wanted.backfill_id)
        return kept

    async def _job(self, job: str, tenant: str) -> Schedule:
        schedule = await self._schedules.find(schedule_name("tenant", tenant), schedule_name("job", job))
        if schedule is None:
            raise NotFound("job", job)
        return schedule

    async def _asked(self, job: str, from_at: int, until_at: int, tenant: str) -> _BackfillRange:
        """What is planned between the two and has been decided; FieldError if that is nothing, or too much."""
        schedule = await self._job(job, tenant)
        if until_at > self._clock.now():
            raise FieldError("to", _iso(until_at), "is yet to come: a backfill is about the past")
        if from_at > until_at:
            raise FieldError("from", _iso(from_at), "comes after the end")
        ticks = Ticks(job, schedule.spec).unskipped
        # What has not been decided is not for us to run: its own tick may yet.
        decided = min(until_at, schedule.mark_at)
        if schedule.paused_at is not None and ticks.count(after=decided, until=until_at):
            reason = "lies in a pause that goes on: resume the job first, and say what is to become of its ticks"
            raise FieldError("to", _iso(until_at), reason)
        planned = await asyncio.to_thread(ticks.count, after=from_at - 1, until=decided)
        if not planned:
            raise FieldError("from", _iso(from_at), "is followed by no planned time up to the end")
        if planned > MAX_PLANNED:
            raise FieldError(
                "from", _iso(from_at), f"begins a stretch of {planned} planned times; {MAX_PLANNED} are the most"
            )
        return _BackfillRange(schedule, decided, planned)

    async def cancel(self, backfill_id: str, *, actor: str, tenant: str = "default") -> BackfillProgress:
        """Let nothing more of it start. What is under way goes on."""
        printable("actor", actor)
        printable("backfill", backfill_id)
        await self._backfills.cancel(tenant, backfill_id, now=self._clock.now(), actor=actor)
        return await self.get(backfill_id, tenant=tenant)

    async def get(self, backfill_id: str, *, tenant: str = "default") -> BackfillProgress:
        """The backfill of that id, and how far it has come."""
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
        """Backfills, the newest first; after the one that was made then and has that id."""
        if not 1 <= limit <= _LARGEST_PAGE:
            raise FieldError("limit", limit, f"must be from 1 to {_LARGEST_PAGE}")
        if job is not None:
            schedule_name("job", job)
        schedule_name("tenant", tenant)
        return await self._backfills.page(tenant, job=job, after=after, limit=limit)


def _checked_key(key: str) -> str:
    if not key:
        raise FieldError("key", key, "is empty")
    return printable("key", key, longest=_LONGEST_KEY)


def _iso(at: int) -> str:
    return instant_of(at).isoformat()
