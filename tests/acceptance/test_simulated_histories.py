"""Long histories with crashes, races, slow stores, set clocks and operators: each ends with the checker."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.schedules import MemoryLedger, MemorySchedules
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.config.sections import LeaderSettings, ReconcilerSettings, TickerSettings, WorkerSettings
from gnomon.config.settings import Settings
from gnomon.core.announcements.model import AnnounceRule
from gnomon.core.cron import Cron
from gnomon.core.ledger.edits import ResumeChoice, resume_verdict
from gnomon.core.ledger.plan import CatchupLimit, plan
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Decision, Overlap, Reason, Run, RunStatus, Schedule, TickKind, TickVerdict
from gnomon.testing.checker import check
from gnomon.testing.clock import VirtualClock
from gnomon.testing.faults import FaultProbabilities
from gnomon.testing.history import Commit, SimulationHistory, Violation
from gnomon.testing.simulation import Simulation
from support.defective_stores import StoreFactory, with_part, with_rules, with_schedules
from support.effort import seed_batches, some_quick
from support.random_simulation import HOUR, STARTS, NewestFirst, RandomSimulation, simulate
from support.sqlite_files import new_sqlite_file

pytestmark = pytest.mark.guarantee("S1", "S2", "S8", "S10", "S11", "S16", "C3")

BATCH = 6
HOURS = 6


async def history_of(
    seed: int, *, hours: int = HOURS, store: StoreFactory = MemoryStore, chances: FaultProbabilities | None = None
) -> tuple[RandomSimulation, list[Violation]]:
    # With races, one schedule at a time: so that a late writer finds some that its successor has not reached yet.
    world = await simulate(seed, hours=hours, store=store, chances=chances, batch=None if chances is None else 1)
    return world, check(world.simulation.history)


class Worlds(dict[int, RandomSimulation]):
    """The simulations that several tests look at, by seed."""

    async def of(self, seed: int) -> RandomSimulation:
        if seed not in self:
            self[seed] = await simulate(seed, hours=HOURS)
        return self[seed]


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    return Worlds()


@pytest.mark.parametrize("first", seed_batches(6, 204, BATCH))
async def test_no_history_breaks_a_rule(first: int, worlds: Worlds) -> None:
    for seed in range(first, first + BATCH):
        # Those of the first seeds are looked at again.
        world = await (simulate(seed, hours=HOURS) if first else worlds.of(seed))

        assert check(world.simulation.history) == [], f"seed {seed}"


async def test_the_same_seed_gives_the_same_history(worlds: Worlds) -> None:
    one = await worlds.of(7)
    other = await simulate(7, hours=HOURS)

    assert one.simulation.history.commits == other.simulation.history.commits


async def test_the_histories_are_not_vacuous(worlds: Worlds) -> None:
    seen = [await worlds.of(seed) for seed in range(11)]

    names = {name for world in seen for name in world.simulation.events.names()}
    decisions = [d for w in seen for c in w.simulation.history.commits for d in c.decisions]
    holders = {commit.holder for world in seen for commit in world.simulation.history.commits}
    assert {"store_unavailable", "clock_stepped", "term_ended", "shards_held", "lease_renewal_failed"} <= names
    assert {d.kind for d in decisions} == set(TickKind)
    # Only a restored backup leaves ticks in doubt.
    assert {d.reason for d in decisions} == set(Reason) - {Reason.STORE_UNCERTAIN}
    assert len(holders) > 5
    assert sum(d.count for d in decisions) > 1500


# ---- negative controls: each of these defects must be seen ---------------------------------------


class DoubleDecider(MemoryRules):
    """Does not compare before it sets."""

    def apply_verdict(self, verdict: TickVerdict, *, now: int) -> bool:
        current = self._state.schedules.get(verdict.schedule.uid)
        if current is None:
            return False
        self._state.schedules[current.uid] = verdict.schedule
        return super().apply_verdict(verdict, now=now)


class Hasty(MemoryLedger):
    """Moves the mark of a schedule when it is read, before anything is decided."""

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        found = await super().due(now, shards=shards, limit=limit)
        for schedule in found:
            self._state.schedules[schedule.uid] = replace(schedule, mark_at=max(now, schedule.mark_at))
        return [self._state.schedules[schedule.uid] for schedule in found]


class Sleepless(MemorySchedules):
    """Forgets that a schedule is paused."""

    async def change(self, verdict: TickVerdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        done = await super().change(verdict, changed, now=now, actor=actor, tzdata=tzdata)
        if done and changed.paused_at is not None:
            upcoming = Ticks(changed.schedule_id, changed.spec).next_fire_at(changed.mark_at)
            self._state.schedules[changed.uid] = replace(changed, next_fire_at=upcoming)
        return done


class Miscounting(MemoryRules):
    """Does not count a run that ends after its schedule was changed."""

    def end_run(
        self, run: Run, status: RunStatus, error: str | None, now: int, *, announce: Sequence[AnnounceRule] = ()
    ) -> None:
        before = self._state.schedules.get(run.schedule_uid) if run.schedule_uid is not None else None
        super().end_run(run, status, error, now, announce=announce)
        if before is not None and before.revision > 1:
            self._state.schedules[before.uid] = before


class Forgetful(MemorySchedules):
    """Keeps a pause in its history, but not with the schedule."""

    async def change(self, verdict: TickVerdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        done = await super().change(verdict, changed, now=now, actor=actor, tzdata=tzdata)
        if done and changed.paused_at is not None:
            upcoming = Ticks(changed.schedule_id, changed.spec).next_fire_at(changed.mark_at)
            self._state.schedules[changed.uid] = replace(changed, next_fire_at=upcoming, paused_at=None)
        return done


class LateBeginner(MemorySchedules):
    """Lets a new schedule count from ten minutes after its creation."""

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        later = [replace(one, mark_at=one.mark_at + 600_000) for one in schedules]
        return await super().add(later, actor=actor, tzdata=tzdata)


class LateEditor(MemorySchedules):
    """Lets an edit count from ten minutes later."""

    async def change(self, verdict: TickVerdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        if changed.revision != verdict.schedule.revision:
            changed = replace(changed, mark_at=changed.mark_at + 600_000)
        return await super().change(verdict, changed, now=now, actor=actor, tzdata=tzdata)


def spoiled(spoil: Callable[[Schedule, int], tuple[Schedule, int]]) -> Callable[..., TickVerdict]:
    """A plan that looks at something else than it was given."""

    def planned_wrongly(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        seen, moment = spoil(schedule, now)
        return replace(plan(seen, now=moment, limit=limit), schedule=schedule)

    return planned_wrongly


def without_the_newest(schedule: Schedule, choice: ResumeChoice, *, now: int) -> TickVerdict:
    """Ends a pause as was chosen, but for the newest tick."""
    verdict = resume_verdict(schedule, choice, now=now)
    if sum(one.starts_run for one in verdict.decisions) < 2:
        return verdict
    *others, newest = verdict.decisions
    let_go = replace(newest, kind=TickKind.SKIPPED, reason=Reason.PAUSED, fire_at=None)
    fired, queued = (newest.kind is kind for kind in (TickKind.FIRED, TickKind.QUEUED))
    counts = {"active_runs": verdict.active_runs - fired, "queued_runs": verdict.queued_runs - queued}
    return replace(verdict, decisions=(*others, let_go), **counts)


def without_limit(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
    return plan(schedule, now=now, limit=limit._replace(ticks=10_000))


def without_interval(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
    return plan(schedule, now=now, limit=limit._replace(interval_ms=0))


def with_spec(schedule: Schedule, **changes: object) -> Schedule:
    return replace(schedule, spec=replace(schedule.spec, **changes))


def reworded(change: Callable[[Decision], Decision]) -> Callable[..., TickVerdict]:
    """A plan whose decisions are not what they should be."""

    def planned_wrongly(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        verdict = plan(schedule, now=now, limit=limit)
        return replace(verdict, decisions=tuple(change(decision) for decision in verdict.decisions))

    return planned_wrongly


def always_on_time(decision: Decision) -> Decision:
    return replace(decision, reason=Reason.ON_TIME) if decision.kind is TickKind.FIRED else decision


def always_moved(decision: Decision) -> Decision:
    return replace(decision, reason=Reason.MOVED) if decision.reason is Reason.SKIPPED_ONCE else decision


def a_second_early(decision: Decision) -> Decision:
    return decision if decision.fire_at is None else replace(decision, fire_at=decision.fire_at - 1000)


def one_under_way(schedule: Schedule, now: int) -> tuple[Schedule, int]:
    return replace(schedule, active_runs=1, queued_runs=0), now


def other_zone(schedule: Schedule, now: int) -> tuple[Schedule, int]:
    trigger = schedule.spec.trigger
    if isinstance(trigger, Cron):
        trigger = Cron(trigger.expression, "Asia/Kolkata", dst=trigger.dst)
    return with_spec(schedule, trigger=trigger), now


PLANS = {
    "grace 0": ("K2", spoiled(lambda s, now: (with_spec(s, misfire_grace_ms=0), now))),
    "catch-up uncapped": ("K2", without_limit),
    "catch-up in one go": ("K5", without_interval),
    "another zone": ("K9", spoiled(other_zone)),
    "jitter ignored": ("K5", spoiled(lambda s, now: (with_spec(s, jitter_ms=0), now))),
    "overlap ignored": ("K2", spoiled(lambda s, now: (with_spec(s, overlap=Overlap.ALLOW), now))),
    "skipped instead of queued": ("K2", spoiled(lambda s, now: (with_spec(s, overlap=Overlap.SKIP), now))),
    "queued instead of replacing": ("K2", spoiled(lambda s, now: (with_spec(s, overlap=Overlap.QUEUE), now))),
    "queue without a limit": ("K2", spoiled(lambda s, now: (with_spec(s, queue_limit=10_000), now))),
    "a run that is not there": ("K2", spoiled(one_under_way)),
    "runs that start early": ("K5", reworded(a_second_early)),
    "catch-up not spread": ("K5", spoiled(lambda s, now: (with_spec(s, lookahead_ms=0), now))),
    "late called on time": ("K2", reworded(always_on_time)),
    "caught up called late": ("K2", spoiled(lambda s, now: (with_spec(s, misfire_grace_ms=HOUR), now))),
    "exceptions ignored": ("K2", spoiled(lambda s, now: (with_spec(s, exceptions=()), now))),
    "a skipped tick called moved": ("K2", reworded(always_moved)),
    "a clock that is ahead": ("K5", spoiled(lambda s, now: (s, now + 120_000))),
}
STORES = {
    "compare-and-set dropped": ("K1", with_rules(DoubleDecider)),
    "mark moved before the decision": ("K1", with_part("ledger", Hasty)),
    "pause ignored": ("K9", with_schedules(Sleepless)),
    "pause forgotten": ("K9", with_schedules(Forgetful)),
    "a schedule that counts from later on": ("K1", with_schedules(LateBeginner)),
    "an edit that counts from later on": ("K1", with_schedules(LateEditor)),
    "the newest of those that wait released": ("K2", with_rules(NewestFirst)),
    "runs not counted": ("K2", with_rules(Miscounting)),
}


async def rules_broken(store: StoreFactory, *, until: str = "", races: bool = False) -> set[str]:
    """The rules that some histories break; once the one that is looked for is among them, that is enough."""
    broken: set[str] = set()
    for seed in range(24):
        chances = FaultProbabilities(slowness=0.05, race=0.5) if races else None
        _, violations = await history_of(seed, store=store, chances=chances)
        broken |= {violation.rule for violation in violations}
        if until in broken:
            break
    return broken


@pytest.mark.parametrize(("rule", "planned_wrongly"), some_quick(PLANS, 2))
async def test_a_wrong_plan_is_seen(
    rule: str, planned_wrongly: Callable[..., TickVerdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def within(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        return planned_wrongly(schedule, now=now, limit=limit)

    monkeypatch.setattr("gnomon.services.scheduling.ticker.plan", within)

    assert rule in await rules_broken(MemoryStore, until=rule)


@pytest.mark.thorough
async def test_a_pause_that_ends_with_the_wrong_ticks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.services.operations.schedules.resume_verdict", without_the_newest)

    assert "K2" in await rules_broken(MemoryStore, until="K2")


@pytest.mark.parametrize(("rule", "store"), some_quick(STORES, 2))
async def test_a_wrong_store_is_seen(rule: str, store: StoreFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    # In one shard, so that a late writer meets what its successor wrote.
    monkeypatch.setattr("gnomon.core.ledger.edits.shard_of", lambda _: 0)

    assert rule in await rules_broken(store, until=rule, races=True)


@pytest.mark.thorough
async def test_with_as_many_races_the_right_store_breaks_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.core.ledger.edits.shard_of", lambda _: 0)

    assert await rules_broken(MemoryStore, races=True) == set()


# ---- the checker itself: a good history, spoiled by hand -----------------------------------------


def with_commits(history: SimulationHistory, commits: list[Commit]) -> SimulationHistory:
    return dataclasses.replace(history, commits=commits)


def lower_term(history: SimulationHistory) -> SimulationHistory:
    by_nodes = [commit for commit in history.commits if commit.term is not None]
    last = by_nodes[-1]
    shard = [commit for commit in by_nodes if commit.schedule.shard == last.schedule.shard]
    assert len(shard) > 1
    return with_commits(history, [*history.commits[:-1], dataclasses.replace(last, term=0)])


def two_holders(history: SimulationHistory) -> SimulationHistory:
    last = next(commit for commit in reversed(history.commits) if commit.term is not None)
    return with_commits(history, [*history.commits, dataclasses.replace(last, holder="impostor", decisions=())])


def one_forgotten(history: SimulationHistory) -> SimulationHistory:
    chosen = next(commit for commit in history.commits if commit.decisions)
    return with_commits(history, [commit for commit in history.commits if commit is not chosen])


def one_twice(history: SimulationHistory) -> SimulationHistory:
    chosen = next(commit for commit in history.commits if any(d.starts_run for d in commit.decisions))
    return with_commits(history, [*history.commits, chosen])


@pytest.mark.parametrize(
    ("spoil", "rules"),
    [
        pytest.param(lower_term, {"K16"}, id="a term that falls"),
        pytest.param(two_holders, {"K16"}, id="a term with two holders"),
        pytest.param(one_forgotten, {"K1", "K3"}, id="a tick that nobody decided"),
        pytest.param(one_twice, {"K1", "K3"}, id="a tick decided twice"),
    ],
)
async def test_a_spoiled_history_is_seen(
    spoil: Callable[[SimulationHistory], SimulationHistory], rules: set[str]
) -> None:
    world, violations = await history_of(4, hours=3)
    assert violations == []

    found = check(spoil(world.simulation.history))

    assert rules <= {violation.rule for violation in found}


# ---- the same on a real database -----------------------------------------------------------------


@pytest.mark.parametrize("seed", seed_batches(1, 15, 1))
async def test_no_history_on_sqlite_breaks_a_rule(seed: int, tmp_path: Path) -> None:
    clock = VirtualClock(int(STARTS[seed % len(STARTS)].timestamp() * 1000))
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=clock.now)
    world = RandomSimulation(store, clock, f"sqlite {seed}")
    await world.populate()
    history = await world.simulation.run(2 * HOUR)
    await store.close()

    assert check(history) == []


async def test_months_pass_in_seconds() -> None:
    clock = VirtualClock(int(STARTS[0].timestamp() * 1000))
    # Nobody has to look more often than that; hints wake them.
    settings = Settings(
        ticker=TickerSettings(tick_ms=HOUR),
        leader=LeaderSettings(ttl_ms=3 * HOUR, renew_interval_ms=HOUR),
        worker=WorkerSettings(lease_ms=3 * HOUR, poll_secs=3600),
        reconciler=ReconcilerSettings(poll_ms=HOUR, deadline_poll_ms=HOUR),
    )
    simulation = Simulation(MemoryStore(clock.now), clock, seed="months", settings=settings)
    daily = {"schedule": "30 2 * * *", "timezone": "America/New_York", "workflow_id": "backup", "overlap": "allow"}
    await simulation.define("backup")
    uid = await simulation.register(daily | {"schedule_id": "backup"})
    simulation.add_node()

    history = await simulation.run(60 * 24 * HOUR)

    assert check(history) == []
    assert len(history.schedules[uid].runs) == 60
