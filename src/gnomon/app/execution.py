"""The services that bring tasks to their end: those of a node that executes them, and of one that only dispatches."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from gnomon.adapters.host import LoadSampler, RandomIds
from gnomon.app.agent_verbs import StoreVerbs
from gnomon.app.attempt_progress import StoreProgress
from gnomon.app.coordination import Coordination
from gnomon.app.gate import held_output_cipher
from gnomon.app.runner import build_runner
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import Unavailable
from gnomon.ports.execution import Gate
from gnomon.ports.messaging import ReportInbox
from gnomon.ports.output_policy import OutputJudge
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.runners.registry import Functions
from gnomon.services.execution.deadline_enforcer import DeadlineEnforcer
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.gate_client import call_in_a_moment
from gnomon.services.execution.local_dispatch import NO_OUTPUTS, Done, LocalDispatch, Outputs, TakerLink
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.shadow_policy import ShadowPolicy
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff, run_loop
from gnomon.services.maintenance.backfiller import Backfiller
from gnomon.services.operations.events import EventBatcher
from gnomon.services.remote.result_consumer import ResultConsumer
from gnomon.services.remote.task_publisher import TaskPublisher

if TYPE_CHECKING:
    from gnomon.services.execution.late_output_checker import LateOutputChecker
    from gnomon.services.execution.output_check import StoredOutputPolicy

#: The lease of the reconciler lasts for so many of its steps.
_STEPS_PER_LEASE = 2


class WakeUps:
    """The events that wake the loops of a node before their time. They exist before the services that set them."""

    def __init__(self) -> None:
        #: There may be ticks to decide.
        self.tick = asyncio.Event()
        #: Tasks may be ready to be admitted.
        self.dispatch = asyncio.Event()
        #: There may be tasks to take, or attempts that have ended.
        self.work = asyncio.Event()
        #: There may be event batches to close.
        self.event_batches = asyncio.Event()
        #: There may be a new backfill, or a free slot for more runs of one.
        self.backfill = asyncio.Event()
        #: Another version of the policy may be in force.
        self.policy = asyncio.Event()
        #: A shadow of the policy may have been started or stopped.
        self.policy_shadow = asyncio.Event()


class NodeContext(Struct, frozen=True, kw_only=True):
    """The parts that the services of a node have in common."""

    store: Store
    settings: Settings
    clock: Clock
    events: Events
    gate: Gate
    policy: StoredPolicy
    shadow: ShadowPolicy
    #: None: outputs are not checked.
    output_policy: "StoredOutputPolicy | None"
    #: Rules on outputs that are stored; None: nothing does.
    output_judge: OutputJudge | None
    coordination: Coordination
    wake_ups: WakeUps


class ExecutionServices:
    """Dispatcher, reconciler, deadline enforcer, event batcher and backfiller of a node, and their loops."""

    def __init__(
        self,
        context: NodeContext,
        *,
        ticker_behind: Callable[[], bool],
        own_worker: str | None = None,
        await_reports: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        store, settings, clock, events = context.store, context.settings, context.clock, context.events
        wake, singleton = context.wake_ups.dispatch.set, context.coordination.singleton
        self._events = events
        self._wake_ups = context.wake_ups
        self._admitting = False
        self.workflow_cache = WorkflowCache(store.jobs)
        self._taker = TakerLink()
        self.dispatcher = Dispatcher(
            store,
            self.workflow_cache,
            context.gate,
            clock,
            events,
            settings,
            taker=self._taker,
            wake=wake,
            ticker_behind=ticker_behind,
            delay=call_in_a_moment,
        )
        #: The dispatcher, as the services of this process see it that make tasks ready.
        self.local_dispatch = LocalDispatch(wake=wake, write_and_admit=self.dispatcher.write_and_admit)
        self.reconciler = Reconciler(
            store,
            self.workflow_cache,
            clock,
            events,
            settings,
            lease=singleton(component_names.RECONCILER, ttl_ms=_STEPS_PER_LEASE * settings.reconciler.poll_ms),
            on_ready=wake,
            own_worker=own_worker,
            await_reports=await_reports,
        )
        self._deadline_enforcer = DeadlineEnforcer(
            store,
            self.workflow_cache,
            clock,
            events,
            settings,
            lease=singleton(component_names.DEADLINES),
            on_ready=wake,
        )
        self._late_checker = self._build_late_checker(context)
        self._policy, self._shadow = context.policy, context.shadow
        self._event_batcher = EventBatcher(
            store.events, clock, events, lease=singleton(component_names.EVENT_BATCHER), on_ready=wake
        )
        self._backfiller = Backfiller(
            store.backfills,
            store.history,
            clock,
            events,
            lease=singleton(component_names.BACKFILLER),
            on_ready=wake,
        )

    def _build_late_checker(self, context: NodeContext) -> "LateOutputChecker | None":
        """The checker of stored outputs; None if outputs are not checked."""
        if context.output_policy is None or context.output_judge is None:
            return None
        from gnomon.services.execution.late_output_checker import LateOutputChecker

        store = context.store
        return LateOutputChecker(
            store.late_checks,
            store.executions,
            self.workflow_cache,
            context.output_policy,
            context.output_judge,
            context.clock,
            context.events,
            lease=context.coordination.singleton(component_names.LATE_OUTPUT_CHECKER),
            timeout_ms=context.settings.output_policy.late_timeout_ms,
            on_ready=context.wake_ups.dispatch.set,
        )

    @property
    def backoffs(self) -> Mapping[str, Backoff]:
        """The backoffs of the services, by the names of their health components."""
        late = self._late_checker
        return {
            component_names.DISPATCHER: self.dispatcher.backoff,
            component_names.RECONCILER: self.reconciler.backoff,
            component_names.DEADLINES: self._deadline_enforcer.backoff,
            component_names.EVENT_BATCHER: self._event_batcher.backoff,
            **({} if late is None else {component_names.LATE_OUTPUT_CHECKER: late.backoff}),
        }

    async def begin(self) -> None:
        """Prepare for the loops; from now on tasks are admitted in the commits that make them."""
        with suppress(Unavailable):  # until it is known, tasks wait
            await self._policy.refresh()
        self._admitting = True

    def loops(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops of the services, until `stop` is set."""
        events, wake_ups = self._events, self._wake_ups
        late = self._late_checker
        return [
            *(
                []
                if late is None
                else [run_loop(component_names.LATE_OUTPUT_CHECKER, late.step, stop=stop, events=events)]
            ),
            run_loop(
                component_names.DISPATCHER, self.dispatcher.step, stop=stop, wake=wake_ups.dispatch, events=events
            ),
            run_loop(component_names.POLICY, self._policy.step, stop=stop, wake=wake_ups.policy, events=events),
            run_loop(
                component_names.POLICY_SHADOW, self._shadow.step, stop=stop, wake=wake_ups.policy_shadow, events=events
            ),
            run_loop(component_names.RECONCILER, self.reconciler.step, stop=stop, events=events),
            run_loop(component_names.DEADLINES, self._deadline_enforcer.step, stop=stop, events=events),
            run_loop(
                component_names.EVENT_BATCHER,
                self._event_batcher.step,
                stop=stop,
                wake=wake_ups.event_batches,
                events=events,
            ),
            run_loop(
                component_names.BACKFILLER, self._backfiller.step, stop=stop, wake=wake_ups.backfill, events=events
            ),
        ]

    def end(self) -> None:
        """Admit nothing more outside of the dispatcher's steps: the loops have ended."""
        self._admitting = False
        self.dispatcher.close()

    async def write_and_admit(
        self, made: Sequence[ReadyTask], write: Callable[[], Awaitable[Done]], outputs: Outputs = NO_OUTPUTS
    ) -> Done:
        """See WriteAndAdmit. While the loops do not run, nothing is admitted: a standby node must take no tasks."""
        if not self._admitting:
            return await write()
        return await self.dispatcher.write_and_admit(made, write, outputs)

    def workers_changed(self) -> None:
        """Look again at tasks that no worker could take: one may have come that can."""
        self.dispatcher.retry_unroutable()
        self._wake_ups.dispatch.set()

    def check_soon(self) -> None:
        """Look at everything soon: another process may have written something."""
        self._wake_ups.policy.set()
        self._wake_ups.policy_shadow.set()
        self._wake_ups.event_batches.set()
        self._wake_ups.backfill.set()
        self._wake_ups.dispatch.set()


class LocalExecution(ExecutionServices):
    """The services of a node that executes tasks itself: the same, and a worker."""

    def __init__(
        self,
        context: NodeContext,
        *,
        functions: Functions,
        imports: Sequence[str],
        on_started: Callable[[Sequence[Assignment]], None],
        alone: bool,
    ) -> None:
        """`on_started` is called with the assignments that start; with `alone`, no other process uses the store."""
        settings, wake_ups = context.settings, context.wake_ups
        name = RandomIds().new("worker", context.clock.now())
        # The worker takes tasks in the commits of their ticks: the ticker does not wait for the dispatcher.
        super().__init__(context, ticker_behind=lambda: False, own_worker=name)
        self._alone = alone
        self._load_sampler = LoadSampler()
        self.worker = Worker(
            context.store,
            self.workflow_cache,
            build_runner(
                functions,
                settings,
                imports,
                wake=wake_ups.work,
                on_start=on_started,
                verbs=StoreVerbs(context.store, settings, context.clock, changed=self._check_all_soon),
                progress=StoreProgress(context.store, context.clock, context.output_policy),
            ),
            context.gate,
            context.clock,
            context.events,
            settings=settings,
            worker=name,
            wake=wake_ups.work.set,
            measure_load=self._load_sampler.load,
            dispatch=self.local_dispatch,
            output_policy=context.output_policy,
            held_cipher=held_output_cipher(context.settings),
            alone=alone,
        )
        self._taker.connect(self.worker)

    @property
    def backoffs(self) -> Mapping[str, Backoff]:
        """See ExecutionServices.backoffs."""
        # In the order in which health reports list them.
        return {
            component_names.DISPATCHER: self.dispatcher.backoff,
            component_names.WORKER: self.worker.backoff,
            **super().backoffs,
        }

    def _check_all_soon(self) -> None:
        """Look at ticks, too: a model has changed a job."""
        self._wake_ups.tick.set()
        self.check_soon()

    async def begin(self) -> None:
        """Register the worker; if no other process can be alive, also end the attempts that others left behind."""
        await self.worker.step()
        self.workers_changed()
        if self._alone:
            await self.reconciler.recover(alive={self.worker.worker})
        await super().begin()

    def loops(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """See ExecutionServices.loops."""
        worker = run_loop(component_names.WORKER, self._work, stop=stop, wake=self._wake_ups.work, events=self._events)
        if self._alone:
            # No other worker could be given our attempts, so that there is no lease to watch.
            return [*super().loops(stop), worker]
        lease = run_loop(component_names.WORKER, self.worker.watch_lease, stop=stop, events=self._events)
        return [lease, *super().loops(stop), worker]

    async def _work(self) -> float:
        """Step the worker. The end of an attempt may free a slot for more runs of a backfill."""
        wait = await self.worker.step()
        if self._backfiller.busy:
            self._wake_ups.backfill.set()
        return wait

    def check_soon(self) -> None:
        """See ExecutionServices.check_soon."""
        self.worker.check_soon()
        super().check_soon()
        if self.worker.in_hand or not self._alone:
            # Alone, there are no tasks but those that our own dispatcher admits, and it wakes the worker itself.
            self._wake_ups.work.set()

    def close(self) -> None:
        """Stop measuring the load of this machine."""
        self._load_sampler.close()


class RemoteDispatch(ExecutionServices):
    """The services of a node whose tasks are executed by other processes.

    Workers that share the store take tasks there. Others get them over a message bus, once it is connected.
    """

    def __init__(
        self,
        context: NodeContext,
        *,
        ticker_behind: Callable[[], bool],
    ) -> None:
        self._inbox: ReportInbox | None = None
        self._bus_backoffs: Mapping[str, Backoff] = {}
        super().__init__(context, ticker_behind=ticker_behind, await_reports=self._await_reports)

    def connect(self, inbox: ReportInbox, publisher: TaskPublisher, consumer: ResultConsumer) -> None:
        """Send tasks with the publisher from now on, and wait for reports at the inbox before attempts are lost."""
        self._inbox = inbox
        self._taker.connect(publisher)
        self._bus_backoffs = {
            component_names.TASK_PUBLISHER: publisher.backoff,
            component_names.RESULT_CONSUMER: consumer.backoff,
        }

    @property
    def backoffs(self) -> Mapping[str, Backoff]:
        """See ExecutionServices.backoffs."""
        return {**super().backoffs, **self._bus_backoffs}

    async def _await_reports(self) -> None:
        if self._inbox is not None:
            await self._inbox.wait_caught_up()
