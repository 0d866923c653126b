"""What a doctor finds about a database: what is well, what somebody should look at, and what is wrong."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import ParamSpec

from msgspec import Struct

from gnomon.config.settings import Settings
from gnomon.core.health import (
    SURPRISE_MS,
    Component,
    Condition,
    Report,
    Sign,
    Stall,
    components_of,
    hung,
    ledger_sign,
    longest_silence_ms,
    stall,
    ticker_sign,
)
from gnomon.core.ids import SHARDS
from gnomon.errors import Unavailable
from gnomon.ports.maintenance import Survey, Surveyor
from gnomon.ports.runtime import Clock
from gnomon.services.loop import Backoff
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Health, Ticker

_MIB = 2**20
#: Less free space than the first is worth a look, less than the second is wrong.
_FEW_MIB, _TOO_FEW_MIB = 1024, 64
#: How long a task may wait for a worker before somebody should look.
_LONG_MS = 60_000


class Grade(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    about: str
    grade: Grade
    message: str


def findings(survey: Survey, settings: Settings, *, now: int) -> list[Finding]:
    """What follows from a look at the store, at the time that this machine has."""
    return [
        _leader(survey),
        _workers(survey),
        _ledger(survey, settings, now),
        _tasks(survey, now),
        _letters(survey),
        _clock(survey, settings, now),
    ]


def _leader(survey: Survey) -> Finding:
    if not survey.shards:
        return Finding("leader", Grade.WARNING, "nobody decides ticks: gnomon up starts a node")
    grade = Grade.OK if survey.shards == SHARDS else Grade.WARNING
    nodes = "1 node decides" if survey.holders == 1 else f"{survey.holders} nodes decide"
    return Finding("leader", grade, f"{nodes}, for {survey.shards} of {SHARDS} shards")


def _workers(survey: Survey) -> Finding:
    if not survey.workers:
        return Finding("workers", Grade.WARNING, "no worker is alive: gnomon up starts one")
    return Finding("workers", Grade.OK, f"{survey.workers} alive")


def _ledger(survey: Survey, settings: Settings, now: int) -> Finding:
    jobs = f"{survey.jobs} jobs"
    if not survey.overdue or survey.oldest_due_at is None:
        return Finding("ledger", Grade.OK, f"{jobs}, nothing is overdue")
    late, limit = (now - survey.oldest_due_at) // 1000, longest_silence_ms(settings.ticker.tick_ms) // 1000
    said = f"{jobs}, {survey.overdue} overdue for more than {limit} s, the oldest by {late} s"
    return Finding("ledger", Grade.ERROR, said)


def _tasks(survey: Survey, now: int) -> Finding:
    if survey.ready_since_at is None:
        return Finding("tasks", Grade.OK, "none waits for a worker")
    waits = now - survey.ready_since_at
    grade = Grade.WARNING if waits > _LONG_MS else Grade.OK
    return Finding("tasks", grade, f"the oldest has waited for a worker for {waits // 1000} s")


def _letters(survey: Survey) -> Finding:
    if not survey.unresolved:
        return Finding("dead letters", Grade.OK, "none")
    said = f"{survey.unresolved} that nobody has dealt with: gnomon dead-letters list --unresolved"
    return Finding("dead letters", Grade.WARNING, said)


def _clock(survey: Survey, settings: Settings, now: int) -> Finding:
    off = abs(now - survey.store_at)
    said = f"{off / 1000:.1f} s from that of the store"
    if off > settings.leader.skew_limit_ms:
        return Finding("clock", Grade.ERROR, f"{said}: a node here would not decide ticks")
    return Finding("clock", Grade.WARNING if off > settings.leader.skew_warning_ms else Grade.OK, said)


def disk(free_bytes: int | None) -> Finding | None:
    """What follows from the free space beside the database; nothing if it is on a server."""
    if free_bytes is None:
        return None
    free = free_bytes // _MIB
    grade = Grade.ERROR if free < _TOO_FEW_MIB else Grade.WARNING if free < _FEW_MIB else Grade.OK
    return Finding("disk", grade, f"{free:,} MiB free")


P = ParamSpec("P")
#: How long a look at the store is believed, and how long it may take.
_BELIEVED_SECONDS, _PATIENCE_SECONDS = 1.0, 3.0
_STANDING_BY = Sign(Condition.IDLE, "another process schedules here")
#: Under this, writing may fail any moment.
_LEAST_FREE_BYTES = 64 * 2**20


class Vitals:
    """Whoever asks gets a report that is at most a second old, however many ask."""

    def __init__(self, surveyor: Surveyor, clock: Clock, *, tick_ms: int, cards: int) -> None:
        self._surveyor = surveyor
        self._clock = clock
        self._limit_ms = longest_silence_ms(tick_ms)
        self._cards = cards
        self._ticker: Ticker | None = None
        self._elector: Elector | None = None
        self._backoffs: Mapping[str, Backoff] = {}
        self._free_bytes: Callable[[], int | None] = lambda: None
        #: It is this node's turn; until then it stands by.
        self.on_duty = False
        #: It was told to stop.
        self.draining = False
        #: The last look at the store; None if that failed, or there was none.
        self.survey: Survey | None = None
        self._surprises: dict[str, tuple[int, str]] = {}
        self._components: tuple[Component, ...] = ()
        self._store = Sign(Condition.IDLE, "not looked at yet")
        self._stall: Stall | None = None
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    def attach(
        self,
        ticker: Ticker | None,
        elector: Elector | None,
        backoffs: Mapping[str, Backoff],
        free_bytes: Callable[[], int | None],
    ) -> None:
        """These are the components."""
        self._ticker, self._elector, self._backoffs, self._free_bytes = ticker, elector, backoffs, free_bytes

    def attach_more(self, backoffs: Mapping[str, Backoff]) -> None:
        """These are components, too."""
        self._backoffs = {**self._backoffs, **backoffs}

    def happened(self, name: str, facts: Mapping[str, object]) -> None:
        """An event was emitted: a step that failed as none should makes its component ill for a while."""
        if name == "step_failed":
            component = str(facts.get("step")).partition(".")[0].lower()
            self._surprises[component] = self._clock.now(), str(facts.get("error"))

    @property
    def leads(self) -> int:
        """How many shards this node decides for."""
        return 0 if self._elector is None else len(self._elector.terms)

    async def report(self) -> Report:
        """How the node is."""
        async with self._looking:
            if self._clock.elapsed() - self._looked_at >= _BELIEVED_SECONDS:
                await self._look()
        now = self._clock.now()
        self._components = components_of(self._components, self._signs(now), now=now)
        reachable = self._store.condition is not Condition.ERROR
        return Report(at=now, components=self._components, ready=reachable and not self.draining, alive=self.alive)

    async def _look(self) -> None:
        now = self._clock.now()
        try:
            asked = self._surveyor.survey(now, overdue_before=now - self._limit_ms, cards=self._cards)
            self.survey = await asyncio.wait_for(asked, _PATIENCE_SECONDS)
        except TimeoutError:
            self.survey, self._store = None, Sign(Condition.ERROR, f"no answer in {_PATIENCE_SECONDS:.0f} s")
        except Unavailable as error:
            self.survey, self._store = None, Sign(Condition.ERROR, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, a store that cannot be read is not well
            self.survey, self._store = None, Sign(Condition.ERROR, f"cannot be read: {type(error).__name__}")
        else:
            self._store = Sign(Condition.OK)
            self._stall = stall(self._stall, self.survey.oldest_due_at, now)
        self._looked_at = self._clock.elapsed()

    # ---- the components ----------------------------------------------------------------------

    def _signs(self, now: int) -> list[tuple[str, Sign]]:
        signs = {"store": self._store, "ledger": _felt(self._ledger, now), "disk": _felt(self._disk)}
        if self._ticker is not None and self._elector is not None:
            signs |= {"elector": _felt(self._elected, self._elector), "ticker": _felt(self._ticking, self._ticker)}
        for name, backoff in self._backoffs.items():
            ill = Sign(Condition.ERROR, backoff.error) if backoff.failing else Sign(Condition.OK)
            signs[name] = ill if self.on_duty else _STANDING_BY
        for name, (at, error) in self._surprises.items():
            if now - at < SURPRISE_MS:
                signs[name] = Sign(Condition.ERROR, error)
        return list(signs.items())

    def _ledger(self, now: int) -> Sign:
        if self.survey is None:
            return Sign(Condition.IDLE, "not known while the store does not answer")
        if not self.leads and self.survey.shards == SHARDS:
            return Sign(Condition.IDLE, "other nodes decide")
        set_aside = 0 if self._ticker is None else self._ticker.set_aside
        return ledger_sign(self._stall, self.survey.overdue, set_aside=set_aside, now=now, limit_ms=self._limit_ms)

    def _disk(self) -> Sign:
        free = None
        with suppress(OSError):
            free = self._free_bytes()
        if free is None:
            return Sign(Condition.IDLE, "the database is not on a disk of ours")
        if free < _LEAST_FREE_BYTES:
            return Sign(Condition.ERROR, f"{free // 2**20} MiB are left")
        return Sign(Condition.OK)

    def _elected(self, elector: Elector) -> Sign:
        if not self.on_duty:
            return _STANDING_BY
        if elector.failing:
            return Sign(Condition.ERROR, "the leases cannot be renewed")
        if not elector.terms:
            return Sign(Condition.IDLE, "other nodes hold all shards")
        return Sign(Condition.OK, f"holds {len(elector.terms)} of {SHARDS} shards")

    def _ticking(self, ticker: Ticker) -> Sign:
        if not self.on_duty:
            return _STANDING_BY
        return ticker_sign(_condition(ticker.health), ticker.silent_for, limit_ms=self._limit_ms)

    @property
    def alive(self) -> bool:
        """Whether this process is worth keeping. The store is not asked: whatever it does, that would not help it."""
        ticker = self._ticker
        if ticker is None or not self.on_duty or self.draining:
            return True
        return not hung(_condition(ticker.health), ticker.silent_for)


def _felt(look: Callable[P, Sign], *args: P.args, **kwargs: P.kwargs) -> Sign:
    """How a component is; one that cannot be looked at is not well."""
    try:
        return look(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - whatever it is, all others are still looked at
        return Sign(Condition.ERROR, f"cannot be looked at: {type(error).__name__}")


def _condition(health: Health) -> Condition:
    return Condition(health.value)
