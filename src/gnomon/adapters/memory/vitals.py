"""Whether what must hold does, in memory. No method awaits half-way, so each one is a transaction by itself."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.mending import MemoryMending
from gnomon.core.invariants import Counted, Orphan, Overdue
from gnomon.core.ledger.plan import unchanged
from gnomon.core.model import Schedule, ScheduleUid
from gnomon.core.triggers import OnDemand, OnEvent


class MemoryVitals(MemoryMending):
    """The port Vitals."""

    #: Shard to who holds it, and until when.
    _leases: dict[int, tuple[str, int]]

    async def idle_schedules(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Vitals.idle_schedules."""
        found = sorted(uid for uid, one in self._schedules.items() if uid > after and _idle(one))
        return [self._schedules[uid] for uid in found[:limit]]

    async def give_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """See Vitals.give_next_fire."""
        current = self._schedules.get(schedule.uid)
        if current is None or not unchanged(schedule, current) or not _idle(current):
            return False
        self._schedules[schedule.uid] = replace(current, next_fire_at=next_fire_at)
        return True

    async def orphans(self, *, grace_ms: int, limit: int) -> Sequence[Orphan]:
        """See Vitals.orphans."""
        before = self._now() - grace_ms
        found = [one for _, one in sorted(self._attempts.items()) if one.ended_at is None and one.lease_until < before]
        return [Orphan(task_id=o.task_id, worker=o.worker, lease_until=o.lease_until) for o in found[:limit]]

    async def oldest_due(self) -> Overdue | None:
        """See Vitals.oldest_due."""
        due = [(one.next_fire_at, one.uid) for one in self._schedules.values() if one.next_fire_at is not None]
        if not due:
            return None
        at, uid = min(due)
        schedule = self._schedules[uid]
        led = self._leases.get(schedule.shard, ("", 0))[1] > self._now()
        return Overdue(uid=uid, schedule_id=schedule.schedule_id, next_fire_at=at, led=led)

    async def counted(self, *, after: str, limit: int) -> Sequence[Counted]:
        """See Vitals.counted."""
        return [self._count(uid) for uid in sorted(uid for uid in self._schedules if uid > after)[:limit]]

    def _count(self, uid: ScheduleUid) -> Counted:
        schedule, runs = self._schedules[uid], self._under_way(uid)
        return Counted(
            uid=uid,
            schedule_id=schedule.schedule_id,
            active_runs=schedule.active_runs,
            queued_runs=schedule.queued_runs,
            active=sum(not run.queued for run in runs),
            queued=sum(run.queued for run in runs),
        )

    async def recount(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """See Vitals.recount."""
        wrong = [one for uid in sorted(uids) if uid in self._schedules and (one := self._count(uid)).wrong]
        for one in wrong:
            self._make_room(self._schedules[one.uid], active=one.active, now=now)
        return [one.uid for one in wrong]


def _idle(schedule: Schedule) -> bool:
    timed = not isinstance(schedule.spec.trigger, OnDemand | OnEvent)
    return timed and schedule.next_fire_at is None and schedule.paused_at is None
