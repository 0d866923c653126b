"""Database files with the newest schema, copied from one that is migrated once."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from gnomon.adapters.sql import SqlStore, open_sqlite
from gnomon.adapters.sql.connect import PLAIN_PAYLOADS, PayloadAccess

_folder = tempfile.TemporaryDirectory(prefix="gnomon-sqlite-")
_migrated: list[str] = []


async def open_new_sqlite(path: Path, *, now: Callable[[], int], payloads: PayloadAccess = PLAIN_PAYLOADS) -> SqlStore:
    """A store on a new file. A copy of a migrated file is cheaper than migrations."""
    if not _migrated:
        migrated = str(Path(_folder.name, "migrated.db"))
        await (await open_sqlite(migrated)).close()
        _migrated.append(migrated)
    shutil.copy(_migrated[0], path)
    return await open_sqlite(str(path), now=now, payloads=payloads)
