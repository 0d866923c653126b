"""Events from outside: emitted once, looked at, and gathered until they start a run together."""

from collections.abc import Sequence
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.external_events import MemoryExternalEvents
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Run, RunSource, ScheduleUid
from gnomon.core.runs.external_events import EventEffectKind
from gnomon.errors import FieldError, KeyTaken, NotFound, StoreUnavailable
from gnomon.ports.runs import RunQuery
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.operations.events import EventBatcher, EventService
from gnomon.services.operations.jobs import JobService
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from support.defective_stores import StoreFactory, with_part

LISTENER: dict[str, Any] = {"name": "retrain", "function": "ml.retrain", "overlap": "allow"}


class EventFixture:
    """A store with a job that listens, and those who deal with events."""

    def __init__(self, make: StoreFactory = MemoryStore) -> None:
        self.clock = VirtualClock(NOON)
        self.store = make(self.clock.now)
        self.events = Recorder()
        self.announcer = EventService(self.store.events, self.clock, CountedIds())
        self.batcher = EventBatcher(
            self.store.events, self.clock, self.events, lease=AlwaysHeldSingleton(), on_ready=self._wake
        )
        self.ready = 0

    def _wake(self) -> None:
        self.ready += 1

    async def listen(self, **on: Any) -> None:  # noqa: ANN401 - whatever a job may listen to
        job_service = JobService(self.store.jobs, self.store.schedules, self.store.history, self.clock, CountedIds())
        job = read_job(LISTENER | {"on": {"event": "model.drift", **on}}, Defaults(), now=NOON)
        await job_service.apply([job], actor="ada")

    async def runs(self) -> Sequence[Run]:
        return await self.store.executions.list_runs(RunQuery())


@pytest.mark.req("H-24")
async def test_an_event_starts_the_job_that_listens_to_it() -> None:
    fixture = EventFixture()
    await fixture.listen(where={"model": "zen"})

    emitted = await fixture.announcer.emit("model.drift", {"model": "zen", "score": 0.3}, actor="ada")

    [run] = await fixture.runs()
    assert (run.source, run.schedule_id) == (RunSource.EVENT, "retrain")
    [entry] = emitted.entries
    assert (entry.kind, entry.run_id) == (EventEffectKind.FIRED, run.run_id)


async def test_an_event_to_which_nobody_listens_is_kept() -> None:
    fixture = EventFixture()

    emitted = await fixture.announcer.emit("nobody.cares", actor="ada")

    assert emitted.entries == ()
    assert await fixture.announcer.get(emitted.event.event_id) == emitted
    assert emitted.event.body == b"null"


async def test_an_event_with_a_key_happens_once() -> None:
    fixture = EventFixture()
    await fixture.listen()

    first = await fixture.announcer.emit("model.drift", {"n": 1}, actor="ada", key="monday")
    fixture.clock.advance(1000)
    second = await fixture.announcer.emit("model.drift", {"n": 1}, actor="bob", key="monday")

    assert second == first
    assert len(await fixture.runs()) == 1


async def test_a_key_stands_for_one_body() -> None:
    fixture = EventFixture()
    await fixture.listen()
    await fixture.announcer.emit("model.drift", {"n": 1}, actor="ada", key="monday")

    with pytest.raises(KeyTaken):
        await fixture.announcer.emit("model.drift", {"n": 2}, actor="bob", key="monday")

    assert len(await fixture.runs()) == 1


async def test_the_same_key_of_another_name_is_another_event() -> None:
    fixture = EventFixture()

    one = await fixture.announcer.emit("a", actor="ada", key="monday")
    other = await fixture.announcer.emit("b", actor="ada", key="monday")

    assert one.event.event_id != other.event.event_id


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"name": "Model Drift"}, "name"),
        ({"name": "a", "tenant": "B"}, "tenant"),
        ({"name": "a", "key": ""}, "key"),
        ({"name": "a", "key": "x" * 256}, "key"),
        ({"name": "a", "body": {"x": object()}}, "body.x"),
        ({"name": "a", "body": "x" * 65_535}, "body"),
        ({"name": "a", "actor": "\x1b"}, "actor"),
    ],
)
async def test_an_invalid_event_is_refused_by_its_field(said: dict[str, Any], field: str) -> None:
    fixture = EventFixture()

    with pytest.raises(FieldError) as refused:
        await fixture.announcer.emit(**{"actor": "ada", **said})

    assert refused.value.field == field
    assert await fixture.announcer.page() == []


async def test_events_are_listed_newest_first_with_what_became_of_them() -> None:
    fixture = EventFixture()
    await fixture.listen()
    for name in ("model.drift", "other", "model.drift"):
        await fixture.announcer.emit(name, actor="ada")
        fixture.clock.advance(1)

    everything = await fixture.announcer.page()
    drifts = await fixture.announcer.page(name="model.drift", limit=1)

    assert [(one.event.name, len(one.entries)) for one in everything] == [
        ("model.drift", 1),
        ("other", 0),
        ("model.drift", 1),
    ]
    assert drifts == everything[:1]


async def test_an_event_that_there_is_not_is_not_found() -> None:
    fixture = EventFixture()
    emitted = await fixture.announcer.emit("a", actor="ada")

    with pytest.raises(NotFound):
        await fixture.announcer.get("evt_nothing")
    with pytest.raises(NotFound):
        await fixture.announcer.get(emitted.event.event_id, tenant="other")


@pytest.mark.req("H-24")
async def test_batched_events_start_one_run_when_they_are_due_and_wake_the_dispatcher() -> None:
    fixture = EventFixture()
    await fixture.listen(debounce="30s")
    for _ in range(3):
        await fixture.announcer.emit("model.drift", actor="ada")
        fixture.clock.advance(10_000)

    assert await fixture.batcher.step() == 20.0
    assert (await fixture.runs(), fixture.ready) == ([], 0)
    fixture.clock.advance(20_000)
    await fixture.batcher.step()

    assert (len(await fixture.runs()), fixture.ready) == (1, 1)


async def test_with_nothing_to_wait_for_it_looks_now_and_then() -> None:
    assert await EventFixture().batcher.step() == 30.0


async def test_a_store_that_is_away_is_tried_again() -> None:
    class Away(MemoryExternalEvents):
        away = True

        async def close_batches(self, now: int, *, limit: int) -> Sequence[ScheduleUid]:
            if self.away:
                raise StoreUnavailable("it is away")
            return await super().close_batches(now, limit=limit)

    fixture = EventFixture(with_part("events", Away))

    assert 0 < await fixture.batcher.step() < 1
    assert fixture.events.names() == ["store_unavailable"]
    Away.away = False
    assert await fixture.batcher.step() == 30.0
