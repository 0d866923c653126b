"""Queries and assertions of the virtual scheduler. A failed assertion shows the runs or ticks that were found."""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from gnomon.adapters.memory import MemoryStore
from gnomon.core.model import DeadLetter, Run, RunId, RunStatus, ScheduleUid, Tick, TickKind
from gnomon.errors import NotFound
from gnomon.ports.runs import RunQuery
from gnomon.testing.results import FunctionCall, RunResult, TickResult
from gnomon.testing.scripted_runner import ScriptedRunner

T = TypeVar("T")
_ALL = 1 << 62


def immediately(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, computed without an event loop."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result


class SchedulerAssertions:
    """The queries and assertions of a virtual scheduler."""

    def __init__(
        self,
        store: MemoryStore,
        runner: ScriptedRunner,
        moment: Callable[[int], datetime],
        instant: Callable[[str, str | datetime, str | None], int],
    ) -> None:
        self.__store = store
        self.__runner = runner
        self.__moment = moment
        self.__instant = instant
        #: All jobs, deleted ones too, each with all the uids that its name has had.
        self._identities: dict[str, dict[ScheduleUid, None]] = {}

    # ---- queries -----------------------------------------------------------------------------

    def runs(self, job: str) -> list[RunResult]:
        """Every execution of the job, oldest first."""
        self.__uids(job)
        found = immediately(self.__store.executions.list_runs(RunQuery(tenant="default", schedule_id=job, limit=_ALL)))
        return self.__all_ran(sorted(found, key=lambda run: (run.planned_at, run.created_at, run.run_id)))

    def ticks(self, job: str) -> list[TickResult]:
        """The decision on every tick of the job, oldest first. Ticks during a pause appear once it is over."""
        uids = self.__uids(job)
        found = [tick for uid in uids for tick in immediately(self.__store.history.ticks(uid, before=_ALL, limit=_ALL))]
        return [self.__decided(tick) for tick in sorted(found, key=lambda tick: tick.decision.planned_at)]

    def calls(self, function: str) -> list[FunctionCall]:
        """Every call of the function, in order: one for each attempt."""
        return list(self.__runner.calls.get(function, ()))

    def dead_letters(self, job: str | None = None) -> list[DeadLetter]:
        """The unresolved dead letters, of one job or of all."""
        return list(
            immediately(
                self.__store.dead_letters.page("default", job=job, unresolved=True, oldest_first=True, limit=_ALL)
            )
        )

    def __uids(self, job: str) -> Collection[ScheduleUid]:
        if job not in self._identities:
            raise NotFound("job", job)
        return self._identities[job]

    def __all_ran(self, runs: Sequence[Run]) -> list[RunResult]:
        tasks = immediately(self.__store.history.tasks(runs))
        owners = {task.task_id: task for task in tasks}
        tries = Counter(
            owners[one.task_id].run_id for one in immediately(self.__store.executions.attempts(list(owners)))
        )
        steps = [task for task in tasks if task.parent is None]
        kept = immediately(self.__store.executions.payloads([task.task_id for task in steps], "output"))
        outputs: dict[RunId, dict[str, Any]] = {}
        for task in steps:
            if task.task_id in kept:
                outputs.setdefault(task.run_id, {})[task.step] = msgspec.json.decode(kept[task.task_id])
        return [self.__ran(run, tries[run.run_id], outputs.get(run.run_id, {})) for run in runs]

    def __ran(self, run: Run, attempts: int, outputs: Mapping[str, Any]) -> RunResult:
        return RunResult(
            job=run.schedule_id or run.workflow_id,
            execution_id=run.run_id,
            status=run.status,
            source=run.source,
            planned_at=self.__moment(run.planned_at),
            started_at=None if run.started_at is None else self.__moment(run.started_at),
            ended_at=None if run.completed_at is None else self.__moment(run.completed_at),
            attempts=attempts,
            outputs=outputs,
            error=run.error,
        )

    def __decided(self, tick: Tick) -> TickResult:
        decision = tick.decision
        return TickResult(
            job=tick.schedule_id,
            kind=decision.kind,
            reason=decision.reason,
            planned_at=self.__moment(decision.planned_at),
            last_at=self.__moment(decision.last_at),
            count=decision.count,
            decided_at=self.__moment(tick.decided_at),
            execution_id=tick.run_id,
        )

    # ---- assertions --------------------------------------------------------------------------

    def assert_ran(self, job: str, times: int | None = None) -> None:
        """Assert that the job has run, `times` times if given."""
        __tracebackhide__ = True
        found = self.runs(job)
        if times is None and found:
            return
        if len(found) != times:
            _fail(f"{job} ran {len(found)} times, not {'at all' if times is None else times}", found)

    def assert_ran_at(self, job: str, *planned: str | datetime, timezone: str | None = None) -> None:
        """Assert that the job ran for exactly these planned times, in this order."""
        __tracebackhide__ = True
        found = self.runs(job)
        wanted = [self.__moment(self.__instant("planned", one, timezone)) for one in planned]
        if [one.planned_at for one in found] != wanted:
            _fail(f"{job} did not run at {', '.join(one.isoformat() for one in wanted) or 'no time'}", found)

    def assert_succeeded(self, *jobs: str) -> None:
        """Assert that every execution of these jobs, or of all, has succeeded."""
        __tracebackhide__ = True
        found = [one for job in jobs or self._identities for one in self.runs(job)]
        bad = [one for one in found if one.status is not RunStatus.COMPLETED]
        if bad:
            _fail(f"{len(bad)} of {len(found)} executions did not succeed", bad)

    def assert_every_tick_ran(self, *jobs: str) -> None:
        """Assert that no tick of these jobs, or of all, was skipped, missed or coalesced."""
        __tracebackhide__ = True
        found = [one for job in jobs or self._identities for one in self.ticks(job)]
        bad = [one for one in found if one.kind not in (TickKind.FIRED, TickKind.QUEUED)]
        if bad:
            _fail(f"{sum(one.count for one in bad)} ticks did not run", bad)

    def assert_no_overlap(self, job: str) -> None:
        """Assert that each execution of the job began after the previous one had ended."""
        __tracebackhide__ = True
        began = sorted((one for one in self.runs(job) if one.started_at is not None), key=_beginning)
        for first, second in pairwise(began):
            if first.ended_at is None or first.ended_at > _beginning(second):
                _fail(f"two executions of {job} overlap", [first, second])


def _beginning(one: RunResult) -> datetime:
    return one.started_at or one.planned_at


def _fail(reason: str, found: Iterable[RunResult] | Iterable[TickResult]) -> None:
    __tracebackhide__ = True
    shown: Sequence[RunResult | TickResult] = list(found)
    raise AssertionError(
        "\n".join([reason, *(f"  {_line(one)}" for one in shown[:20]), *(["  ..."] * (len(shown) > 20))])
    )


def _line(one: RunResult | TickResult) -> str:
    if isinstance(one, RunResult):
        why = f": {one.error.splitlines()[0]}" if one.error else ""
        return f"{one.job} planned {one.planned_at.isoformat()} {one.status}{why}"
    many = f" and {one.count - 1} more" if one.count > 1 else ""
    return f"{one.job} planned {one.planned_at.isoformat()}{many} {one.kind} ({one.reason})"
