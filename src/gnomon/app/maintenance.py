"""Those who keep the house in order: built here, so that a node need only start them."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path

from gnomon.adapters.archive import FolderArchive, NoArchive
from gnomon.adapters.http_client import HttpPingSender
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.store import SqlStore
from gnomon.config.settings import Settings
from gnomon.ports.maintenance import Archive, SingletonLeases
from gnomon.ports.runtime import Clock, Events
from gnomon.runners.secrets import SecretSource
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import run_loop
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.services.maintenance.invariant_checker import InvariantChecker
from gnomon.services.maintenance.pinger import Pinger
from gnomon.services.maintenance.run_repairer import RunRepairer

#: What stands for no archive at all.
_NO_ARCHIVE = "none"
_FIRST_CLEANING_SECONDS = 300.0


class EventTap:
    """Events that someone else hears, too."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.listener: Callable[[str, Mapping[str, object]], None] = lambda _, __: None

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        self._events.emit(name, **facts)
        self.listener(name, facts)


class Maintenance:
    """The cleaner, the mender, the warden, the pinger, and the loops around them."""

    def __init__(
        self, store: SqlStore, turns: SingletonLeases, settings: Settings, clock: Clock, events: Events, *, holder: str
    ) -> None:
        self._events = events
        self._poll_seconds = settings.cleaner.poll_ms / 1000
        self.cleaner = build_cleaner(store, settings, clock, events, holder=holder, turns=turns)
        self.run_repairer = RunRepairer(store, turns, clock, events, settings.reconciler, holder=holder)
        self.invariant_checker = InvariantChecker(store, turns, clock, events, settings.alive, holder=holder)
        self.pinger = build_pinger(store, settings, clock, events)

    def services(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops, until told to stop."""
        return [
            self._delayed_cleaner(stop),
            run_loop("run_repairer", self.run_repairer.step, stop=stop, events=self._events),
            run_loop("invariant_checker", self.invariant_checker.step, stop=stop, events=self._events),
            run_loop("pinger", self.pinger.step, stop=stop, wake=self.pinger.wake, events=self._events),
        ]

    async def _delayed_cleaner(self, stop: asyncio.Event) -> None:
        """Old history can wait until everything else has begun."""
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(_FIRST_CLEANING_SECONDS, self._poll_seconds))
        await run_loop("cleaner", self.cleaner.step, stop=stop, events=self._events)


def build_pinger(store: SqlStore, settings: Settings, clock: Clock, events: Events) -> Pinger:
    """Who calls what jobs want to be called when their runs start and end."""
    secrets = SecretSource(settings.secrets, os.environ)
    return Pinger(
        store,
        WorkflowCache(store),
        HttpPingSender(),
        clock,
        events,
        settings.alive,
        secrets=lambda url: str(secrets.resolve({"url": url})[0]["url"]),
    )


def build_cleaner(
    store: SqlStore,
    settings: Settings,
    clock: Clock,
    events: Events,
    *,
    holder: str,
    turns: SingletonLeases | None = None,
) -> Cleaner:
    """The cleaner of a store, which takes its turns there if nothing else is said."""
    archive = open_archive(settings)
    return Cleaner(store, store, turns or store, archive, clock, events, settings=settings, holder=holder)


def open_archive(settings: Settings) -> Archive | None:
    """Where history is kept before it is removed; None if nobody said so and there is no file to be beside."""
    said = settings.execution.archive_dir
    if said == _NO_ARCHIVE:
        return NoArchive()
    if said:
        return FolderArchive(Path(said))
    path = sqlite_path(settings.database.url)
    return None if path is None else FolderArchive(Path(f"{path}.archive"))
