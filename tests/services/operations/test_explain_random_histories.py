"""Under random nodes, operators and faults every decided tick of a job is explained as it was decided."""

import random
from typing import NamedTuple

import pytest

from gnomon.adapters.memory import MemoryStore
from gnomon.core.explain.evidence import ExplanationKind, SubjectExplanation
from gnomon.core.instants import instant_of
from gnomon.core.model import Tick
from gnomon.errors import NotFound
from gnomon.services.operations.explain import Explainer
from gnomon.testing.clock import VirtualClock
from support.effort import EFFORT
from support.random_simulation import HOUR, STARTS, RandomSimulation

_FOREVER = 1 << 62
SEEDS = range(4 * EFFORT)
#: How many ticks of each schedule are asked about.
MOST = 40


class SimulatedHistory(NamedTuple):
    """A world after a while, and its store."""

    world: RandomSimulation
    store: MemoryStore

    @property
    def explainer(self) -> Explainer:
        store = self.store
        return Explainer(store, self.world.simulation.clock)

    async def asked(self, name: str, at: int) -> tuple[SubjectExplanation, ...]:
        return (await self.explainer.at(name, instant_of(at).isoformat(timespec="milliseconds"))).explanations


async def lived(seed: int, *, hours: int) -> SimulatedHistory:
    clock = VirtualClock(int(STARTS[seed % len(STARTS)].timestamp() * 1000))
    store = MemoryStore(clock.now)
    world = RandomSimulation(store, clock, seed)
    await world.populate()
    await world.simulation.run(hours * HOUR)
    return SimulatedHistory(world, store)


@pytest.mark.guarantee("S1")
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_decision_is_explained_as_it_was_made(seed: int) -> None:
    life = await lived(seed, hours=8)
    rng = random.Random(f"why {seed}")
    for name, uid in life.world.uids.items():
        ticks = list(await life.store.history.ticks(uid, before=_FOREVER, limit=10_000))
        for tick in rng.sample(ticks, min(MOST, len(ticks))):
            await _is_explained(life, name, tick, tick.decision.planned_at)
            await _is_explained(life, name, tick, tick.decision.last_at)


async def _is_explained(life: SimulatedHistory, name: str, tick: Tick, at: int) -> None:
    reported = await life.asked(name, at)
    [one] = [one for one in reported if one.kind is not ExplanationKind.STARTED]
    assert (one.kind.value, one.reason) == (tick.decision.kind.value, tick.decision.reason.value)
    assert (one.at, one.decided_at, one.revision) == (at, tick.decided_at, tick.revision)
    assert (None if one.run is None else one.run.run_id) == tick.run_id


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_newest_of_many_jobs_are_told_in_the_words_in_which_each_is(seed: int) -> None:
    clock = VirtualClock(int(STARTS[seed % len(STARTS)].timestamp() * 1000))
    store = MemoryStore(clock.now)
    world = RandomSimulation(store, clock, seed)
    await world.populate()
    told = 0
    for _ in range(8):
        await world.simulation.run(HOUR // 3)
        standing = await store.schedules.page("default", after="", limit=1000)
        found = await Explainer(store, clock).newest(standing)
        for one in standing:
            answer = await Explainer(store, clock).last(one.schedule_id, 1)
            expected = [(of.at, of.kind, of.reason, of.sentence) for of in answer.explanations[:1]]
            newest = [found[one.uid]] if one.uid in found else []
            assert [(of.at, of.kind, of.reason, of.sentence) for of in newest] == expected
            told += len(newest)
    assert told


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_moment_has_an_answer(seed: int) -> None:
    life = await lived(seed, hours=3)
    rng, now = random.Random(f"when {seed}"), life.world.simulation.clock.now()
    for name in life.world.uids:
        for _ in range(MOST):
            reported = await life.asked(name, now + rng.randrange(-6 * HOUR, 6 * HOUR) // 1000 * 1000)
            assert all(one.sentence.endswith((".", "?")) for one in reported)
            assert reported
        answer = await life.explainer.last(name, 50)
        assert answer.coming is not None


async def test_a_moment_before_the_first_schedule_has_no_explanation() -> None:
    life = await lived(0, hours=1)

    with pytest.raises(NotFound):
        await life.explainer.last("nothing")
