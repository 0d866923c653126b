"""A dispatcher, a worker and a reconciler on a memory store, with a virtual clock and a fake runner."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from contracts.store import NOON, minutely
from gnomon.adapters.gate import OpenGate
from gnomon.adapters.memory import MemoryStore
from gnomon.config.settings import Settings, load
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, Schedule
from gnomon.core.runs.deadlines import first_spans
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, new_requested_run
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import Workflow
from gnomon.core.triggers import OnDemand
from gnomon.ports.execution import Finished, Gate
from gnomon.ports.output_policy import OutputPolicy
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from gnomon.ports.tasks import AttemptRef, HostLoad
from gnomon.services.coordination import AlwaysHeldSingleton, Singleton
from gnomon.services.execution.deadline_enforcer import DeadlineEnforcer
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.local_dispatch import LocalDispatch, TakerLink
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.testing.clock import Recorder, VirtualClock
from support.task_steps import workflow


class FakeRunner:
    """Runs nothing: the test ends what was started."""

    def __init__(self, *functions: str) -> None:
        self.functions: Collection[str] = frozenset(functions or ("reports.make",))
        self.started: dict[AttemptRef, Assignment] = {}
        self.stopped: list[tuple[AttemptRef, Result]] = []
        self.overrunning = 0
        self._finished: list[Finished] = []

    @property
    def occupied(self) -> int:
        return len(self.started)

    def start(self, assignments: Sequence[Assignment]) -> None:
        come = {(one.task.task_id, one.task.fence): one for one in assignments}
        assert not come.keys() & self.started.keys(), "begun twice"
        self.started |= come

    def finished(self) -> Sequence[Finished]:
        found, self._finished = self._finished, []
        return found

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        self.stopped += [(one, why) for one in held]
        for one in [one for one in held if one in self.started]:
            self.end(one, why)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        del drain_ms, grace_ms
        for held in list(self.started):
            self.end(held, Result.INTERRUPTED, error="the worker stops")

    def end(self, held: AttemptRef, result: Result = Result.SUCCEEDED, **reported: Any) -> None:  # noqa: ANN401
        """End a started task with this outcome."""
        self._finished.append(Finished(self.started.pop(held), AttemptOutcome(result=result, **reported)))

    def end_all(self, result: Result = Result.SUCCEEDED, **reported: Any) -> None:  # noqa: ANN401
        for held in list(self.started):
            self.end(held, result, **reported)


class ExecutionHarness:
    """The services and their store, clock and runner."""

    #: Makes the gate of a harness that is not given one.
    default_gate: ClassVar[type[Gate]] = OpenGate

    def __init__(
        self,
        *,
        flags: Mapping[str, object] | None = None,
        gate: Gate | None = None,
        store: Store | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock(NOON)
        self.store: Store = store or MemoryStore(self.clock.now)
        self.events = Recorder()
        self.settings: Settings = load(flags=flags or {})
        self.workflow_cache = WorkflowCache(self.store.jobs)
        self.gate = gate or self.default_gate()
        self.taker = TakerLink()
        #: The services that asked for a step of the dispatcher, in order.
        self.woken: list[str] = []
        #: How often a step of the worker was asked for.
        self.worker_woken = 0
        self.ticker_behind = False
        self.dispatcher = self.new_dispatcher()
        self.runner = FakeRunner()
        self.worker = self.new_worker("w1", self.runner)
        self.reconciler = self.new_reconciler()
        self.deadline_enforcer = DeadlineEnforcer(
            self.store,
            self.workflow_cache,
            self.clock,
            self.events,
            self.settings,
            lease=AlwaysHeldSingleton(),
            on_ready=lambda: self.woken.append("deadlines"),
        )

    def new_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.store,
            self.workflow_cache,
            self.gate,
            self.clock,
            self.events,
            self.settings,
            taker=self.taker,
            wake=lambda: self.woken.append("dispatcher"),
            ticker_behind=lambda: self.ticker_behind,
        )

    def new_worker(
        self,
        name: str,
        runner: FakeRunner,
        *,
        shared: bool = False,
        alone: bool = False,
        measure_load: Callable[[], HostLoad] = HostLoad,
        output_policy: OutputPolicy | None = None,
        held_cipher: PayloadCipher | None = None,
    ) -> Worker:
        """A worker; if `shared`, in the process of the dispatcher."""
        write_and_admit = self.dispatcher.write_and_admit if shared else None
        return Worker(
            self.store,
            self.workflow_cache,
            runner,
            self.gate,
            self.clock,
            self.events,
            settings=self.settings,
            worker=name,
            wake=self._wake_worker,
            measure_load=measure_load,
            dispatch=LocalDispatch(wake=lambda: self.woken.append("worker"), write_and_admit=write_and_admit),
            output_policy=output_policy,
            held_cipher=held_cipher,
            alone=alone,
        )

    def _wake_worker(self) -> None:
        self.worker_woken += 1

    def new_reconciler(
        self,
        *,
        lease: Singleton | None = None,
        own_worker: str | None = None,
        await_reports: Callable[[], Awaitable[None]] | None = None,
    ) -> Reconciler:
        return Reconciler(
            self.store,
            self.workflow_cache,
            self.clock,
            self.events,
            self.settings,
            lease=lease or AlwaysHeldSingleton(),
            on_ready=lambda: self.woken.append("reconciler"),
            own_worker=own_worker,
            await_reports=await_reports,
        )

    def share_process(self, *, alone: bool = False) -> None:
        """Run dispatcher and worker in one process, so that they hand tasks over directly."""
        self.worker = self.new_worker(self.worker.worker, self.runner, shared=True, alone=alone)
        self.taker.connect(self.worker)

    async def job(self, definition: Workflow | None = None, **spec: Any) -> Schedule:  # noqa: ANN401
        """Register a job that runs on request."""
        said: dict[str, Any] = {"trigger": OnDemand(), "overlap": Overlap.ALLOW} | spec
        made = minutely(**said)
        changeset = JobChangeset(workflows=[definition or workflow()], added=[made])
        assert await self.store.jobs.apply(changeset, now=self.clock.now(), actor="ada", tzdata="")
        return made

    async def run(
        self, job: Schedule, name: str = "a", *, first_steps: tuple[str, ...] = ("main",), given: bytes | None = None
    ) -> Run:
        """Launch a run of the job now, with that input."""
        wanted = new_requested_run(RunId(f"run_{name}"), job, source=RunSource.MANUAL, now=self.clock.now())
        spans = first_spans(job.spec.deadlines)
        [became] = await self.store.runs.launch(
            [LaunchRequest(run=wanted, first_steps=first_steps, first_spans_ms=spans, input=given)],
            now=self.clock.now(),
        )
        assert became in (LaunchOutcome.STARTED, LaunchOutcome.QUEUED)
        return wanted

    async def run_until_idle(self) -> None:
        """Run all services until they have nothing left to do."""
        await self.worker.step()
        while not await self.dispatcher.step():
            pass
        while not await self.worker.step():
            pass

    async def now(self, run: Run) -> Run:
        found = await self.store.executions.find_run(run.run_id)
        assert found is not None
        return found
