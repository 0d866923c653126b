"""The services that decide what runs: by time, and on request."""

from collections.abc import Callable

from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.app.coordination import ClockSynchronizer
from gnomon.app.execution import NodeContext
from gnomon.app.settings import catchup_limit, schedule_defaults
from gnomon.core.jobs.job import load_readers
from gnomon.services.execution.local_dispatch import WriteAndAdmit
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.schedules import ScheduleService
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker


class SchedulingServices:
    """Elector, ticker, schedule service and launcher of a node."""

    def __init__(
        self,
        context: NodeContext,
        *,
        holder: str,
        alone: bool,
        clock_sync: ClockSynchronizer,
        write_and_admit: WriteAndAdmit | None,
        busy: Callable[[], bool],
    ) -> None:
        """`holder` names the node in the store. With `alone`, no other node decides ticks.

        `write_and_admit` admits tasks in the commits that make them. `busy` says whether requests should wait.
        """
        store, settings, clock, events = context.store, context.settings, context.clock, context.events
        ids = RandomIds()
        # It compares the clock of this machine, and not the synchronized one, with that of the store.
        self.elector = Elector(store.shards, SystemClock(), events, settings.leader, holder=holder, alone=alone)
        self.ticker = Ticker(
            store.ledger,
            self.elector,
            clock,
            events,
            settings.ticker,
            catchup_limit=catchup_limit(settings),
            clock_sync=clock_sync,
            on_runs_created=context.wake_ups.dispatch.set,
            write_and_admit=write_and_admit,
        )
        self.schedules = ScheduleService(
            store.schedules,
            store.history,
            clock,
            ids,
            jobs=store.jobs,
            defaults=schedule_defaults(settings),
            tzdata=tzdata_version(),
            catchup_limit=catchup_limit(settings),
        )
        #: The long computations of requests.
        self.compute = ComputeQueue(busy, prepare=load_readers)
        self.launcher = Launcher(
            store.runs,
            store.executions,
            store.jobs,
            store.schedules,
            clock,
            ids,
            write_and_admit=write_and_admit,
            compute=self.compute,
        )
