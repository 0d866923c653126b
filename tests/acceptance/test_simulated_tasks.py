"""Attempts, retries, losses, overlaps and dead letters in long histories: each ends with the checker."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.runs import MemoryRuns
from gnomon.adapters.memory.tasks import MemoryAttempts, MemoryTaskDeadlines, MemoryTasks
from gnomon.core.model import ENGINE, Overlap, Result, Run, RunId, RunStatus, Schedule, Task, TaskId, TickStatus
from gnomon.core.runs.admission import Admission, AdmissionRequest, GateDecision, GateVerdict, ReadyTask
from gnomon.core.runs.deadlines import OverdueEnd
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, GiveUpLimits, TaskCompletion, complete_attempt
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import ONLY_STEP, Delivery, RetryPolicy, Step, Workflow
from gnomon.ports.tasks import AttemptRef, LeaseRenewal
from gnomon.services.execution.worker import Worker
from gnomon.testing.checker import check
from gnomon.testing.clock import VirtualClock
from gnomon.testing.faults import FaultProbabilities
from gnomon.testing.history import SimulationHistory
from gnomon.testing.simulation import Simulation
from support.defective_stores import StoreFactory, with_part, with_rules
from support.effort import seed_batches, some_quick
from support.histories import HistoryBuilder
from support.random_simulation import HOUR, STARTS, NewestFirst, RandomSimulation, simulate
from support.unchecked_tasks import unchecked

pytestmark = pytest.mark.guarantee("S4", "S5", "S6", "S7", "S8", "S9", "S12", "S14", "S17", "S18")

BATCH = 5
HOURS = 4


def rough() -> FaultProbabilities:
    """Much that goes wrong with workers, and with those who wait for them."""
    return FaultProbabilities(crash=0.001, failure=0.004, slowness=0.004, race=0.1, operator_failure=0.05)


async def rough_world(seed: int, *, store: StoreFactory = MemoryStore) -> RandomSimulation:
    return await simulate(seed, hours=HOURS, store=store, chances=rough())


class RoughWorlds(dict[int, RandomSimulation]):
    """The simulations that several tests look at, by seed."""

    async def of(self, seed: int) -> RandomSimulation:
        if seed not in self:
            self[seed] = await rough_world(seed)
        return self[seed]


@pytest.fixture(scope="module")
def rough_worlds() -> RoughWorlds:
    return RoughWorlds()


@pytest.mark.parametrize("first", seed_batches(5, 200, BATCH))
async def test_no_rough_history_breaks_a_rule(first: int, rough_worlds: RoughWorlds) -> None:
    for seed in range(first, first + BATCH):
        # Those of the first seeds are looked at again.
        world = await (rough_world(seed) if first else rough_worlds.of(seed))

        assert check(world.simulation.history) == [], f"seed {seed}"


@pytest.mark.parametrize("first", seed_batches(5, 50, BATCH))
async def test_no_history_with_a_gate_that_fails_breaks_a_rule(first: int) -> None:
    did: Counter[str] = Counter()
    for seed in range(first, first + BATCH):
        world = await simulate(seed, hours=HOURS, chances=rough(), failing_gate=True)
        did += world.gate.did

        assert check(world.simulation.history) == [], f"seed {seed}"
    assert all(did[what] > 20 for what in ("answer", "wait", "raise", "hang", "nonsense")), did


@pytest.mark.req("R-02")
@pytest.mark.parametrize("first", seed_batches(1, 40, BATCH))
async def test_nothing_starts_without_a_ruling_though_the_gate_hangs_and_lies(first: int) -> None:
    did: Counter[str] = Counter()
    for seed in range(first, first + BATCH):
        world = await simulate(seed, hours=HOURS, chances=rough(), ruling_gate=True)
        history = world.simulation.history
        did += world.gate.did

        assert check(history) == [], f"seed {seed}"
        assert sum(map(bool, history.rulings.values())) > len(history.tasks) // 4
    assert all(did[what] > 5 for what in ("answer", "wait", "raise", "hang", "nonsense", "lie")), did


async def test_a_start_without_a_ruling_is_seen() -> None:
    history = HistoryBuilder().run("a").success("a").build()
    history.ruled = True

    assert "R-02" in {violation.rule for violation in check(history)}


async def test_a_task_that_workers_refuse_is_denied_with_a_dead_letter_and_never_retried() -> None:
    clock = VirtualClock(int(STARTS[0].timestamp() * 1000))
    simulation = Simulation(MemoryStore(clock.now), clock, seed="refused", chances=rough())
    retried = Step(name=ONLY_STEP, function="work", retry=RetryPolicy(max_attempts=5, initial_delay_ms=1_000))
    await simulation.define(Workflow(workflow_id="work", version=1, steps=(retried,)))
    await simulation.register({"schedule_id": "job", "schedule": "* * * * *", "workflow_id": "work"})
    simulation.workload.endings = {Result.SUCCEEDED: 6, Result.FAILED: 2, Result.DENIED: 2}
    simulation.add_node()
    simulation.add_node()

    history = await simulation.run(4 * HOUR)

    denied = [letter for letter in history.dead_letters if letter.reason == "safety_denied"]
    assert check(history) == []
    assert len(denied) > 20
    assert {report.result for report in history.reports} >= {Result.DENIED, Result.FAILED, Result.SUCCEEDED}


async def test_the_same_seed_gives_the_same_bodies() -> None:
    one, other = await rough_world(7), await rough_world(7)

    assert one.simulation.history.observations == other.simulation.history.observations


async def test_without_faults_every_run_has_one_body() -> None:
    clock = VirtualClock(int(STARTS[0].timestamp() * 1000))
    simulation = Simulation(MemoryStore(clock.now), clock, seed="clean")
    await simulation.define("work")
    for name, overlap in enumerate(Overlap):
        said = {"schedule_id": f"job-{name}", "schedule": "* * * * *", "workflow_id": "work", "overlap": overlap}
        await simulation.register(said)
    simulation.workload.durations = (10, 500, 20_000)
    simulation.add_node()
    simulation.add_node()

    history = await simulation.run(4 * HOUR)

    over = [run.run_id for schedule in history.schedules.values() for run in schedule.runs if run.over]
    starts = [seen.run_id for seen in history.observations if seen.starts]
    assert check(history) == []
    assert len(over) > 900
    assert sorted(set(starts)) == sorted(starts)
    assert set(over) <= set(starts)
    assert {report.result for report in history.reports} == {Result.SUCCEEDED}


# ---- deadlines -----------------------------------------------------------------------------------


class ApprovalGate(OpenGate):
    """Asks for approvals of one job, which nobody gives."""

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        return self.admit_now(request)

    def admit_now(self, request: AdmissionRequest) -> GateDecision:
        asks = request.waiting.run.workflow_id == "step"
        return GateDecision(GateVerdict.ASK if asks else GateVerdict.ALLOW)


async def history_with_deadlines(seed: int, *, store: StoreFactory = MemoryStore, hours: int = 2) -> SimulationHistory:
    """Jobs with deadlines of the run or the step, among workers that die, freeze and take too long."""
    clock = VirtualClock(int(STARTS[0].timestamp() * 1000))
    simulation = Simulation(store(clock.now), clock, seed=f"deadlines {seed}", chances=rough(), gate=ApprovalGate())
    retry = RetryPolicy(max_attempts=4, initial_delay_ms=20_000, jitter=0.1)
    for name, run_ms, step_ms, overlap in (
        ("run", 45_000, None, "allow"),
        ("step", None, 30_000, "skip"),
        ("both", 200_000, 100_000, "queue"),
        ("none", None, None, "allow"),
    ):
        step = Step(name=ONLY_STEP, function="work", retry=retry, deadline_ms=step_ms)
        await simulation.define(Workflow(workflow_id=name, version=1, steps=(step,), deadline_ms=run_ms))
        said = {"schedule_id": name, "schedule": "* * * * *", "workflow_id": name, "overlap": overlap}
        await simulation.register(said)
    simulation.workload.endings = {Result.SUCCEEDED: 6, Result.FAILED: 3, Result.SNOOZED: 1}
    simulation.missing_function_probability = 0.3
    simulation.add_node()
    simulation.add_node()
    return await simulation.run(hours * HOUR)


@pytest.mark.req("R-07")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 20))])
async def test_no_history_with_deadlines_breaks_a_rule(seed: int) -> None:
    history = await history_with_deadlines(seed)

    timed_out = [task for task in history.tasks.values() if task.state is TaskState.TIMEOUT and task.deadline_at]
    waited = [task for task in timed_out if task.task_id in history.deadline_ends]
    assert check(history) == []
    assert len(waited) > 50
    assert len(timed_out) - len(waited) > 10


class ForgottenDeadlines(MemoryTaskDeadlines):
    """Finds no task past its deadline."""

    async def next_end_at(self, *, grace_ms: int) -> int | None:
        del grace_ms
        return None


class HastyDeadlines(MemoryTaskDeadlines):
    """Ends tasks twenty seconds too early."""

    def _ends(self, grace_ms: int) -> Iterator[tuple[int, Task]]:
        return ((at - 20_000, task) for at, task in super()._ends(grace_ms))

    def _end(self, one: OverdueEnd, now: int) -> bool:
        return super()._end(one, now + 20_000)


@pytest.mark.req("R-07")
@pytest.mark.parametrize("part", [ForgottenDeadlines, HastyDeadlines])
async def test_a_store_that_keeps_deadlines_wrongly_is_seen(part: type[MemoryTaskDeadlines]) -> None:
    history = await history_with_deadlines(1, store=with_part("deadlines", part), hours=1)

    assert "R-07" in {violation.rule for violation in check(history)}


# ---- not vacuous ---------------------------------------------------------------------------------


def attempts_end_in_every_way(worlds: list[RandomSimulation]) -> None:
    counted = {one.result for world in worlds for one in world.simulation.history.reports if one.counted}

    # A worker that stops in good order is tried on real processes.
    assert counted == set(Result) - {Result.INTERRUPTED}


def tasks_end_in_every_way(worlds: list[RandomSimulation]) -> None:
    ends = {task.state for world in worlds for task in world.simulation.history.tasks.values()}

    assert ends >= TERMINAL


def workers_die_stand_still_and_come_too_late(worlds: list[RandomSimulation]) -> None:
    histories = [world.simulation.history for world in worlds]
    late = [one for history in histories for one in history.reports if not one.counted]
    killed = [one for history in histories for one in history.observations if not one.starts and one.result is None]
    longest = max(until - since for history in histories for _, since, until in history.stops)

    assert {one.result for one in late} >= {Result.SUCCEEDED, Result.FAILED, Result.LOST}
    assert len(killed) > 20
    assert longest > 180_000


def the_store_fails_before_and_after_commits(worlds: list[RandomSimulation]) -> None:
    seen = [facts for world in worlds for name, facts in world.simulation.events.seen if name == "store_unavailable"]

    for service in ("dispatcher", "worker"):
        assert len({facts["error"] for facts in seen if facts.get("service") == service}) == 2, service
    assert any(facts.get("service") == "reconciler" for facts in seen)


def runs_wait_go_on_and_are_ended_by_others(worlds: list[RandomSimulation]) -> None:
    runs = [
        run for world in worlds for schedule in world.simulation.history.schedules.values() for run in schedule.runs
    ]
    run_intervals = [interval for world in worlds for interval in world.simulation.history.run_intervals.values()]
    cancelled = [run for run in runs if run.error == "cancelled by operator"]
    replaced = [run for run in runs if run.error == "superseded by a newer run"]
    waited = [
        interval
        for interval in run_intervals
        if interval.activated is not None and interval.activated > interval.made + 1
    ]

    assert {run.started_at is None for run in cancelled} == {True, False}
    assert {run.started_at is None for run in replaced} == {True, False}
    assert len(waited) > 100


def dead_letters_come_for_every_reason_and_are_made_good(worlds: list[RandomSimulation]) -> None:
    letters = [letter for world in worlds for letter in world.simulation.history.dead_letters]
    reasons = {letter.reason for letter in letters}

    assert reasons >= {"gave_up", "attempts_exhausted", "worker_lost", "launch_failed", "no_workers"}
    assert any(letter.reason == "worker_lost" and letter.attempts == 3 for letter in letters)
    assert any(letter.resolved_at is not None for letter in letters)
    assert any(letter.resolved_at is None and letter.replayed_by is not None for letter in letters)


async def test_the_histories_are_not_vacuous(rough_worlds: RoughWorlds) -> None:
    # One test, because the simulations take long and processes that run tests cannot share them.
    # In the 16th history tasks wait for a worker in vain: few histories are as unlucky.
    worlds = [await rough_worlds.of(seed) for seed in (*range(12), 15)]

    attempts_end_in_every_way(worlds)
    tasks_end_in_every_way(worlds)
    workers_die_stand_still_and_come_too_late(worlds)
    the_store_fails_before_and_after_commits(worlds)
    runs_wait_go_on_and_are_ended_by_others(worlds)
    dead_letters_come_for_every_reason_and_are_made_good(worlds)


# ---- negative controls: each of these defects must be seen ---------------------------------------


class Unfenced(MemoryRules):
    """Asks only whether a task is in hand, not under which attempt."""

    def state_of(self, held: AttemptRef) -> TaskState | None:
        task = self._state.tasks.get(held[0])
        return None if task is None else task.state


class Generous(MemoryAttempts):
    """Gives away what it has given away before."""

    async def take(self, worker: str, **request: Any) -> Sequence[ReadyTask]:  # noqa: ANN401 - as it is asked for
        taken = await super().take(worker, **request)
        for one in taken:
            task = self._state.tasks[one.task.task_id]
            if task.fence < 3:
                self._state.tasks[task.task_id] = replace(task, state=TaskState.SCHEDULED)
        return taken


class Obstinate(MemoryRuns):
    """Says that a run will end, and does nothing about it."""

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        del reason, now, actor
        run = self._state.runs.get(run_id)
        return CancelOutcome.UNKNOWN if run is None else CancelOutcome.OVER if run.over else CancelOutcome.ASKED


class Deaf(MemoryAttempts):
    """Never tells a worker what it was asked to stop."""

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        renewal = await super().renew(worker, held, lease_ms=lease_ms)
        return LeaseRenewal(lost=renewal.lost, to_cancel=frozenset())

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        del worker
        return frozenset()


class Idle(MemoryTasks):
    """Calls some tasks done that nobody has done."""

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> Mapping[TaskId, Admission]:
        return await super().admit([_done(one) for one in admissions], now=now)


def _done(one: Admission) -> Admission:
    lucky = one.state is TaskState.SCHEDULED and sum(one.run_id.encode()) % 7 == 0
    return replace(one, state=TaskState.SUCCEEDED) if lucky else one


class Hurried(MemoryTasks):
    """Admits a task that was tried since the dispatcher looked."""

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> Mapping[TaskId, Admission]:
        return await super().admit([replace(one, fence=None) for one in admissions], now=now)


class Skipping(MemoryRules):
    """Hands a task out again that failed, past the gate."""

    def end_attempt(self, one: TaskCompletion) -> bool:
        counts = super().end_attempt(one)
        task = self._state.tasks[one.task_id]
        if counts and task.state is TaskState.PENDING:
            self._state.tasks[one.task_id] = replace(task, state=TaskState.SCHEDULED)
        return counts


class Boastful(MemoryRules):
    """Lets every tick show success whose run is over."""

    def set_tick(self, run: Run, status: TickStatus) -> None:
        super().set_tick(run, TickStatus.SUCCESS if status is TickStatus.FAILED else status)


class Forgiving(MemoryRules):
    """Keeps a dead letter open although its replay has succeeded."""

    def resolve(self, dead_letter_id: str, by: str, now: int) -> bool:
        del dead_letter_id, by, now
        return False


class Undecided(MemoryRules):
    """Lets a run be over without its task."""

    def stop_run(self, stopped: Run, now: int) -> None:
        tasks = {task.task_id: task for task in self._state.tasks.values() if task.run_id == stopped.run_id}
        super().stop_run(stopped, now)
        self._state.tasks.update(tasks)


STORES = {
    "fence not asked for": ("K8", with_rules(Unfenced)),
    "double take": ("K6", unchecked(with_part("attempts", Generous))),
    "released out of order": ("K12", with_rules(NewestFirst)),
    "cancel ignored": ("S11", with_part("runs", Obstinate)),
    "cancel not passed on": ("S11", with_part("attempts", Deaf)),
    "done without being done": ("K4", unchecked(with_part("tasks", Idle))),
    "a step that is not in the graph": ("K13", with_rules(Skipping)),
    "admitted though tried since": ("S12", with_part("tasks", Hurried)),
    "ticks that show success": ("C-10", with_rules(Boastful)),
    "letters that stay open": ("K15", with_rules(Forgiving)),
    "a run over without its task": ("K14", unchecked(with_rules(Undecided))),
}


async def rules_broken(store: StoreFactory, *, until: str) -> set[str]:
    """The rules that some histories break; once the one that is looked for is among them, that is enough."""
    broken: set[str] = set()
    for seed in range(12):
        world = await rough_world(seed, store=store)
        broken |= {violation.rule for violation in check(world.simulation.history)}
        if until in broken:
            break
    return broken


@pytest.mark.parametrize(("rule", "store"), some_quick(STORES, 2))
async def test_a_wrong_store_is_seen(rule: str, store: StoreFactory) -> None:
    assert rule in await rules_broken(store, until=rule)


async def dropping(self: Worker) -> None:
    """Reports what has ended, and forgets it whether that has worked or not."""
    endings, self._unreported = self._unreported, []
    if endings:
        for held in await self._store.attempts.report(endings):
            self._held.pop(held, None)


def lettered(held: Assignment, outcome: AttemptOutcome, **reported: Any) -> TaskCompletion:  # noqa: ANN401 - what `ending` takes
    """A dead letter, also for what has succeeded."""
    ended = complete_attempt(held, outcome, **reported)
    return replace(ended, dead_letter="why not") if ended.state is TaskState.SUCCEEDED else ended


def unfinished(held: Assignment, outcome: AttemptOutcome, **reported: Any) -> TaskCompletion:  # noqa: ANN401 - what `ending` takes
    """No dead letter for anything."""
    return replace(complete_attempt(held, outcome, **reported), dead_letter=None)


def rosy(held: Assignment, outcome: AttemptOutcome, **reported: Any) -> TaskCompletion:  # noqa: ANN401 - what `ending` takes
    """Success, whatever came of it."""
    failed = outcome.result is Result.FAILED
    return complete_attempt(held, AttemptOutcome(result=Result.SUCCEEDED) if failed else outcome, **reported)


def alike_but_for_runs(read: Schedule, current: Schedule) -> bool:
    """Whether a schedule is as it was read, however many runs have begun or ended."""
    return (read.mark_at, read.revision, read.paused_at) == (current.mark_at, current.revision, current.paused_at)


SERVICES: dict[str, tuple[str, str, object]] = {
    "reaper off": ("K14", "gnomon.services.execution.reconciler.overdue_outcome", lambda *_, **__: None),
    "results dropped": ("K14", "gnomon.services.execution.worker.Worker._report", dropping),
    "once more after a loss": ("K7", "gnomon.core.runs.outcomes._may_start_again", lambda _: True),
    "losses without end": (
        "S12",
        "gnomon.services.execution.reconciler.give_up_limits",
        lambda _: GiveUpLimits(losses=100),
    ),
    "no delay": ("S12", "gnomon.core.runs.outcomes._delay", lambda *_: 0),
    "a letter for a success": ("K15", "gnomon.services.execution.worker.complete_attempt", lettered),
    "no letter for a failure": ("K15", "gnomon.services.execution.worker.complete_attempt", unfinished),
    "failures told as successes": ("K8", "gnomon.services.execution.worker.complete_attempt", rosy),
    "overlap not asked about": (
        "K11",
        "gnomon.adapters.memory.rules.decide_launch",
        lambda *_, **__: (LaunchOutcome.STARTED, False),
    ),
    "overlap looked at outside": ("K2", "gnomon.adapters.memory.rules.unchanged", alike_but_for_runs),
    "all leases called over": (
        "K6",
        "gnomon.services.execution.reconciler.overdue_outcome",
        lambda *_, **__: AttemptOutcome(result=Result.LOST),
    ),
}


@pytest.mark.parametrize(("rule", "target", "defect"), some_quick(SERVICES, 2))
async def test_a_wrong_service_is_seen(rule: str, target: str, defect: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, defect)

    assert rule in await rules_broken(MemoryStore, until=rule)


# ---- the checker itself: histories told by hand --------------------------------------------------

RETRY = RetryPolicy(max_attempts=3, initial_delay_ms=10_000, jitter=0.1)
ONCE = Delivery.AT_MOST_ONCE


def failed_once(**said: Any) -> HistoryBuilder:  # noqa: ANN401 - any field of the workflow
    """A run whose first attempt has failed and which waits for the next."""
    built = HistoryBuilder(**{"retry": RETRY} | said).run("a").taken("a").begins("a").ends("a", Result.FAILED)
    return built.reported("a", Result.FAILED, TaskState.PENDING, delay_ms=10_000)


def lost_once(**said: Any) -> HistoryBuilder:  # noqa: ANN401 - any field of the workflow
    """A run whose first worker has not been heard of until its lease was over, and which waits for the next."""
    built = HistoryBuilder(**said).run("a").taken("a").begins("a").lapsed("a")
    return built.reported("a", Result.LOST, TaskState.PENDING, by="reconciler", delay_ms=500)


def gave_up(**said: Any) -> HistoryBuilder:  # noqa: ANN401 - any field of the workflow
    built = HistoryBuilder(**said).run("a").taken("a").begins("a").ends("a", Result.GAVE_UP)
    return built.reported("a", Result.GAVE_UP, TaskState.FAILED)


def waiting_behind(overlap: Overlap = Overlap.QUEUE) -> HistoryBuilder:
    """A run that goes on, and two that wait for it."""
    return HistoryBuilder(overlap=overlap).run("a").run("b", queued=True).run("c", queued=True)


def nobody_could_run_it() -> HistoryBuilder:
    return HistoryBuilder().run("a").becomes("a", TaskState.FAILED, routings=50).letter("a")


def zombie() -> HistoryBuilder:
    """The first worker stood still, comes back when another has done the work, and is not listened to."""
    built = lost_once().wait(1).success("a", "w2").ends("a", Result.FAILED, "w1", fence=1)
    return built.late("a", 1, Result.FAILED)


def replayed(**said: Any) -> HistoryBuilder:  # noqa: ANN401 - of the letter
    return gave_up(dead_letter=True).letter("a", **said).run("b", replay_of="dl_a").success("b")


GOOD = {
    "nothing at all": HistoryBuilder,
    "a success": lambda: HistoryBuilder().run("a").success("a"),
    "a justified retry": lambda: failed_once().wait(10).success("a"),
    "a retry that waits": failed_once,
    "a lost attempt, and another": lambda: lost_once().wait(1).success("a", "w2"),
    "a zombie": zombie,
    "at most once, lost": lambda: (
        HistoryBuilder(delivery=ONCE)
        .run("a")
        .taken("a")
        .lapsed("a")
        .reported("a", Result.LOST, TaskState.FAILED, by="reconciler")
    ),
    "cancelled while it waited": lambda: waiting_behind().cancelled("b"),
    "cancelled while it ran": lambda: (
        HistoryBuilder().run("a").taken("a").begins("a").cancelled("a").ends("a", Result.CANCELLED)
        .reported("a", Result.CANCELLED, TaskState.CANCELLED)
    ),
    "one after the other": lambda: (
        waiting_behind().success("a").released("b").success("b").released("c").success("c")
    ),
    "forced beside another": lambda: (
        HistoryBuilder(overlap=Overlap.SKIP).run("a").taken("a").begins("a").run("b", force=True).success("b")
    ),
    "a body that goes on": lambda: HistoryBuilder().run("a").taken("a").begins("a").wait(100),
    "a letter that was asked for": lambda: gave_up(dead_letter=True).letter("a"),
    "a letter made good": lambda: replayed(resolved=True),
    "nobody could run it": nobody_could_run_it,
}  # fmt: skip


@pytest.mark.parametrize("built", GOOD.values(), ids=GOOD.keys())
def test_a_good_history_breaks_no_rule(built: Callable[[], HistoryBuilder]) -> None:
    assert check(built().build()) == []


BAD: dict[str, tuple[str, Callable[[], HistoryBuilder]]] = {
    "done without a body": ("K4", lambda: HistoryBuilder().run("a").becomes("a", TaskState.SUCCEEDED)),
    "failed without being tried": ("K4", lambda: HistoryBuilder().run("a").becomes("a", TaskState.FAILED).letter("a")),
    "begun too soon": ("S12", lambda: failed_once().success("a")),
    "repeated without a reason": (
        "K6",
        lambda: HistoryBuilder().run("a").taken("a").begins("a").becomes("a", TaskState.PENDING).success("a", "w2"),
    ),
    "repeated after a success": (
        "K6",
        lambda: (
            HistoryBuilder().run("a").taken("a").begins("a").ends("a", Result.SUCCEEDED)
            .reported("a", Result.SUCCEEDED, TaskState.PENDING).success("a")
        ),
    ),
    "begun twice under one attempt": ("K6", lambda: HistoryBuilder().run("a").taken("a").begins("a").begins("a")),
    "begun by someone else": ("K6", lambda: HistoryBuilder().run("a").taken("a").begins("a", "w2")),
    "called lost with a lease": (
        "K6",
        lambda: (
            HistoryBuilder().run("a").taken("a").begins("a")
            .reported("a", Result.LOST, TaskState.PENDING, by="reconciler", delay_ms=500)
        ),
    ),
    "a second start of what starts once": (
        "K7",
        lambda: lost_once(delivery=ONCE).wait(1).success("a", "w2"),
    ),
    "a late result that counts": ("K8", lambda: lost_once().taken("a", "w2").late("a", 1, Result.FAILED, changed=True)),
    "told otherwise than it was": (
        "K8",
        lambda: (
            HistoryBuilder().run("a").taken("a").begins("a").ends("a", Result.FAILED)
            .reported("a", Result.SUCCEEDED, TaskState.SUCCEEDED)
        ),
    ),
    "a success told by others": (
        "K8",
        lambda: (
            HistoryBuilder().run("a").taken("a").begins("a")
            .reported("a", Result.SUCCEEDED, TaskState.SUCCEEDED, by="w2").ends("a", Result.SUCCEEDED)
        ),
    ),
    "failed after a success": (
        "K8",
        lambda: (
            HistoryBuilder().run("a").taken("a").begins("a").ends("a", Result.SUCCEEDED)
            .reported("a", Result.SUCCEEDED, TaskState.FAILED).letter("a")
        ),
    ),
    "two that exclude each other": (
        "K11",
        lambda: HistoryBuilder(overlap=Overlap.SKIP).run("a").run("b").success("a").success("b"),
    ),
    "two bodies that exclude each other": (
        "K11",
        lambda: (
            waiting_behind().taken("a").begins("a").becomes("a", TaskState.FAILED).letter("a")
            .released("b").taken("b").begins("b")
        ),
    ),
    "out of order": ("K12", lambda: waiting_behind().success("a").released("c").success("c")),
    "a step that is not in the graph": (
        "K13",
        lambda: HistoryBuilder().run("a").success("a").becomes("a", TaskState.CANCELLED),
    ),
    "ready for ever": ("K14", lambda: HistoryBuilder().run("a").wait(600)),
    "behind nothing for ever": ("K14", lambda: HistoryBuilder(overlap=Overlap.QUEUE).run("a", queued=True).wait(600)),
    "gone for ever": ("K14", lambda: HistoryBuilder().run("a").taken("a").wait(600)),
    "never told": (
        "K14",
        lambda: HistoryBuilder().run("a").taken("a").begins("a").ends("a", Result.SUCCEEDED).wait(600),
    ),
    "no letter": ("K15", lambda: gave_up(dead_letter=True)),
    "two letters": ("K15", lambda: gave_up(dead_letter=True).letter("a").letter("a")),
    "a letter nobody asked for": ("K15", lambda: gave_up().letter("a")),
    "a letter for a success": ("K15", lambda: HistoryBuilder(dead_letter=True).run("a").success("a").letter("a")),
    "a letter still open that was made good": ("K15", lambda: replayed(resolved=False)),
    "a letter resolved by nothing": ("K15", lambda: gave_up(dead_letter=True).letter("a", resolved=True)),
    "two replays of one letter": ("K15", lambda: replayed(resolved=True).run("c", replay_of="dl_a").success("c")),
    "given up too early": (
        "S12",
        lambda: (
            HistoryBuilder(retry=RETRY).run("a").taken("a").begins("a").ends("a", Result.FAILED)
            .reported("a", Result.FAILED, TaskState.FAILED)
        ),
    ),
    "retried without a policy": ("S12", lambda: failed_once(retry=None)),
    "a delay that was not promised": (
        "S12",
        lambda: (
            HistoryBuilder(retry=RETRY).run("a").taken("a").begins("a").ends("a", Result.FAILED)
            .reported("a", Result.FAILED, TaskState.PENDING, delay_ms=11_100)
        ),
    ),
    "begun after a cancellation": (
        "S11",
        lambda: HistoryBuilder().run("a").cancelled("a").becomes("a", TaskState.PENDING).taken("a").begins("a"),
    ),
    "not stopped": ("S11", lambda: HistoryBuilder().run("a").taken("a").begins("a").cancelled("a").wait(100)),
    "a run that says something else": ("C-10", lambda: lying(gave_up())),
}  # fmt: skip


def lying(built: HistoryBuilder) -> HistoryBuilder:
    built.runs["a"] = replace(built.runs["a"], status=RunStatus.COMPLETED)
    return built


@pytest.mark.parametrize(("rule", "built"), BAD.values(), ids=BAD.keys())
def test_a_bad_history_breaks_its_rule(rule: str, built: Callable[[], HistoryBuilder]) -> None:
    found = check(built().build())

    assert rule in {violation.rule for violation in found}
