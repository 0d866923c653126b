"""Turns: one of several nodes does what one is enough for, and another goes on when it is gone."""

from collections.abc import Callable
from typing import Protocol

import pytest

from gnomon.adapters.archive import NoArchive
from gnomon.adapters.memory import MemoryStore
from gnomon.errors import StoreUnavailable, Unavailable
from gnomon.services.coordination import AlwaysHeldSingleton, LeasedSingletons, Singleton, SingletonLease
from gnomon.services.loop import Backoff
from gnomon.services.maintenance.announcer import AnnouncementSignal, Announcer, MessageComposer
from gnomon.services.maintenance.audit_sealer import AuditSealer
from gnomon.services.maintenance.backfiller import Backfiller
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.services.maintenance.invariant_checker import InvariantChecker
from gnomon.services.maintenance.run_repairer import RunRepairer
from gnomon.services.operations.events import EventBatcher
from gnomon.testing.clock import Recorder, VirtualClock
from support.execution import ExecutionHarness
from support.memory_leases import MemoryLeases

NOON = 1_800_000_000_000
TTL = 8_000
pytestmark = pytest.mark.req("R-15")


class WeakLeases(MemoryLeases):
    """Leases whose service may be unavailable."""

    away = False
    asked = 0

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        self._answer()
        return await super().acquire(key, owner, ttl_ms=ttl_ms)

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        self._answer()
        return await super().renew(key, token, ttl_ms=ttl_ms)

    def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise Unavailable("away")


class TwoNodes:
    """Two nodes that share a store, and a lease service."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        self.leases = WeakLeases(self.clock.now)
        self.events = Recorder()
        self.one, self.other = self.node(), self.node()

    def node(self) -> LeasedSingletons:
        return LeasedSingletons(self.leases, self.store.singletons, self.clock, self.events)


# ---- one node's turn -----------------------------------------------------------------------------


async def test_a_turn_that_is_ours_is_not_asked_for_again_at_once() -> None:
    nodes = TwoNodes()
    turn = SingletonLease(nodes.one, nodes.clock, "seal", "a", ttl_ms=TTL)
    for _ in range(10):
        assert await turn.ours()
    assert nodes.leases.asked == 1

    nodes.clock.advance(TTL // 4)
    assert await turn.ours()
    assert nodes.leases.asked == 2


async def test_a_node_that_renews_keeps_its_lease_and_a_silent_one_is_succeeded() -> None:
    nodes = TwoNodes()
    ours = SingletonLease(nodes.one, nodes.clock, "seal", "a", ttl_ms=TTL)
    theirs = SingletonLease(nodes.other, nodes.clock, "seal", "b", ttl_ms=TTL)
    for _ in range(20):
        assert await ours.ours()
        assert not await theirs.ours()
        nodes.clock.advance(round(theirs.retry_seconds * 1000))

    nodes.clock.advance(TTL)
    assert await theirs.ours()
    assert not await ours.ours()


async def test_the_only_node_asks_nobody() -> None:
    assert await AlwaysHeldSingleton().ours()


# ---- turns by leases -----------------------------------------------------------------------------


async def test_by_leases_one_at_a_time_has_its_turn() -> None:
    nodes = TwoNodes()

    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    assert not await nodes.other.acquire_singleton("seal", "b", ttl_ms=TTL)
    assert await nodes.other.acquire_singleton("mend", "b", ttl_ms=TTL)
    nodes.clock.advance(TTL)
    assert await nodes.other.acquire_singleton("seal", "b", ttl_ms=TTL)
    assert not await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)


async def test_turns_that_are_given_up_are_free_at_once() -> None:
    nodes = TwoNodes()
    await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    await nodes.one.release_singletons("a")

    assert await nodes.other.acquire_singleton("seal", "b", ttl_ms=TTL)


async def test_a_short_turn_lasts_as_long_as_the_shortest_lease() -> None:
    nodes = TwoNodes()

    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=10)
    assert not await nodes.other.acquire_singleton("seal", "b", ttl_ms=10)


@pytest.mark.guarantee("C6")
async def test_while_nobody_keeps_leases_turns_are_taken_at_the_store() -> None:
    nodes = TwoNodes()
    await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    nodes.leases.away = True

    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    assert not await nodes.other.acquire_singleton("seal", "b", ttl_ms=TTL)
    assert [facts["what"] for name, facts in nodes.events.seen if name == "degraded"] == ["turns", "turns"]
    nodes.leases.away = False
    nodes.clock.advance(TTL)
    assert await nodes.other.acquire_singleton("seal", "b", ttl_ms=TTL)
    assert not await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)


@pytest.mark.guarantee("C6")
async def test_a_lease_service_that_always_reports_another_holder_is_ignored_in_the_end() -> None:
    nodes = TwoNodes()
    assert await nodes.leases.acquire("turn.seal", "nobody", ttl_ms=86_400_000) is not None

    assert not await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    nodes.clock.advance(2 * TTL)
    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    assert not await nodes.other.acquire_singleton("seal", "b", ttl_ms=TTL)
    for _ in range(20):
        nodes.clock.advance(TTL // 4)
        assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
        assert not await nodes.other.acquire_singleton("seal", "b", ttl_ms=TTL)


@pytest.mark.guarantee("C6")
async def test_a_lease_service_that_grants_a_lease_to_all_makes_no_two_holders() -> None:
    nodes = TwoNodes()
    other = LeasedSingletons(MemoryLeases(nodes.clock.now), nodes.store.singletons, nodes.clock, nodes.events)

    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    assert not await other.acquire_singleton("seal", "b", ttl_ms=TTL)


async def test_turns_that_were_taken_at_the_store_are_given_up_there() -> None:
    nodes = TwoNodes()
    nodes.leases.away = True
    await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    nodes.leases.away = False
    nodes.clock.advance(5000)
    await nodes.one.release_singletons("a")

    assert await nodes.store.singletons.acquire_singleton("seal", "b", ttl_ms=TTL)


# ---- those who take them -------------------------------------------------------------------------


@pytest.mark.req("R-07")
async def test_of_two_reconcilers_one_looks_until_it_is_silent_for_two_looks() -> None:
    harness = ExecutionHarness()
    turns = LeasedSingletons(MemoryLeases(harness.clock.now), harness.store.singletons, harness.clock, harness.events)
    poll_ms = harness.settings.reconciler.poll_ms
    lease = SingletonLease(turns, harness.clock, "reconciler", "b", ttl_ms=2 * poll_ms)
    harness.reconciler = harness.new_reconciler(lease=lease)
    assert await turns.acquire_singleton("reconciler", "a", ttl_ms=2 * poll_ms)
    await harness.run(await harness.job())
    await harness.run_until_idle()
    harness.clock.advance(harness.settings.worker.lease_ms + 1)

    assert await harness.reconciler.step() == poll_ms / 1000 / 2
    assert "attempt_ended_by_reconciler" not in harness.events.names()
    harness.clock.advance(2 * poll_ms)
    assert await harness.reconciler.step() == poll_ms / 1000
    assert "attempt_ended_by_reconciler" in harness.events.names()


class UnsteadyLease(SingletonLease):
    """A lease whose service can be unavailable."""

    away = False

    async def ours(self) -> bool:
        if self.away:
            raise StoreUnavailable("away")
        return await super().ours()


class SingletonService(Protocol):
    """A service that one node of all is enough for."""

    backoff: Backoff

    async def step(self) -> float: ...


def ignore() -> None:
    pass


SERVICES: dict[str, Callable[[ExecutionHarness, Singleton], SingletonService]] = {
    "sealer": lambda harness, lease: AuditSealer(harness.store.audit, harness.clock, harness.events, lease=lease),
    "gatherer": lambda harness, lease: EventBatcher(
        harness.store.events, harness.clock, harness.events, lease=lease, on_ready=ignore
    ),
    "announcer": lambda harness, lease: Announcer(
        harness.store.announcement_queue,
        MessageComposer(harness.store.executions, harness.store.run_tasks, harness.workflow_cache),
        {},
        harness.clock,
        harness.events,
        lease=lease,
        holder="b",
        signal=AnnouncementSignal(),
    ),
    "backfiller": lambda harness, lease: Backfiller(
        harness.store.backfills, harness.store.history, harness.clock, harness.events, lease=lease, on_ready=ignore
    ),
    "reconciler": lambda harness, lease: harness.new_reconciler(lease=lease),
    "mender": lambda harness, lease: RunRepairer(
        harness.store.invariants,
        harness.clock,
        harness.events,
        harness.settings.reconciler,
        lease=lease,
        on_ready=ignore,
    ),
    "warden": lambda harness, lease: InvariantChecker(
        harness.store.invariants, harness.clock, harness.events, harness.settings.alive, lease=lease
    ),
    "cleaner": lambda harness, lease: Cleaner(
        harness.store.retention,
        harness.store.jobs,
        NoArchive(),
        harness.clock,
        harness.events,
        settings=harness.settings,
        lease=lease,
        store_now=harness.store.now,
    ),
}


@pytest.mark.req("Z-11")
@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_that_failed_during_an_outage_is_healthy_when_another_holds_the_lease_afterwards(
    name: str,
) -> None:
    harness = ExecutionHarness()
    lease = UnsteadyLease(harness.store.singletons, harness.clock, name, "b", ttl_ms=TTL)
    service = SERVICES[name](harness, lease)
    await harness.store.singletons.acquire_singleton(name, "a", ttl_ms=TTL)
    lease.away = True
    await service.step()
    assert service.backoff.failing

    lease.away = False
    await service.step()
    assert not service.backoff.failing


async def test_a_sealer_whose_turn_it_is_not_seals_nothing_and_one_that_cannot_know_waits() -> None:
    harness = ExecutionHarness()
    await harness.job()
    lease = UnsteadyLease(harness.store.singletons, harness.clock, "sealer", "b", ttl_ms=TTL)
    sealer = AuditSealer(harness.store.audit, harness.clock, harness.events, lease=lease)
    await harness.store.singletons.acquire_singleton("sealer", "a", ttl_ms=TTL)

    assert await sealer.step() == TTL / 1000 / 4
    assert (await harness.store.audit.head())[1] > 0
    harness.clock.advance(TTL)
    await sealer.step()
    assert (await harness.store.audit.head())[1] == 0

    lease.away = True
    await sealer.step()
    assert sealer.backoff.failing


async def test_a_lease_survives_one_unanswered_renewal() -> None:
    nodes = TwoNodes()
    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
    nodes.leases.away = True
    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL), "by the store"
    nodes.leases.away = False
    nodes.clock.advance(TTL // 2)

    assert await nodes.one.acquire_singleton("seal", "a", ttl_ms=TTL)
