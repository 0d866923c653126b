"""Events in memory."""

from collections.abc import Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.tasks import MemoryTaskStore
from gnomon.core.model import Schedule, ScheduleUid
from gnomon.core.runs.external_events import (
    EventBatch,
    EventEffect,
    EventEffectKind,
    ExternalEvent,
    add_to_batch,
    effect_of_launch,
    event_skip_reason,
    launch_for_events,
)
from gnomon.core.triggers import OnEvent


class MemoryExternalEvents(MemoryTaskStore):
    """The port EventLog."""

    async def emit_event(self, event: ExternalEvent, *, now: int) -> Sequence[EventEffect]:
        """See EventLog.emit_event."""
        if event.event_id not in self._events:
            self._events[event.event_id] = event
            for schedule in sorted(self._listening(event), key=lambda one: one.schedule_id):
                self._entries[event.event_id, schedule.uid] = self._decided(schedule, event, now)
                gathering = self._gatherings.get(schedule.uid)
                if gathering is not None and gathering.due_at <= now:
                    self._close(schedule.uid, now)
        return await self.entries([event.event_id])

    def _listening(self, event: ExternalEvent) -> list[Schedule]:
        return [
            one
            for one in self._schedules.values()
            if one.tenant == event.tenant
            and isinstance(one.spec.trigger, OnEvent)
            and one.spec.trigger.event == event.name
        ]

    def _decided(self, schedule: Schedule, event: ExternalEvent, now: int) -> EventEffect:
        trigger = schedule.spec.trigger
        assert isinstance(trigger, OnEvent)  # noqa: S101 - it listens
        entry = EventEffect(
            event_id=event.event_id,
            schedule_uid=schedule.uid,
            schedule_id=schedule.schedule_id,
            kind=EventEffectKind.SKIPPED,
            reason=event_skip_reason(schedule, trigger, event) or "",
            decided_at=now,
        )
        if entry.reason:
            return entry
        if trigger.is_batched:
            so_far = self._gatherings.get(schedule.uid)
            self._gatherings[schedule.uid] = add_to_batch(trigger, so_far, schedule.uid, now=now)
            return replace(entry, kind=EventEffectKind.GATHERED, reason="waits_for_others")
        return self._started(schedule, [event], entry, now)

    def _started(
        self, schedule: Schedule, events: Sequence[ExternalEvent], entry: EventEffect, now: int
    ) -> EventEffect:
        workflow = self._graph_of_spec(schedule)
        wish = launch_for_events(schedule, events, workflow.input if workflow else {}, now=now)
        kind, reason = effect_of_launch(self._launch(wish, now))
        run_id = None if kind is EventEffectKind.SKIPPED else wish.run.run_id
        return replace(entry, kind=kind, reason=reason, run_id=run_id, decided_at=now)

    async def next_batch_at(self) -> int | None:
        """See EventLog.next_gathering_at."""
        return min((one.due_at for one in self._gatherings.values()), default=None)

    async def close_event_batches(self, now: int, *, limit: int) -> Sequence[ScheduleUid]:
        """See EventLog.close_gatherings."""
        due = sorted((one for one in self._gatherings.values() if one.due_at <= now), key=_earliest)[:limit]
        for one in due:
            self._close(one.schedule_uid, now)
        return [one.schedule_uid for one in due]

    def _close(self, uid: ScheduleUid, now: int) -> None:
        del self._gatherings[uid]
        waiting = [e for e in self._entries.values() if e.schedule_uid == uid and e.kind is EventEffectKind.GATHERED]
        events = sorted((self._events[e.event_id] for e in waiting), key=lambda e: (e.emitted_at, e.event_id))
        schedule = self._schedules.get(uid)
        for number, event in enumerate(events):
            entry = self._entries[event.event_id, uid]
            if schedule is None or schedule.paused_at is not None:
                reason = "gone" if schedule is None else "paused"
                told = replace(entry, kind=EventEffectKind.SKIPPED, reason=reason, decided_at=now)
            elif number == 0:
                told = self._started(schedule, events, entry, now)
            else:
                first = self._entries[events[0].event_id, uid]
                told = replace(entry, kind=first.kind, reason=first.reason, run_id=first.run_id, decided_at=now)
            self._entries[event.event_id, uid] = told

    async def list_events(
        self, tenant: str, *, name: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[ExternalEvent]:
        """See EventLog.list_events."""
        found = [
            event
            for event in self._events.values()
            if event.tenant == tenant
            and name in (None, event.name)
            and (after is None or (event.emitted_at, event.event_id) < after)
        ]
        return sorted(found, key=lambda event: (event.emitted_at, event.event_id), reverse=True)[:limit]

    async def find_event(self, event_id: str) -> ExternalEvent | None:
        """See EventLog.find_event."""
        return self._events.get(event_id)

    async def entries(self, event_ids: Sequence[str]) -> Sequence[EventEffect]:
        """See EventLog.entries."""
        found = [entry for (event, _), entry in self._entries.items() if event in event_ids]
        return sorted(found, key=lambda entry: (entry.event_id, entry.schedule_id))


def _earliest(one: EventBatch) -> tuple[int, str]:
    return one.due_at, one.schedule_uid
