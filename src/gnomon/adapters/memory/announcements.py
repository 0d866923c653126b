"""Announcements in memory. No method awaits, so each one is a transaction."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.announcements.decide import share_between_tenants, waits_behind
from gnomon.core.announcements.model import Announcement, AnnouncementState
from gnomon.core.audit import retried_entry
from gnomon.core.model import RunId
from gnomon.ports.announcements import AnnouncementClaim, AnnouncementQuery, AnnouncementUpdate


class MemoryAnnouncements:
    """Implements Announcements."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def find(self, tenant: str, announcement_id: str) -> Announcement | None:
        """See Announcements.find."""
        found = self._state.announcements.get(announcement_id)
        return found if found is not None and found.tenant == tenant else None

    async def page(self, query: AnnouncementQuery) -> Sequence[Announcement]:
        """See Announcements.page."""
        found = [
            one
            for one in self._state.announcements.values()
            if one.tenant == query.tenant
            and query.job in (None, one.job)
            and query.state in (None, one.state)
            and (query.after is None or (one.created_at, one.announcement_id) < query.after)
        ]
        return sorted(found, key=lambda one: (one.created_at, one.announcement_id), reverse=True)[: query.limit]

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[Announcement]:
        """See Announcements.find_by_prefix."""
        found = (one for name, one in sorted(self._state.announcements.items()) if name.startswith(prefix))
        return [one for one in found if one.tenant == tenant][:limit]

    async def of_runs(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[Announcement]]:
        """See Announcements.of_runs."""
        return {run: found for run in runs if (found := self._rules.announcements_of(run))}

    async def retry(self, tenant: str, announcement_id: str, *, actor: str, now: int) -> bool:
        """See Announcements.retry."""
        found = await self.find(tenant, announcement_id)
        if found is None or found.state is not AnnouncementState.GIVEN_UP:
            return False
        again = replace(
            found, state=AnnouncementState.PENDING, tries=0, next_at=now, since_at=now, ended_at=None, note=None
        )
        self._state.announcements[announcement_id] = again
        self._state.write_audit([retried_entry(announcement_id, tenant, actor, now)])
        return True


class MemoryAnnouncementQueue:
    """Implements AnnouncementQueue."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def claim(self, claim: AnnouncementClaim) -> Sequence[Announcement]:
        """See AnnouncementQueue.claim."""
        state, now = self._state, self._state.now()
        pending = self._pending()
        due: dict[tuple[str, str], list[Announcement]] = {}
        for one in sorted(pending, key=lambda one: (one.next_at, one.announcement_id)):
            free = one.next_at <= now and not self._is_claimed(one) and one.channel not in claim.without
            if free and not any(waits_behind(one, other) for other in pending):
                due.setdefault((one.tenant, one.channel), []).append(one)
        taken = []
        for _, one in share_between_tenants(due, limit=claim.limit, per_channel=claim.per_channel):
            claimed = state.announcements[one.announcement_id] = replace(one, fence=one.fence + 1)
            state.announcement_claims[one.announcement_id] = claim.holder, now + claim.claim_ms
            taken.append(claimed)
        return sorted(taken, key=lambda one: (one.created_at, one.announcement_id))

    async def update(self, updates: Sequence[AnnouncementUpdate], *, now: int) -> frozenset[str]:
        """See AnnouncementQueue.update."""
        state = self._state
        written = []
        for update in updates:
            one = update.announcement
            current = state.announcements.get(one.announcement_id)
            if current is None or current.over or current.fence != one.fence:
                continue
            holder, _ = state.announcement_claims[one.announcement_id]
            state.announcement_claims[one.announcement_id] = holder, state.now() + update.claim_ms
            state.announcements[one.announcement_id] = one
            written.append(one)
        self._end_held_runs(written, now)
        return frozenset(one.announcement_id for one in written)

    async def give_up_stale(self, channel: str, *, since_before: int, note: str, limit: int, now: int) -> Sequence[str]:
        """See AnnouncementQueue.give_up_stale."""
        stale = [
            one
            for one in sorted(self._pending(), key=lambda one: (one.next_at, one.announcement_id))
            if one.channel == channel and one.since_at < since_before and not self._is_claimed(one)
        ][:limit]
        ended = [
            replace(one, state=AnnouncementState.GIVEN_UP, ended_at=now, note=note, fence=one.fence + 1)
            for one in stale
        ]
        for one in ended:
            self._state.announcements[one.announcement_id] = one
        self._end_held_runs(ended, now)
        return [one.announcement_id for one in ended]

    async def next_at(self) -> int | None:
        """See AnnouncementQueue.next_at."""
        return min((one.next_at for one in self._pending()), default=None)

    def _pending(self) -> list[Announcement]:
        return [one for one in self._state.announcements.values() if not one.over]

    def _is_claimed(self, one: Announcement) -> bool:
        return self._state.announcement_claims.get(one.announcement_id, ("", 0))[1] > self._state.now()

    def _end_held_runs(self, written: Sequence[Announcement], now: int) -> None:
        for run_id in sorted({one.run_id for one in written if one.over and one.holds_run and one.run_id is not None}):
            self._rules.end_held_run(run_id, now)
