"""The contract of the log of changes, for stores that several processes share: one commits, another one reads."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.adapters.sql import SqlStore
from gnomon.adapters.sql.change_log import ChangeLogWriter
from gnomon.core.approvals.decide import asked_approval
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Overlap, Result, RunId, RunSource, Schedule
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState
from gnomon.ports.change_log import NOTICED_WITHIN_SECONDS, Change, LoggedChanges
from gnomon.ports.ledger import Terms
from gnomon.services.observability.change_stream import ChangeObserver, ChangeStream
from gnomon.services.observability.changes import CommitChanges
from gnomon.testing.clock import VirtualClock
from support.task_steps import admission, completion_of, take_task, workflow

Advance = Callable[[int], None]


class RecordedChanges(ChangeStream):
    """A stream that remembers what it was told, and is always followed."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[Change] = []

    @property
    def followed(self) -> bool:
        return True

    def publish(self, changes: object) -> None:
        self.reported += list(changes)  # type: ignore[call-overload]


class OtherProcess:
    """The store as another process has it, which also tells its own followers."""

    def __init__(self, store: SqlStore, name: str = "other") -> None:
        self.elapsed = 0.0
        self.stream = RecordedChanges()
        self.store = store.observed(
            observers=[ChangeObserver(self.stream, VirtualClock(NOON))],
            change_log=ChangeLogWriter(name, CommitChanges, elapsed=lambda: self.elapsed),
        )


async def read_all(store: SqlStore) -> list[LoggedChanges]:
    return list(await store.changes.read(0, late=(), limit=100))


class ChangeLogContract:
    """The changes of a transaction are logged with it, while another server follows."""

    async def failed_run(self, store: SqlStore, schedule: Schedule, terms: Terms) -> None:
        """One tick of the schedule, whose run fails and leaves a dead letter."""
        await store.ledger.decide([plan(schedule, now=NOON + MINUTE)], now=NOON + MINUTE, terms=terms)
        [run] = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)
        taken = await take_task(store, "worker", run, now=NOON + MINUTE)
        definition = workflow(dead_letter=True)
        failed = completion_of(taken, Result.FAILED, now=NOON + MINUTE, definition=definition, error="disk full")
        await store.attempts.report([failed])

    @pytest.mark.req("R-03")
    async def test_rulings_and_approvals_that_end_with_their_task_are_published(self, store: SqlStore) -> None:
        schedule, other = minutely("pay", overlap=Overlap.ALLOW), OtherProcess(store)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        await store.changes.follow("server", ttl_ms=20_000)
        run = new_requested_run(RunId("run_pay"), schedule, source=RunSource.API, now=NOON)
        await other.store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        [task] = await store.history.tasks([run])
        ruling = Ruling(decision=PolicyDecision.REQUIRE_APPROVAL, rule="payments", version=3, digest=b"1" * 32)
        asked = asked_approval(task, run, ruling, now=NOON)
        waits = admission(task, state=TaskState.APPROVAL_REQUIRED, ruling=ruling, approval=asked)
        await other.store.tasks.admit([replace(waits, schedule_uid=run.schedule_uid)], now=NOON)

        await other.store.runs.cancel(run.run_id, reason="not needed", now=NOON + 1)

        logged = [change for entry in await read_all(store) for change in entry.changes]
        approvals = [change.facts for change in logged if change.kind == "approval"]
        [ruled] = [change for change in logged if change.kind == "ruling"]
        assert [one["status"] for one in approvals] == ["waiting", "void"]
        assert (ruled.tenant, ruled.facts["job"], ruled.facts["decision"]) == ("default", "pay", "require_approval")
        assert (ruled.facts["execution_id"], ruled.facts["rule"], ruled.facts["version"]) == ("run_pay", "payments", 3)

    @pytest.mark.req("H-12")
    async def test_commits_of_a_process_are_logged_while_a_server_follows(self, store: SqlStore, terms: Terms) -> None:
        schedule, other = minutely(), OtherProcess(store)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        assert await store.changes.follow("server", ttl_ms=20_000) == 0

        await self.failed_run(other.store, schedule, terms)

        entries = await read_all(store)
        logged = [change for entry in entries for change in entry.changes]
        assert [entry.number for entry in entries] == sorted({entry.number for entry in entries})
        assert {entry.origin for entry in entries} == {"other"}
        assert {change.kind for change in logged} == {"tick", "execution", "task", "dead_letter"}
        [task] = [change.facts for change in logged if change.kind == "task"]
        assert (task["step"], task["attempt"], task["became"], task["error"]) == ("main", 1, "failed", "disk full")
        # The followers of both servers are told the same, apart from how instants are written.
        assert [(one.kind, one.facts["job"]) for one in logged] == [
            (one.kind, one.facts["job"]) for one in other.stream.reported
        ]

    async def test_nothing_is_logged_while_no_other_server_follows(self, store: SqlStore, terms: Terms) -> None:
        schedule, other = minutely(), OtherProcess(store, "server")
        await store.schedules.add([schedule], actor="ada", tzdata="")
        await store.changes.follow("server", ttl_ms=20_000)

        await self.failed_run(other.store, schedule, terms)

        assert await read_all(store) == []

    async def test_a_process_notices_soon_that_a_server_begins_and_ends_to_follow(self, store: SqlStore) -> None:
        other, numbers = OtherProcess(store), list[int]()

        async def change() -> int:
            """The number of entries after another change."""
            schedule = minutely(f"s{len(numbers)}", mark=NOON - MINUTE)
            await store.schedules.add([schedule], actor="ada", tzdata="")
            terms = {schedule.shard: 1}
            await store.shards.claim("node", ttl_ms=60_000, limit=256)
            await other.store.ledger.decide([plan(schedule, now=NOON)], now=NOON, terms=terms)
            return len(await read_all(store))

        numbers.append(await change())
        await store.changes.follow("server", ttl_ms=20_000)
        other.elapsed += NOTICED_WITHIN_SECONDS
        numbers.append(await change())
        await store.changes.unfollow("server")
        other.elapsed += NOTICED_WITHIN_SECONDS
        numbers.append(await change())

        assert numbers == [0, 1, 1]

    async def test_a_server_that_is_gone_is_not_logged_for(
        self, store: SqlStore, terms: Terms, advance: Advance
    ) -> None:
        schedule, other = minutely(), OtherProcess(store)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        await store.changes.follow("server", ttl_ms=20_000)
        advance(20_001)

        await self.failed_run(other.store, schedule, terms)

        assert await read_all(store) == []

    async def test_old_entries_are_forgotten_and_their_numbers_are_not_used_again(
        self, store: SqlStore, terms: Terms, advance: Advance
    ) -> None:
        schedule, other = minutely(), OtherProcess(store)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        await store.changes.follow("server", ttl_ms=20_000)
        await self.failed_run(other.store, schedule, terms)
        last = (await read_all(store))[-1].number
        advance(60_001)

        await store.changes.forget(older_than_ms=60_000)

        assert [entry.number for entry in await read_all(store)] == [last]
        assert [entry.number for entry in await store.changes.read(last, late=[last], limit=10)] == [last]
        assert await store.changes.follow("server", ttl_ms=20_000) == last

    async def test_logged_changes_are_removed_once_no_server_follows(self, store: SqlStore, terms: Terms) -> None:
        schedule, other = minutely(), OtherProcess(store)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        for server in ("one", "two"):
            await store.changes.follow(server, ttl_ms=20_000)
        await self.failed_run(other.store, schedule, terms)

        await store.changes.unfollow("one")
        kept = await read_all(store)
        await store.changes.unfollow("two")

        [last] = await read_all(store)
        assert len(kept) > 1
        assert (last.number, list(last.changes)) == (kept[-1].number, [])
