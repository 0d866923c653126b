"""The maintenance services of a node: they clean, repair, check, seal and ping."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.adapters.archive import FolderArchive, NoArchive
from gnomon.adapters.http_client import HttpPingSender, configured_client
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.app.auth import checkpoint_signer
from gnomon.app.channels import open_channels
from gnomon.app.secrets import secret_source
from gnomon.config.archive_address import read_archive_address
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.outgoing import AllowedHosts
from gnomon.errors import ArchiveUnavailable
from gnomon.ports.maintenance import Archive
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.services.coordination import Singleton
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import run_loop
from gnomon.services.maintenance.announcer import AnnouncementSignal, Announcer, MessageComposer
from gnomon.services.maintenance.approval_updater import ApprovalUpdater
from gnomon.services.maintenance.audit_sealer import AuditSealer
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.services.maintenance.invariant_checker import InvariantChecker
from gnomon.services.maintenance.lock_publisher import LockPublisher
from gnomon.services.maintenance.pinger import Pinger
from gnomon.services.maintenance.run_repairer import RunRepairer
from gnomon.services.maintenance.tick_summer import TickSummer
from gnomon.services.observability.health import Finding, Severity
from gnomon.services.observability.metrics import MetricsRecorder

if TYPE_CHECKING:
    from gnomon.app.execution import NodeContext

#: The setting for no archive at all, and the folder for the archive of a server that names no place.
_NO_ARCHIVE, _SERVER_FOLDER = "none", "gnomon.archive"
_FIRST_CLEANING_SECONDS = 300.0
#: A lease lasts for so many steps, so that one node keeps it while it lives.
_STEPS_PER_LEASE = 2
#: The lease is renewed once a quarter of it has passed: in the rest, 120 s, a bundle is archived and removed.
_CLEANER_LEASE_MS = 160_000
#: It is renewed between two passes, which begin once a minute.
_TICK_SUMMER_LEASE_MS = 180_000


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
        self._cleaner = build_cleaner(
            store, settings, clock, events, lease=lease(component_names.CLEANER, ttl_ms=cleaner_ms)
        )
        self._run_repairer = RunRepairer(
            store.invariants,
            clock,
            events,
            settings.reconciler,
            lease=lease(component_names.RUN_REPAIRER, ttl_ms=_STEPS_PER_LEASE * settings.reconciler.poll_ms),
            on_ready=context.wake_ups.dispatch.set,
        )
        self._invariant_checker = InvariantChecker(
            store.invariants,
            clock,
            events,
            settings.alive,
            lease=lease(component_names.INVARIANT_CHECKER, ttl_ms=_STEPS_PER_LEASE * settings.alive.poll_ms),
        )
        self._audit_sealer = AuditSealer(
            store.audit,
            clock,
            events,
            lease=lease(component_names.AUDIT_SEALER),
            signer=checkpoint_signer(settings, events),
            busy=busy,
        )

        self._approval_updater = ApprovalUpdater(
            store.approval_upkeep,
            clock,
            events,
            lease=lease(component_names.APPROVAL_UPDATER),
            policies=store.policies,
            on_ready=context.wake_ups.dispatch.set,
            refresh_seconds=settings.policy.refresh_ms / 1000,
        )
        self._tick_summer = TickSummer(
            store.calendar,
            events,
            lease=lease(component_names.TICK_SUMMER, ttl_ms=_TICK_SUMMER_LEASE_MS),
            busy=busy,
        )
        locks = context.coordination.published_locks
        self._lock_publisher = (
            None
            if locks is None
            else LockPublisher(
                store.executions,
                WorkflowCache(store.jobs),
                locks,
                clock,
                events,
                lease=lease(component_names.LOCK_PUBLISHER),
                default_timeout_ms=settings.execution.default_timeout_ms,
            )
        )

    def loops(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops of the services, until `stop` is set."""
        publisher = self._lock_publisher
        publishing = (
            []
            if publisher is None
            else [run_loop(component_names.LOCK_PUBLISHER, publisher.step, stop=stop, events=self._events)]
        )
        return [
            *publishing,
            run_loop(component_names.AUDIT_SEALER, self._audit_sealer.step, stop=stop, events=self._events),
            self._delayed_cleaner(stop),
            run_loop(component_names.APPROVAL_UPDATER, self._approval_updater.step, stop=stop, events=self._events),
            run_loop(component_names.RUN_REPAIRER, self._run_repairer.step, stop=stop, events=self._events),
            run_loop(component_names.INVARIANT_CHECKER, self._invariant_checker.step, stop=stop, events=self._events),
            run_loop(component_names.TICK_SUMMER, self._tick_summer.step, stop=stop, events=self._events),
        ]

    async def _delayed_cleaner(self, stop: asyncio.Event) -> None:
        """Start the cleaner's loop late: old history can wait until everything else has started."""
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(_FIRST_CLEANING_SECONDS, self._poll_seconds))
        await run_loop(component_names.CLEANER, self._cleaner.step, stop=stop, events=self._events)


def build_pinger(
    store: Store, settings: Settings, clock: Clock, events: Events, *, deciding: Callable[[], bool]
) -> Pinger:
    """The service that calls the addresses of jobs when their runs start and end.

    It calls the scheduler's own address while `deciding` says that this process decides ticks.
    """
    secrets = secret_source(settings.secrets)
    return Pinger(
        store.executions,
        WorkflowCache(store.jobs),
        HttpPingSender(AllowedHosts(settings.security.allowed_hosts, field="security.allowed_hosts")),
        clock,
        events,
        settings.alive,
        deciding=deciding,
        secrets=lambda url, tenant, job: str(secrets.resolve({"url": url}, tenant=tenant, job=job)[0]["url"]),
    )


def build_announcer(
    context: "NodeContext", *, holder: str, signal: AnnouncementSignal, metrics: MetricsRecorder | None
) -> Announcer:
    """The service that sends announcements to the channels of the settings."""
    store, clock = context.store, context.clock

    def count(channel: str, result: str) -> None:
        if metrics is not None:
            metrics.add("announcements", channel, result)

    return Announcer(
        store.announcement_queue,
        MessageComposer(store.executions, store.run_tasks, WorkflowCache(store.jobs)),
        open_channels(context.settings),
        clock,
        context.events,
        lease=context.coordination.singleton(component_names.ANNOUNCER),
        holder=holder,
        signal=signal,
        count=count,
    )


def build_cleaner(store: Store, settings: Settings, clock: Clock, events: Events, *, lease: Singleton) -> Cleaner:
    """The cleaner of a store, with the archive that the settings name."""
    archive = open_archive(settings, clock)
    return Cleaner(
        store.retention, store.jobs, archive, clock, events, settings=settings, lease=lease, store_now=store.now
    )


def open_archive(settings: Settings, clock: Clock) -> Archive:
    """The archive of history before it is removed. Nothing is written or called yet."""
    if settings.execution.archive:
        return _bucket_archive(settings, clock)
    folder = archive_folder(settings)
    return NoArchive() if folder is None else FolderArchive(folder)


def archive_folder(settings: Settings) -> Path | None:
    """The folder of an archive that is not in object storage; None for no archive."""
    folder = settings.execution.archive_dir
    if folder == _NO_ARCHIVE:
        return None
    path = sqlite_path(settings.database.url)
    return Path(folder or (_SERVER_FOLDER if path is None else f"{path}.archive"))


def archive_chosen(settings: Settings) -> bool:
    """Whether the place of the archive does not depend on where a process runs."""
    execution = settings.execution
    return bool(execution.archive or execution.archive_dir) or sqlite_path(settings.database.url) is not None


def _bucket_archive(settings: Settings, clock: Clock) -> Archive:
    from gnomon.adapters.s3.archive import S3Archive
    from gnomon.adapters.s3.client import S3Bucket, S3Client
    from gnomon.adapters.s3.credentials import read_credentials

    address, s3 = read_archive_address(settings.execution.archive), settings.s3
    endpoint = s3.endpoint or f"https://s3.{s3.region}.amazonaws.com"
    client = S3Client(
        S3Bucket(endpoint=endpoint, region=s3.region, name=address.bucket),
        partial(read_credentials, s3),
        configured_client(),
        clock,
        timeout_ms=s3.timeout_ms,
    )
    return S3Archive(client, prefix=address.prefix)


def retention_finding(settings: Settings) -> Finding:
    """The finding about how long history is kept, and where it goes."""
    execution, about = settings.execution, "retention"
    kept = f"history is deleted {execution.history_retention_days} days after it ended"
    if execution.archive:
        return _bucket_finding(settings, about, kept)
    folder = archive_folder(settings)
    if folder is None:
        return Finding(about, Severity.OK, f"{kept}, without an archive")
    if archive_chosen(settings):
        return Finding(about, Severity.OK, f"{kept}, after it was archived in the folder {folder}")
    message = f"{kept}, after it was archived in the folder {folder} where the server runs: set execution.archive"
    return Finding(about, Severity.WARNING, message)


def _bucket_finding(settings: Settings, about: str, kept: str) -> Finding:
    from gnomon.adapters.s3.credentials import read_credentials

    try:
        read_credentials(settings.s3)
    except ArchiveUnavailable as error:
        return Finding(about, Severity.ERROR, f"nothing can be archived, so nothing is deleted: {error}")
    return Finding(about, Severity.OK, f"{kept}, after it was archived in {settings.execution.archive}")
