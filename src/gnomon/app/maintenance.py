"""Those who keep the house in order: built here, so that a node need only start them."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path

from gnomon.adapters.archive import FolderArchive, NoArchive
from gnomon.adapters.http_client import HttpSender
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.store import SqlStore
from gnomon.config.settings import Settings
from gnomon.ports.maintenance import Archive, Turns
from gnomon.ports.runtime import Clock, Events
from gnomon.runners.secrets import SecretSource
from gnomon.services.execution.workflow_cache import Shelf
from gnomon.services.loop import keep_stepping
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.services.maintenance.invariant_checker import Warden
from gnomon.services.maintenance.pinger import Pinger
from gnomon.services.maintenance.run_repairer import Mender

#: What stands for no archive at all.
_NONE = "none"
_FIRST_CLEANING_SECONDS = 300.0


class OverheardEvents:
    """Events that someone else hears, too."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.listener: Callable[[str, Mapping[str, object]], None] = lambda _, __: None

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        self._events.emit(name, **facts)
        self.listener(name, facts)


class Housekeeping:
    """The cleaner, the mender, the warden, the pinger, and the loops around them."""

    def __init__(
        self, store: SqlStore, turns: Turns, settings: Settings, clock: Clock, events: Events, *, holder: str
    ) -> None:
        self._events = events
        self._poll_seconds = settings.cleaner.poll_ms / 1000
        self.cleaner = cleaner_of(store, settings, clock, events, holder=holder, turns=turns)
        self.mender = Mender(store, turns, clock, events, settings.reconciler, holder=holder)
        self.warden = Warden(store, turns, clock, events, settings.alive, holder=holder)
        self.pinger = pinger_of(store, settings, clock, events)

    def services(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops, until told to stop."""
        return [
            self._clean_later(stop),
            *(keep_stepping(step, stop=stop, events=self._events) for step in (self.mender.step, self.warden.step)),
            keep_stepping(self.pinger.step, stop=stop, wake=self.pinger.wake, events=self._events),
        ]

    async def _clean_later(self, stop: asyncio.Event) -> None:
        """Old history can wait until everything else has begun."""
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(_FIRST_CLEANING_SECONDS, self._poll_seconds))
        await keep_stepping(self.cleaner.step, stop=stop, events=self._events)


def pinger_of(store: SqlStore, settings: Settings, clock: Clock, events: Events) -> Pinger:
    """Who calls what jobs want to be called when their runs start and end."""
    secrets = SecretSource(settings.secrets, os.environ)
    return Pinger(
        store,
        Shelf(store),
        HttpSender(),
        clock,
        events,
        settings.alive,
        secrets=lambda url: str(secrets.resolve({"url": url})[0]["url"]),
    )


def cleaner_of(
    store: SqlStore, settings: Settings, clock: Clock, events: Events, *, holder: str, turns: Turns | None = None
) -> Cleaner:
    """The cleaner of a store, which takes its turns there if nothing else is said."""
    archive = archive_of(settings)
    return Cleaner(store, store, turns or store, archive, clock, events, settings=settings, holder=holder)


def archive_of(settings: Settings) -> Archive | None:
    """Where history is kept before it is removed; None if nobody said so and there is no file to be beside."""
    said = settings.execution.archive_dir
    if said == _NONE:
        return NoArchive()
    if said:
        return FolderArchive(Path(said))
    path = sqlite_path(settings.database.url)
    return None if path is None else FolderArchive(Path(f"{path}.archive"))
