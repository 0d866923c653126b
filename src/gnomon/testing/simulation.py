"""The real ticker, elector and registrar on a store and a clock of our own: months in seconds, the same by seed.

One thing happens at a time, so a history can be repeated; what runs beside each other in the world is interleaved where
it matters, between a node's reading and its writing. Processes die before and after commits, the store is slow or
away, clocks are set, operators change their minds, runs take their time. When all is over everything is healed, so that
what was due can be decided, and the history is ready for the checker.
"""

import heapq
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from gnomon.core.model import MINUTE_MS, RunId, RunStatus, ScheduleUid
from gnomon.errors import NotFound, StoreUnavailable
from gnomon.services.elector import Elector
from gnomon.services.registrar import Registrar
from gnomon.services.ticker import Ticker
from gnomon.settings import Leading, Ticking
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from gnomon.testing.faults import Chances, CommitLog, Crash, FaultyStore, RecordedStore, Store
from gnomon.testing.history import History, Life

#: What one look of a ticker takes.
_STEP_MS = 2
#: How soon an operator, or a worker, tries again.
_AGAIN_MS = 50
_HEALING_MS = 6 * MINUTE_MS
_FOREVER = 1 << 62
#: Long enough that a day holds thousands of looks, not a hundred thousand; hints wake nodes in between.
_TICKING = Ticking(tick_ms=60_000)
_LEADING = Leading(ttl_ms=180_000, renew_interval_ms=60_000)

Event = Callable[[], Awaitable[None]]
Done = TypeVar("Done")


class Simulation:
    """A world with some nodes and a store that they share."""

    def __init__(self, store: Store, clock: VirtualClock, *, seed: object, chances: Chances | None = None) -> None:
        self.clock = clock
        self.events = Recorder()
        self.history = History(started_at=clock.now())
        self.dice = random.Random(f"{seed}")  # noqa: S311 - repeatable, not secret
        self._chances = chances or Chances()
        self._store = store
        self._log = CommitLog(self.history, clock)
        self._recorded = RecordedStore(store, self._log, self.dice, self._chances)
        self.registrar = Registrar(self._recorded, store, clock, CountedIds())
        self._agenda: list[tuple[float, int, Event]] = []
        self._numbered = 0
        self._names: dict[ScheduleUid, str] = {}
        self._finishing: set[str] = set()
        self._starts = 0
        #: Holder to the number of its next look: an earlier one that is still on the agenda is void.
        self._nodes: dict[str, int] = {}
        self._tickers: dict[str, Ticker] = {}
        self._nested = False
        #: How many commits have been looked at for runs that began.
        self._looked_at = 0
        #: How long runs take, in milliseconds.
        self.durations: tuple[int, ...] = (10, 500, 20_000, 90_000, 400_000)
        #: How many schedules a node decides at once.
        self.batch = _TICKING.batch

    # ---- setting the scene -------------------------------------------------------------------

    async def register(self, request: Mapping[str, Any]) -> ScheduleUid:
        """Register a schedule, as an operator does."""
        answer = await self.persist(lambda: self.registrar.upsert(request, actor="operator"))
        uid = (await self.registrar.get(answer.schedule_id)).schedule.uid
        self._names[uid] = answer.schedule_id
        return uid

    async def delete(self, uid: ScheduleUid) -> None:
        """Delete a schedule, as an operator does."""
        try:
            await self.persist(lambda: self.registrar.delete(self._names[uid], actor="operator"))
        except NotFound:
            # It is gone by the try whose answer was lost.
            if uid not in self.history.deleted:
                raise

    async def persist(self, act: Callable[[], Awaitable[Done]]) -> Done:
        """Do something again and again until the store answers, as an operator does."""
        while True:
            try:
                return await act()
            except StoreUnavailable:
                self.clock.advance(_AGAIN_MS)

    def add_node(self) -> None:
        """Start a node; when it dies another takes its place after a while."""
        self._starts += 1
        node = FaultyStore(self._store, self._log, self.clock, self.dice, self._chances, self._meanwhile, self._break)
        node.holder = f"node-{self._starts}"
        elector = Elector(node, self.clock, self.events, _LEADING, holder=node.holder)
        ticking = replace(_TICKING, batch=self.batch)
        ticker = Ticker(node, elector, self.clock, self.events, ticking)
        self._nodes[node.holder] = 0
        self._step_after(0, node.holder, ticker)

    def _step_after(self, ms: float, holder: str, ticker: Ticker) -> None:
        """Let a node look again later, unless something wakes it before."""
        self._nodes[holder] += 1
        turn = self._nodes[holder]

        async def step() -> None:
            if self._nodes.get(holder) != turn:
                return
            try:
                wait = await ticker.step()
            except Crash:
                del self._nodes[holder], self._tickers[holder]
                self.after(self.dice.choice((10, 2_000, 20_000)), self._restart)
                return
            self._step_after(max(_STEP_MS, round(wait * 1000)), holder, ticker)

        self._tickers[holder] = ticker
        self.after(ms, step)

    def wake(self) -> None:
        """Hint to every node that there is something new."""
        for holder, ticker in list(self._tickers.items()):
            self._step_after(self.dice.randrange(20), holder, ticker)

    async def _restart(self) -> None:
        self.add_node()

    def after(self, ms: float, event: Event) -> None:
        """Let something happen later."""
        self._numbered += 1
        heapq.heappush(self._agenda, (self.clock.elapsed() * 1000 + ms, self._numbered, event))

    def _break(self) -> None:
        """A node was hurt: until others have taken over what it held, or it has it back, lateness is excused."""
        self.broken_for(_LEADING.ttl_ms + _LEADING.renew_interval_ms + 200_000)

    def broken_for(self, ms: int) -> None:
        """Note that something is broken from now on for so long: lateness is excused."""
        self.history.faults.append((self.clock.now(), self.clock.now() + ms))

    def set_clock(self, by_ms: int) -> None:
        """Set the wall clock back or forth."""
        before = self.clock.now()
        self.clock.set_back_or_forth(by_ms)
        self.wake()
        self.history.faults.append((min(before, self.clock.now()), max(before, self.clock.now()) + 60_000))

    # ---- letting it run ----------------------------------------------------------------------

    async def run(self, ms: int) -> History:
        """Let so much time pass with all its faults, then heal everything and let the dust settle."""
        await self._run_for(ms)
        self._chances.heal()
        self.broken_for(_HEALING_MS)
        await self._run_for(_HEALING_MS)
        self.history.ended_at = self.clock.now()
        for uid, name in self._names.items():
            self.history.lives[uid] = await self._life(uid, name)
        return self.history

    async def _run_for(self, ms: int) -> None:
        until = self.clock.elapsed() * 1000 + ms
        while self._agenda and self._agenda[0][0] <= until:
            await self._one_event()
        self.clock.advance(max(0, round(until - self.clock.elapsed() * 1000)))

    async def _one_event(self) -> None:
        at, _, event = heapq.heappop(self._agenda)
        self.clock.advance(max(0, round(at - self.clock.elapsed() * 1000)))
        await event()
        await self._let_runs_begin()

    async def _meanwhile(self) -> None:
        """Let what is next on the agenda, and all that is overdue, happen in the middle of another event."""
        if self._nested or not self._agenda:
            return
        self._nested = True
        # The one in the middle of its work waits for as long as the other takes.
        self._break()
        try:
            await self._one_event()
            late = self.clock.elapsed() * 1000
            while self._agenda and self._agenda[0][0] < late:
                await self._one_event()
        finally:
            self._nested = False

    async def _let_runs_begin(self) -> None:
        """Give every run that may go on an end."""
        new = self.history.commits[self._looked_at :]
        self._looked_at = len(self.history.commits)
        for uid in {commit.uid for commit in new}:
            await self._plan_ends(uid)

    async def _plan_ends(self, uid: ScheduleUid) -> None:
        for run in await self._store.runs(uid, before=_FOREVER, limit=150):
            if run.queued or run.over or run.run_id in self._finishing:
                continue
            self._finishing.add(run.run_id)

            async def finish(run_id: RunId = run.run_id, uid: ScheduleUid = uid) -> None:
                status = self.dice.choice((RunStatus.COMPLETED, RunStatus.FAILED))
                await self.persist(lambda: self._recorded.finish(run_id, status, now=self.clock.now()))
                await self._plan_ends(uid)

            self.after(self.dice.choice(self.durations), finish)

    async def _life(self, uid: ScheduleUid, name: str) -> Life:
        try:
            final = (await self.registrar.get(name)).schedule
        except NotFound:
            final = None
        ticks = await self._store.ticks(uid, before=_FOREVER, limit=1_000_000)
        return Life(
            uid=uid,
            revisions=tuple(await self._store.revisions(uid)),
            pauses=tuple(await self._store.pauses(uid)),
            runs=tuple(await self._store.runs(uid, before=_FOREVER, limit=1_000_000)),
            final=final if final is not None and final.uid == uid else None,
            deleted_at=self.history.deleted.get(uid),
            ledger={tick.decision.planned_at: tick.decision for tick in ticks},
        )
