"""Under random faults of nodes, clocks and stores the invariants hold, and no run is stuck."""

import pytest

from gnomon.adapters.memory import MemoryStore
from gnomon.ports.maintenance import FIRST_OPEN_RUN
from gnomon.testing.clock import VirtualClock
from support.effort import EFFORT
from support.random_simulation import HOUR, STARTS, RandomSimulation


@pytest.mark.guarantee("S21")
@pytest.mark.req("R-07")
@pytest.mark.parametrize("seed", range(900, 900 + 2 * EFFORT))
async def test_after_any_history_all_invariants_hold(seed: int) -> None:
    clock = VirtualClock(int(STARTS[seed % len(STARTS)].timestamp() * 1000))
    store = MemoryStore(clock.now)
    world = RandomSimulation(store, clock, seed)
    await world.populate()
    await world.simulation.run(6 * HOUR)

    assert [one for one in await store.invariants.counted(after="", limit=1000) if one.mismatched] == []
    assert (await store.invariants.stuck_runs(before_at=clock.now() + 1, after=FIRST_OPEN_RUN, limit=10_000)).runs == {}
    assert await store.invariants.orphaned_attempts(grace_ms=0, limit=10) == []
