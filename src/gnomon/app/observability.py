"""What lets others look at a node while it runs: numbers, health, and words for a service manager."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import msgspec

from gnomon.adapters.probe_server import Answer, ProbeServer
from gnomon.adapters.sql.after_commit import Tallied
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.stats import SqlSurveyor
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.systemd import Notifier
from gnomon.config.settings import Settings
from gnomon.errors import UsageError
from gnomon.ports.runtime import Clock, Events
from gnomon.services.loop import keep_stepping
from gnomon.services.observability.health import Vitals
from gnomon.services.observability.metrics import Exhibit, Meter
from gnomon.services.telemetry import HeardEvents, Listener


class Watchable(Protocol):
    """What can be looked at while it runs."""

    @property
    def instruments(self) -> "Instruments":
        """By which it is looked at."""
        ...

    @property
    def events(self) -> Events:
        """Where it announces what happens."""
        ...


def free_bytes(settings: Settings) -> int | None:
    """How much the disk of the database can take; None if it is on a server."""
    path = sqlite_path(settings.database.url)
    return None if path is None else shutil.disk_usage(Path(path).absolute().parent).free


class Instruments:
    """The instruments of one node: they hear what it announces and count what its store commits."""

    def __init__(self, store: SqlStore, settings: Settings, clock: Clock, events: Events) -> None:
        self.settings = settings
        surveyor = SqlSurveyor(store)
        self.vitals = Vitals(
            surveyor, clock, tick_ms=settings.ticker.tick_ms, cards=settings.metrics.max_jobs * settings.metrics.enabled
        )
        listeners: list[Listener] = [self.vitals.happened]
        self.exhibit: Exhibit | None = None
        if settings.metrics.enabled:
            meter = Meter(max_jobs=settings.metrics.max_jobs)
            store.transactions = Tallied(store.transactions, meter)
            listeners.append(meter.happened)
            self.exhibit = Exhibit(meter, self.vitals, surveyor, clock)
        self.events: Events = HeardEvents(events, listeners)

    # ---- what is shown -----------------------------------------------------------------------

    async def metrics(self) -> Answer:
        """All numbers."""
        from gnomon.adapters.prometheus import rendered

        assert self.exhibit is not None  # noqa: S101 - nobody listens if it is None
        families = await self.exhibit.families()
        kind, body = await asyncio.to_thread(rendered, families, self.settings.metrics.prefix)
        return Answer(kind=kind, body=body)

    async def livez(self) -> Answer:
        """Whether this process is worth keeping."""
        return _answer({"alive": self.vitals.alive}, good=self.vitals.alive)

    async def readyz(self) -> Answer:
        """Whether this node can be worked with."""
        report = await self.vitals.report()
        # Conditions without messages: those may say what is not for everybody.
        components = {one.name: one.condition.value for one in report.components}
        said = {"ready": report.ready, "status": report.condition.value, "components": components}
        return _answer(said, good=report.ready)


def _answer(said: Mapping[str, object], *, good: bool) -> Answer:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status=status, kind="application/json", body=msgspec.json.encode(said) + b"\n")


@asynccontextmanager
async def watched(
    node: Watchable, stop: asyncio.Event, *, strict: bool = True, doing: str = "scheduling"
) -> AsyncIterator[None]:
    """Meanwhile the node can be looked at, and its service manager hears of it.

    A port that cannot be had is refused with UsageError; unless `strict`, it is announced and done without.
    """
    instruments = node.instruments
    server = await _listening(instruments, strict=strict)
    notifier = Notifier.of(os.environ)
    loops = [asyncio.create_task(_tell_of_stop(instruments.vitals, notifier, stop))]
    if instruments.exhibit is not None:
        loops.append(asyncio.create_task(keep_stepping(instruments.exhibit.step, stop=stop, events=node.events)))
    if notifier.every_seconds is not None:
        loops.append(asyncio.create_task(_keep_alive(instruments.vitals, notifier, notifier.every_seconds)))
    notifier.ready(doing)
    try:
        yield
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        if server is not None:
            await server.close()


async def _listening(instruments: Instruments, *, strict: bool) -> ProbeServer | None:
    settings = instruments.settings.metrics
    if not settings.enabled:
        return None
    pages = {"/metrics": instruments.metrics, "/livez": instruments.livez, "/readyz": instruments.readyz}
    server = ProbeServer(pages)
    try:
        port = await server.listen(settings.host, settings.port)
    except UsageError as error:
        if strict:
            raise
        instruments.events.emit("metrics_unavailable", error=str(error))
        return None
    instruments.events.emit("metrics_shown", host=settings.host, port=port)
    return server


async def _tell_of_stop(vitals: Vitals, notifier: Notifier, stop: asyncio.Event) -> None:
    await stop.wait()
    vitals.draining = True
    notifier.stopping()


async def _keep_alive(vitals: Vitals, notifier: Notifier, every: float) -> None:
    """The manager hears of us as long as we are alive, also while what runs may finish."""
    while True:
        if vitals.alive:
            notifier.alive()
        await asyncio.sleep(every)
