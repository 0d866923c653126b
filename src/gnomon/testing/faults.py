"""A store that can be made to fail at the worst moments, and that writes down what it committed."""

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from gnomon.core.model import RunId, RunStatus, Schedule, ScheduleUid, Verdict
from gnomon.errors import StoreUnavailable
from gnomon.ports.ledger import Ledger, Terms
from gnomon.ports.runs import Runs
from gnomon.ports.schedules import History as Past
from gnomon.ports.schedules import Schedules
from gnomon.ports.shards import Attendance, Shards
from gnomon.testing.clock import VirtualClock
from gnomon.testing.history import Commit, History


class Store(Ledger, Schedules, Past, Runs, Shards, Protocol):
    """All the ports of the ledger together."""


class Crash(BaseException):
    """The process that was working has just died. Nothing catches it but the simulation."""


class Chances:
    """How likely each fault is, per call. All off by default."""

    def __init__(
        self, *, crash: float = 0, failure: float = 0, slowness: float = 0, race: float = 0, mishap: float = 0
    ) -> None:
        self.crash, self.failure, self.slowness, self.race = crash, failure, slowness, race
        #: That the store fails whoever changes a schedule or ends a run, before or after the commit.
        self.mishap = mishap

    def heal(self) -> None:
        """From now on nothing breaks any more."""
        self.crash = self.failure = self.slowness = self.race = self.mishap = 0


class CommitLog:
    """The order in which the store carried verdicts out."""

    def __init__(self, history: History, clock: VirtualClock) -> None:
        self._history = history
        self._clock = clock

    def note(
        self, verdict: Verdict, *, at: int, term: int | None, holder: str | None, changed: Schedule | None = None
    ) -> None:
        """A verdict was carried out."""
        commit = Commit(
            number=len(self._history.commits),
            uid=verdict.schedule.uid,
            schedule=verdict.schedule,
            decisions=verdict.decisions,
            at=at,
            elapsed_ms=round(self._clock.elapsed() * 1000),
            term=term,
            holder=holder,
            changed=changed,
        )
        self._history.commits.append(commit)

    def note_deleted(self, uid: ScheduleUid, *, at: int) -> None:
        """A schedule was deleted."""
        self._history.deleted[uid] = at

    def note_ended(self, run_id: RunId) -> None:
        """A run ended after the last commit."""
        self._history.ended[run_id] = len(self._history.commits)


class RecordedStore:
    """What operators and workers see of the store: every change is noted, and may fail before or after its commit."""

    def __init__(self, store: Store, log: CommitLog, dice: random.Random, chances: Chances) -> None:
        self._store = store
        self._log = log
        self._dice = dice
        self._chances = chances

    def _mishap(self, text: str) -> None:
        if self._chances.mishap and self._dice.random() < self._chances.mishap:
            raise StoreUnavailable(text)

    def _before(self) -> None:
        self._mishap("the store is away")

    def _after(self) -> None:
        self._mishap("the connection broke while committing")

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        return await self._store.find(tenant, schedule_id)

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        return await self._store.page(tenant, after=after, limit=limit)

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        self._before()
        taken = await self._store.add(schedules, actor=actor, tzdata=tzdata)
        self._after()
        return taken

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        self._before()
        done = await self._store.change(verdict, changed, now=now, actor=actor, tzdata=tzdata)
        if done:
            self._log.note(verdict, at=now, term=None, holder=None, changed=changed)
        self._after()
        return done

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        self._before()
        done = await self._store.delete(verdict, now=now, actor=actor)
        if done:
            self._log.note(verdict, at=now, term=None, holder=None)
            self._log.note_deleted(verdict.schedule.uid, at=now)
        self._after()
        return done

    async def finish(self, run_id: RunId, status: RunStatus, *, now: int) -> bool:
        """See Runs.finish."""
        self._before()
        done = await self._store.finish(run_id, status, now=now)
        if done:
            self._log.note_ended(run_id)
        self._after()
        return done


class FaultyStore:
    """What one node sees of the store: calls that are slow, fail before or after the commit, or kill the caller."""

    def __init__(
        self,
        store: Store,
        log: CommitLog,
        clock: VirtualClock,
        dice: random.Random,
        chances: Chances,
        meanwhile: Callable[[], Awaitable[None]],
        broken: Callable[[], None],
    ) -> None:
        self._store = store
        self._log = log
        self._clock = clock
        self._dice = dice
        self._chances = chances
        #: What others do between this node's reading and its writing.
        self._meanwhile = meanwhile
        self._broken = broken
        self.holder = ""

    async def _before(self) -> None:
        if self._dice.random() < self._chances.slowness:
            self._broken()
            self._clock.advance(self._dice.choice((5, 200, 3_000, 15_000, 200_000)))
            await self._meanwhile()
        if self._dice.random() < self._chances.failure:
            self._broken()
            raise StoreUnavailable("the store is away")
        if self._dice.random() < self._chances.crash:
            self._broken()
            raise Crash

    def _after(self) -> None:
        if self._dice.random() < self._chances.failure:
            self._broken()
            raise StoreUnavailable("the connection broke while committing")
        if self._dice.random() < self._chances.crash:
            self._broken()
            raise Crash

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        await self._before()
        found = await self._store.due(now, shards=shards, limit=limit)
        if found and self._dice.random() < self._chances.race:
            await self._meanwhile()
        return found

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return await self._store.next_due_at(shards=shards)

    async def decide(self, verdicts: Sequence[Verdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        await self._before()
        done = await self._store.decide(verdicts, now=now, terms=terms)
        for verdict in verdicts:
            if verdict.schedule.uid in done:
                self._log.note(verdict, at=now, term=terms[verdict.schedule.shard], holder=self.holder)
        self._after()
        return done

    async def attend(self, holder: str, *, ttl_ms: int) -> Attendance:
        """See Shards.attend."""
        await self._before()
        return await self._store.attend(holder, ttl_ms=ttl_ms)

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        taken = await self._store.claim(holder, ttl_ms=ttl_ms, limit=limit, by_force=by_force)
        self._after()
        return taken

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        await self._store.leave(holder)

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        await self._store.release(holder, shards)
