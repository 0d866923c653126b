"""A row that this program cannot read, of a newer version or in a zone unknown here, stands in nobody else's way."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from structlog.testing import capture_logs

from contracts.store import ALL_SHARDS, MINUTE, NOON, minutely
from gnomon.adapters.sql import SqlStore, open_postgres, open_sqlite, unreadable
from gnomon.core.model import Overlap, RunId, RunSource, RunStatus, Schedule
from gnomon.core.runs.external_events import ExternalEvent
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.triggers import OnEvent
from gnomon.errors import UsageError
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file
from support.task_steps import finish_run, runs_of

NOW = NOON + MINUTE
UNKNOWN_ZONE = "timezone = 'Mars/Base'"
REPAIRED = "timezone = 'UTC', revision = revision + 1"
#: Values of a row that this program does not understand.
UNREADABLE = {
    "a zone unknown here": UNKNOWN_ZONE,
    "a trigger of a newer version": "trigger_kind = 'moon'",
    "a policy of a newer version": "overlap = 'negotiate'",
    "a dialect of a newer version": "dialect = 'martian'",
    "columns that do not fit": "trigger_kind = 'every', period_ms = NULL",
    "a period beyond all time": "trigger_kind = 'every', period_ms = 9000000000000000000, anchor_at = 0",
    "steps that are none": "first_steps = 'no json'",
}


@pytest.fixture(params=["sqlite", 18], ids=str)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    if request.param == "sqlite":
        store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")))
        yield store
        await store.close()
        return
    async with postgres(request.param).database() as url:
        store = await open_postgres(url)
        yield store
        await store.close()


async def said(store: SqlStore, schedules: list[Schedule], change: str) -> None:
    """Someone with the right to do so has changed the rows of these."""
    uids = [schedule.uid for schedule in schedules]
    update = sa.text(f"UPDATE schedule SET {change} WHERE uid IN :uids")  # noqa: S608 - a constant of ours
    await store.transactions.write(
        lambda conn: conn.execute(update.bindparams(sa.bindparam("uids", expanding=True)), {"uids": uids}).rowcount
    )


async def due(store: SqlStore, limit: int = 10) -> list[str]:
    return [schedule.schedule_id for schedule in await store.ledger.due(NOW, shards=ALL_SHARDS, limit=limit)]


@pytest.mark.parametrize("change", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_row_that_cannot_be_read_keeps_no_other_from_being_due(store: SqlStore, change: str) -> None:
    broken, sound = minutely("broken"), minutely("sound")
    await store.schedules.add([broken, sound], actor="ada", tzdata="")
    await said(store, [broken], change)

    assert await due(store) == ["sound"]
    assert await due(store, limit=1) == ["sound"]


async def test_nobody_is_woken_for_a_row_that_cannot_be_read(store: SqlStore) -> None:
    broken, later = minutely("broken"), minutely("later", mark=NOON + MINUTE)
    await store.schedules.add([broken, later], actor="ada", tzdata="")
    await said(store, [broken], UNKNOWN_ZONE)
    await due(store)

    assert await store.ledger.next_due_at(shards=ALL_SHARDS) == later.next_fire_at
    assert await store.ledger.next_due_at(shards=frozenset({broken.shard}) - {later.shard}) is None


async def test_a_row_that_was_repaired_is_due_again(store: SqlStore) -> None:
    broken, sound = minutely("broken"), minutely("sound")
    await store.schedules.add([broken, sound], actor="ada", tzdata="")
    await said(store, [broken], UNKNOWN_ZONE)
    await due(store)

    await said(store, [broken], REPAIRED)

    assert await due(store) == ["broken", "sound"]
    assert await store.ledger.next_due_at(shards=ALL_SHARDS) == broken.next_fire_at


async def test_whole_pages_that_cannot_be_read_hide_nothing_behind_them(store: SqlStore) -> None:
    broken = [minutely(f"a{i:03d}") for i in range(100)]
    await store.schedules.add([*broken, minutely("sound")], actor="ada", tzdata="")
    await said(store, broken, UNKNOWN_ZONE)

    # A call reads only so many pages; the next one goes on from there, and until then there is something to do.
    assert await due(store, limit=5) == []
    assert await store.ledger.next_due_at(shards=ALL_SHARDS) == broken[0].next_fire_at
    calls = [await due(store, limit=5) for _ in range(3)]

    assert calls[-1] == ["sound"]


async def test_more_of_them_than_can_be_remembered_still_kill_nobody(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "MAX_REMEMBERED", 3)
    broken = [minutely(f"a{i}") for i in range(6)]
    await store.schedules.add([*broken, minutely("sound")], actor="ada", tzdata="")
    await said(store, broken, UNKNOWN_ZONE)

    assert await due(store) == ["sound"]


async def test_an_unreadable_revision_is_reported_once(store: SqlStore) -> None:
    broken = minutely("broken")
    await store.schedules.add([broken], actor="ada", tzdata="")
    await said(store, [broken], UNKNOWN_ZONE)

    with capture_logs() as first:
        await due(store)
        await due(store)
        await store.schedules.page("default", after="", limit=10)
    await said(store, [broken], "revision = revision + 1")
    with capture_logs() as second:
        await due(store)

    assert [(entry["event"], entry["uid"], entry["revision"]) for entry in first + second] == [
        ("schedule_unreadable", broken.uid, 1),
        ("schedule_unreadable", broken.uid, 2),
    ]
    assert "Mars/Base" in first[0]["error"]


async def test_looking_for_a_row_that_cannot_be_read_says_which_and_why(store: SqlStore) -> None:
    broken = minutely("broken")
    await store.schedules.add([broken], actor="ada", tzdata="")
    await said(store, [broken], UNKNOWN_ZONE)

    for asked in (store.schedules.find("default", "broken"), store.history.revisions(broken.uid)):
        with pytest.raises(UsageError, match=r"'broken' of tenant 'default' cannot be read here: .*Mars/Base"):
            await asked


async def test_a_page_has_others_in_the_place_of_those_that_cannot_be_read(store: SqlStore) -> None:
    schedules = [minutely(f"s{i}") for i in range(9)]
    await store.schedules.add(schedules, actor="ada", tzdata="")
    await said(store, schedules[1:5], UNKNOWN_ZONE)

    first = await store.schedules.page("default", after="", limit=3)
    rest = await store.schedules.page("default", after=first[-1].schedule_id, limit=3)

    assert [schedule.schedule_id for schedule in [*first, *rest]] == ["s0", "s5", "s6", "s7", "s8"]


@pytest.mark.parametrize("once", [False, True], ids=["", "a one-shot"])
async def test_the_runs_of_a_schedule_that_cannot_be_read_end_all_the_same(store: SqlStore, *, once: bool) -> None:
    broken = minutely("broken", overlap=Overlap.QUEUE, delete_after_run=once)
    await store.schedules.add([broken], actor="ada", tzdata="")
    runs = [new_requested_run(RunId(f"run_{name}"), broken, source=RunSource.CRON, now=NOON) for name in "ab"]
    await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOON)
    await said(store, [broken], UNKNOWN_ZONE)

    for run in runs:
        assert await finish_run(store, run, now=NOON)

    assert [run.status for run in await runs_of(store, broken)] == [RunStatus.COMPLETED] * 2
    await said(store, [broken], REPAIRED)
    found = await store.schedules.find("default", "broken")
    assert found is not None
    assert (found.active_runs, found.queued_runs) == (0, 0)


# ---- events --------------------------------------------------------------------------------------


def listener(name: str, debounce_ms: int | None = None) -> Schedule:
    trigger = OnEvent("drift", debounce_ms=debounce_ms)
    return replace(minutely(name, trigger=trigger, overlap=Overlap.ALLOW), next_fire_at=None)


DRIFT = ExternalEvent(event_id="evt_1", name="drift", emitted_at=NOON, actor="ada")


async def test_a_row_that_cannot_be_read_keeps_no_other_from_an_event(store: SqlStore) -> None:
    broken, sound = listener("broken"), listener("sound")
    await store.schedules.add([broken, sound], actor="ada", tzdata="")
    await said(store, [broken], """trigger_options = '{"moon": 1}'""")

    assert [entry.schedule_id for entry in await store.events.emit(DRIFT, now=NOON)] == ["sound"]


async def test_batched_events_of_an_unreadable_row_wait_until_it_can_be_read(store: SqlStore) -> None:
    job = listener("gathers", debounce_ms=1000)
    await store.schedules.add([job], actor="ada", tzdata="")
    await store.events.emit(DRIFT, now=NOON)
    await said(store, [job], "overlap = 'negotiate'")

    assert await store.events.close_batches(NOON + 1000, limit=10) == []

    later = await store.events.next_batch_at()
    assert later == NOON + 1000 + MINUTE
    await said(store, [job], "overlap = 'allow'")
    assert await store.events.close_batches(later, limit=10) == [job.uid]
    assert len(await runs_of(store, job)) == 1


async def test_a_page_of_idle_schedules_is_full_though_some_cannot_be_read(store: SqlStore) -> None:
    idle = [replace(minutely(name), next_fire_at=None) for name in ("a", "b", "c", "d")]
    await store.schedules.add(idle, actor="ada", tzdata="")
    order = sorted(idle, key=lambda one: one.uid)
    await said(store, order[:2], UNKNOWN_ZONE)

    page = await store.invariants.schedules_without_next_fire(after="", limit=2)

    assert [one.uid for one in page] == [one.uid for one in order[2:]]
