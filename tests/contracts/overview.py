"""The contract of the counts of an overview, for any store: each is the number of the rows, up to its limit."""

from typing import Any

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.ids import SHARDS
from gnomon.core.instants import FOREVER
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Catchup, Overlap, Reason, Result, Run, RunStatus, Schedule, Tick
from gnomon.core.runs.states import WaitReason
from gnomon.ports.overview import BoundedTotal, TickTotal
from gnomon.ports.runs import RunQuery
from gnomon.ports.store import Store
from support.task_steps import completion_of, finish_run, runs_of, take_task

MANY = 1_000


class OverviewContract:
    """Tests for any store. `store` is a fresh one."""

    async def lived(self, store: Store, name: str, *passes: int, **changes: Any) -> Schedule:  # noqa: ANN401
        """A minutely schedule whose due ticks were decided at these times after NOON."""
        schedule = minutely(name, **changes)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
        for after in passes:
            current = await store.schedules.find(schedule.tenant, name)
            assert current is not None
            await store.ledger.decide([plan(current, now=NOON + after)], now=NOON + after, terms=terms)
        return schedule

    async def rows_of(self, store: Store, *schedules: Schedule) -> list[Tick]:
        """All their rows of the ledger."""
        pages = [await store.history.ticks(one.uid, before=FOREVER, limit=MANY) for one in schedules]
        return [tick for page in pages for tick in page]

    async def test_ticks_that_are_not_on_time_are_counted_by_reason_within_the_window(self, store: Store) -> None:
        schedules = [
            await self.lived(store, "skips", MINUTE, 2 * MINUTE, 3 * MINUTE + 5000, overlap=Overlap.SKIP),
            await self.lived(store, "misses", HOUR, HOUR + MINUTE, overlap=Overlap.ALLOW),
            await self.lived(store, "queues", MINUTE, 2 * MINUTE, 9 * MINUTE, overlap=Overlap.QUEUE),
            await self.lived(store, "latest", 7 * MINUTE + 2000, catchup=Catchup.LATEST),
        ]
        await self.lived(store, "skips", MINUTE, 2 * MINUTE, tenant="acme")
        rows = await self.rows_of(store, *schedules)
        seen = set[Reason]()

        for since, until in ((NOON, NOON + 2 * HOUR), (NOON + 30 * MINUTE, NOON + HOUR), (NOON, NOON + 3 * MINUTE)):
            expected: dict[Reason, TickTotal] = {}
            for reason in {tick.decision.reason for tick in rows} - {Reason.ON_TIME}:
                some = [
                    tick.decision
                    for tick in rows
                    if tick.decision.reason is reason
                    and tick.decision.last_at >= since
                    and tick.decision.planned_at < until
                ]
                if some:
                    newest = max(one.last_at for one in some)
                    expected[reason] = TickTotal(len(some), sum(one.count for one in some), newest)
            assert await store.overview.ticks("default", since=since, until=until, most=MANY) == expected
            seen |= expected.keys()

        assert {Reason.OVERLAP, Reason.CATCHUP_NONE, Reason.NEWER_TICK, Reason.BEHIND_A_RUN, Reason.LATE} <= seen
        capped = await store.overview.ticks("default", since=0, until=FOREVER, most=1)
        assert {total.rows for total in capped.values()} == {1}
        assert await store.overview.ticks("nobody", since=0, until=FOREVER, most=MANY) == {}

    async def test_runs_are_counted_by_what_became_of_them(self, store: Store) -> None:
        schedule = await self.lived(store, "report", *(n * MINUTE for n in range(1, 7)), overlap=Overlap.ALLOW)
        runs = await runs_of(store, schedule)
        await finish_run(store, runs[0], result=Result.FAILED, now=NOON + 2 * MINUTE)
        await finish_run(store, runs[1], result=Result.FAILED, now=NOON + 3 * MINUTE)
        await finish_run(store, runs[2], now=NOON + 3 * MINUTE)
        await store.runs.cancel(runs[3].run_id, reason="not needed", now=NOON + 4 * MINUTE)
        await take_task(store, "w1", runs[4], now=NOON + 6 * MINUTE)

        assert await self.failed(store, NOON, NOON + HOUR) == 2
        assert await self.failed(store, runs[1].created_at, NOON + HOUR) == 1
        assert await self.failed(store, NOON, runs[1].created_at) == 1
        assert await store.overview.failed_runs("default", since=0, until=FOREVER, most=1) == 1
        assert await store.overview.failed_runs("acme", since=0, until=FOREVER, most=MANY) == 0
        assert await store.overview.open_runs("default", most=MANY) == {RunStatus.RUNNING: 1, RunStatus.PENDING: 1}
        assert await store.overview.open_runs("acme", most=MANY) == {RunStatus.RUNNING: 0, RunStatus.PENDING: 0}

    async def failed(self, store: Store, since: int, until: int) -> int:
        """The number of failed runs, which is that of the rows in the list."""
        count = await store.overview.failed_runs("default", since=since, until=until, most=MANY)
        listed = await store.executions.list_runs(RunQuery(status=RunStatus.FAILED, since=since, until=until))
        assert len(listed) == count
        return count

    async def test_a_run_that_fails_without_a_word_has_an_error_and_is_counted(self, store: Store) -> None:
        schedule = await self.lived(store, "report", MINUTE)
        [run] = await runs_of(store, schedule)
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)

        await store.attempts.report([completion_of(taken, Result.GAVE_UP, now=NOON + MINUTE, error=None)])

        ended = await store.executions.find_run(run.run_id)
        assert ended is not None
        assert (ended.status, bool(ended.error)) == (RunStatus.FAILED, True)
        assert await self.failed(store, NOON, NOON + HOUR) == 1

    async def test_waiting_runs_are_counted_and_listed_by_the_reason(self, store: Store) -> None:
        queues = await self.lived(store, "queues", *(n * MINUTE for n in range(1, 5)), overlap=Overlap.QUEUE)
        allows = await self.lived(store, "allows", MINUTE, 2 * MINUTE, overlap=Overlap.ALLOW)
        first, _ = await runs_of(store, allows)
        await finish_run(store, (await runs_of(store, queues))[0], now=NOON + 5 * MINUTE)

        found = await store.overview.waiting_runs("default", most=MANY)

        assert found[WaitReason.QUEUE] == BoundedTotal(2)
        assert WaitReason.DEPS not in found
        for reason in set(WaitReason) - {WaitReason.DEPS}:
            listed = await self.waiting(store, reason)
            assert len(listed) == found.get(reason, BoundedTotal(0)).count, reason
        assert first.run_id in {run.run_id for run in await self.waiting(store, WaitReason.READY)}
        assert (await store.overview.waiting_runs("default", most=1))[WaitReason.QUEUE] == BoundedTotal(1, more=True)
        assert await store.overview.waiting_runs("acme", most=MANY) == {}

    async def waiting(self, store: Store, reason: WaitReason) -> list[Run]:
        """The runs of which a task waits for that reason, as they are listed."""
        return list(await store.executions.list_runs(RunQuery(wait_reason=reason)))

    async def test_schedules_come_in_the_order_of_their_next_fires(self, store: Store) -> None:
        await self.lived(store, "later", MINUTE)
        await self.lived(store, "sooner")
        await self.lived(store, "other", tenant="acme")

        def names(found: Any) -> list[str]:  # noqa: ANN401 - schedules
            return [one.schedule_id for one in found]

        assert names(await store.overview.coming("default", after=NOON, limit=5)) == ["sooner", "later"]
        assert names(await store.overview.coming("default", after=NOON, limit=1)) == ["sooner"]
        assert names(await store.overview.coming("default", after=NOON + MINUTE, limit=5)) == ["later"]
        assert names(await store.overview.overdue("default", before=NOON + 2 * MINUTE, limit=5)) == ["sooner"]
        assert names(await store.overview.overdue("default", before=NOON + MINUTE, limit=5)) == []

    async def test_jobs_and_dead_letters_of_a_tenant_are_counted_up_to_the_limit(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            await self.lived(store, name)
        await self.lived(store, "a", tenant="acme")

        assert (await store.overview.totals("default", most=MANY)).jobs == 3
        assert (await store.overview.totals("default", most=2)).jobs == 2
        totals = await store.overview.totals("acme", most=MANY)
        assert (totals.jobs, totals.dead_letters, totals.approvals) == (1, 0, 0)
