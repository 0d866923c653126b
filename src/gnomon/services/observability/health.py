"""Health: the findings of `gnomon doctor` about a database, and the health monitor of a running process."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import ParamSpec

from msgspec import Struct

from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.explain.phrases import pluralized
from gnomon.core.health import (
    NO_WORKER_MS,
    UNEXPECTED_ERROR_MS,
    ComponentHealth,
    ComponentStatus,
    HealthCondition,
    LedgerStall,
    NodeHealth,
    TaskBacklog,
    is_hung,
    ledger_stall_limit_ms,
    ledger_status,
    tasks_status,
    ticker_status,
    update_components,
    update_stall,
)
from gnomon.core.ids import SHARDS
from gnomon.core.model import MINUTE_MS
from gnomon.errors import Unavailable
from gnomon.ports.maintenance import HeldTasks, MarksAhead, StoreStats, StoreStatsReader
from gnomon.ports.runtime import Clock
from gnomon.services.loop import Backoff
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker, TickerHealth

_MIB = 2**20
#: Less free space than the first is a warning, less than the second an error.
_FEW_MIB, _TOO_FEW_MIB = 1024, 64


class Severity(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """The result of one check."""

    about: str
    grade: Severity
    message: str


def store_findings(stats: StoreStats, settings: Settings, *, now: int) -> list[Finding]:
    """The findings about the store; `now` is the time of this machine."""
    return [
        _leader_finding(stats, settings),
        _workers_finding(stats, settings),
        _ledger_finding(stats, settings, now),
        _tasks_finding(stats, now),
        _dead_letters_finding(stats),
        _clock_finding(stats, settings, now),
    ]


def _leader_finding(stats: StoreStats, settings: Settings) -> Finding:
    if not stats.shards:
        command = "gnomon server" if is_fleet(settings) else "gnomon up"
        return Finding("leader", Severity.ERROR, f"no node decides ticks: start one with {command}")
    grade = Severity.OK if stats.shards == SHARDS else Severity.WARNING
    nodes = "1 node decides" if stats.holders == 1 else f"{stats.holders} nodes decide"
    return Finding("leader", grade, f"{nodes}, for {stats.shards} of {SHARDS} shards")


def _workers_finding(stats: StoreStats, settings: Settings) -> Finding:
    if not stats.workers:
        command = "gnomon worker" if is_fleet(settings) else "gnomon up"
        return Finding("workers", Severity.ERROR, f"no worker is alive: {command} starts one")
    return Finding("workers", Severity.OK, f"{stats.workers} alive")


def _ledger_finding(stats: StoreStats, settings: Settings, now: int) -> Finding:
    jobs = f"{stats.jobs} jobs"
    if not stats.overdue or stats.oldest_due_at is None:
        return Finding("ledger", Severity.OK, f"{jobs}, nothing is overdue")
    late, limit = (now - stats.oldest_due_at) // 1000, ledger_stall_limit_ms(settings.ticker.tick_ms) // 1000
    message = f"{jobs}, {stats.overdue} overdue for more than {limit} s, the oldest by {late} s"
    return Finding("ledger", Severity.ERROR, message)


def marks_finding(marks: MarksAhead, *, now: int) -> Finding:
    """The finding about schedules that decide nothing because their ticks were decided ahead of the clock."""
    if not marks.count or marks.farthest_at is None:
        return Finding("marks", Severity.OK, "none is ahead of the clock")
    message = (
        f"{marks.count} jobs decide nothing: their ticks were decided by a clock that was ahead, the farthest"
        f" {(marks.farthest_at - now) // 1000} s; a node that starts sets their marks back"
    )
    return Finding("marks", Severity.ERROR, message)


def held_tasks_finding(held: HeldTasks) -> Finding:
    """The finding about tasks that the policy or a breaker holds back."""
    waits = [
        f"{pluralized(count, 'task')} {text}"
        for count, text in (
            (held.to_approve, "to be approved (gnomon approvals list)"),
            (held.put_off, f"put off: {held.reason}" if held.reason else "put off"),
            (held.by_breakers, "behind breakers"),
        )
        if count
    ]
    if held.breakers:
        waits.append(f"not closed: {', '.join(held.breakers)} (gnomon breakers list)")
    # Votes are missing by intention; a service that keeps failing is not.
    grade = Severity.WARNING if held.breakers or held.put_off else Severity.OK
    return Finding("policy", grade, "; ".join(waits) or "it holds no task back")


def _tasks_finding(stats: StoreStats, now: int) -> Finding:
    if stats.unroutable_since_at is not None:
        backlog = _backlog(stats)
        lasting = now - stats.unroutable_since_at > NO_WORKER_MS and not backlog.only_busy
        return Finding("tasks", Severity.ERROR if lasting else Severity.WARNING, backlog.waiting(now))
    if stats.ready_since_at is None:
        return Finding("tasks", Severity.OK, "none waits for a worker")
    waits = now - stats.ready_since_at
    grade = Severity.WARNING if waits > NO_WORKER_MS else Severity.OK
    return Finding("tasks", grade, f"the oldest has waited for a worker for {waits // 1000} s")


def _backlog(stats: StoreStats, no_workers_since_at: int | None = None) -> TaskBacklog:
    return TaskBacklog(
        workers=stats.workers,
        no_workers_since_at=no_workers_since_at,
        unroutable=stats.unroutable,
        unroutable_since_at=stats.unroutable_since_at,
        unroutable_reason=stats.unroutable_reason,
    )


def _dead_letters_finding(stats: StoreStats) -> Finding:
    if not stats.unresolved:
        return Finding("dead letters", Severity.OK, "none")
    message = f"{stats.unresolved} unresolved: gnomon dead-letters list --unresolved"
    return Finding("dead letters", Severity.WARNING, message)


def _clock_finding(stats: StoreStats, settings: Settings, now: int) -> Finding:
    off = abs(now - stats.store_at)
    message = f"{off / 1000:.1f} s from that of the store"
    if off > settings.leader.skew_limit_ms:
        return Finding("clock", Severity.ERROR, f"{message}: a node here would not decide ticks")
    return Finding("clock", Severity.WARNING if off > settings.leader.skew_warning_ms else Severity.OK, message)


def disk_finding(free_bytes: int | None) -> Finding | None:
    """The finding about the free space of the database's disk; None if it is on a server."""
    if free_bytes is None:
        return None
    free = free_bytes // _MIB
    grade = Severity.ERROR if free < _TOO_FEW_MIB else Severity.WARNING if free < _FEW_MIB else Severity.OK
    return Finding("disk", grade, f"{free:,} MiB free")


def is_fleet(settings: Settings) -> bool:
    """Whether servers and workers are processes of their own, because they share a database server."""
    return not settings.database.url.startswith("sqlite")


P = ParamSpec("P")
#: How long a stats of the store is cached, and how long it may take.
_CACHE_SECONDS, _TIMEOUT_SECONDS = 1.0, 3.0
_STANDING_BY = ComponentStatus(HealthCondition.IDLE, "another process schedules here")
#: With less free space, writes may fail at any moment.
_LEAST_FREE_BYTES = 64 * 2**20


class StepFailures:
    """The unexpected errors of loops: each makes its component ill for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: When the step of a component last failed, and how.
        self._failed: dict[str, tuple[int, str]] = {}

    def on_event(self, name: str, facts: Mapping[str, object]) -> None:
        """Remember the event if it is the failure of a step."""
        if name == "step_failed":
            self._failed[str(facts.get("step"))] = self._clock.now(), str(facts.get("error"))

    def recent(self, now: int) -> dict[str, str]:
        """The errors of the components that are ill at `now`."""
        return {name: error for name, (at, error) in self._failed.items() if now - at < UNEXPECTED_ERROR_MS}


class HealthMonitor:
    """Reports the health of a process. A report is at most a second old, however often it is asked for."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        stats_reader: StoreStatsReader | None,
        clock: Clock,
        *,
        failures: StepFailures,
        tick_ms: int,
        max_jobs: int,
        stale_ms: int = 2 * MINUTE_MS,
        ticker: Ticker | None = None,
        elector: Elector | None = None,
        backoffs: Callable[[], Mapping[str, Backoff]] = dict,
        statuses: Callable[[], Mapping[str, ComponentStatus]] = dict,
        free_bytes: Callable[[], int | None] = lambda: None,
        link: Callable[[], ComponentStatus] | None = None,
        sandbox: ComponentStatus | None = None,
    ) -> None:
        """`backoffs` returns the backoff of each service by the name of its component.

        `statuses` returns the status of each service that knows its own.
        `sandbox` is the status of the sandbox of commands, which does not change while the process runs.
        `link` is the status of the connection to servers, for a worker that has no store but them.
        """
        self._stats_reader = stats_reader
        self._stale_ms = stale_ms
        self._clock = clock
        self._limit_ms = ledger_stall_limit_ms(tick_ms)
        self._max_jobs = max_jobs
        self._ticker, self._elector = ticker, elector
        self._backoffs, self._statuses, self._free_bytes = backoffs, statuses, free_bytes
        self._link = link
        self._sandbox = sandbox
        self._failures = failures
        #: Whether this node runs its services; until then it stands by.
        self._active = False
        #: Whether it was asked to stop.
        self._draining = False
        #: The last stats of the store; None if it failed, or there was none.
        self.stats: StoreStats | None = None
        self._components: tuple[ComponentHealth, ...] = ()
        self._store = ComponentStatus(HealthCondition.IDLE, "not looked at yet")
        self._stall: LedgerStall | None = None
        self._no_workers_since: int | None = None
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    def started(self) -> None:
        """Report the services as running: this node no longer stands by."""
        self._active = True

    def stopping(self) -> None:
        """Report the node as not ready: it was asked to stop."""
        self._draining = True

    @property
    def shards_held(self) -> int:
        """How many shards this node holds."""
        return 0 if self._elector is None else len(self._elector.terms)

    async def report(self) -> NodeHealth:
        """The health of the node and its components."""
        async with self._looking:
            if self._clock.elapsed() - self._looked_at >= _CACHE_SECONDS:
                await self._look()
        now = self._clock.now()
        self._components = update_components(self._components, self._signs(now), now=now)
        needed = [one for one in self._components if one.name in (component_names.STORE, component_names.SERVERS)]
        reachable = all(one.condition is not HealthCondition.ERROR for one in needed)
        return NodeHealth(at=now, components=self._components, ready=reachable and not self._draining, alive=self.alive)

    async def _look(self) -> None:
        if self._stats_reader is None:
            return
        now = self._clock.now()
        try:
            asked = self._stats_reader.read(
                now,
                overdue_before=now - self._limit_ms,
                max_jobs=self._max_jobs,
                stale_before=now - self._stale_ms,
            )
            self.stats = await asyncio.wait_for(asked, _TIMEOUT_SECONDS)
        except TimeoutError:
            self.stats, self._store = (
                None,
                ComponentStatus(HealthCondition.ERROR, f"no answer in {_TIMEOUT_SECONDS:.0f} s"),
            )
        except Unavailable as error:
            self.stats, self._store = None, ComponentStatus(HealthCondition.ERROR, str(error))
        except Exception as error:  # noqa: BLE001 - any error of a read is an error of the store
            self.stats, self._store = (
                None,
                ComponentStatus(HealthCondition.ERROR, f"cannot be read: {type(error).__name__}"),
            )
        else:
            self._store = ComponentStatus(HealthCondition.OK)
            self._stall = update_stall(self._stall, self.stats.oldest_due_at, now)
            self._no_workers_since = None if self.stats.workers else self._no_workers_since or now
        self._looked_at = self._clock.elapsed()

    # ---- the components ----------------------------------------------------------------------

    def _signs(self, now: int) -> list[tuple[str, ComponentStatus]]:
        signs = {}
        if self._stats_reader is not None:
            signs = {
                component_names.STORE: self._store,
                component_names.LEDGER: _safe_sign(self._ledger, now),
                component_names.DISK: _safe_sign(self._disk),
            }
        if self._link is not None:
            signs[component_names.SERVERS] = _safe_sign(self._link)
        if self._ticker is not None and self._elector is not None:
            signs |= {
                component_names.ELECTOR: _safe_sign(self._elected, self._elector),
                component_names.TICKER: _safe_sign(self._ticking, self._ticker),
                component_names.TASKS: _safe_sign(self._tasks, now),
            }
        if self._sandbox is not None:
            signs[component_names.SANDBOX] = self._sandbox
        for name, backoff in self._backoffs().items():
            ill = (
                ComponentStatus(HealthCondition.ERROR, backoff.error)
                if backoff.failing
                else ComponentStatus(HealthCondition.OK)
            )
            signs[name] = ill if self._active else _STANDING_BY
        for name, status in self._statuses().items():
            signs[name] = status if self._active else _STANDING_BY
        for name, error in self._failures.recent(now).items():
            signs[name] = ComponentStatus(HealthCondition.ERROR, error)
        return list(signs.items())

    def _ledger(self, now: int) -> ComponentStatus:
        if self.stats is None:
            return ComponentStatus(HealthCondition.IDLE, "not known while the store does not answer")
        if not self.shards_held and self.stats.shards == SHARDS:
            return ComponentStatus(HealthCondition.IDLE, "other nodes decide")
        set_aside = 0 if self._ticker is None else self._ticker.set_aside
        return ledger_status(self._stall, self.stats.overdue, set_aside=set_aside, now=now, limit_ms=self._limit_ms)

    def _tasks(self, now: int) -> ComponentStatus:
        if not self._active:
            return _STANDING_BY
        if self.stats is None:
            return ComponentStatus(HealthCondition.IDLE, "not known while the store does not answer")
        return tasks_status(_backlog(self.stats, self._no_workers_since), now)

    def _disk(self) -> ComponentStatus:
        free = None
        with suppress(OSError):
            free = self._free_bytes()
        if free is None:
            return ComponentStatus(HealthCondition.IDLE, "the database is not on a disk of ours")
        if free < _LEAST_FREE_BYTES:
            return ComponentStatus(HealthCondition.ERROR, f"{free // 2**20} MiB are left")
        return ComponentStatus(HealthCondition.OK)

    def _elected(self, elector: Elector) -> ComponentStatus:
        if not self._active:
            return _STANDING_BY
        if elector.failing:
            return ComponentStatus(HealthCondition.ERROR, "the leases cannot be renewed")
        if not elector.terms:
            return ComponentStatus(HealthCondition.IDLE, "other nodes hold all shards")
        return ComponentStatus(HealthCondition.OK, f"holds {len(elector.terms)} of {SHARDS} shards")

    def _ticking(self, ticker: Ticker) -> ComponentStatus:
        if not self._active:
            return _STANDING_BY
        return ticker_status(_condition(ticker.health), ticker.seconds_since_success, limit_ms=self._limit_ms)

    @property
    def alive(self) -> bool:
        """Whether this process works. The store is not asked: a restart of this process would not help it."""
        ticker = self._ticker
        if ticker is None or not self._active or self._draining:
            return True
        return not is_hung(_condition(ticker.health), ticker.seconds_since_success)


def _safe_sign(look: Callable[P, ComponentStatus], *args: P.args, **kwargs: P.kwargs) -> ComponentStatus:
    """The status of a component; an error if it cannot be determined."""
    try:
        return look(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - all other components are still reported
        return ComponentStatus(HealthCondition.ERROR, f"cannot be looked at: {type(error).__name__}")


def _condition(health: TickerHealth) -> HealthCondition:
    return HealthCondition(health.value)
