"""The maintenance services of a node: they clean, repair, check, seal and ping."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.adapters.archive import FolderArchive, NoArchive
from gnomon.adapters.http_client import HttpPingSender
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.config.settings import Settings
from gnomon.ports.maintenance import Archive
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.runners.secrets import SecretSource
from gnomon.services.coordination import Singleton
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import run_loop
from gnomon.services.maintenance.audit_sealer import AuditSealer
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.services.maintenance.invariant_checker import InvariantChecker
from gnomon.services.maintenance.pinger import Pinger
from gnomon.services.maintenance.run_repairer import RunRepairer

if TYPE_CHECKING:
    from gnomon.app.execution import NodeContext

#: The setting for no archive at all.
_NO_ARCHIVE = "none"
_FIRST_CLEANING_SECONDS = 300.0
#: A lease lasts for so many steps, so that one node keeps it while it lives.
_STEPS_PER_LEASE = 2
#: The lease is renewed once a quarter of it has passed: in the rest, 120 s, a bundle is archived and removed.
_CLEANER_LEASE_MS = 160_000


class Maintenance:
    """Cleaner, run repairer, invariant checker and audit sealer of a node, and their loops."""

    def __init__(
        self,
        context: "NodeContext",
        *,
        busy: Callable[[], bool],
    ) -> None:
        """`busy` says whether other services have urgent writes."""
        store, settings, clock, events = context.store, context.settings, context.clock, context.events
        self._events = events
        self._poll_seconds = settings.cleaner.poll_ms / 1000
        lease = context.coordination.singleton
        cleaner_ms = max(_CLEANER_LEASE_MS, _STEPS_PER_LEASE * settings.cleaner.pause_ms)
        self._cleaner = build_cleaner(store, settings, clock, events, lease=lease("cleaner", ttl_ms=cleaner_ms))
        self._run_repairer = RunRepairer(
            store.invariants,
            clock,
            events,
            settings.reconciler,
            lease=lease("mender", ttl_ms=_STEPS_PER_LEASE * settings.reconciler.poll_ms),
            on_ready=context.wake_ups.dispatch.set,
        )
        self._invariant_checker = InvariantChecker(
            store.invariants,
            clock,
            events,
            settings.alive,
            lease=lease("warden", ttl_ms=_STEPS_PER_LEASE * settings.alive.poll_ms),
        )
        self._audit_sealer = AuditSealer(store.audit, clock, events, lease=lease("sealer"), busy=busy)

    def loops(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops of the services, until `stop` is set."""
        return [
            run_loop("sealer", self._audit_sealer.step, stop=stop, events=self._events),
            self._delayed_cleaner(stop),
            run_loop("mender", self._run_repairer.step, stop=stop, events=self._events),
            run_loop("warden", self._invariant_checker.step, stop=stop, events=self._events),
        ]

    async def _delayed_cleaner(self, stop: asyncio.Event) -> None:
        """Start the cleaner's loop late: old history can wait until everything else has started."""
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(_FIRST_CLEANING_SECONDS, self._poll_seconds))
        await run_loop("cleaner", self._cleaner.step, stop=stop, events=self._events)


def build_pinger(
    store: Store, settings: Settings, clock: Clock, events: Events, *, deciding: Callable[[], bool]
) -> Pinger:
    """The service that calls the addresses of jobs when their runs start and end.

    It calls the scheduler's own address while `deciding` says that this process decides ticks.
    """
    secrets = SecretSource(settings.secrets, os.environ)
    return Pinger(
        store.executions,
        WorkflowCache(store.jobs),
        HttpPingSender(),
        clock,
        events,
        settings.alive,
        deciding=deciding,
        secrets=lambda url: str(secrets.resolve({"url": url})[0]["url"]),
    )


def build_cleaner(store: Store, settings: Settings, clock: Clock, events: Events, *, lease: Singleton) -> Cleaner:
    """The cleaner of a store, with the archive that the settings name."""
    return Cleaner(store.retention, store.jobs, open_archive(settings), clock, events, settings=settings, lease=lease)


def archive_configured(settings: Settings) -> bool:
    """Whether history can be removed: there is an archive for it, or the settings say that it needs none."""
    return open_archive(settings) is not None


def open_archive(settings: Settings) -> Archive | None:
    """The archive of history before it is removed; None if the settings name none and there is no database file."""
    folder = settings.execution.archive_dir
    if folder == _NO_ARCHIVE:
        return NoArchive()
    if folder:
        return FolderArchive(Path(folder))
    path = sqlite_path(settings.database.url)
    return None if path is None else FolderArchive(Path(f"{path}.archive"))
