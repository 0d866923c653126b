"""External events in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import emitted_entry
from gnomon.core.model import Schedule, ScheduleUid
from gnomon.core.runs.external_events import (
    EventBatch,
    EventEffect,
    EventEffectKind,
    ExternalEvent,
    add_to_batch,
    effect_of_launch,
    event_data,
    event_skip_reason,
    is_batch_measured,
    launch_for_events,
)
from gnomon.core.triggers import OnEvent


class MemoryExternalEvents:
    """Implements EventLog."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def emit(self, event: ExternalEvent, *, now: int) -> Sequence[EventEffect]:
        """See EventLog.emit."""
        state = self._state
        if event.event_id not in state.events:
            state.events[event.event_id] = event
            state.write_audit([emitted_entry(event)])
            for schedule in sorted(self._listening(event), key=lambda one: one.schedule_id):
                state.effects[event.event_id, schedule.uid] = self._decided(schedule, event, now)
                batch = state.event_batches.get(schedule.uid)
                if batch is not None and batch.due_at <= now:
                    self._close(schedule.uid, now)
        return await self.effects([event.event_id])

    def _listening(self, event: ExternalEvent) -> list[Schedule]:
        return [
            one
            for one in self._state.schedules.values()
            if one.tenant == event.tenant
            and isinstance(one.spec.trigger, OnEvent)
            and one.spec.trigger.event == event.name
        ]

    def _decided(self, schedule: Schedule, event: ExternalEvent, now: int) -> EventEffect:
        trigger = schedule.spec.trigger
        assert isinstance(trigger, OnEvent)  # noqa: S101 - it listens
        effect = EventEffect(
            event_id=event.event_id,
            schedule_uid=schedule.uid,
            schedule_id=schedule.schedule_id,
            kind=EventEffectKind.SKIPPED,
            reason=event_skip_reason(schedule, trigger, event, msgspec.json.decode(event.body)) or "",
            decided_at=now,
        )
        if effect.reason:
            return effect
        if trigger.is_batched:
            so_far = self._state.event_batches.get(schedule.uid)
            size = self._batched_size(schedule.uid) + len(event.body) if is_batch_measured(so_far, event) else 0
            self._state.event_batches[schedule.uid] = add_to_batch(trigger, so_far, schedule.uid, now=now, size=size)
            return replace(effect, kind=EventEffectKind.GATHERED, reason="waits_for_others")
        return self._started(schedule, [event], effect, now)

    def _batched_size(self, uid: ScheduleUid) -> int:
        return sum(len(self._state.events[one.event_id].body) for one in self._waiting(uid))

    def _waiting(self, uid: ScheduleUid) -> list[EventEffect]:
        """The effects of the events in the batch of the schedule."""
        effects = self._state.effects.values()
        return [one for one in effects if one.schedule_uid == uid and one.kind is EventEffectKind.GATHERED]

    def _started(
        self, schedule: Schedule, events: Sequence[ExternalEvent], effect: EventEffect, now: int
    ) -> EventEffect:
        workflow = self._rules.workflow_of_schedule(schedule)
        request = launch_for_events(
            schedule, list(map(event_data, events)), workflow.input if workflow else {}, now=now
        )
        kind, reason = effect_of_launch(self._rules.launch(request, now))
        run_id = None if kind is EventEffectKind.SKIPPED else request.run.run_id
        return replace(effect, kind=kind, reason=reason, run_id=run_id, decided_at=now)

    async def next_batch_at(self) -> int | None:
        """See EventLog.next_batch_at."""
        return min((one.due_at for one in self._state.event_batches.values()), default=None)

    async def close_batches(self, now: int, *, limit: int) -> Sequence[ScheduleUid]:
        """See EventLog.close_batches."""
        due = sorted((one for one in self._state.event_batches.values() if one.due_at <= now), key=_earliest)[:limit]
        for one in due:
            self._close(one.schedule_uid, now)
        return [one.schedule_uid for one in due]

    def _close(self, uid: ScheduleUid, now: int) -> None:
        state = self._state
        del state.event_batches[uid]
        waiting = (state.events[one.event_id] for one in self._waiting(uid))
        events = sorted(waiting, key=lambda e: (e.emitted_at, e.event_id))
        schedule = state.schedules.get(uid)
        for number, event in enumerate(events):
            effect = state.effects[event.event_id, uid]
            if schedule is None or schedule.paused_at is not None:
                reason = "gone" if schedule is None else "paused"
                effect = replace(effect, kind=EventEffectKind.SKIPPED, reason=reason, decided_at=now)
            elif number == 0:
                effect = self._started(schedule, events, effect, now)
            else:
                first = state.effects[events[0].event_id, uid]
                effect = replace(effect, kind=first.kind, reason=first.reason, run_id=first.run_id, decided_at=now)
            state.effects[event.event_id, uid] = effect

    async def page(
        self, tenant: str, *, name: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[ExternalEvent]:
        """See EventLog.page."""
        found = [
            event
            for event in self._state.events.values()
            if event.tenant == tenant
            and name in (None, event.name)
            and (after is None or (event.emitted_at, event.event_id) < after)
        ]
        return sorted(found, key=lambda event: (event.emitted_at, event.event_id), reverse=True)[:limit]

    async def find(self, event_id: str) -> ExternalEvent | None:
        """See EventLog.find."""
        return self._state.events.get(event_id)

    async def effects(self, event_ids: Sequence[str]) -> Sequence[EventEffect]:
        """See EventLog.effects."""
        found = [effect for (event, _), effect in self._state.effects.items() if event in event_ids]
        return sorted(found, key=lambda effect: (effect.event_id, effect.schedule_id))


def _earliest(one: EventBatch) -> tuple[int, str]:
    return one.due_at, one.schedule_uid
