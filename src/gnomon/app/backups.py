"""Backups of a store, and their restoration, on either database."""

import asyncio
import tempfile
from pathlib import Path

from msgspec import Struct

from gnomon.adapters.sql.backup_file import (
    check_backup,
    copy_sqlite,
    drop_active_parts,
    mark_backup,
    new_backup,
)
from gnomon.adapters.sql.connect import migrate, open_sqlite, postgres_schema, sqlite_path, wall_clock
from gnomon.adapters.sql.migrator import SCHEMA
from gnomon.adapters.sql.restoring import SqlOpenRuns, check_target, install_file, install_tables, prepare_copy
from gnomon.app.extras import check_extras
from gnomon.app.stores import require_database_file
from gnomon.config.settings import Settings
from gnomon.core.ledger.restored import StoreRestore
from gnomon.errors import FileError
from gnomon.ports.runtime import Events
from gnomon.services.maintenance.restored_store import RestoredStore, RestoreReport, announce_restore


class BackupInfo(Struct, frozen=True, kw_only=True):
    """A backup that was made and checked."""

    file: Path
    schema: int
    backup_at: int
    size: int


async def back_up(settings: Settings, file: Path) -> BackupInfo:
    """Write a backup of the database while it is in use; FileError if that is not possible."""
    check_extras(settings)
    require_database_file(settings)
    path = sqlite_path(settings.database.url)
    with new_backup(file) as unfinished:
        if path is not None:
            # Before the copy: what was written since then may be in it, and what was written later is not.
            moment = wall_clock()
            await asyncio.to_thread(copy_sqlite, Path(path), unfinished)
            await asyncio.to_thread(drop_active_parts, unfinished)
            await asyncio.to_thread(mark_backup, unfinished, moment)
        else:
            await _copy_server(settings, unfinished)
    return await asyncio.to_thread(_info, file)


def _info(file: Path) -> BackupInfo:
    schema, backup_at = check_backup(file)
    return BackupInfo(file=file, schema=schema, backup_at=backup_at or 0, size=file.stat().st_size)


async def _copy_server(settings: Settings, target: Path) -> None:
    from gnomon.adapters.sql.postgres_backup import copy_server, plain_connection

    schema = await _schema_of(settings)
    async with plain_connection(settings.database.url) as connection:
        await copy_server(connection, target, schema=schema)


async def _schema_of(settings: Settings) -> str | None:
    database = settings.database
    return await postgres_schema(database.url, schema=database.schema, statement_cache=database.statement_cache)


class Restored(Struct, frozen=True, kw_only=True):
    """A backup that was restored."""

    report: RestoreReport
    #: The name that a replaced file has now.
    kept: Path | None = None


class RestoreRequest(Struct, frozen=True, kw_only=True):
    """A backup to restore, and the options of the restoration."""

    backup: Path
    #: Whether a target with content may be replaced.
    replace: bool
    actor: str


async def restore(settings: Settings, request: RestoreRequest, events: Events) -> Restored:
    """Restore a backup, and decide about everything that may have run since it was made.

    The target stays as it is until the restored copy is complete, and is then replaced as a whole. UsageError if it is
    in use, FileError if the backup cannot be used.
    """
    check_extras(settings)
    backup = request.backup
    schema, backup_at = await asyncio.to_thread(check_backup, backup)
    if schema > SCHEMA:
        raise FileError(backup, f"has schema {schema}, this program is of {SCHEMA}: upgrade the program")
    path = sqlite_path(settings.database.url)
    if path is None:
        done = await _restore_server(settings, request, backup_at)
    else:
        done = await _restore_file(Path.cwd() / path, request, backup_at)
    announce_restore(done.report, events)
    return done


async def _restore_file(path: Path, request: RestoreRequest, backup_at: int | None) -> Restored:
    await asyncio.to_thread(check_target, path, replace=request.replace)
    # In the same folder, so that the copy takes its place in one step.
    with tempfile.TemporaryDirectory(prefix=".gnomon-restore-", dir=path.parent) as folder:
        copy, moment = Path(folder) / path.name, StoreRestore(backup_at=backup_at, restored_at=wall_clock())
        report = await _decided_copy(request, copy, moment)
        return Restored(report=report, kept=await asyncio.to_thread(install_file, copy, path, replace=request.replace))


async def _restore_server(settings: Settings, request: RestoreRequest, backup_at: int | None) -> Restored:
    from gnomon.adapters.sql.postgres_backup import plain_connection, store_time

    await migrate(settings.database.url, schema=settings.database.schema)
    schema = await _schema_of(settings)
    with tempfile.TemporaryDirectory(prefix="gnomon-restore-") as folder:
        async with plain_connection(settings.database.url) as connection:
            moment = StoreRestore(backup_at=backup_at, restored_at=await store_time(connection))
            copy = Path(folder) / "restored.db"
            report = await _decided_copy(request, copy, moment)
            await install_tables(copy, connection, schema=schema, replace=request.replace)
    return Restored(report=report)


async def _decided_copy(request: RestoreRequest, copy: Path, moment: StoreRestore) -> RestoreReport:
    """Make the copy, and decide on it about what is in doubt."""
    await asyncio.to_thread(prepare_copy, request.backup, copy, restored_at=moment.restored_at)
    store = await open_sqlite(str(copy), now=lambda: moment.restored_at)
    try:
        return await RestoredStore(store, SqlOpenRuns(store.transactions), actor=request.actor).decide(moment)
    finally:
        await store.close()
