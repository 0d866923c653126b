"""Random worlds for the simulator: jobs, operators, clocks and faults, the same for the same seed."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.rules import MemoryRules
from gnomon.core.ledger.edits import ResumeChoice, ResumePolicy
from gnomon.core.ledger.plan import CatchupLimit
from gnomon.core.model import Overlap, Result, Schedule, ScheduleUid
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.states import WaitReason
from gnomon.core.runs.workflow import ONLY_STEP, Delivery, RetryPolicy, Step, Workflow
from gnomon.errors import FieldError, NotFound, Refused
from gnomon.ports.execution import Gate
from gnomon.ports.store import Store
from gnomon.testing.clock import VirtualClock
from gnomon.testing.event_queue import QueuedEvent
from gnomon.testing.faults import FaultProbabilities
from gnomon.testing.simulated_runner import WorkloadModel
from gnomon.testing.simulation import Simulation
from support.defective_stores import StoreFactory

MINUTE = 60_000

HOUR = 60 * MINUTE
#: So low that many outages miss more ticks.
LIMIT = CatchupLimit(ticks=5, interval_ms=1_000)

#: Start times from which a day and a half includes a clock change in some zone.
STARTS = [
    datetime(2026, 3, 7, 18, 0, 13, tzinfo=UTC),
    datetime(2026, 10, 31, 12, 31, 7, tzinfo=UTC),
    datetime(2026, 10, 3, 9, 0, 0, tzinfo=UTC),
]
TRIGGERS: list[dict[str, Any]] = [
    {"schedule": "* * * * *"},
    {"schedule": "*/5 * * * *"},
    {"schedule": "*/20 1-3 * * *", "timezone": "America/New_York"},
    {"schedule": "30 2 * * *", "timezone": "America/New_York"},
    {"schedule": "30 1 * * *", "timezone": "America/New_York", "dst": {"gap": "skip", "fold": "both"}},
    {"schedule": "15 * * * *", "timezone": "Australia/Lord_Howe"},
    {"schedule": "0 */3 * * *", "timezone": "Europe/Berlin"},
    {"schedule": "every 7 minutes"},
    {"schedule": "every 90s"},
    {"schedule": "*/40 * * * * *"},
]


#: The last two are defined late, and never.
NAMES = ("plain", "sturdy", "brief", "once", "once-and-gone", "poison", "late", "never")


def _workflow(
    name: str,
    retry: RetryPolicy | None = None,
    *,
    timeout_ms: int | None = None,
    delivery: Delivery = Delivery.AT_LEAST_ONCE,
    letter: bool = False,
) -> Workflow:
    step = Step(name=ONLY_STEP, function=name, retry=retry, timeout_ms=timeout_ms)
    return Workflow(workflow_id=name, version=1, steps=(step,), delivery=delivery, dead_letter=letter)


def request(rng: random.Random, name: str, *, now: int) -> dict[str, Any]:
    """A schedule of some kind, whose window, if it has one, is around the time."""
    said = dict(rng.choice([*TRIGGERS, {"schedule": _instant(now + rng.randrange(4 * HOUR))}]))
    said |= {
        "schedule_id": name,
        "workflow_id": rng.choices(NAMES, (6, 6, 4, 4, 2, 1, 2, 1))[0],
        "overlap": rng.choice(["skip", "allow", "queue", "replace"]),
        "catchup": rng.choice(["none", "latest", "all", "spread"]),
        "jitter_ms": rng.choice([0, 0, 0, 5_000, 100_000]),
        "misfire_grace_ms": rng.choice([60_000, 60_000, 1_000, 600_000]),
        "catchup_window_ms": rng.choice([24 * HOUR, MINUTE]),
        "queue_limit": rng.choice([100, 100, 1, 3]),
    }
    if rng.random() < 0.2:
        said["start_at"] = _instant(now + rng.randrange(-HOUR, 2 * HOUR))
    if rng.random() < 0.2:
        said["end_at"] = _instant(now + rng.randrange(2 * HOUR, 8 * HOUR))
    return said


def _instant(at: int) -> str:
    return datetime.fromtimestamp(at // 1000, UTC).isoformat()


#: The definitions that jobs run: retries, delivery guarantees and dead letters.
WORKFLOWS = (
    _workflow("plain"),
    _workflow(
        "sturdy", RetryPolicy(max_attempts=4, initial_delay_ms=5_000, max_delay_ms=15_000, jitter=0.2), letter=True
    ),
    _workflow("brief", RetryPolicy(max_attempts=2, initial_delay_ms=1_000), timeout_ms=30_000, letter=True),
    _workflow("once", RetryPolicy(max_attempts=3), delivery=Delivery.AT_MOST_ONCE, letter=True),
    _workflow("once-and-gone", delivery=Delivery.AT_MOST_ONCE),
    _workflow("poison"),
)
#: Most bodies succeed; those that take longer than their timeout are ended by it.
USUAL_WORKLOAD = WorkloadModel(
    durations=(10, 500, 20_000, 90_000, 1_000_000),
    endings={Result.SUCCEEDED: 78, Result.FAILED: 12, Result.GAVE_UP: 3, Result.SNOOZED: 5, Result.DENIED: 2},
)


class RandomGate(Gate):
    """Denies some tasks, puts others off, and holds some outputs back."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        #: Its faults, counted by kind, if it may fail.
        self.did: Counter[str] = Counter()

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        del request
        later = GateDecision(GateVerdict.LATER, "not now", after_ms=20_000)
        decisions = [GateDecision(GateVerdict.ALLOW), later, GateDecision(GateVerdict.DENY, "not at all")]
        return self._rng.choices(decisions, (96, 3, 1))[0]

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        del finished
        held_back = self._rng.random() < 0.01
        return OutputRelease(output=output, quarantine="held back" if held_back else None)


class FailingGate(RandomGate):
    """The same, but it also takes its time, raises, answers nonsense and hangs, as long as it is `failing`."""

    def __init__(
        self, rng: random.Random, after: Callable[[float, QueuedEvent], None], failing: Callable[[], bool]
    ) -> None:
        super().__init__(rng)
        self._after, self._failing = after, failing

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        if await self._fails():
            return None  # type: ignore[return-value]
        return await super().admit(request)

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        if await self._fails():
            return None  # type: ignore[return-value]
        return await super().release(finished, output)

    async def _fails(self) -> bool:
        """Whether the answer is nonsense."""
        if not self._failing():
            return False
        does = self._rng.choices(("answer", "wait", "raise", "hang", "nonsense"), (60, 25, 5, 5, 5))[0]
        self.did[does] += 1
        if does == "wait":
            await self._wait(self._rng.choice((1, 50, 1_000, 4_000, 6_000)))
        elif does == "raise":
            raise RuntimeError("no answer today")
        elif does == "hang":
            await asyncio.get_running_loop().create_future()
        return does == "nonsense"

    async def _wait(self, ms: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def end() -> None:
            if not over.done():
                over.set_result(None)
            # The call goes on, and its answer wakes the service that has asked, before anything else happens.
            for _ in range(4):
                await asyncio.sleep(0)

        self._after(ms, end)
        await over


class RulingGate(FailingGate):
    """The same, and it rules: each decision has a ruling. Now and then it lies: the ruling contradicts the verdict."""

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        decision = await super().admit(request)
        if not isinstance(decision, GateDecision):
            return decision
        lies = self._failing() and self._rng.random() < _LIES
        self.did["lie"] += lies
        told = _RULED[GateVerdict.DENY if lies and decision.verdict is GateVerdict.ALLOW else decision.verdict]
        if lies and decision.verdict is GateVerdict.DENY:
            told = PolicyDecision.ALLOW
        return replace(decision, ruling=Ruling(decision=told, rule=f"rule-{told}", version=1, digest=b"\x01" * 32))


_LIES = 0.05
_RULED = {
    GateVerdict.ALLOW: PolicyDecision.ALLOW,
    GateVerdict.LATER: PolicyDecision.THROTTLE,
    GateVerdict.DENY: PolicyDecision.DENY,
}


class RandomSimulation:
    """A simulation with operators who change jobs all the time."""

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        seed: object,
        *,
        chances: FaultProbabilities | None = None,
        failing_gate: bool = False,
        ruling_gate: bool = False,
    ) -> None:
        self.rng = random.Random(f"world {seed}")
        usual = FaultProbabilities(crash=0.0004, failure=0.001, slowness=0.001, race=0.02, operator_failure=0.03)
        faults, gate_dice = chances or usual, random.Random(f"gate {seed}")
        failing = RulingGate if ruling_gate else FailingGate if failing_gate else None
        self.gate = (
            RandomGate(gate_dice) if failing is None else failing(gate_dice, self._after, lambda: faults.failure > 0)
        )
        self.simulation = Simulation(store, clock, seed=seed, chances=faults, gate=self.gate, catchup_limit=LIMIT)
        workload = self.simulation.workload
        workload.durations, workload.endings = USUAL_WORKLOAD.durations, USUAL_WORKLOAD.endings
        workload.crash_probability = {"poison": 0.8}
        self.simulation.missing_function_probability = 0.3
        self.uids: dict[str, ScheduleUid] = {}

    def _after(self, ms: float, event: QueuedEvent) -> None:
        self.simulation.after(ms, event)

    async def populate(self, schedules: int = 4, nodes: int | None = None) -> None:
        for workflow in WORKFLOWS:
            await self.simulation.define(workflow)
        self.simulation.after(self.rng.randrange(3 * HOUR), self._define_late)
        for number in range(schedules):
            name = f"job-{number}"
            self.uids[name] = await self.simulation.register(self._request(name))
        for _ in range(nodes or self.rng.choice([2, 2, 3])):
            self.simulation.add_node()
        self.simulation.after(self.rng.randrange(HOUR), self._operate)
        self.simulation.after(self.rng.randrange(20 * MINUTE), self._edit_at_random)
        self.simulation.after(self.rng.randrange(2 * HOUR), self._stop_a_node)
        self.simulation.after(self.rng.randrange(6 * HOUR), self._set_the_clock)

    async def _define_late(self) -> None:
        """Register a definition late, and its function on workers later still; jobs refer to it from the start."""
        await self.simulation.define(_workflow("late"))
        self.simulation.functions.discard("late")

        async def learn() -> None:
            self.simulation.functions.add("late")

        self.simulation.after(self.rng.randrange(HOUR), learn)

    def _request(self, name: str) -> dict[str, Any]:
        return request(self.rng, name, now=self.simulation.clock.now())

    async def _operate(self) -> None:
        name = self.rng.choice(sorted(self.uids))
        simulation, schedules = self.simulation, self.simulation.schedules
        act = self.rng.choice(["pause", "resume", "resume", "edit", "recreate", "except", "except"])
        try:
            if act == "pause":
                await simulation.persist(lambda: schedules.pause(name, actor="operator"))
            elif act == "resume":
                missed = await self._choice(name)
                await simulation.persist(lambda: schedules.resume(name, actor="operator", missed=missed))
            elif act == "except":
                await self._add_exception(name)
            elif act == "edit":
                said = self._request(name)
                await simulation.persist(lambda: schedules.upsert(said, actor="operator"))
            else:
                await simulation.delete(self.uids[name])
                self.uids[name] = await simulation.register(self._request(name))
        except (NotFound, FieldError):
            # The job is gone, or the backfill is larger than allowed.
            pass
        self.simulation.wake()
        self.simulation.after(self.rng.choice([1000, 60_000, 5 * MINUTE, 20 * MINUTE, HOUR]), self._operate)

    async def _choice(self, name: str) -> ResumeChoice:
        """The skipped ticks to run, with a limited concurrency that leaves slots for others."""
        since = ResumeChoice(ResumePolicy.SINCE, since_at=self.simulation.clock.now() - 3 * MINUTE)
        few = [ResumeChoice(), ResumeChoice(), ResumeChoice(ResumePolicy.LATEST), since]
        if (await self.simulation.schedules.get(name)).schedule.spec.overlap is not Overlap.ALLOW:
            few += [ResumeChoice(ResumePolicy.ALL), ResumeChoice(ResumePolicy.SPREAD, over_ms=5 * MINUTE)]
        return self.rng.choice(few)

    async def _add_exception(self, name: str) -> None:
        """Skip or move one coming or recent tick, or undo that."""
        schedules, rng, view = self.simulation.schedules, self.rng, await self.simulation.schedules.get(name)
        reported = [one.planned_at for one in view.schedule.spec.exceptions]
        at = rng.choice([*view.next_runs, *reported, self.simulation.clock.now()])
        place = self.simulation.clock.now() + rng.choice([17_000, 5 * MINUTE, HOUR]) // 1000 * 1000 + rng.randrange(9)
        move_to = rng.choice([None, place])
        undo = rng.random() < 0.3

        async def act() -> None:
            if undo:
                await schedules.undo_skip(name, at, actor="operator")
            else:
                await schedules.skip(name, at, move_to=move_to, actor="operator")

        # The tick, or its new time, is no longer possible.
        with suppress(FieldError):
            await self.simulation.persist(act)

    async def _edit_at_random(self) -> None:
        """Trigger runs, cancel runs, and replay dead letters."""
        act = self.rng.choice([self._trigger, self._trigger, self._cancel, self._cancel, self._replay])
        # The job was deleted, or another run of it is under way.
        with suppress(NotFound, Refused):
            await act()
        self.simulation.wake()
        self.simulation.after(self.rng.choice([20_000, 5 * MINUTE, 30 * MINUTE]), self._edit_at_random)

    async def _trigger(self) -> None:
        simulation, name = self.simulation, self.rng.choice(sorted(self.uids))
        key, force = self.rng.choice([None, "monday", "tuesday"]), self.rng.random() < 0.2
        trigger = simulation.launcher.trigger
        await simulation.persist(lambda: trigger(name, actor="operator", key=key, force=force))

    async def _cancel(self) -> None:
        under_way = [run for run in await self.simulation.executions.page(limit=50) if not run.over]
        if under_way:
            await self.simulation.cancel(self.rng.choice(under_way).run_id)

    async def _replay(self) -> None:
        letters = await self.simulation.dead_letter_service.page(unresolved=True)
        if letters:
            letter, key = self.rng.choice(letters).dead_letter_id, self.rng.choice([None, "again"])
            await self.simulation.persist(
                lambda: self.simulation.dead_letter_service.replay(letter, actor="operator", key=key)
            )

    async def _stop_a_node(self) -> None:
        self.simulation.stop_a_node(self.rng.choice([20_000, 200_000, 400_000]))
        self.simulation.after(self.rng.randrange(2 * HOUR), self._stop_a_node)

    async def _set_the_clock(self) -> None:
        self.simulation.set_clock(self.rng.choice([-2 * HOUR, -90_000, -3_000, 5_000, 70_000, 3 * HOUR]))
        self.simulation.after(self.rng.randrange(8 * HOUR), self._set_the_clock)


async def simulate(
    seed: int,
    *,
    hours: int,
    store: StoreFactory = MemoryStore,
    chances: FaultProbabilities | None = None,
    batch: int | None = None,
    failing_gate: bool = False,
    ruling_gate: bool = False,
) -> RandomSimulation:
    """Run the simulation of that seed for so many hours."""
    clock = VirtualClock(int(STARTS[seed % len(STARTS)].timestamp() * 1000))
    world = RandomSimulation(
        store(clock.now), clock, seed, chances=chances, failing_gate=failing_gate, ruling_gate=ruling_gate
    )
    world.simulation.history.ruled = ruling_gate
    world.simulation.batch = batch or world.simulation.batch
    await world.populate()
    await world.simulation.run(hours * HOUR)
    return world


class NewestFirst(MemoryRules):
    """Releases the newest waiting run instead of the oldest."""

    def release_slot(self, schedule: Schedule, *, active: int, now: int) -> None:
        before = [one for one in self.open_runs(schedule.uid) if one.queued]
        super().release_slot(schedule, active=active, now=now)
        waiting = [one for one in self.open_runs(schedule.uid) if one.queued]
        if waiting and len(waiting) < len(before):
            released = min(before, key=lambda one: (one.planned_at, one.run_id))
            newest = max(waiting, key=lambda one: (one.planned_at, one.run_id))
            for run, queued, wait in ((newest, False, WaitReason.READY), (released, True, WaitReason.QUEUE)):
                self._state.runs[run.run_id] = replace(self._state.runs[run.run_id], queued=queued)
                self.set_tasks(run.run_id, wait_reason=wait)
