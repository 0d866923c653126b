"""A job with all services, for tests that let something happen and ask why."""

import re
from datetime import UTC, datetime
from typing import Any

from contracts.store import NOON
from gnomon.config.sections import LeaderSettings, TickerSettings
from gnomon.core.explain.evidence import JobExplanation, SubjectExplanation
from gnomon.core.ids import SHARDS
from gnomon.core.instants import instant_of
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Result, RunId
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.ports.execution import Gate
from gnomon.ports.store import Store
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventBatcher, EventService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from support.execution import ExecutionHarness, FakeRunner

_RUN = re.compile(r"run_[0-9a-f]{10,}")
_LETTER = re.compile(r"dl_\w+")
_NAME = "report"
_EVERYTHING = frozenset(range(SHARDS))


class FixedGate(Gate):
    """Decides as the test sets it."""

    def __init__(self, ruled: GateDecision) -> None:
        self._ruled = ruled

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        del request
        return self._ruled

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        del finished
        return OutputRelease(output=output)


class WhyScenario:
    """It begins on Monday, 2026-03-02, at noon UTC. Times of that day may be written without it."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        ids, events = CountedIds(), Recorder()
        self.clock, self.store = clock, store
        self.jobs = JobService(store.jobs, store.schedules, store.history, clock, ids)
        self.launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, ids)
        self.executions = ExecutionService(
            store.runs, store.executions, store.run_tasks, store.jobs, clock, announcements=store.announcements
        )
        self.letters = DeadLetterService(store.dead_letters, store.executions, self.launcher, clock)
        self.events = EventService(store.events, clock, ids)
        self.batcher = EventBatcher(store.events, clock, events, lease=AlwaysHeldSingleton(), on_ready=lambda: None)
        elector = Elector(store.shards, clock, events, LeaderSettings(), holder="node", alone=True)
        self.ticker = Ticker(store.ledger, elector, clock, events, TickerSettings(), on_runs_created=lambda: None)
        self.harness = ExecutionHarness(store=store, clock=clock)
        self.runner = self.harness.runner
        self.explainer = Explainer(store, clock)

    # ---- actions -----------------------------------------------------------------------------

    async def job(self, schedule: str | None = "* * * * *", **said: Any) -> None:  # noqa: ANN401 - as in a jobs file
        """Register or change the job, as the actor ada."""
        reported: dict[str, Any] = {"name": _NAME, "actor": "ada", **said}
        actor = reported.pop("actor")
        if "steps" not in reported and "dag" not in reported:
            reported.setdefault("function", "reports.make")
        if schedule is not None:
            reported["schedule"] = schedule
        await self.jobs.apply([read_job(reported, Defaults(), now=self.clock.now())], actor=actor)

    async def run_until(self, time: str) -> None:
        """Decide due ticks and renew leases up to that time."""
        at = instant(time)
        while True:
            await self.harness.worker.step()
            due = await self.store.ledger.next_due_at(shards=_EVERYTHING)
            while due is not None and due <= self.clock.now():
                await self.ticker.step()
                due = await self.store.ledger.next_due_at(shards=_EVERYTHING)
            left = at - self.clock.now()
            if left <= 0:
                return
            soon = left if due is None else min(left, due - self.clock.now())
            # A worker with running tasks must renew its leases in time.
            self.clock.advance(min(soon, 10_000) if self.runner.started else soon)

    async def outage_until(self, time: str) -> None:
        """Let the time pass without any decision."""
        self.clock.advance(instant(time) - self.clock.now())

    async def run_until_idle(self) -> None:
        """Start everything that is ready."""
        await self.harness.run_until_idle()

    async def finish_attempts(self, result: Result = Result.SUCCEEDED, **reported: Any) -> None:  # noqa: ANN401
        """End everything that was started with this result."""
        self.runner.end_all(result, **reported)
        await self.harness.worker.step()

    async def run_to_end(self, time: str, result: Result = Result.SUCCEEDED, **reported: Any) -> None:  # noqa: ANN401
        """Start everything that is ready now, and end it at that time with this result."""
        await self.run_until_idle()
        await self.run_until(time)
        await self.finish_attempts(result, **reported)

    async def trigger(self, **said: Any) -> RunId:  # noqa: ANN401
        return (await self.launcher.trigger(_NAME, actor=said.pop("actor", "bob"), **said)).run_id

    def set_gate_decision(self, ruled: GateDecision) -> None:
        """Set the decision of the gate."""
        self.harness = ExecutionHarness(store=self.store, clock=self.clock, gate=FixedGate(ruled))
        self.runner = self.harness.runner

    def flags(self, **flags: object) -> None:
        """Use services with other settings."""
        named = {name.replace("_", ".", 1): value for name, value in flags.items()}
        self.harness = ExecutionHarness(store=self.store, clock=self.clock, flags=named)
        self.runner = self.harness.runner

    def set_worker_functions(self, *functions: str) -> None:
        """Set the functions of the worker."""
        self.runner = FakeRunner(*functions)
        self.harness.worker = self.harness.new_worker("w1", self.runner)

    # ---- questions ---------------------------------------------------------------------------

    async def why(self, at: str | None = None, last: int = 1) -> JobExplanation:
        return await (self.explainer.last(_NAME, last) if at is None else self.explainer.at(_NAME, at))

    async def reported(self, at: str | None = None) -> list[str]:
        """Every sentence of the explanation, with runs named by their planned times."""
        answer = await self.why(at)
        coming = () if answer.coming is None else (answer.coming,)
        about = coming if at is None and not answer.explanations else answer.explanations
        lines = [line for one in about for line in sentences(one)]
        names = {
            run.run_id: f"run_{instant_of(run.planned_at):%H:%M}"
            for uid in {one.uid for one in await self._everyone()}
            for run in await self.store.history.runs(uid, before=1 << 62, limit=1000)
        }
        lines = [_RUN.sub(lambda found: names.get(RunId(found[0]), "run_within"), line) for line in lines]
        return [_LETTER.sub("dl_1", line) for line in lines]

    async def _everyone(self) -> list[Any]:
        standing = await self.store.schedules.find("default", _NAME)
        gone = await self.store.history.deleted("default", _NAME, limit=10)
        return [*([] if standing is None else [standing]), *(one.schedule for one in gone)]


def sentences(one: SubjectExplanation) -> list[str]:
    """The lines of an explanation."""
    return [one.sentence, *one.waits]


def instant(time: str) -> int:
    """A time on the first day, or any ISO instant."""
    if "-" not in time:
        time = f"{instant_of(NOON):%Y-%m-%d}T{time}+00:00"
    return int(datetime.fromisoformat(time).astimezone(UTC).timestamp() * 1000)
