"""`gnomon doctor`: a look at a database from outside, whatever state it is in. Nothing is changed, nor made."""

import time
from pathlib import Path

from gnomon.adapters.host import SystemClock, tzdata_version
from gnomon.adapters.sql.connect import open_store, sqlite_path
from gnomon.adapters.sql.migrator import SCHEMA
from gnomon.adapters.sql.stats import SqlSurveyor
from gnomon.app.observability import free_bytes
from gnomon.app.operations import hidden_password
from gnomon.config.settings import Settings
from gnomon.core.health import longest_silence_ms
from gnomon.errors import Unavailable, UsageError
from gnomon.services.observability.health import Finding, Grade, disk, findings


async def examined(settings: Settings) -> list[Finding]:
    """Everything that was found. UsageError if there is nothing to look at."""
    url = settings.database.url
    _refuse_missing(sqlite_path(url))
    found = await _of_store(settings, hidden_password(url))
    space = disk(free_bytes(settings))
    return [*found, *([space] if space is not None else []), _zones()]


def _refuse_missing(path: str | None) -> None:
    if path is not None and not Path(path).exists():
        raise UsageError(f"there is no database {path}: start with gnomon up or gnomon jobs apply")


async def _of_store(settings: Settings, shown: str) -> list[Finding]:
    began, now = time.monotonic(), SystemClock().now()
    try:
        store = await open_store(settings.database.url, migrate=False)
    except Unavailable as error:
        return [Finding("database", Grade.ERROR, f"{shown} does not answer: {error}")]
    except UsageError as error:
        return [Finding("database", Grade.OK, shown), Finding("schema", Grade.ERROR, str(error))]
    try:
        overdue_before = now - longest_silence_ms(settings.ticker.tick_ms)
        survey = await SqlSurveyor(store).survey(now, overdue_before=overdue_before, cards=0)
    except Unavailable as error:
        return [Finding("database", Grade.ERROR, f"{shown} does not answer: {error}")]
    finally:
        await store.close()
    took = round((time.monotonic() - began) * 1000)
    return [
        Finding("database", Grade.OK, f"{shown} answered in {took} ms"),
        Finding("schema", Grade.OK, f"{survey.schema}; this program is of {SCHEMA}"),
        *findings(survey, settings, now=SystemClock().now()),
    ]


def _zones() -> Finding:
    try:
        return Finding("time zones", Grade.OK, tzdata_version())
    except Exception as error:  # noqa: BLE001 - however they are missing, that is what there is to say
        return Finding("time zones", Grade.ERROR, f"there is no database of time zones: {error}")
