"""Database files with the newest schema, copied from one that is migrated once."""

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from gnomon.adapters.sql import SqlStore, open_sqlite
from gnomon.adapters.sql.connect import PLAIN_PAYLOADS, PayloadAccess
from gnomon.adapters.sql.migrator import upgrade
from gnomon.adapters.sql.sqlite import engine_for

_folder = tempfile.TemporaryDirectory(prefix="gnomon-sqlite-")
_migrated: list[str] = []


@cache
def _newest() -> str:
    """A file with the newest schema that no store has opened yet, so that each copy gets an id of its own."""
    path = str(Path(_folder.name, "newest.db"))
    engine = engine_for(path, begin="BEGIN IMMEDIATE", connections=1)
    with engine.begin() as conn:
        upgrade(conn)
    engine.dispose()
    return path


def new_sqlite_file(path: Path) -> Path:
    """Make a database file as migrations do, in a twentieth of the time."""
    shutil.copy(_newest(), path)
    return path


async def open_new_sqlite(path: Path, *, now: Callable[[], int], payloads: PayloadAccess = PLAIN_PAYLOADS) -> SqlStore:
    """A store on a new file. A copy of a migrated file is cheaper than migrations."""
    if not _migrated:
        migrated = str(Path(_folder.name, "migrated.db"))
        await (await open_sqlite(migrated)).close()
        _migrated.append(migrated)
    shutil.copy(_migrated[0], path)
    return await open_sqlite(str(path), now=now, payloads=payloads)
