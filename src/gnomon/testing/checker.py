"""Check a history: every tick was decided exactly once, correctly, in time, and by the holder of the shard's term.

The checker takes planned times from an oracle that walks the clock minute by minute, and expected decisions from
naive rules, which walk every tick one by one. It shares no decision code with the product.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from gnomon.core.model import Decision, Reason, RunSource, Schedule, TickKind
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.testing.history import Commit, LaunchRecord, RecordedSchedule, RunEndRecord, SimulationHistory, Violation
from gnomon.testing.oracle import planned
from gnomon.testing.rules import (
    ActiveRuns,
    ExpectedTicks,
    Oracle,
    RunKey,
    as_expected,
    expected,
    fire_at,
    resumed_ticks,
    start_windows,
)
from gnomon.testing.work_checker import check_work

#: Without faults a tick is decided within this time.
IN_TIME_MS = 2_500


def check(history: SimulationHistory, oracle: Oracle = planned) -> list[Violation]:
    """All violations of the rules for the ledger and for the execution of tasks."""
    found: list[Violation] = []
    commits: dict[str, list[Commit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.uid].append(commit)
    for uid, schedule in history.schedules.items():
        checker = _LedgerChecker(history, schedule, commits[uid], oracle)
        found += checker.violations()
    return found + list(_terms(history)) + check_work(history)


def _terms(history: SimulationHistory) -> Iterator[Violation]:
    """K16: the terms in the commits of a shard never decrease, and a term has one holder."""
    last: dict[int, int] = {}
    holders: dict[tuple[int, int], str] = {}
    for commit in history.commits:
        if commit.term is None or commit.holder is None:
            continue
        shard = commit.schedule.shard
        if commit.term < last.get(shard, 0):
            yield Violation("K16", commit.schedule.schedule_id, f"term {commit.term} after {last[shard]}")
        last[shard] = max(commit.term, last.get(shard, 0))
        if holders.setdefault((shard, commit.term), commit.holder) != commit.holder:
            yield Violation("K16", commit.schedule.schedule_id, f"two holders of term {commit.term}")


def _resumes(commit: Commit) -> bool:
    """Whether an operator ended a pause with this commit."""
    return commit.schedule.paused_at is not None and commit.changed is not None and commit.changed.paused_at is None


class _LedgerChecker:
    """Checks the decisions and runs of one schedule."""

    def __init__(
        self, history: SimulationHistory, schedule: RecordedSchedule, commits: list[Commit], oracle: Oracle
    ) -> None:
        self._history = history
        self._schedule = schedule
        self._commits = commits
        self._oracle = oracle
        self._marks = [one for one in history.marks_set_back if one.uid == schedule.uid]
        self._name = schedule.revisions[0].schedule.schedule_id

    def violations(self) -> Iterator[Violation]:
        yield from self._decided_once()
        yield from self._ledger_is_what_was_committed()
        yield from self._decided_rightly()
        yield from self._one_run_each()
        yield from self._in_time()
        yield from self._starts_in_its_place()
        yield from self._starts_within_the_limit()
        yield from self._nothing_in_a_pause()

    def _violation(self, rule: str, text: str) -> Violation:
        return Violation(rule, self._name, text)

    def _end(self) -> int:
        """The planned time up to which ticks must have been decided."""
        ended = [d.last_at for c in self._commits for d in c.decisions]
        if self._schedule.final is None:
            # Ticks that ran ahead of a mark that was set back lie after the end.
            return max([*([] if self._marks else ended), self._schedule.deleted_at or 0])
        if self._schedule.final.paused_at is not None:
            return self._schedule.final.mark_at
        return max(
            [self._schedule.final.mark_at, self._history.ended_at - self._schedule.final.spec.jitter_ms - IN_TIME_MS]
        )

    def _starts(self) -> list[int]:
        """The start of each revision: its own, or the last tick that was already decided if that is later.

        Ticks of the future may be decided already, after a fire that jitter moved before its planned time, or after
        the clock was set back. The schedule's own `mark_at` is trusted only that far.
        """
        starts: list[int] = []
        for revision in self._schedule.revisions:
            before = [c for c in self._commits if c.schedule.revision < revision.revision]
            reached = [d.last_at for c in before for d in c.decisions] + [c.at for c in before if c.term is None]
            explained = min(revision.schedule.mark_at, max([*starts, *reached, 0]))
            set_back = [one.to_at for one in self._marks if one.revision == revision.revision]
            starts.append(min([max(revision.from_at, explained), *set_back]))
        return starts

    def _decided_once(self) -> Iterator[Violation]:
        """K1, K9: the decisions cover every planned time of a revision once, and no other time."""
        starts, decided = self._starts(), set[int]()
        created_at = self._schedule.revisions[0].schedule.created_at
        if starts[0] != min([created_at, *(one.to_at for one in self._marks if one.revision == 1)]):
            yield self._violation("K1", f"counts from {starts[0]}, not from its creation")
        # A revision ends where a later one begins, which may lie before it if a mark was set back.
        ends = [min(starts[number:], default=self._end()) for number in range(1, len(starts) + 1)]
        for revision, start, end in zip(self._schedule.revisions, starts, ends, strict=True):
            commits = [c for c in self._commits if c.schedule.revision == revision.revision]
            decisions = sorted((d for c in commits for d in self._standing(c)), key=lambda d: d.planned_at)
            ticks = self._oracle(revision.schedule.spec, start, max([end, *(d.last_at for d in decisions)]))
            planned = [at for at in ticks if at not in decided and (at <= end or self._due_by(decisions, at))]
            yield from self._covered_once(planned, decisions)
            decided.update(planned)

    def _due_by(self, decisions: list[Decision], at: int) -> bool:
        """Whether a tick after the end had to be decided. Once a mark was set back, only ticks that ran are ahead."""
        return not self._marks or any(d.planned_at <= at <= d.last_at for d in decisions)

    def _standing(self, commit: Commit) -> list[Decision]:
        """The decisions of the commit that still stand: what did not run is withdrawn when a mark is set back."""
        standing = list(commit.decisions)
        for mark in (one for one in self._marks if one.commits > commit.number):
            standing = [left for d in standing for left in self._left_by(mark.to_at, d, commit.schedule)]
        return standing

    def _left_by(self, to_at: int, decision: Decision, schedule: Schedule) -> list[Decision]:
        if decision.starts_run or decision.last_at <= to_at:
            return [decision]
        if decision.planned_at > to_at:
            return []
        excepted = {one.planned_at for one in schedule.spec.exceptions}
        ahead = frozenset() if schedule.mark_correction is None else frozenset(schedule.mark_correction.decided)
        come = self._oracle(schedule.spec, decision.planned_at - 1, to_at)
        inside = [at for at in come if at not in excepted and at not in ahead]
        return [replace(decision, last_at=inside[-1], count=len(inside))]

    def _covered_once(self, planned: list[int], decisions: list[Decision]) -> Iterator[Violation]:
        covered: dict[int, int] = dict.fromkeys(planned, 0)
        for decision in decisions:
            inside = planned[bisect_left(planned, decision.planned_at) : bisect_right(planned, decision.last_at)]
            if len(inside) != decision.count or decision.planned_at not in covered:
                text = f"{decision} covers {len(inside)} planned times"
                yield self._violation("K9" if decision.planned_at not in covered else "K1", text)
            for at in inside:
                covered[at] += 1
        for at, times in covered.items():
            if times != 1:
                yield self._violation("K1", f"tick {at} has {times} decisions")

    def _ledger_is_what_was_committed(self) -> Iterator[Violation]:
        """K1: the ledger at the end contains exactly the decisions that were committed."""
        committed = {d.planned_at: d for c in self._commits for d in self._standing(c)}
        if committed != self._schedule.ledger:
            differing = sorted(set(committed.items()) ^ set(self._schedule.ledger.items()), key=lambda one: one[0])[:3]
            yield self._violation("K1", f"ledger and commits differ: {differing}")

    def _decided_rightly(self) -> Iterator[Violation]:
        """K2: each decision and its reason follow from the policies and the active runs."""
        active_runs = ActiveRuns()
        changes = [change for change in self._history.run_changes if change.uid == self._schedule.uid]
        names = {run.planned_at: run.run_id for run in self._schedule.runs if run.source is RunSource.CRON}
        for commit in self._commits:
            while changes and changes[0].commits <= commit.number:
                yield from self._run_change(active_runs, changes.pop(0))
            wanted = self._wanted(commit, active_runs)
            actual = as_expected(commit.decisions)
            if wanted != actual:
                yield self._violation("K2", f"at {commit.at}: expected {wanted}, got {actual}, with {active_runs}")
            for decision in commit.decisions:
                run = RunKey(decision.planned_at, names.get(decision.planned_at, ""))
                active_runs.take(run, decision.kind, decision.reason)
        for change in changes:
            yield from self._run_change(active_runs, change)
        if self._schedule.final is not None:
            yield from self._runs_are_counted(self._schedule.final, active_runs)

    def _wanted(self, commit: Commit, active_runs: ActiveRuns) -> list[ExpectedTicks]:
        if _resumes(commit):
            # Only the operator knows how many ticks to run; the rules say that these are the newest.
            runs = sum(one.starts_run for one in commit.decisions)
            return resumed_ticks(self._oracle, commit.schedule, active_runs, now=commit.at, runs=runs)
        by_change, limit = commit.term is None, self._history.catchup_limit
        return expected(self._oracle, commit.schedule, active_runs, now=commit.at, by_change=by_change, limit=limit)

    def _run_change(self, active_runs: ActiveRuns, change: LaunchRecord | RunEndRecord) -> Iterator[Violation]:
        """K2: a run that ends was active, and the outcome of a launch follows from the overlap policy."""
        run = RunKey(change.planned_at, change.run_id)
        if isinstance(change, RunEndRecord):
            if not active_runs.end(run):
                yield self._violation("K2", f"{run} ended while there were {active_runs}")
        elif change.outcome is not LaunchOutcome.ALREADY:
            wanted = active_runs.launching(change.spec, force=change.force, waits=change.waits)
            if wanted is not change.outcome:
                yield self._violation(
                    "K2", f"the launch of {run} had the outcome {change.outcome}, not {wanted}, with {active_runs}"
                )
            active_runs.take_launched(run, change.spec, change.outcome, waits=change.waits)

    def _runs_are_counted(self, final: Schedule, active_runs: ActiveRuns) -> Iterator[Violation]:
        """K2: at the end the counters of the schedule, the runs and the rules agree."""
        going = [run for run in self._schedule.runs if not run.over]
        active, waiting = ({RunKey(r.planned_at, r.run_id) for r in going if r.queued is q} for q in (False, True))
        if (final.active_runs, final.queued_runs) != (len(active), len(waiting)):
            text = f"counts {final.active_runs} under way and {final.queued_runs} waiting: {active}, {waiting}"
            yield self._violation("K2", text)
        if (active, waiting) != (active_runs.active, active_runs.waiting):
            yield self._violation("K2", f"at the end there are {active} and {waiting}, by the rules {active_runs}")

    def _one_run_each(self) -> Iterator[Violation]:
        """K3: a tick that fired or was queued has one run, and no other tick has a run."""
        with_run = sorted(
            (d.planned_at, d.fire_at) for c in self._commits for d in c.decisions if d.fire_at is not None
        )
        made = [run for run in self._schedule.runs if run.source is RunSource.CRON]
        runs = sorted((run.planned_at, run.fire_at) for run in made)
        if with_run != runs:
            differing = sorted(set(with_run) ^ set(runs))[:3]
            yield self._violation("K3", f"{len(with_run)} ticks with a run, {len(runs)} runs: {differing}")

    def _in_time(self) -> Iterator[Violation]:
        """K5: no tick fires early, and without faults a due tick is decided at once."""
        for commit in self._commits:
            for decision in commit.decisions:
                fires = fire_at(self._oracle, commit.schedule.spec, self._name, decision.last_at)
                by_change = commit.term is None and decision.last_at <= commit.at
                if fires > commit.at and not by_change:
                    yield self._violation("K5", f"tick {decision.planned_at} decided {fires - commit.at} ms early")
                # Lateness counts from the last change or resume: the tick could not be decided before.
                late = commit.at - max(fires, commit.schedule.updated_at)
                quiet = self._history.quiet(fires - 60_000, commit.at)
                if decision.kind is TickKind.FIRED and quiet and late > IN_TIME_MS and not _resumes(commit):
                    yield self._violation("K5", f"quiet tick {decision.planned_at} {late} ms late")

    def _starts_in_its_place(self) -> Iterator[Violation]:
        """K5: a run starts at its tick's planned time with jitter, or at its place in the spread of a catch-up."""
        limit, marks = self._history.catchup_limit, list(self._marks)
        until: int | None = None
        for commit in self._commits:
            if any(mark.commits <= commit.number for mark in marks):
                # The end of the spread was a time of the wrong clock.
                until, marks = None, [mark for mark in marks if mark.commits > commit.number]
            places, until = start_windows(
                self._oracle,
                commit.schedule,
                now=commit.at,
                decisions=commit.decisions,
                limit=limit,
                spread_until=until,
            )
            for decision in commit.decisions:
                if (decision.fire_at is None) == (decision.kind in (TickKind.FIRED, TickKind.QUEUED)):
                    yield self._violation(
                        "K5", f"{decision} has a fire time without a run, or a run without a fire time"
                    )
                if decision.fire_at is None:
                    continue
                low, high = places[decision.planned_at]
                if not low <= decision.fire_at <= high:
                    yield self._violation("K5", f"at {commit.at}: {decision} not from {low} to {high}")

    def _starts_within_the_limit(self) -> Iterator[Violation]:
        """K5: no more overdue ticks than the limit start within its interval, unless the clock was set meanwhile.

        A decision that takes long to commit starts its ticks later than planned: the planned starts are compared.
        """
        limit = self._history.catchup_limit
        starts = sorted(
            (max(commit.at, decision.fire_at or 0), commit.elapsed_ms)
            for commit in self._commits
            for decision in commit.decisions
            if decision.kind is TickKind.FIRED and decision.reason is not Reason.ON_TIME and not _resumes(commit)
        )
        for (first, since), (last, until) in zip(starts, starts[limit.ticks :], strict=False):
            known = not self._history.clock_set_between(min(since, until), max(since, until))
            if known and last - first < limit.interval_ms:
                yield self._violation("K5", f"more than {limit.ticks} overdue ticks start from {first} to {last}")
                return

    def _nothing_in_a_pause(self) -> Iterator[Violation]:
        """K9: while a schedule is paused, its ticks are skipped for exactly that reason.

        A pause begins and ends with an operator's commit; the `paused_at` of the schedule is not used.
        """
        pauses, current = list(self._schedule.pauses), None
        for commit in self._commits:
            for decision in commit.decisions:
                chosen = decision.starts_run and _resumes(commit)
                if chosen or decision.reason in (Reason.SKIPPED_ONCE, Reason.MOVED):
                    continue
                if (current is not None) != (decision.reason is Reason.PAUSED):
                    yield self._violation("K9", f"tick {decision.planned_at} {decision.reason} with pause {current}")
            if commit.changed is None or commit.term is not None:
                continue
            if current is not None and commit.changed.paused_at is None:
                current = None
            elif current is None and commit.changed.paused_at is not None:
                if not pauses or pauses[0].paused_at != commit.at:
                    yield self._violation("K9", f"paused at {commit.at}, but that is not among {pauses}")
                current = pauses.pop(0) if pauses else None
        if pauses:
            yield self._violation("K9", f"no commit made the pauses {pauses}")
