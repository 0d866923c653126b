"""A cleaner that is killed at any moment loses nothing: what is gone is in the archive, and what is left goes later."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.store import NOON, minutely
from gnomon.adapters.archive import FolderArchive, read_archive
from gnomon.adapters.sql import SqlStore, open_sqlite
from gnomon.config.settings import load
from gnomon.core.model import DAY_MS, Overlap, Result, RunId, RunSource
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.triggers import OnDemand
from gnomon.ports.runs import RunQuery
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.testing.clock import Recorder, VirtualClock
from support.task_steps import LEASE, admission, completion_of

RUNS = 60
LATER = NOON + 91 * DAY_MS
FLAGS = {"cleaner.portion": 7, "cleaner.pause": "0s", "cleaner.batch": 50}
#: Cleans, and is killed by itself at the n-th of the moments that matter: before and after commits and renames.
CLEANS = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from acceptance.test_killed_cleaners import cleaner
from gnomon.adapters.sql import open_sqlite

left = int(sys.argv[3])

def moment():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = await open_sqlite(sys.argv[1])
    remove, rename = store.retention.remove, Path.replace

    async def watched(*given, **named):
        moment()
        done = await remove(*given, **named)
        moment()
        return done

    def renamed(*given):
        moment()
        made = rename(*given)
        moment()
        return made

    store.retention.remove, Path.replace = watched, renamed
    await cleaner(store, Path(sys.argv[2])).clean()
    await store.close()

asyncio.run(main())
"""


def cleaner(store: SqlStore, archive: Path) -> Cleaner:
    place, settings = FolderArchive(archive), load(flags=FLAGS)
    return Cleaner(
        store.retention,
        store.jobs,
        place,
        VirtualClock(LATER),
        Recorder(),
        settings=settings,
        lease=AlwaysHeldSingleton(),
        store_now=much_later,
    )


async def much_later() -> int:
    return LATER


async def prepared(database: str) -> None:
    """A store with runs that are all over."""
    store = await open_sqlite(database)
    job = minutely(trigger=OnDemand(), overlap=Overlap.ALLOW)
    await store.schedules.add([job], actor="ada", tzdata="")
    runs = [new_requested_run(RunId(f"run_{n:03}"), job, source=RunSource.MANUAL, now=NOON + n) for n in range(RUNS)]
    await store.runs.launch([LaunchRequest(run=run, first_steps=("main",), input=b"{}") for run in runs], now=NOON)
    waiting = await store.tasks.waiting(NOON + RUNS, limit=RUNS)
    await store.tasks.admit([admission(one.task, schedule_uid=job.uid) for one in waiting], now=NOON)
    taken = await store.attempts.take("w", limit=RUNS, lease_ms=LEASE, now=NOON)
    await store.attempts.report([completion_of(one, Result.SUCCEEDED, now=NOON, output=b"1") for one in taken])
    await store.close()


async def finished(database: str, archive: Path) -> int:
    """How many runs were left; after that, none are."""
    store = await open_sqlite(database)
    left = len(await store.executions.list_runs(RunQuery(limit=1000)))
    await cleaner(store, archive).clean()
    assert await store.executions.list_runs(RunQuery(limit=1000)) == []
    await store.close()
    return left


@pytest.mark.req("H-11")
@pytest.mark.parametrize("moment", [1, 2, 3, 4, 9, 20])
def test_records_removed_by_a_killed_cleaner_are_archived_and_the_rest_follows(tmp_path: Path, moment: int) -> None:
    database, archive = str(tmp_path / "gnomon.db"), tmp_path / "archive"
    asyncio.run(prepared(database))
    tests = str(Path(__file__).parents[1])
    killed = subprocess.run([sys.executable, "-c", CLEANS, database, str(archive), str(moment), tests], check=False)
    assert killed.returncode == -9
    before = {row["run_id"] for row in read_archive(archive) if row["table"] == "run"}

    left = asyncio.run(finished(database, archive))

    assert len(before) >= RUNS - left
    rows = list(read_archive(archive))
    assert len([row for row in rows if row["table"] == "run"]) == RUNS
    assert {row["run_id"] for row in rows if row["table"] == "run"} == {f"run_{n:03}" for n in range(RUNS)}
    assert {table: sum(row["table"] == table for row in rows) for table in ("task", "attempt", "payload")} == {
        "task": RUNS,
        "attempt": RUNS,
        "payload": 2 * RUNS,
    }
