"""The meter: counts what was committed and what was announced, in plain numbers that are cheap to add to."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from gnomon.core.metrics import MEASURES, OTHER, Kind
from gnomon.core.model import Reason, Result, Run, RunId, RunStatus, Source, TickKind, Verdict
from gnomon.core.runs.admission import Waiting
from gnomon.core.runs.outcomes import Ending
from gnomon.core.runs.states import TERMINAL, WaitReason
from gnomon.ports.commit_observer import Finish

#: How many names of events, and of steps of a job, are told apart.
_MOST_NAMES = 100
#: Of how many runs the steps may wait to be counted.
_MOST_GRAPHS = 10_000
_OVERLAPS = frozenset({Reason.OVERLAP, Reason.QUEUE_FULL})
_NOTHING_TO_LAUNCH = "launch_failed"
_NOT_FIRED = (
    (TickKind.SKIPPED, Reason.OVERLAP),
    (TickKind.MISSED, Reason.CATCHUP_NONE),
    (TickKind.MISSED, Reason.WINDOW),
)
#: What every family shows before anything has happened, so that alerts can be written about it.
_FIRST: Mapping[str, Sequence[tuple[str, ...]]] = {
    "executions": [(OTHER, status, Source.CRON) for status in ("completed", "failed", "cancelled")],
    "jobs_completed": [(OTHER, status) for status in ("completed", "failed", "cancelled")],
    "dag_steps": [(OTHER, OTHER, state.lower()) for state in sorted(TERMINAL)],
    "ticks_decided": [(OTHER, *one) for one in _NOT_FIRED],
    "attempts_ended": [(result,) for result in Result],
    "events": [("store_unavailable",), ("clock_stepped",), ("step_failed",), ("schedule_broken",)],
}
#: What each job that is known shows before it has run.
_FIRST_OF_JOB: Mapping[str, Sequence[tuple[str, ...]]] = {
    "executions": [("completed", Source.CRON), ("failed", Source.CRON)],
    "ticks_decided": _NOT_FIRED,
    "retries": [()],
    "dead_letters": [()],
    "execution_duration_seconds": [()],
}


class Spread:
    """How many numbers fell under each bound, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """One more number."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


class Names:
    """The first so many names that came up; all others are one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def shown(self, name: str) -> str:
        """The name, or what stands for all that came too late to have one of their own."""
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            return OTHER
        return self._known.setdefault(name, name)


class Meter:
    """Numbers since the process began. It is told by a store what was committed, and by services what happened."""

    def __init__(self, *, max_jobs: int) -> None:
        self.jobs = Names(max_jobs)
        self._introduced: set[str] = set()
        self._events, self._steps = Names(_MOST_NAMES), dict[str, Names]()
        self.counters: dict[str, dict[tuple[str, ...], int]] = {}
        self.spreads: dict[str, dict[tuple[str, ...], Spread]] = {}
        #: Runs with steps that are not counted yet, and their jobs.
        self.graphs: dict[RunId, str] = {}
        for name, measure in MEASURES.items():
            first = _FIRST.get(name, [(OTHER,) * len(measure.labels)])
            if measure.kind is Kind.COUNTER:
                self.counters[name] = dict.fromkeys(map(_plain, first), 0)
            elif measure.kind is Kind.HISTOGRAM:
                self.spreads[name] = {labels: Spread(measure.buckets) for labels in map(_plain, first)}

    def introduce(self, jobs: Iterable[str]) -> None:
        """Jobs that there are: each shows what it will be counted by, as far as there is room for its name."""
        for job in jobs:
            if job not in self._introduced and self.jobs.shown(job) != OTHER:
                self._introduced.add(job)
                for name, rest in _FIRST_OF_JOB.items():
                    for labels in rest:
                        self._show(name, _plain((job, *labels)))

    def _show(self, name: str, labels: tuple[str, ...]) -> None:
        if name in self.counters:
            self.counters[name].setdefault(labels, 0)
        else:
            self.spreads[name].setdefault(labels, Spread(MEASURES[name].buckets))

    def add(self, name: str, *labels: str, count: int = 1) -> None:
        """So many more."""
        counted = self.counters[name]
        counted[labels] = counted.get(labels, 0) + count

    def _took(self, name: str, ms: int, *labels: str) -> None:
        spreads = self.spreads[name]
        spread = spreads.get(labels)
        if spread is None:
            spread = spreads[labels] = Spread(MEASURES[name].buckets)
        spread.add(max(0, ms) / 1000)

    # ---- what was committed: see Tally -------------------------------------------------------

    def decided(self, verdicts: Sequence[Verdict], now: int) -> None:
        """See Tally.decided."""
        for verdict in verdicts:
            job = self.jobs.shown(verdict.schedule.schedule_id)
            for decision in verdict.decisions:
                self.add("ticks_decided", job, decision.kind.value, decision.reason.value, count=decision.count)
                if decision.fire_at is not None:
                    self.add("runs_emitted")
                    self.add("jobs_received", job)
                if decision.kind is TickKind.FIRED and decision.fire_at is not None:
                    self._took("schedule_drift_seconds", abs(max(now, decision.fire_at) - decision.planned_at))
                elif decision.reason in _OVERLAPS:
                    self.add("runs_skipped_overlap", count=decision.count)

    def launched(self, runs: Sequence[Run]) -> None:
        """See Tally.launched."""
        for run in runs:
            self.add("jobs_received", self.jobs.shown(_job(run)))

    def taken(self, tasks: Sequence[Waiting], now: int) -> None:
        """See Tally.taken."""
        for one in tasks:
            self.add("jobs_dispatched", self.jobs.shown(_job(one.run)))
            self._took("dispatch_latency_seconds", now - one.task.available_at)

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See Tally.started."""
        for run in runs:
            if run.source is Source.CRON:
                self._took("start_delay_seconds", now - run.planned_at)

    def tried(self, endings: Sequence[Ending]) -> None:
        """See Tally.tried."""
        for one in endings:
            self.add("attempts_ended", one.result.value)
            if one.wait_reason is WaitReason.RETRY:
                self.add("retries", self.jobs.shown(_job(one.run)))

    def called_off(self, count: int) -> None:
        """See Tally.called_off."""
        self.add("attempts_ended", Result.CANCELLED.value, count=count)

    def buried(self, jobs: Sequence[str]) -> None:
        """See Tally.buried."""
        for job in jobs:
            self.add("dead_letters", self.jobs.shown(job))

    def ended(self, finishes: Sequence[Finish]) -> None:
        """See Tally.ended."""
        for run, status, error, at in finishes:
            job = self.jobs.shown(_job(run))
            self.add("executions", job, status.value, run.source.value)
            self.add("jobs_completed", job, status.value)
            if run.started_at is not None:
                self._took("execution_duration_seconds", at - run.started_at, job)
            if status is RunStatus.FAILED and (error or "").startswith(_NOTHING_TO_LAUNCH):
                self.add("runs_failed_launch")

    def graphs_ended(self, runs: Sequence[Run]) -> None:
        """See Tally.graphs_ended."""
        self.graphs |= {run.run_id: _job(run) for run in runs}
        while len(self.graphs) > _MOST_GRAPHS:
            self.graphs.pop(next(iter(self.graphs)))

    def count_steps(self, job: str, steps: Sequence[tuple[str, str]]) -> None:
        """The steps of a run that is over, each with its state."""
        shown = self.jobs.shown(job)
        names = self._steps.setdefault(shown, Names(0 if shown == OTHER else _MOST_NAMES))
        for step, state in steps:
            self.add("dag_steps", shown, names.shown(step), state.lower())

    # ---- what was announced ------------------------------------------------------------------

    def happened(self, name: str, facts: Mapping[str, object]) -> None:
        """An event was emitted."""
        self.add("events", self._events.shown(name))
        if name == "tasks_replayed" and isinstance(count := facts.get("count"), int):
            self.add("orphan_replayed", count=count)


def _job(run: Run) -> str:
    return run.schedule_id or run.workflow_id


def _plain(labels: Iterable[str]) -> tuple[str, ...]:
    """Without their kinds: a member of an enumeration shows as its text, but counts as another key for some readers."""
    return tuple(map(str, labels))
