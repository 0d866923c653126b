"""`gnomon db restore` with files that somebody else has made: refused by name, and the target stays as it is."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gnomon.app.backups import RestoreRequest, back_up, restore
from gnomon.app.operations import Operations
from gnomon.config.settings import Settings, load
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import FileError, UsageError
from gnomon.services.observed_events import NullEvents
from support.command_line import run_command
from support.postgres_server import postgres

JOB = {"name": "report", "function": "f", "schedule": "@daily"}
#: A query that never ends.
ENDLESS = "WITH RECURSIVE c AS (SELECT 1 AS x UNION ALL SELECT x FROM c) SELECT count(*) FROM c"
GIBIBYTE = 1 << 30


def settings_of(path: Path) -> Settings:
    return load(flags={"database.url": f"sqlite:///{path}"})


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    """A backup of a database with a job."""
    source, made = settings_of(tmp_path / "source.db"), tmp_path / "backup.db"
    async with Operations.open(source) as operations:
        await operations.jobs.apply([read_job(JOB, Defaults(), now=0)], actor="ada")
    await back_up(source, made)
    return made


async def restored(backup: Path) -> Path:
    """Restore into a new file, and return it."""
    target = backup.with_name("target.db")
    request = RestoreRequest(backup=backup, replace=False, actor="ada")
    await restore(settings_of(target), request, NullEvents())
    return target


def change(backup: Path, *statements: str) -> None:
    with closing(sqlite3.connect(backup)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def cut(backup: Path) -> None:
    os.truncate(backup, backup.stat().st_size // 2)


def replaced_by_noise(backup: Path) -> None:
    backup.write_bytes(os.urandom(10_000))


def replaced_by_nothing(backup: Path) -> None:
    backup.unlink()
    backup.touch()
    os.truncate(backup, 3 * GIBIBYTE)


def replaced_by_pipe(backup: Path) -> None:
    backup.unlink()
    os.mkfifo(backup)


def replaced_by_folder(backup: Path) -> None:
    backup.unlink()
    backup.mkdir()


def linked(to: str) -> Callable[[Path], None]:
    def replaced_by_link(backup: Path) -> None:
        backup.unlink()
        backup.symlink_to(to)

    return replaced_by_link


def changed(*statements: str) -> Callable[[Path], None]:
    return lambda backup: change(backup, *statements)


def declared(definition: str) -> Callable[[Path], None]:
    """Write an entry into the schema of the file that SQLite itself would not make."""

    def declare(backup: Path) -> None:
        with closing(sqlite3.connect(backup)) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("INSERT INTO sqlite_schema VALUES ('table', 'v', 'v', 0, ?)", (definition,))

    return declare


TRIGGER = "CREATE TRIGGER t AFTER UPDATE ON shard BEGIN DELETE FROM audit; END"
HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a trigger": (changed(TRIGGER), "has a trigger 't'"),
    "a trigger that never ends": (changed(TRIGGER.replace("DELETE FROM audit", ENDLESS)), "has a trigger 't'"),
    "a view": (changed(f"CREATE VIEW v AS {ENDLESS}"), "has a view 'v'"),
    "a view in place of a table": (
        changed("ALTER TABLE schedule RENAME TO kept", "CREATE VIEW schedule AS SELECT * FROM kept"),
        "has a view 'schedule'",
    ),
    "a virtual table": (changed("CREATE VIRTUAL TABLE v USING fts5(x)"), "has a table 'v'"),
    "a virtual table of a module that is not there": (
        declared("CREATE/**/VIRTUAL/**/TABLE v USING nothing(x)"),
        "is no backup of Gnomon: malformed",
    ),
    "a computed column": (
        changed("ALTER TABLE run RENAME COLUMN user_id TO kept", "ALTER TABLE run ADD COLUMN user_id AS ('root')"),
        "the table run has no column user_id",
    ),
    "no table": (changed("DROP TABLE schedule"), "the table schedule has no column"),
    "another database": (
        changed("DROP TABLE gnomon_meta", "CREATE TABLE gnomon_meta (key, value)"),
        "is no backup of Gnomon",
    ),
    "a text for a number": (
        changed("INSERT INTO gnomon_meta VALUES ('epoch', 'x')"),
        "cannot be restored: invalid literal",
    ),
    "the schema of the future": (
        changed("UPDATE gnomon_meta SET value = '99999999999999999999' WHERE key = 'schema'"),
        "upgrade the program",
    ),
    "half of it": (cut, "is no backup of Gnomon"),
    "noise": (replaced_by_noise, "is no backup of Gnomon"),
    "three gibibytes of nothing": (replaced_by_nothing, "is no backup of Gnomon"),
    "a pipe": (replaced_by_pipe, "is no file"),
    "a link to another file": (linked("/etc/passwd"), "is no backup of Gnomon"),
    "a link to a device": (linked("/dev/zero"), "is no file"),
    "a folder": (replaced_by_folder, "is no file"),
}


@pytest.mark.req("H-22")
@pytest.mark.parametrize(("make_hostile", "reason"), HOSTILE.values(), ids=HOSTILE)
async def test_a_file_that_is_no_plain_backup_is_refused(
    backup: Path, make_hostile: Callable[[Path], object], reason: str
) -> None:
    make_hostile(backup)
    before = sorted(backup.parent.iterdir())

    with pytest.raises(FileError, match=reason):
        await restored(backup)

    assert sorted(backup.parent.iterdir()) == before


@pytest.mark.thorough
async def test_a_backup_whose_values_a_server_cannot_hold_is_refused(backup: Path) -> None:
    url = await postgres(18).fresh()
    change(backup, "UPDATE schedule SET mark_at = 'x'")

    with pytest.raises(UsageError, match="cannot be restored: table schedule"):
        await restore(
            load(flags={"database.url": url}), RestoreRequest(backup=backup, replace=False, actor="ada"), NullEvents()
        )

    assert await postgres(18).run("SELECT * FROM schedule", url=url) == []


async def test_bytes_after_the_pages_of_a_backup_are_left_out(backup: Path) -> None:
    os.truncate(backup, GIBIBYTE)

    target = await restored(backup)

    assert target.stat().st_size < GIBIBYTE // 100


async def test_a_backup_is_made_without_the_triggers_and_views_of_others(backup: Path) -> None:
    target = await restored(backup)
    change(
        target,
        TRIGGER.replace(" t ", ' "it\'s" '),
        "CREATE VIEW v AS SELECT 1",
        "CREATE VIRTUAL TABLE words USING fts5(x)",
    )
    again, other = backup.with_name("again.db"), backup.with_name("other.db")

    await back_up(settings_of(target), again)
    shutil.move(target, other)

    assert (await restored(again)).is_file()


def test_the_command_names_the_reason_without_a_traceback(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile.db"
    change(hostile, "CREATE TABLE gnomon_meta (key, value)", "CREATE VIEW job AS SELECT 1")
    words = ["db", "restore", str(hostile), "--database", str(tmp_path / "target.db")]

    refused = run_command(*words, folder=tmp_path)

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {hostile}: has a view 'job'")
