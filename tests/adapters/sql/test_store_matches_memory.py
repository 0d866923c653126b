"""After the same random operations, the store on SQL holds the same as the one in memory."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import MINUTE, NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.sql import open_postgres, open_sqlite
from gnomon.core.ids import SHARDS
from gnomon.core.instants import instant_of
from gnomon.core.ledger.edits import edited_schedule, verdict_before_edit
from gnomon.core.ledger.plan import plan
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import LogLine, Overlap, Result, RunId, RunSource, Schedule, TickException
from gnomon.core.runs.backfill import Backfill, next_backfill_batch, planned_times
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Delivery, RetryPolicy
from gnomon.core.triggers import At
from gnomon.ports.runs import RunQuery
from support.effort import thorough
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file
from support.store_pair import StorePair, full_snapshot
from support.task_steps import LEASE, admission, completion_of, workflow

SCHEDULES = (
    *(minutely(str(overlap), overlap=overlap, queue_limit=3) for overlap in Overlap),
    minutely("once", trigger=At(instant_of(NOON + 5 * MINUTE)), delete_after_run=True, overlap=Overlap.ALLOW),
)
DEFINITIONS = (
    workflow(dead_letter=True),
    workflow(retry=RetryPolicy(max_attempts=3, initial_delay_ms=MINUTE), dead_letter=True),
    workflow(delivery=Delivery.AT_MOST_ONCE),
)


#: The clock of both stores, later than every decision.
LATER = NOON + 30 * 24 * 60 * MINUTE


@pytest.fixture
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StorePair]:
    memory = MemoryStore(lambda: LATER)
    if request.param == "sqlite":
        sql = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=lambda: LATER)
        yield StorePair(memory, sql)
        await sql.close()
        return
    async with postgres(request.param).database() as url:
        sql = await open_postgres(url)
        yield StorePair(memory, sql)
        await sql.close()


class Operators:
    """Do anything that anyone may do, at random."""

    def __init__(self, pair: StorePair, rng: Random) -> None:
        self.pair, self.rng, self.now, self.names = pair, rng, NOON, 0
        self.assigned: list[Any] = []

    async def act(self) -> None:
        self.now += self.rng.randrange(MINUTE // 2)
        acts = (self.tick, self.launch, self.admit, self.admit, self.take, self.report, self.report)
        others = (self.cancel, self.begin, self.renew, self.edit, self.backfill, self.delete, self.resolve)
        await self.rng.choice(acts + acts + others)()

    async def schedule(self) -> Schedule | None:
        name = self.rng.choice(SCHEDULES).schedule_id
        found: Schedule | None = await self.pair.call_both(lambda store: store.schedules.find("default", name))
        return found

    async def tick(self) -> None:
        terms = await self.pair.call_both(
            lambda store: store.shards.claim("node", ttl_ms=1, limit=SHARDS, by_force=True)
        )
        due = await self.pair.call_both(
            lambda store: store.ledger.due(self.now, shards=frozenset(range(SHARDS)), limit=10)
        )
        verdicts = [plan(schedule, now=self.now) for schedule in due]
        await self.pair.call_both(lambda store: store.ledger.decide(verdicts, now=self.now, terms=terms))

    async def launch(self) -> None:
        requests = [await self.request_launch() for _ in range(self.rng.randint(1, 3))]
        await self.pair.call_both(lambda store: store.runs.launch(requests, now=self.now))

    async def request_launch(self) -> LaunchRequest:
        schedule = await self.schedule() or SCHEDULES[0]
        self.names += self.rng.random() < 0.9
        run = new_requested_run(RunId(f"run_{self.names}"), schedule, source=RunSource.API, now=self.now)
        letters = await self.pair.call_both(lambda store: store.dead_letters.page("default"))
        if letters and self.rng.random() < 0.3:
            run = replace(run, replay_of=self.rng.choice(letters).dead_letter_id)
        if self.rng.random() < 0.2:
            run = replace(run, schedule_uid=None, schedule_id=None)
        ahead = replace(run, fire_at=self.now + self.rng.choice((0, 0, MINUTE)))
        given = self.rng.choice((None, b'{"x":1}'))
        return LaunchRequest(run=ahead, first_steps=("main",), input=given, force=self.rng.random() < 0.1)

    async def admit(self) -> None:
        await self.pair.call_both(lambda store: store.tasks.next_available_at())
        waiting = await self.pair.call_both(lambda store: store.tasks.waiting(self.now, limit=4))
        admissions = [self.admission(one) for one in waiting]
        await self.pair.call_both(lambda store: store.tasks.admit([*admissions, *admissions[:1]], now=self.now))
        since = self.now - self.rng.choice((MINUTE, 60 * MINUTE))
        await self.pair.call_both(lambda store: store.tasks.actions_since("default", since=since))

    def admission(self, one: Any) -> Any:  # noqa: ANN401 - a task that waits
        kept = {"schedule_uid": one.run.schedule_uid, "available_at": self.now}
        changes: dict[str, Any] = self.rng.choice(
            (
                *[{}] * 3,
                *[{"action_limit": ("default", 4)}] * 3,
                {"state": TaskState.FAILED, "note": "launch_failed: no", "dead_letter": "launch_failed"},
                {"state": TaskState.DENIED, "note": "no", "dead_letter": "safety_denied", "rule": "gate"},
                {"state": TaskState.PENDING, "wait_reason": WaitReason.ROUTE, "routings": one.task.routings + 1},
            )
        )
        return admission(one.task, **kept | changes)

    async def take(self) -> None:
        begin = self.rng.random() < 0.8
        limit = self.rng.randint(1, 4)
        self.assigned += await self.pair.call_both(
            lambda store: store.attempts.take("w1", limit=limit, lease_ms=LEASE, now=self.now, begin=begin)
        )

    async def begin(self) -> None:
        held = [(one.task.task_id, one.task.fence) for one in self.assigned]
        await self.pair.call_both(lambda store: store.attempts.begin(held, now=self.now))

    async def renew(self) -> None:
        held = [(one.task.task_id, one.task.fence) for one in self.assigned]
        await self.pair.call_both(lambda store: store.attempts.renew("w1", held, lease_ms=LEASE + 1))
        await self.pair.call_both(lambda store: store.attempts.cancel_requests("w1"))

    async def report(self) -> None:
        self.rng.shuffle(self.assigned)
        chosen = [self.assigned.pop() for _ in range(min(len(self.assigned), self.rng.randint(1, 3)))]
        endings = [self.ending(one) for one in [*chosen, *chosen[:1]]]
        await self.pair.call_both(lambda store: store.attempts.report(endings))
        # Some are told again, when it is too late.
        self.assigned += chosen[: self.rng.random() < 0.1]

    def ending(self, one: Any) -> Any:  # noqa: ANN401 - a task in hand
        result = self.rng.choice((*[Result.SUCCEEDED] * 5, *Result))
        reported: dict[str, Any] = {"error": None if result is Result.SUCCEEDED else "it broke"}
        if self.rng.random() < 0.5:
            reported |= {
                "output": b"1",
                "logs": (LogLine(self.now, "info", "here"), LogLine(self.now, "info", "there")),
            }
        return completion_of(one, result, now=self.now, definition=self.rng.choice(DEFINITIONS), **reported)

    async def cancel(self) -> None:
        runs = await self.pair.call_both(lambda store: store.executions.list_runs(RunQuery(limit=5)))
        if runs:
            name = self.rng.choice(runs).run_id
            await self.pair.call_both(lambda store: store.runs.cancel(name, reason="no", now=self.now))

    async def edit(self) -> None:
        schedule = await self.schedule()
        if schedule is not None:
            verdict = verdict_before_edit(schedule, now=self.now)
            overlap = self.rng.choice((schedule.spec.overlap, *Overlap))
            spec = replace(schedule.spec, overlap=overlap)
            coming = Ticks(schedule.schedule_id, spec).after(max(verdict.mark_at, self.now))
            if coming is not None and self.rng.random() < 0.3:
                exception = TickException(coming, self.rng.choice((None, coming + 17_000)))
                spec = replace(spec, exceptions=(exception,))
            changed = edited_schedule(verdict, spec, now=self.now)
            await self.pair.call_both(
                lambda store: store.schedules.change(verdict, changed, now=self.now, actor="ada", tzdata="")
            )

    async def backfill(self) -> None:
        """A stretch of an hour ago is asked for, or the next lot of those that are open is carried out."""
        schedule = await self.schedule()
        first = NOON - self.rng.randrange(60, 64) * MINUTE
        if schedule is not None and self.rng.random() < 0.5:
            self.names += 1
            again, parallel = self.rng.random() < 0.3, self.rng.randint(1, 3)
            name, uid, job = f"bf_{self.names:05}", schedule.uid, schedule.schedule_id
            said: dict[str, Any] = {
                "from_at": first,
                "until_at": first + 3 * MINUTE,
                "mark_at": first - 1,
                "planned": 4,
            }
            said |= {"max_parallel": parallel, "again": again, "created_at": self.now, "actor": "ada"}
            asked = Backfill(backfill_id=name, tenant="default", schedule_uid=uid, schedule_id=job, revision=1, **said)
            await self.pair.call_both(lambda store: store.backfills.add(asked))
        for one in await self.pair.call_both(lambda store: store.backfills.list_open(limit=3)):
            asked, plain = one.backfill, minutely(one.backfill.schedule_id)
            ticks = Ticks(asked.schedule_id, plain.spec)
            planned = planned_times(ticks, after=asked.mark_at, until=asked.until_at, limit=4)
            bounds = {"first_at": asked.from_at, "last_at": asked.until_at}
            had = await self.pair.call_both(
                lambda store: store.backfills.times_already_run(asked.schedule_uid, **bounds)  # noqa: B023 - awaited here
            )
            lot = next_backfill_batch(one, plain, planned, had, now=self.now)
            if lot is not None:
                await self.pair.call_both(lambda store: store.backfills.apply_batch(lot, now=self.now))  # noqa: B023 - awaited here
        await self.pair.call_both(lambda store: store.backfills.page("default"))

    async def delete(self) -> None:
        schedule = await self.schedule()
        if schedule is not None and self.rng.random() < 0.1:
            verdict = verdict_before_edit(schedule, now=self.now)
            await self.pair.call_both(lambda store: store.schedules.delete(verdict, now=self.now, actor="ada"))

    async def resolve(self) -> None:
        letters = await self.pair.call_both(lambda store: store.dead_letters.page("default", unresolved=True, limit=1))
        names = [letter.dead_letter_id for letter in letters]
        await self.pair.call_both(
            lambda store: store.dead_letters.resolve("default", names, by="ada", actor="ada", now=self.now)
        )


@pytest.mark.parametrize(
    ("pair", "seed"),
    [
        (database, seed) if seed < quick else thorough(database, seed)
        for database, quick, seeds in (("sqlite", 8, 20), (18, 3, 5))
        for seed in range(seeds)
    ],
    indirect=["pair"],
)
async def test_both_stores_come_to_the_same(pair: StorePair, seed: int) -> None:
    operators = Operators(pair, Random(seed))
    await pair.call_both(lambda store: store.schedules.add(SCHEDULES, actor="ada", tzdata=""))

    for _ in range(80):
        await operators.act()

    expected, found = await full_snapshot(pair.memory, SCHEDULES), await full_snapshot(pair.sql, SCHEDULES)
    assert found == expected
    assert len(expected[0]) > 10
