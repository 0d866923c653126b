"""Observability of a process: metrics, health probes, and notifications of the service manager."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Protocol, TextIO

import msgspec
from msgspec import Struct

from gnomon.adapters.event_sinks import ConsoleEvents, JsonEvents
from gnomon.adapters.host import SystemClock
from gnomon.adapters.probe_server import MAX_PROBE_CONNECTIONS, ProbeResponse, ProbeServer
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.systemd import SystemdNotifier
from gnomon.app.sandbox import announce_sandbox, sandbox_status
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.health import ComponentStatus
from gnomon.core.metrics import MetricScope
from gnomon.core.served_hosts import ServedHosts
from gnomon.errors import UsageError
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.runners.open_files import open_files_limit
from gnomon.services.loop import Backoff, run_loop
from gnomon.services.observability.health import HealthMonitor, StepFailures
from gnomon.services.observability.metrics import MetricsRecorder, MetricsSnapshot
from gnomon.services.observability.outbox_reader import OutboxReader
from gnomon.services.observability.step_topics import StepTopics
from gnomon.services.observed_events import EventListener, ObservedEvents, ThrottledEvents
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker


def console_events(stream: TextIO, *, quiet: bool = False) -> Events:
    """Events as lines for a person; if `quiet`, as JSON for a program."""
    return JsonEvents(stream) if quiet else ConsoleEvents(stream)


class Observable(Protocol):
    """A process that can be observed."""

    @property
    def observability(self) -> "Observability":
        """Its health and metrics."""
        ...

    @property
    def events(self) -> Events:
        """Its events."""
        ...


def free_bytes(settings: Settings) -> int | None:
    """The free space of the disk of the database file; None if it is on a server."""
    path = sqlite_path(settings.database.url)
    return None if path is None else shutil.disk_usage(Path(path).absolute().parent).free


class EventObservers:
    """Observes the events of a process: failed steps for its health, and counts for its metrics.

    It is built before the services, whose events it observes; `Observability` is built after them, since it asks them.
    """

    def __init__(self, clock: Clock, events: Events, metrics: MetricsRecorder | None) -> None:
        self.failures = StepFailures(clock)
        self.metrics = metrics
        listeners: list[EventListener] = [self.failures.on_event]
        if metrics is not None:
            listeners.append(metrics.on_event)
        self.events: Events = ObservedEvents(events, listeners)


class SchedulerParts(Struct, frozen=True):
    """The parts of a server that a worker does not have."""

    ticker: Ticker
    elector: Elector
    #: Finds the commits of processes that do not count their own.
    outbox: OutboxReader


class Observability:
    """Health and metrics of one process: a server, or a worker, with or without a store."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        store: Store | None,
        settings: Settings,
        clock: Clock,
        observers: EventObservers,
        *,
        backoffs: Callable[[], Mapping[str, Backoff]],
        statuses: Callable[[], Mapping[str, ComponentStatus]] = dict,
        server: SchedulerParts | None = None,
        link: Callable[[], ComponentStatus] | None = None,
        runs_commands: bool = True,
    ) -> None:
        """`backoffs` returns the backoff of each service by the name of its health component.

        `statuses` returns the status of each service that knows its own.
        `link` is the status of the connection to servers, of a worker without a store.
        """
        self.settings = settings
        self.events = observers.events
        stats = None if store is None else store.stats
        self.health = HealthMonitor(
            stats,
            clock,
            failures=observers.failures,
            tick_ms=settings.ticker.tick_ms,
            max_jobs=0 if server is None else settings.metrics.max_jobs * settings.metrics.enabled,
            stale_ms=settings.reconciler.pending_ms,
            ticker=None if server is None else server.ticker,
            elector=None if server is None else server.elector,
            backoffs=backoffs,
            statuses=statuses,
            free_bytes=partial(free_bytes, settings),
            link=link,
            sandbox=sandbox_status(settings) if runs_commands else None,
        )
        #: Whether this process runs commands.
        self.runs_commands = runs_commands
        #: The counters of the process; None if it exposes no metrics.
        self.metrics_recorder = metrics = observers.metrics
        self.outbox = None if server is None else server.outbox
        self.snapshot = (
            None
            if metrics is None
            else MetricsSnapshot(
                metrics,
                self.health,
                clock,
                stats_reader=stats,
                outbox=self.outbox,
                topics=None if store is None else StepTopics(store.jobs),
                scope=MetricScope.ALL if server is None else MetricScope.SERVERS,
            )
        )

    @property
    def counting(self) -> Callable[[], Awaitable[float]] | None:
        """The step that counts what cannot be counted at its commit; None if this process counts nothing."""
        if self.snapshot is not None:
            return self.snapshot.step
        return None if self.outbox is None else self.outbox.step

    # ---- probes ------------------------------------------------------------------------------

    async def metrics(self) -> ProbeResponse:
        """The metrics page."""
        from gnomon.adapters.prometheus import render_metrics

        assert self.snapshot is not None  # noqa: S101 - without it there is no probe server
        families = await self.snapshot.families()
        kind, body = await asyncio.to_thread(render_metrics, families, self.settings.metrics.prefix)
        return ProbeResponse(kind=kind, body=body)

    async def livez(self) -> ProbeResponse:
        """Whether this process works, or should be restarted."""
        return _json_probe_response({"alive": self.health.alive}, good=self.health.alive)

    async def readyz(self) -> ProbeResponse:
        """Whether this node can serve requests."""
        report = await self.health.report()
        # Conditions without messages: these may contain details that are not public.
        components = {one.name: one.condition.value for one in report.components}
        body = {"ready": report.ready, "status": report.condition.value, "components": components}
        return _json_probe_response(body, good=report.ready)


def _json_probe_response(body: Mapping[str, object], *, good: bool) -> ProbeResponse:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return ProbeResponse(status=status, kind="application/json", body=msgspec.json.encode(body) + b"\n")


@asynccontextmanager
async def observed(
    node: Observable, stop: asyncio.Event, *, strict: bool = True, serve: bool = True, doing: str = "scheduling"
) -> AsyncIterator[None]:
    """Serve probes and metrics of the node, and notify its service manager, while the context is open.

    UsageError if the port is in use; unless `strict`, that is announced, and there are no probes. Unless `serve`, there
    are none either.
    """
    observability = node.observability
    if observability.runs_commands:
        announce_sandbox(observability.settings, node.events)
    server = await _start_probe_server(observability, strict=strict) if serve else None
    notifier = SystemdNotifier.from_environment(os.environ)
    loops = [asyncio.create_task(_notify_stopping(observability.health, notifier, stop))]
    if observability.counting is not None:
        loops.append(
            asyncio.create_task(
                run_loop(component_names.METRICS, observability.counting, stop=stop, events=node.events)
            )
        )
    if notifier.watchdog_interval_seconds is not None:
        loops.append(
            asyncio.create_task(_notify_watchdog(observability.health, notifier, notifier.watchdog_interval_seconds))
        )
    notifier.ready(doing)
    try:
        yield
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        if server is not None:
            await server.close()


async def _start_probe_server(observability: Observability, *, strict: bool) -> ProbeServer | None:
    settings = observability.settings.metrics
    if not settings.enabled:
        return None
    pages = {"/metrics": observability.metrics, "/livez": observability.livez, "/readyz": observability.readyz}
    # An eighth of the files that may be open at most: the rest is for the API, the database and commands.
    max_connections = max(1, min(MAX_PROBE_CONNECTIONS, open_files_limit() // 8))
    server = ProbeServer(
        pages,
        ThrottledEvents(observability.events, SystemClock()),
        ServedHosts(observability.settings.server.hosts, bound_to=settings.host),
        max_connections=max_connections,
    )
    try:
        port = await server.listen(settings.host, settings.port)
    except UsageError as error:
        if strict:
            raise
        observability.events.emit("metrics_unavailable", error=str(error))
        return None
    observability.events.emit("metrics_shown", host=settings.host, port=port)
    return server


async def _notify_stopping(health: HealthMonitor, notifier: SystemdNotifier, stop: asyncio.Event) -> None:
    await stop.wait()
    health.stopping()
    notifier.stopping()


async def _notify_watchdog(health: HealthMonitor, notifier: SystemdNotifier, every: float) -> None:
    """Notify the service manager while the process is alive, also while it drains."""
    while True:
        if health.alive:
            notifier.alive()
        await asyncio.sleep(every)
