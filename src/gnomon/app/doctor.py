"""`gnomon doctor`: checks a database in any state, and changes nothing."""

import time

from gnomon.adapters.host import SystemClock, tzdata_version
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.migrator import SCHEMA
from gnomon.app.observability import free_bytes
from gnomon.app.settings import redact_password
from gnomon.app.stores import require_database_file
from gnomon.config.settings import Settings
from gnomon.core.health import ledger_stall_limit_ms
from gnomon.errors import Unavailable, UsageError
from gnomon.services.observability.health import Finding, Severity, disk_finding, store_findings


async def diagnose(settings: Settings) -> list[Finding]:
    """All findings; NoDatabase if there is no database file."""
    url = settings.database.url
    require_database_file(settings)
    found = await _store_findings(settings, redact_password(url))
    space = disk_finding(free_bytes(settings))
    return [*found, *([space] if space is not None else []), _timezone_finding()]


async def _store_findings(settings: Settings, shown: str) -> list[Finding]:
    began, now = time.monotonic(), SystemClock().now()
    try:
        store = await open_store(settings.database.url, migrate=False)
    except Unavailable as error:
        return [Finding("database", Severity.ERROR, f"{shown} does not answer: {error}")]
    except UsageError as error:
        return [Finding("database", Severity.OK, shown), Finding("schema", Severity.ERROR, str(error))]
    try:
        overdue_before = now - ledger_stall_limit_ms(settings.ticker.tick_ms)
        stats = await store.stats.read(now, overdue_before=overdue_before, cards=0)
    except Unavailable as error:
        return [Finding("database", Severity.ERROR, f"{shown} does not answer: {error}")]
    finally:
        await store.close()
    took = round((time.monotonic() - began) * 1000)
    return [
        Finding("database", Severity.OK, f"{shown} answered in {took} ms"),
        Finding("schema", Severity.OK, f"{stats.schema}; this program is of {SCHEMA}"),
        *store_findings(stats, settings, now=SystemClock().now()),
    ]


def _timezone_finding() -> Finding:
    try:
        return Finding("time zones", Severity.OK, tzdata_version())
    except Exception as error:  # noqa: BLE001 - any error means that they cannot be used
        return Finding("time zones", Severity.ERROR, f"there is no database of time zones: {error}")
