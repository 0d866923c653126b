"""`gnomon doctor`: checks a database in any state, and changes nothing."""

import time
from collections.abc import Mapping, Sequence

from gnomon.adapters.host import SystemClock, tzdata_version
from gnomon.adapters.sql.connect import open_store, sqlite_path
from gnomon.adapters.sql.database_file import scheduler_of_another_file
from gnomon.adapters.sql.migrator import SCHEMA
from gnomon.app.extras import check_extras
from gnomon.app.maintenance import retention_finding
from gnomon.app.observability import free_bytes
from gnomon.app.operations import Operations
from gnomon.app.sandbox import sandbox_findings
from gnomon.app.settings import redact_password
from gnomon.app.stores import require_database_file
from gnomon.config.settings import Settings
from gnomon.core.health import ledger_stall_limit_ms
from gnomon.core.jobs.origins import origin_text
from gnomon.core.model import Schedule
from gnomon.errors import FileError, Unavailable, UsageError
from gnomon.services.observability.health import (
    Finding,
    Severity,
    disk_finding,
    held_tasks_finding,
    marks_finding,
    store_findings,
)

#: How many jobs a finding counts, and how many it names.
_MOST_ORPHANS, _NAMED = 1000, 10


async def diagnose(settings: Settings) -> list[Finding]:
    """All findings; NoDatabase if there is no database file."""
    url = settings.database.url
    replaced = _replaced_file_finding(settings)
    if replaced is None:
        require_database_file(settings)
    found = [replaced] if replaced is not None else await _store_findings(settings, redact_password(url))
    space = disk_finding(free_bytes(settings))
    return [
        *found,
        retention_finding(settings),
        *sandbox_findings(settings),
        *([space] if space is not None else []),
        _timezone_finding(),
    ]


def _replaced_file_finding(settings: Settings) -> Finding | None:
    """The finding about a scheduler whose database file was taken away while it runs."""
    path = sqlite_path(settings.database.url)
    running = None if path is None else scheduler_of_another_file(path)
    if running is None:
        return None
    message = (
        f"{path} was moved, deleted or replaced while the scheduler with the process id {running.pid} uses it:"
        " put it back, or restart the scheduler"
    )
    return Finding("database", Severity.ERROR, message)


async def _store_findings(settings: Settings, shown: str) -> list[Finding]:
    began, now = time.monotonic(), SystemClock().now()
    try:
        check_extras(settings)
        store = await open_store(settings.database.url, migrate=False, schema=settings.database.schema)
    except Unavailable as error:
        return [Finding("database", Severity.ERROR, f"{shown} does not answer: {error}")]
    except FileError as error:
        return [Finding("database", Severity.ERROR, str(error))]
    except UsageError as error:
        return [Finding("database", Severity.OK, shown), Finding("schema", Severity.ERROR, str(error))]
    try:
        overdue_before = now - ledger_stall_limit_ms(settings.ticker.tick_ms)
        stats = await store.stats.read(now, overdue_before=overdue_before, max_jobs=0)
        jobs = Operations(store, settings).jobs
        orphans, unfit = await jobs.orphans(limit=_MOST_ORPHANS), await jobs.unfit_agents()
        marks, held = await store.stats.marks_ahead(), await store.stats.held_tasks()
    except Unavailable as error:
        return [Finding("database", Severity.ERROR, f"{shown} does not answer: {error}")]
    finally:
        await store.close()
    took = round((time.monotonic() - began) * 1000)
    return [
        Finding("database", Severity.OK, f"{shown} answered in {took} ms"),
        Finding("schema", Severity.OK, f"{stats.schema}; this program is of {SCHEMA}"),
        *store_findings(stats, settings, now=SystemClock().now()),
        held_tasks_finding(held),
        *_orphan_findings(orphans),
        *_agent_findings(unfit),
        marks_finding(marks, now=stats.store_at),
    ]


def _orphan_findings(orphans: Sequence[Schedule]) -> list[Finding]:
    """The finding about jobs that are no longer declared, if there are any."""
    if not orphans:
        return []
    named = [f"{one.schedule_id} ({origin_text(one.spec.origin)})" for one in orphans[:_NAMED]]
    more = "or more " if len(orphans) == _MOST_ORPHANS else ""
    counted = "1 job is" if len(orphans) == 1 else f"{len(orphans)} {more}jobs are"
    message = f"{counted} no longer declared: {', '.join(named)}{', …' if len(orphans) > _NAMED else ''}"
    return [Finding("jobs", Severity.WARNING, f"{message}; gnomon up --prune or gnomon jobs delete removes them")]


def _agent_findings(unfit: Mapping[str, str]) -> list[Finding]:
    """The finding about jobs whose agents the settings no longer allow to start, if there are any."""
    if not unfit:
        return []
    [(job, reason), *others] = unfit.items()
    more = f" (and {len(others)} more)" if others else ""
    return [Finding("agents", Severity.WARNING, f"the agent of {job}{more} cannot start: {reason}")]


def _timezone_finding() -> Finding:
    try:
        return Finding("time zones", Severity.OK, tzdata_version())
    except Exception as error:  # noqa: BLE001 - any error means that they cannot be used
        return Finding("time zones", Severity.ERROR, f"there is no database of time zones: {error}")
