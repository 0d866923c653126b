"""The contract of stores for external events: one suite, inherited by the tests of each adapter."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Overlap, RunSource, Schedule
from gnomon.core.runs.external_events import LARGEST_BATCH_DATA, EventEffect, EventEffectKind, ExternalEvent
from gnomon.core.triggers import OnEvent
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from support.task_steps import finish_run, runs_of, workflow

DRIFT = OnEvent("model.drift")


def event(number: int = 1, *, at: int = NOON, **body: object) -> ExternalEvent:
    return ExternalEvent(
        event_id=f"evt_{number}",
        name="model.drift",
        key=f"key {number}",
        body=msgspec.json.encode(body),
        emitted_at=at,
        actor="ada",
    )


class ExternalEventContract:
    """Tests for any store."""

    async def listener(self, store: Store, name: str = "retrain", trigger: OnEvent = DRIFT, **said: object) -> Schedule:
        spec: dict[str, Any] = {"overlap": Overlap.ALLOW, **said}
        made = replace(minutely(name, trigger=trigger, **spec), next_fire_at=None)
        definition = workflow(made.spec.workflow_id, input={"base": 1})
        have = await store.jobs.workflow("default", definition.workflow_id)
        changeset = JobChangeset(workflows=[] if have else [definition], added=[made])
        assert await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        found = await store.schedules.find("default", name)
        assert found == made
        return made

    async def only(self, store: Store, happened: ExternalEvent, *, now: int = NOON) -> EventEffect:
        [entry] = await store.events.emit(happened, now=now)
        return entry

    @pytest.mark.req("H-24")
    async def test_an_event_starts_a_run_that_is_given_the_event(self, store: Store) -> None:
        job = await self.listener(store)

        entry = await self.only(store, event(score=0.3))

        assert (entry.kind, entry.reason, entry.schedule_id) == (EventEffectKind.FIRED, "matched", "retrain")
        [run] = await runs_of(store, job)
        assert (run.run_id, run.source, run.idempotency_key) == (entry.run_id, RunSource.EVENT, "key 1")
        given = msgspec.json.decode(await store.executions.payload(run.run_id, "input") or b"")
        assert given["base"] == 1
        assert (given["event"]["name"], given["event"]["body"]) == ("model.drift", {"score": 0.3})

    async def test_the_same_event_twice_is_one_event(self, store: Store) -> None:
        job = await self.listener(store)
        first = await store.events.emit(event(), now=NOON)

        assert await store.events.emit(event(score=9), now=NOON + 1) == first
        assert len(await runs_of(store, job)) == 1
        assert [one.body for one in await store.events.page("default")] == [b"{}"]

    async def test_an_event_that_nobody_listens_to_is_kept(self, store: Store) -> None:
        await self.listener(store)
        other = replace(event(), name="something.else")

        assert await store.events.emit(other, now=NOON) == []
        assert await store.events.page("default", name="something.else") == [other]

    async def test_every_job_that_listens_has_an_entry(self, store: Store) -> None:
        for name in ("a", "b"):
            await self.listener(store, name)

        entries = await store.events.emit(event(), now=NOON)

        assert [one.schedule_id for one in entries] == ["a", "b"]
        assert len({one.run_id for one in entries}) == 2
        assert await store.events.effects(["evt_1"]) == entries

    @pytest.mark.parametrize(("score", "kind"), [(3, EventEffectKind.FIRED), (4, EventEffectKind.SKIPPED)])
    async def test_a_job_may_want_only_some(self, store: Store, score: int, kind: EventEffectKind) -> None:
        await self.listener(store, trigger=OnEvent("model.drift", '{"model.score":3}'))

        entry = await self.only(store, event(model={"score": score}))

        assert (entry.kind, entry.reason) == (kind, "matched" if kind is EventEffectKind.FIRED else "where")

    async def test_a_paused_job_starts_nothing(self, store: Store) -> None:
        made = replace(minutely("still", trigger=DRIFT), next_fire_at=None, paused_at=NOON)
        await store.schedules.add([made], actor="ada", tzdata="")

        assert (await self.only(store, event())).reason == "paused"

    async def test_the_overlap_policy_is_kept(self, store: Store) -> None:
        job = await self.listener(store, overlap=Overlap.SKIP)
        await self.only(store, event(1))

        entry = await self.only(store, event(2))

        assert (entry.kind, entry.reason, entry.run_id) == (EventEffectKind.SKIPPED, "overlap", None)
        await finish_run(store, (await runs_of(store, job))[0], now=NOON)
        assert (await self.only(store, event(3))).kind is EventEffectKind.FIRED

    async def test_a_debounced_job_waits_for_silence_and_is_given_all(self, store: Store) -> None:
        job = await self.listener(store, trigger=OnEvent("model.drift", debounce_ms=30_000))
        assert (await self.only(store, event(1), now=NOON)).kind is EventEffectKind.GATHERED
        await self.only(store, event(2, at=NOON + 20_000), now=NOON + 20_000)
        assert await store.events.next_batch_at() == NOON + 50_000
        assert await store.events.close_batches(NOON + 49_999, limit=10) == []

        assert await store.events.close_batches(NOON + 50_000, limit=10) == [job.uid]

        [run] = await runs_of(store, job)
        given = msgspec.json.decode(await store.executions.payload(run.run_id, "input") or b"")
        assert [one["id"] for one in given["events"]] == ["evt_1", "evt_2"]
        entries = await store.events.effects(["evt_1", "evt_2"])
        assert {(one.kind, one.run_id) for one in entries} == {(EventEffectKind.FIRED, run.run_id)}
        assert await store.events.next_batch_at() is None

    @pytest.mark.req("H-24")
    async def test_a_batch_starts_with_its_last_event_or_in_time(self, store: Store) -> None:
        job = await self.listener(store, trigger=OnEvent("model.drift", most=2, batch_ms=10_000))
        await self.only(store, event(1), now=NOON)
        assert await store.events.next_batch_at() == NOON + 10_000

        assert (await self.only(store, event(2), now=NOON + 1)).kind is EventEffectKind.FIRED
        assert await store.events.next_batch_at() is None
        assert (await self.only(store, event(3), now=NOON + 2)).kind is EventEffectKind.GATHERED

        # No run gets more events than its batch allows, however late it starts.
        assert await store.events.next_batch_at() == NOON + 10_002
        [run] = await runs_of(store, job)
        given = msgspec.json.decode(await store.executions.payload(run.run_id, "input") or b"")
        assert [one["id"] for one in given["events"]] == ["evt_1", "evt_2"]
        entries = await store.events.effects(["evt_1", "evt_2"])
        assert {(one.kind, one.run_id) for one in entries} == {(EventEffectKind.FIRED, run.run_id)}

    @pytest.mark.req("H-22")
    async def test_a_batch_starts_before_its_events_have_more_data_than_a_run_can_take(self, store: Store) -> None:
        job = await self.listener(store, trigger=OnEvent("model.drift", debounce_ms=10_000))
        text = "${secret:KEY}" + "x" * (LARGEST_BATCH_DATA // 10)

        # Encrypted bodies are larger.
        count = 1
        while (await self.only(store, event(count, text=text))).kind is EventEffectKind.GATHERED:
            count += 1
        assert (await self.only(store, event(99, text=text))).kind is EventEffectKind.GATHERED

        assert 7 <= count <= 10
        [run] = await runs_of(store, job)
        given = msgspec.json.decode(await store.executions.payload(run.run_id, "input") or b"")
        assert {one["id"] for one in given["events"]} == {f"evt_{number}" for number in range(1, count + 1)}
        assert {one["body"]["text"][:14] for one in given["events"]} == {"$${secret:KEY}"}

    async def test_events_that_were_gathered_before_a_pause_start_nothing_in_it(self, store: Store) -> None:
        job = await self.listener(store, trigger=OnEvent("model.drift", debounce_ms=1000))
        await self.only(store, event())
        paused = replace(job, paused_at=NOON)
        assert await store.schedules.change(plan(job, now=NOON), paused, now=NOON, actor="ada", tzdata="")

        await store.events.close_batches(NOON + 1000, limit=10)

        [entry] = await store.events.effects(["evt_1"])
        assert (entry.kind, entry.reason) == (EventEffectKind.SKIPPED, "paused")
        assert await runs_of(store, job) == []

    async def test_gathered_events_of_a_job_that_is_gone_say_so(self, store: Store) -> None:
        from gnomon.core.ledger.edits import verdict_before_edit

        job = await self.listener(store, trigger=OnEvent("model.drift", debounce_ms=1000))
        await self.only(store, event())
        assert await store.schedules.delete(verdict_before_edit(job, now=NOON), now=NOON, actor="ada")

        await store.events.close_batches(NOON + 1000, limit=10)

        [entry] = await store.events.effects(["evt_1"])
        assert (entry.kind, entry.reason) == (EventEffectKind.SKIPPED, "gone")

    async def test_an_event_is_found_by_its_id(self, store: Store) -> None:
        await store.events.emit(event(1, score=3), now=NOON)

        assert await store.events.find("evt_1") == event(1, score=3)
        assert await store.events.find("evt_2") is None

    async def test_events_are_listed_newest_first_in_pages(self, store: Store) -> None:
        for number in range(3):
            await store.events.emit(event(number, at=NOON + number), now=NOON)

        first = await store.events.page("default", limit=2)
        rest = await store.events.page("default", after=(first[-1].emitted_at, first[-1].event_id), limit=2)

        assert [one.event_id for one in [*first, *rest]] == ["evt_2", "evt_1", "evt_0"]
