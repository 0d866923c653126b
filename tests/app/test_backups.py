"""Backups of both databases, restored to either, and what a restored store decides about the time that it missed."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.store import MINUTE, minutely
from gnomon.adapters.sql import SqlStore, open_store
from gnomon.adapters.sql.connect import wall_clock
from gnomon.adapters.sql.sqlite import FileLock
from gnomon.app.backups import Restored, RestoreRequest, back_up, restore
from gnomon.app.operations import Operations
from gnomon.config.settings import Settings, load
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Overlap, Reason, Result, Run, RunId, RunSource, RunStatus, Schedule, TaskId, TickKind
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.workflow import Delivery
from gnomon.errors import FileError, UsageError
from gnomon.ports.audit import AuditQuery
from gnomon.ports.maintenance import RetentionKind
from gnomon.ports.schedules import JobChangeset
from gnomon.testing.clock import Recorder
from support.postgres_server import postgres
from support.task_steps import completion_of, take_task, workflow

FAR = 1 << 61


class Place:
    """A database with a job that runs at most once, one that runs at least once, and runs of both."""

    def __init__(self, url: str) -> None:
        self.settings: Settings = load(flags={"database.url": url})

    async def fill(self) -> None:
        """Both jobs fire every minute, and were last decided five minutes ago."""
        store = await open_store(self.settings.database.url)
        now = wall_clock()
        jobs = [job("once", now - 5 * MINUTE), job("often", now - 5 * MINUTE)]
        changes = JobChangeset(
            workflows=[workflow("once", delivery=Delivery.AT_MOST_ONCE, dead_letter=True), workflow("often")],
            added=jobs,
        )
        assert await store.jobs.apply(changes, now=now, actor="ada", tzdata="")
        for one in jobs:
            done = await launched(store, one, "done", now)
            taken = await take_task(store, "w", done, now=now)
            await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=now, output=b'"k\xc3\xa4se"')])
            await take_task(store, "w", await launched(store, one, "running", now), now=now)
            await take_task(store, "w", await launched(store, one, "given", now), now=now, begin=False)
            await launched(store, one, "waiting", now)
            await launched(store, one, "later", now, fire_at=now + 60 * MINUTE)
        await store.close()

    async def open(self) -> SqlStore:
        return await open_store(self.settings.database.url)


def job(name: str, mark_at: int) -> Schedule:
    made = minutely(name, overlap=Overlap.ALLOW)
    return replace(made, spec=replace(made.spec, workflow_id=name), mark_at=mark_at, next_fire_at=mark_at + MINUTE)


async def launched(store: SqlStore, one: Schedule, name: str, now: int, fire_at: int | None = None) -> Run:
    run = new_requested_run(RunId(f"run_{one.schedule_id}_{name}"), one, source=RunSource.MANUAL, now=now)
    run = run if fire_at is None else replace(run, fire_at=fire_at)
    await store.runs.launch([LaunchRequest(run=run, first_steps=("main",), input=b"{}")], now=now)
    return run


async def restored(place: Place, backup: Path, *, replace: bool = False) -> Restored:
    return await restore(place.settings, RestoreRequest(backup=backup, replace=replace, actor="ada"), Recorder())


@pytest.fixture
async def server() -> AsyncIterator[Place]:
    async with postgres(18).database() as url:
        yield Place(url)


@pytest.fixture
def file(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/gnomon.db")


async def rows(place: Place) -> dict[str, int]:
    """How many rows the tables of history have."""
    async with Operations.open(place.settings) as operations:
        store = operations.store
        found = {}
        for name in ("once", "often"):
            schedule = await store.schedules.find("default", name)
            assert schedule is not None
            runs = await store.history.runs(schedule.uid, before=FAR, limit=100)
            tasks = await store.history.tasks(runs)
            found[name] = len(runs)
            found[f"tasks of {name}"] = len(tasks)
            found[f"attempts of {name}"] = len(await store.executions.attempts([task.task_id for task in tasks]))
        found["outputs"] = len(await store.executions.payloads([task.task_id for task in tasks], "output"))
        return found


WHOLE = {
    "once": 5,
    "tasks of once": 5,
    "attempts of once": 3,
    "often": 5,
    "tasks of often": 5,
    "attempts of often": 3,
    "outputs": 1,
}


@pytest.mark.guarantee("S5")
@pytest.mark.parametrize(("source", "target"), [("file", "file"), ("server", "server"), ("file", "server")])
async def test_a_backup_of_either_database_restores_to_either(
    file: Place, server: Place, tmp_path: Path, source: str, target: str
) -> None:
    places = {"file": file, "server": server}
    await places[source].fill()

    made = await back_up(places[source].settings, tmp_path / "backup.db")
    assert made.size > 0
    onto = places[target] if source != target else Place(f"sqlite:///{tmp_path}/other.db")
    done = await restored(onto, tmp_path / "backup.db")

    assert await rows(onto) == WHOLE
    # Another minute may begin meanwhile.
    assert [(one.job, one.count in (5, 6)) for one in done.report.missed] == [("once", True)]
    assert [(one.job, one.count in (5, 6)) for one in done.report.left] == [("often", True)]
    store = await onto.open()
    [entry] = await store.audit.page(AuditQuery(action="restore"))
    assert (entry.entry.actor, entry.entry.kind) == ("ada", "database")
    await store.close()


@pytest.mark.guarantee("S5")
async def test_nothing_that_may_run_at_most_once_runs_after_a_restore_if_it_may_have_run_before(
    file: Place, tmp_path: Path
) -> None:
    await file.fill()
    await back_up(file.settings, tmp_path / "backup.db")
    onto = Place(f"sqlite:///{tmp_path}/other.db")

    report = (await restored(onto, tmp_path / "backup.db")).report

    store = await onto.open()
    once = await store.schedules.find("default", "once")
    assert once is not None
    assert [run.run_id for run in report.cancelled] == ["run_once_given", "run_once_running", "run_once_waiting"]
    runs = {run.run_id: run for run in await store.history.runs(once.uid, before=FAR, limit=100)}
    assert runs[RunId("run_once_waiting")].status is RunStatus.CANCELLED
    assert "store_uncertain" in (runs[RunId("run_once_waiting")].error or "")
    assert runs[RunId("run_once_later")].status is RunStatus.PENDING
    [tick] = await store.history.ticks(once.uid, before=FAR, limit=100)
    decided = tick.decision
    [missed] = report.missed
    assert (decided.kind, decided.reason) == (TickKind.MISSED, Reason.STORE_UNCERTAIN)
    assert decided.count == missed.count >= 5
    # Neither a dispatcher nor a worker finds anything of it, and what was given away is not given again.
    later = wall_clock() + 30_000
    due = await store.ledger.due(later - 60_000, shards=frozenset(range(SHARDS)), limit=100)
    assert [one.schedule_id for one in due] == ["often"]
    assert {one.run.schedule_id for one in await store.tasks.waiting(later, limit=100)} == {"often"}
    page = await store.attempts.open_attempts(after=TaskId(""), limit=100)
    given = [one for one in page.attempts if one.run.schedule_id == "once"]
    definition = workflow("once", delivery=Delivery.AT_MOST_ONCE)
    for one in given:
        ready = ReadyTask(task=one.task, run=one.run)
        result = Result.NEVER_STARTED if one.attempt.started_at is None else Result.LOST
        await store.attempts.report([completion_of(ready, result, now=later, definition=definition)])
    assert {one.run.schedule_id for one in await store.tasks.waiting(later + MINUTE, limit=100)} == {"often"}
    await store.close()


async def test_a_backup_is_made_while_others_write_and_holds_one_moment(file: Place, tmp_path: Path) -> None:
    store = await file.open()
    stop = asyncio.Event()
    now = wall_clock()
    made = job("once", now)
    assert not await store.schedules.add([made], actor="ada", tzdata="")

    async def write() -> None:
        number = 0
        while not stop.is_set():
            await launched(store, made, str(number), now)
            number += 1

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.05)
    info = await back_up(file.settings, tmp_path / "backup.db")
    stop.set()
    await writing
    await store.close()

    with closing(sqlite3.connect(tmp_path / "backup.db")) as copy:
        [(runs, tasks)] = copy.execute("SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM task)").fetchall()
    assert runs == tasks > 0
    assert info.backup_at >= now
    assert not (tmp_path / "backup.db-wal").exists()
    assert (tmp_path / "backup.db").stat().st_mode & 0o077 == 0


async def test_a_copy_of_the_file_alone_lacks_what_a_backup_has(file: Place, tmp_path: Path) -> None:
    await file.fill()
    store = await file.open()
    now = wall_clock()
    await launched(store, job("once", now), "new", now)
    (tmp_path / "copied.db").write_bytes((tmp_path / "gnomon.db").read_bytes())
    await back_up(file.settings, tmp_path / "backup.db")
    await store.close()

    def runs(name: str) -> int:
        with closing(sqlite3.connect(tmp_path / name)) as opened:
            return int(opened.execute("SELECT count(*) FROM run WHERE run_id = 'run_once_new'").fetchone()[0])

    assert (runs("copied.db"), runs("backup.db")) == (0, 1)


async def test_a_store_in_use_is_not_overwritten_unless_that_is_asked_for(file: Place, tmp_path: Path) -> None:
    await file.fill()
    await back_up(file.settings, tmp_path / "backup.db")
    store = await file.open()
    now = wall_clock()
    await launched(store, job("once", now), "new", now)
    await store.close()

    with pytest.raises(UsageError, match="is in use"):
        await restored(file, tmp_path / "backup.db")
    assert (await rows(file))["once"] == 6
    done = await restored(file, tmp_path / "backup.db", replace=True)

    assert done.kept == tmp_path / "gnomon.db.replaced-1"
    with closing(sqlite3.connect(done.kept)) as before:
        assert before.execute("SELECT count(*) FROM run WHERE run_id = 'run_once_new'").fetchone() == (1,)
    assert (await rows(file)) == WHOLE


async def test_only_the_owner_may_read_a_restored_file(file: Place, tmp_path: Path) -> None:
    await file.fill()
    await back_up(file.settings, tmp_path / "backup.db")
    await restored(file, tmp_path / "backup.db", replace=True)
    assert (tmp_path / "gnomon.db").stat().st_mode & 0o077 == 0


async def test_a_running_scheduler_keeps_its_file(file: Place, tmp_path: Path) -> None:
    await file.fill()
    await back_up(file.settings, tmp_path / "backup.db")
    lock = FileLock(str(tmp_path / "gnomon.db"))
    assert lock.try_acquire()

    with pytest.raises(UsageError, match="a scheduler runs on"):
        await restored(file, tmp_path / "backup.db", replace=True)

    lock.release()
    assert await rows(file) == WHOLE


async def test_a_server_in_use_is_not_overwritten_and_a_live_one_never(server: Place, tmp_path: Path) -> None:
    await server.fill()
    await back_up(server.settings, tmp_path / "backup.db")

    with pytest.raises(UsageError, match="has rows of"):
        await restored(server, tmp_path / "backup.db")
    store = await server.open()
    terms = await store.shards.claim("node", ttl_ms=60_000, limit=SHARDS)
    await store.shards.renew("node", ttl_ms=60_000)
    with pytest.raises(UsageError, match="in use: stop the servers"):
        await restored(server, tmp_path / "backup.db", replace=True)
    await store.shards.leave("node")

    await restored(server, tmp_path / "backup.db", replace=True)

    assert await rows(server) == WHOLE
    # A node of the old epoch cannot write, and new rows of the audit trail get new numbers.
    again = await store.shards.claim("node", ttl_ms=60_000, limit=SHARDS)
    assert min(again.values()) > max(terms.values()) + 1_000_000
    schedule = await store.schedules.find("default", "once")
    assert schedule is not None
    assert await store.runs.cancel(RunId("run_often_waiting"), reason="x", now=wall_clock(), actor="ada")
    await store.close()


@pytest.mark.guarantee("S5")
async def test_why_says_what_was_in_doubt(file: Place, tmp_path: Path) -> None:
    await file.fill()
    await back_up(file.settings, tmp_path / "backup.db")
    onto = Place(f"sqlite:///{tmp_path}/other.db")
    events = Recorder()
    request = RestoreRequest(backup=tmp_path / "backup.db", replace=False, actor="ada")
    report = (await restore(onto.settings, request, events)).report
    store = await onto.open()
    terms = await store.shards.claim("node", ttl_ms=60_000, limit=SHARDS)
    often = await store.schedules.find("default", "often")
    assert often is not None
    now = report.restore.restored_at
    caught_up = replace(plan(often, now=now), decisions=())
    [*_, last] = plan(often, now=now).decisions
    assert await store.ledger.decide([replace(caught_up, decisions=(last,))], now=now, terms=terms)
    await store.close()

    async with Operations.open(onto.settings) as operations:
        reported = (await operations.explainer.last("once", 9)).explanations
        [missed] = [one for one in reported if one.kind == "missed"]
        reported = (await operations.explainer.last("often", 9)).explanations
        [ran] = [one for one in reported if one.kind == "fired"]

    assert (missed.kind, missed.reason) == ("missed", "store_uncertain")
    assert "a backup was restored at" in missed.sentence
    assert "It may have run before, too: a backup of" in ran.sentence
    assert [name for name, _ in events.seen] == ["ticks_in_doubt"] * 2 + ["run_in_doubt"] * 3 + ["database_restored"]


@pytest.mark.parametrize("damage", ["nothing", "other", "cut", "flipped", "newer"])
async def test_a_damaged_backup_is_refused_and_changes_nothing(file: Place, tmp_path: Path, damage: str) -> None:
    backup = tmp_path / "backup.db"
    await file.fill()
    await back_up(file.settings, backup)
    whole = backup.read_bytes()
    match damage:
        case "nothing":
            backup.unlink()
        case "other":
            backup.unlink()
            with closing(sqlite3.connect(backup)) as other:
                other.execute("CREATE TABLE theirs (x)")
        case "cut":
            backup.write_bytes(whole[: len(whole) // 2])
        case "flipped":
            # The header of every page but the first.
            content = bytearray(whole)
            for start in range(4096, len(whole), 4096):
                content[start : start + 8] = b"\xff" * 8
            backup.write_bytes(content)
        case _:
            with closing(sqlite3.connect(backup)) as newer, newer:
                newer.execute("UPDATE gnomon_meta SET value = '9999' WHERE key = 'schema'")
    onto = Place(f"sqlite:///{tmp_path}/other.db")

    with pytest.raises(FileError, match=r"backup\.db"):
        await restored(onto, backup)

    assert not (tmp_path / "other.db").exists()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".gnomon")]  # noqa: PTH208


async def test_a_backup_overwrites_nothing(file: Place, tmp_path: Path) -> None:
    await file.fill()
    (tmp_path / "mine").write_text("mine")

    with pytest.raises(FileError, match="exists already"):
        await back_up(file.settings, tmp_path / "mine")

    assert (tmp_path / "mine").read_text() == "mine"


async def test_a_restored_store_can_be_backed_up_restored_and_cleaned_again(file: Place, tmp_path: Path) -> None:
    await file.fill()
    for number in range(2):
        place = Place(f"sqlite:///{tmp_path}/{number}.db")
        source = file if number == 0 else Place(f"sqlite:///{tmp_path}/0.db")
        await back_up(source.settings, tmp_path / f"backup{number}.db")
        await restored(place, tmp_path / f"backup{number}.db")
    async with Operations.open(place.settings) as operations:
        assert (await operations.cleaner.clean(dry=True)).gone.get(RetentionKind.RUNS) is None
    with closing(sqlite3.connect(tmp_path / "1.db")) as opened:
        assert opened.execute("SELECT value FROM gnomon_meta WHERE key = 'epoch'").fetchone() == ("2",)
        ids = [opened.execute("SELECT value FROM gnomon_meta WHERE key = 'database_id'").fetchone()]
    with closing(sqlite3.connect(tmp_path / "0.db")) as opened:
        ids.append(opened.execute("SELECT value FROM gnomon_meta WHERE key = 'database_id'").fetchone())
    assert len(set(ids)) == 2
