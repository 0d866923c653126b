"""The ticker with real parts that live in memory, and time that passes only when told."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.schedules import MemoryLedger, MemoryShards
from gnomon.config.sections import LeaderSettings, TickerSettings
from gnomon.core.cron import Cron
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import CatchupLimit, plan
from gnomon.core.model import Catchup, Overlap, Reason, Schedule, ScheduleUid, TickVerdict
from gnomon.errors import StoreUnavailable
from gnomon.ports.ledger import ShardRenewal, Terms
from gnomon.ports.runtime import ClockSync
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker, TickerHealth
from gnomon.testing.clock import Recorder, VirtualClock
from support.defective_stores import with_part


class Node:
    """A ticker and its elector on a store that may be shared."""

    def __init__(
        self, store: MemoryStore, clock: VirtualClock, holder: str = "node", clock_sync: ClockSync | None = None
    ) -> None:
        self.events = Recorder()
        self.clock = clock
        self.elector = Elector(store.shards, clock, self.events, LeaderSettings(), holder=holder)
        self.ticker = Ticker(
            store.ledger,
            self.elector,
            clock,
            self.events,
            TickerSettings(),
            clock_sync=clock_sync,
            on_runs_created=lambda: None,
        )

    async def run_for(self, ms: int) -> None:
        """Step whenever asked to, until so much time has passed."""
        until = self.clock.elapsed() * 1000 + ms
        while True:
            wait = await self.ticker.step()
            left = until - self.clock.elapsed() * 1000
            if left <= wait * 1000:
                self.clock.advance(int(left))
                return
            self.clock.advance(max(0, round(wait * 1000)))


class OwnClock(VirtualClock):
    """The clock of one machine, which may differ from the store's until it is compared with that. Implements ClockSync.

    Time passes on both.
    """

    def __init__(self, store_clock: VirtualClock) -> None:
        super().__init__(store_clock.now())
        self._store_clock = store_clock
        #: Whether the store answers when it is asked for its time.
        self.can_compare = True

    def advance(self, ms: int) -> None:
        super().advance(ms)
        self._store_clock.advance(ms)

    async def compare(self) -> None:
        if not self.can_compare:
            raise StoreUnavailable("nobody answers")
        self.shift_wall_clock(self._store_clock.now() - self.now())


class BreakableLedger(MemoryLedger):
    """A ledger that can be told to fail."""

    broken = False

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        if self.broken:
            raise StoreUnavailable("the disk is full")
        return await super().due(now, shards=shards, limit=limit)

    async def decide(self, verdicts: Sequence[TickVerdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        if self.broken:
            raise StoreUnavailable("the disk is full")
        return await super().decide(verdicts, now=now, terms=terms)


class BreakableShards(MemoryShards):
    """Shards that can be told to fail."""

    deaf = False
    #: The action to perform while the next answer is in flight.
    after_attending: Callable[[], Awaitable[None]] | None = None

    async def renew(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        if self.deaf:
            raise StoreUnavailable("nobody answers")
        answer = await super().renew(holder, ttl_ms=ttl_ms)
        if self.after_attending is not None:
            happening, self.after_attending = self.after_attending, None
            await happening()
        return answer


class BreakableStore(MemoryStore):
    """A store that can be told to fail."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self.ledger = self.breakable_ledger = BreakableLedger(self.state, self.rules)
        self.shards = self.breakable_shards = BreakableShards(self.state)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture
def store(clock: VirtualClock) -> BreakableStore:
    return BreakableStore(clock.now)


@pytest.fixture
def node(store: MemoryStore, clock: VirtualClock) -> Node:
    return Node(store, clock)


async def planned(store: MemoryStore, schedule: Schedule) -> list[float]:
    """The minutes after noon that have been decided, oldest first."""
    ticks = await store.history.ticks(schedule.uid, before=1 << 60, limit=1000)
    return [(tick.decision.planned_at - NOON) / MINUTE for tick in reversed(ticks)]


@pytest.mark.req("H-01")
async def test_every_tick_is_decided_at_its_very_instant(store: MemoryStore, node: Node) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")

    await node.run_for(5 * MINUTE + 1)

    ticks = await store.history.ticks(schedule.uid, before=1 << 60, limit=10)
    assert await planned(store, schedule) == [1, 2, 3, 4, 5]
    assert all(tick.decided_at == tick.decision.planned_at for tick in ticks)


@pytest.mark.req("H-06", "C-13")
async def test_a_tick_that_finds_its_lock_held_is_skipped_and_that_is_announced(store: MemoryStore, node: Node) -> None:
    schedule = minutely(overlap=Overlap.SKIP)
    await store.schedules.add([schedule], actor="ada", tzdata="")

    await node.run_for(2 * MINUTE + 1)

    told = [facts for name, facts in node.events.seen if name == "job.skipped"]
    assert told == [{"job": schedule.schedule_id, "reason": Reason.OVERLAP, "planned_at": NOON + 2 * MINUTE}]


@pytest.mark.req("H-02")
async def test_the_ticker_looks_at_least_every_second(node: Node, clock: VirtualClock) -> None:
    for _ in range(10):
        wait = await node.ticker.step()
        assert 0 < wait <= 1
        clock.advance(round(wait * 1000))


async def test_the_ticker_wakes_for_what_comes_between_two_seconds(store: MemoryStore, node: Node) -> None:
    schedule = minutely(jitter_ms=20_000, overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")

    await node.run_for(3 * MINUTE + 30_000)

    ticks = await store.history.ticks(schedule.uid, before=1 << 60, limit=10)
    assert len(ticks) >= 3
    assert all(tick.decided_at == tick.decision.fire_at for tick in ticks)


async def test_a_schedule_that_was_just_added_is_seen_within_a_tick(store: MemoryStore, node: Node) -> None:
    await node.run_for(MINUTE)
    late = minutely("late", trigger=Cron("* * * * * *"), mark=NOON + MINUTE, overlap=Overlap.ALLOW)
    await store.schedules.add([late], actor="ada", tzdata="")

    await node.run_for(2500)

    assert len(await planned(store, late)) >= 2


async def test_more_schedules_than_fit_in_a_batch_are_all_decided(store: MemoryStore, node: Node) -> None:
    schedules = [minutely(f"s{i}") for i in range(2500)]
    await store.schedules.add(schedules, actor="ada", tzdata="")

    await node.run_for(MINUTE + 1)

    assert [len(await planned(store, schedule)) for schedule in schedules[::250]] == [1] * 10


async def test_a_ticker_that_finds_more_than_it_decides_at_once_says_that_it_is_behind(
    store: MemoryStore, clock: VirtualClock
) -> None:
    node = Node(store, clock)
    node.ticker = Ticker(
        store.ledger, node.elector, clock, node.events, TickerSettings(batch=2), on_runs_created=lambda: None
    )
    await store.schedules.add([minutely(f"s{i}") for i in range(3)], actor="ada", tzdata="")
    await node.ticker.step()
    clock.advance(MINUTE)

    behind = []
    for _ in range(3):
        await node.ticker.step()
        behind.append(node.ticker.behind)

    assert behind == [True, False, False]


@pytest.mark.req("Z-01")
@pytest.mark.guarantee("E4", "C7")
async def test_a_store_that_is_away_costs_time_but_no_tick(store: BreakableStore, node: Node) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    await node.run_for(MINUTE + 1)

    store.breakable_ledger.broken = True
    await node.run_for(30_000 + MINUTE)
    during = node.ticker.health
    assert node.ticker.seconds_since_success > 5
    store.breakable_ledger.broken = False
    await node.run_for(2000)

    assert (during, node.ticker.health) == (TickerHealth.ERROR, TickerHealth.OK)
    assert await planned(store, schedule) == [1, 2]
    assert "store_unavailable" in node.events.names()


@pytest.mark.req("C-06", "C-09")
@pytest.mark.parametrize(
    ("catchup", "started"), [(Catchup.NONE, []), (Catchup.LATEST, [6]), (Catchup.ALL, [2, 3, 4, 5, 6])]
)
async def test_a_node_that_starts_decides_about_missed_ticks_by_the_policy(
    store: MemoryStore, node: Node, clock: VirtualClock, catchup: Catchup, started: list[int]
) -> None:
    schedule = minutely(overlap=Overlap.ALLOW, catchup=catchup, misfire_grace_ms=10_000)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    await node.run_for(MINUTE + 1)
    # The process ends, and another one starts in the middle of a minute.
    clock.advance(5 * MINUTE + 30_000)

    await Node(store, clock, "next").run_for(20_000)

    assert await planned(store, schedule)
    runs = await store.history.runs(schedule.uid, before=1 << 60, limit=10)
    assert sorted((run.planned_at - NOON) // MINUTE for run in runs) == [1, *started]


@pytest.mark.guarantee("S16", "E6")
async def test_a_wall_clock_that_jumps_forward_is_an_outage(
    store: MemoryStore, node: Node, clock: VirtualClock
) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    await node.run_for(MINUTE + 1)

    clock.shift_wall_clock(HOUR)
    await node.run_for(2000)

    assert ("clock_stepped", {"by_ms": HOUR}) in node.events.seen
    newest, missed, _ = await store.history.ticks(schedule.uid, before=1 << 60, limit=10)
    assert (newest.decision.kind, newest.decision.planned_at) == ("fired", NOON + HOUR + MINUTE)
    assert (missed.decision.kind, missed.decision.count) == ("missed", 59)


@pytest.mark.guarantee("S16")
async def test_a_wall_clock_that_is_put_back_decides_nothing_twice(
    store: MemoryStore, node: Node, clock: VirtualClock
) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    await node.run_for(10 * MINUTE + 1)

    clock.shift_wall_clock(-5 * MINUTE)
    await node.run_for(7 * MINUTE)

    assert await planned(store, schedule) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert ("clock_stepped", {"by_ms": -5 * MINUTE}) in node.events.seen


@pytest.mark.guarantee("C10", "S16")
@pytest.mark.parametrize("by_ms", [HOUR, 5_000, 300, -HOUR])
async def test_one_node_whose_clock_is_set_decides_every_tick_once_and_none_early(
    store: MemoryStore, clock: VirtualClock, by_ms: int
) -> None:
    schedule = minutely(trigger=Cron("* * * * * *"), overlap=Overlap.ALLOW, catchup=Catchup.ALL)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    own = OwnClock(clock)
    node = Node(store, own, clock_sync=own)
    await node.run_for(5_000)

    own.shift_wall_clock(by_ms)
    await node.run_for(10_000)

    ticks = await store.history.ticks(schedule.uid, before=1 << 60, limit=1000)
    assert [tick.decision.planned_at for tick in reversed(ticks)] == list(range(NOON + 1000, clock.now(), 1000))
    assert all(0 <= tick.decided_at - tick.decision.planned_at < 2000 for tick in ticks)


@pytest.mark.req("C-06")
@pytest.mark.guarantee("S10")
@pytest.mark.parametrize("registered_cap", [100, 1000])
async def test_missed_ticks_start_within_the_limit_in_force_in_every_tick_interval(
    store: MemoryStore, node: Node, clock: VirtualClock, registered_cap: int
) -> None:
    schedule = minutely(
        trigger=Cron("* * * * * *"), overlap=Overlap.ALLOW, catchup=Catchup.ALL, catchup_cap=registered_cap
    )
    await store.schedules.add([schedule], actor="ada", tzdata="")
    clock.advance(720_000)

    await node.run_for(10_000)

    starts = sorted(max(run.fire_at, run.created_at) for run in store.state.runs.values())
    assert len(starts) >= 729
    limit = TickerSettings().max_catchup_per_tick
    assert all(later - first >= 1000 for first, later in zip(starts, starts[limit:], strict=False))


@pytest.mark.req("C-06")
@pytest.mark.parametrize("outage_seconds", [70, 90, 720, 3600])
async def test_missed_ticks_that_are_spread_start_in_order_and_evenly_until_the_lookahead_is_over(
    store: MemoryStore, node: Node, clock: VirtualClock, outage_seconds: int
) -> None:
    schedule = minutely(trigger=Cron("* * * * * *"), overlap=Overlap.ALLOW, catchup=Catchup.SPREAD)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    clock.advance(outage_seconds * 1000)
    back_at = clock.now()

    await node.run_for(5 * MINUTE)

    runs = sorted(store.state.runs.values(), key=lambda run: run.planned_at)
    assert [run.planned_at for run in runs] == list(range(NOON + 1000, runs[-1].planned_at + 1, 1000))
    starts = [max(run.fire_at, run.created_at) for run in runs]
    assert starts == sorted(starts)
    overdue = [at for at, run in zip(starts, runs, strict=True) if run.planned_at <= back_at]
    gaps = [later - first for first, later in pairwise(overdue)]
    assert len(overdue) == outage_seconds
    assert max(gaps) - min(gaps) <= 2
    # The ticks that come due meanwhile follow at the same pace, until they are on time again.
    assert all(at - run.planned_at < 10 for at, run in zip(starts, runs, strict=True) if at >= back_at + MINUTE)
    assert overdue[-1] == pytest.approx(back_at + MINUTE * outage_seconds / (outage_seconds + 60), abs=1000)


@pytest.mark.req("C-06")
async def test_a_spread_continues_when_another_node_takes_over(store: MemoryStore, clock: VirtualClock) -> None:
    schedule = minutely(trigger=Cron("* * * * * *"), overlap=Overlap.ALLOW, catchup=Catchup.SPREAD)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    clock.advance(720_000)
    back_at = clock.now()
    first = Node(store, clock, "first")
    await first.run_for(5_000)
    await first.elector.stop()

    await Node(store, clock, "second").run_for(2 * MINUTE)

    runs = sorted(store.state.runs.values(), key=lambda run: run.planned_at)
    starts = [max(run.fire_at, run.created_at) for run in runs]
    assert starts == sorted(starts)
    assert starts[720 + 59] <= back_at + MINUTE


@pytest.mark.guarantee("S2", "S16", "K19")
@pytest.mark.parametrize("catchup", list(Catchup))
async def test_an_hour_forward_and_back_on_the_only_clock_silences_no_schedule_and_repeats_no_tick(
    store: MemoryStore, node: Node, clock: VirtualClock, catchup: Catchup
) -> None:
    schedule = minutely(trigger=Cron("* * * * * *"), overlap=Overlap.ALLOW, catchup=catchup)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    await node.run_for(5_000)
    clock.shift_wall_clock(HOUR)
    await node.run_for(3_000)

    clock.shift_wall_clock(-HOUR)
    back_at = clock.now()
    await node.run_for(10_000)

    ticks = await store.history.ticks(schedule.uid, before=1 << 60, limit=10_000)
    ran = {tick.decision.planned_at for tick in ticks if tick.run_id is not None}
    coming = range(back_at - back_at % 1000 + 1000, clock.now(), 1000)
    assert set(coming) <= ran
    assert "mark_set_back" in node.events.names()


@pytest.mark.guarantee("S16", "K19")
async def test_a_ticker_that_starts_sets_back_marks_that_are_ahead_of_the_clock(
    store: MemoryStore, clock: VirtualClock
) -> None:
    schedule = minutely(trigger=Cron("* * * * * *"), overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    clock.shift_wall_clock(HOUR)
    await Node(store, clock, "before").run_for(3_000)
    clock.shift_wall_clock(-HOUR)
    store.state.shard_leases.clear()
    since = clock.now()

    await Node(store, clock, "after").run_for(5_000)

    ticks = await store.history.ticks(schedule.uid, before=since + 5_000, limit=100)
    assert len([tick for tick in ticks if tick.decision.planned_at > since and tick.run_id is not None]) >= 4


@pytest.mark.guarantee("C10", "S16")
async def test_a_ticker_whose_clock_was_set_decides_nothing_until_it_has_read_the_clock_of_the_store(
    store: MemoryStore, clock: VirtualClock
) -> None:
    schedule = minutely(trigger=Cron("* * * * * *"), overlap=Overlap.ALLOW, catchup=Catchup.ALL)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    own = OwnClock(clock)
    node = Node(store, own, clock_sync=own)
    await node.run_for(5_000)
    before = len(await store.history.ticks(schedule.uid, before=1 << 60, limit=1000))

    own.shift_wall_clock(-HOUR)
    own.can_compare = False
    await node.run_for(5_000)
    meanwhile = len(await store.history.ticks(schedule.uid, before=1 << 60, limit=1000))
    health = node.ticker.health
    own.can_compare = True
    await node.run_for(5_000)

    assert (meanwhile, health) == (before, TickerHealth.ERROR)
    assert len(await store.history.ticks(schedule.uid, before=1 << 60, limit=1000)) == before + 10


@pytest.mark.guarantee("C3")
async def test_a_ticker_that_slept_past_its_lease_cannot_write(store: MemoryStore, clock: VirtualClock) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    sleeper, rival = Node(store, clock, "sleeper"), Node(store, clock, "rival")
    await sleeper.run_for(MINUTE - 1000)
    terms = sleeper.elector.terms
    # The sleeper's own clock stands still, as a stopped process's does: it still trusts its terms.
    sleeper.ticker._clock = sleeper.elector._clock = VirtualClock(NOON + 2 * MINUTE)  # noqa: SLF001 - a stopped process
    clock.advance(20_000)
    await rival.run_for(1000)

    await sleeper.ticker.step()

    assert len(terms) == SHARDS
    assert "term_ended" in sleeper.events.names()
    assert await planned(store, schedule) == [1]


@pytest.mark.req("C-11", "C-12")
async def test_two_tickers_share_the_shards(store: MemoryStore, clock: VirtualClock) -> None:
    one, other = Node(store, clock, "one"), Node(store, clock, "other")
    for _ in range(20):
        await one.ticker.step()
        await other.ticker.step()
        clock.advance(1000)

    assert (len(one.elector.terms), len(other.elector.terms)) == (SHARDS // 2, SHARDS // 2)
    assert not set(one.elector.terms) & set(other.elector.terms)


async def test_a_ticker_that_joins_has_its_share_soon_after_the_others_gave_it_up(
    store: MemoryStore, clock: VirtualClock
) -> None:
    one, other = Node(store, clock, "one"), Node(store, clock, "other")
    await one.ticker.step()
    await other.ticker.step()
    await one.run_for(LeaderSettings().renew_interval_ms)
    await one.ticker.step()

    await other.run_for(LeaderSettings().claim_interval_ms)

    assert len(other.elector.terms) == SHARDS // 2


@pytest.mark.req("H-16")
@pytest.mark.guarantee("C1")
@pytest.mark.parametrize("phase", range(0, 3000, 250))
async def test_the_shards_of_a_ticker_that_died_are_taken_over_as_soon_as_its_leases_end(
    store: MemoryStore, clock: VirtualClock, phase: int
) -> None:
    one, other = Node(store, clock, "one"), Node(store, clock, "other")
    for _ in range(20):
        await one.ticker.step()
        await other.ticker.step()
        clock.advance(1000)
    await other.run_for(phase)
    await one.elector.step()

    await other.run_for(LeaderSettings().ttl_ms + 10)

    assert len(other.elector.terms) == SHARDS


async def test_a_hint_about_released_shards_makes_a_ticker_claim_them_before_its_renewal(
    store: MemoryStore, clock: VirtualClock
) -> None:
    one, other = Node(store, clock, "one"), Node(store, clock, "other")
    for _ in range(20):
        await one.ticker.step()
        await other.ticker.step()
        clock.advance(1000)
    await one.elector.stop()

    other.elector.check_soon()
    await other.run_for(LeaderSettings().claim_interval_ms)

    assert len(other.elector.terms) == SHARDS


async def test_a_hint_during_a_claim_is_not_lost(store: BreakableStore, clock: VirtualClock) -> None:
    one, other = Node(store, clock, "one"), Node(store, clock, "other")
    for _ in range(20):
        await one.ticker.step()
        await other.ticker.step()
        clock.advance(1000)

    async def leaving() -> None:
        await one.elector.stop()
        other.elector.check_soon()

    store.breakable_shards.after_attending = leaving
    await other.elector.step()
    await other.run_for(LeaderSettings().claim_interval_ms + 10)

    assert len(other.elector.terms) == SHARDS


async def test_a_ticker_that_stops_releases_its_shards_at_once(store: MemoryStore, clock: VirtualClock) -> None:
    one, other = Node(store, clock, "one"), Node(store, clock, "other")
    await one.ticker.step()
    await one.elector.stop()

    await other.ticker.step()

    assert len(other.elector.terms) == SHARDS


async def test_a_node_whose_clock_is_far_off_does_not_lead(store: MemoryStore) -> None:
    ahead = VirtualClock(NOON + 31_000)
    node = Node(store, ahead)

    await node.ticker.step()

    assert not node.elector.terms
    assert "clock_skew" in node.events.names()


async def test_the_others_get_the_shards_of_a_node_whose_clock_is_far_off(
    store: MemoryStore, clock: VirtualClock
) -> None:
    right, wrong = Node(store, clock, "right"), Node(store, VirtualClock(NOON + 60_000), "wrong")
    for _ in range(60):
        await right.ticker.step()
        await wrong.ticker.step()
        clock.advance(1000)
        wrong.clock.advance(1000)

    assert (len(right.elector.terms), len(wrong.elector.terms)) == (SHARDS, 0)


@pytest.mark.guarantee("E2")
async def test_a_process_that_is_alone_takes_every_shard_of_one_that_was_killed(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await Node(store, clock, "killed").ticker.step()
    restarted = Elector(store.shards, clock, Recorder(), LeaderSettings(), holder="restarted", alone=True)

    await restarted.step()
    clock.advance(LeaderSettings().renew_interval_ms)
    await restarted.step()

    assert len(restarted.terms) == SHARDS


async def test_three_nodes_come_to_rest(store: MemoryStore, clock: VirtualClock) -> None:
    nodes = [Node(store, clock, name) for name in ("a", "b", "c")]
    for _ in range(30):
        for node in nodes:
            await node.ticker.step()
        clock.advance(500)
    for node in nodes:
        await node.elector.step()

    assert sum(len(node.elector.terms) for node in nodes) == SHARDS
    assert sorted(node.elector.renewal_due_in > LeaderSettings().claim_interval_ms / 1000 for node in nodes)[1:] == [
        True,
        True,
    ]


async def test_a_renewal_that_failed_is_tried_again_soon_but_not_at_once(
    store: BreakableStore, node: Node, clock: VirtualClock
) -> None:
    await node.ticker.step()
    clock.advance(LeaderSettings().renew_interval_ms)
    store.breakable_shards.deaf = True

    await node.elector.step()

    assert node.elector.renewal_due_in == LeaderSettings().claim_interval_ms / 1000
    assert len(node.elector.terms) == SHARDS


async def test_terms_that_cannot_be_renewed_are_trusted_no_longer_than_they_should(
    store: BreakableStore, node: Node
) -> None:
    await node.ticker.step()
    store.breakable_shards.deaf = True

    await node.run_for(int(LeaderSettings().ttl_ms * 0.8) + 1)

    assert not node.elector.terms


async def test_a_schedule_that_cannot_be_planned_does_not_stop_the_others(
    store: MemoryStore, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnomon.services.scheduling import ticker

    good, bad = minutely("good", overlap=Overlap.ALLOW), minutely("bad")
    await store.schedules.add([bad, good], actor="ada", tzdata="")

    def fragile(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        if schedule.schedule_id == "bad":
            raise ZeroDivisionError
        return plan(schedule, now=now, limit=limit)

    monkeypatch.setattr(ticker, "plan", fragile)
    await node.run_for(2 * MINUTE + 1000)

    assert await planned(store, good) == [1, 2]
    assert node.events.names().count("schedule_broken") == 1


class PickyLedger(MemoryLedger):
    """Cannot take what one schedule is about, as a database that refuses a row."""

    async def decide(self, verdicts: Sequence[TickVerdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        if any(verdict.schedule.schedule_id == "bad" and verdict.schedule.revision == 1 for verdict in verdicts):
            raise ValueError("no such row can be written")
        return await super().decide(verdicts, now=now, terms=terms)


async def test_a_schedule_that_cannot_be_written_does_not_stop_the_others_and_is_back_once_changed(
    clock: VirtualClock,
) -> None:
    store = with_part("ledger", PickyLedger)(clock.now)
    node = Node(store, clock)
    good, bad = minutely("good", overlap=Overlap.ALLOW), minutely("bad", overlap=Overlap.ALLOW)
    await store.schedules.add([bad, good], actor="ada", tzdata="")
    await node.run_for(2 * MINUTE + 1000)
    before = await planned(store, bad)
    store.state.schedules[bad.uid] = replace(store.state.schedules[bad.uid], revision=2)

    await node.run_for(MINUTE)

    assert (before, await planned(store, good)) == ([], [1, 2, 3])
    assert (await planned(store, bad))[-1] == 3
