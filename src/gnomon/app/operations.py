"""The services that operators and programs use on one store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.app.maintenance import archive_configured, build_cleaner
from gnomon.app.settings import schedule_defaults
from gnomon.app.stores import ConnectedStore, open_store
from gnomon.config.settings import Settings
from gnomon.ports.runtime import Clock
from gnomon.ports.store import Store
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.observed_events import NullEvents
from gnomon.services.operations.audit import AuditService
from gnomon.services.operations.backfills import BackfillService
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.job_plan import Planner
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.workflows import WorkflowService


class Operations:
    """Jobs, executions, events, dead letters and all other operations on one store."""

    def __init__(self, store: Store, settings: Settings, *, clock: Clock | None = None) -> None:
        clock, ids = clock or SystemClock(), RandomIds()
        timeout = settings.execution.default_timeout_ms
        self.store, self.clock = store, clock
        self.jobs = JobService(
            store.jobs, store.schedules, store.history, clock, ids, tzdata=tzdata_version(), default_timeout_ms=timeout
        )
        self.planner = Planner(self.jobs, store.jobs, clock)
        self.launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, ids)
        self.executions = ExecutionService(store.runs, store.executions, store.history, store.jobs, clock)
        self.workflows = WorkflowService(
            store.jobs, store.schedules, clock, ids, defaults=schedule_defaults(settings), tzdata=tzdata_version()
        )
        self.events = EventService(store.events, clock, ids)
        self.backfills = BackfillService(store.backfills, store.schedules, clock, ids)
        self.audit = AuditService(store.audit)
        self.dead_letters = DeadLetterService(store.dead_letters, store.executions, self.launcher, clock)
        # Without an archive nothing is removed, and no gap in the history needs an explanation.
        removing = settings if archive_configured(settings) else None
        self.explainer = Explainer(store, clock, settings=removing)
        self.cleaner = build_cleaner(store, settings, clock, LoggedEvents(), lease=AlwaysHeldSingleton())

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, *, make: bool = True) -> AsyncIterator[Self]:
        """The operations on the store that the settings name; NoDatabase if it is a missing file and not `make`."""
        opened = ConnectedStore.observed(await open_store(settings, create=make), settings, NullEvents())
        try:
            yield cls(opened.store, settings)
        finally:
            await opened.close()
