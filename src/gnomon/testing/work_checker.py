"""Check the execution of tasks: starts, retries, fencing, states, overlaps, cancellations and dead letters.

The rules have the names of guarantees and requirements: K4, K6 to K8, K11 to K15, S11, S12, C-10, R-02 and R-07.
`check_dead_letters` and `check_overlaps` look at several tasks together, `check_work` at each task and at all of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from gnomon.core.model import Overlap, Result, RunStatus, ScheduleUid, Task, TickStatus
from gnomon.core.policy.ruling import PERMISSIONS, PolicyDecision
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import RetryPolicy
from gnomon.testing.evidence import COUNTING, LOSSES, Finding, HistoryIndex, TaskHistory
from gnomon.testing.history import ExecutionObservation, ReportRecord, RunInterval, SimulationHistory, Violation
from gnomon.testing.policy_checker import check_policy


def check_dead_letters(evidence: HistoryIndex) -> Iterator[Violation]:
    """All violations of K15: dead letters belong to tasks that failed for good, as their jobs require."""
    letters = Counter(letter.task_id for letter in evidence.history.dead_letters)
    for task_id, case in evidence.cases.items():
        if letters[task_id] != _wanted(case):
            text = f"{task_id} is {case.task.state} and has left {letters[task_id]} letters, not {_wanted(case)}"
            yield Violation("K15", case.name, text)
    if unknown := letters.keys() - evidence.cases.keys():
        yield Violation("K15", "", f"letters of unknown tasks: {sorted(unknown)}")
    yield from _replayed(evidence)


def _wanted(case: TaskHistory) -> bool:
    """Whether the task must have a dead letter."""
    if case.task.state in (TaskState.DENIED, TaskState.OUTPUT_QUARANTINED) or case.by_deadline:
        return True
    if case.task.state not in (TaskState.FAILED, TaskState.TIMEOUT):
        return False
    asked_for = case.workflow is not None and case.workflow.dead_letter
    last = case.counted[-1] if case.counted else None
    if last is None or last.after is None or last.after.state is TaskState.PENDING:
        # No worker could run it, or its workflow was not found.
        return True
    if last.result is Result.NEVER_STARTED:
        return True
    poison = [one.result for one in case.counted].count(Result.LOST) >= LOSSES
    return asked_for or (last.result is Result.LOST and poison and not case.only_once)


def _replayed(evidence: HistoryIndex) -> Iterator[Violation]:
    """K15: a key has one replay, and exactly the letters of executions with a successful replay are resolved."""
    replays = [run for run in evidence.runs.values() if run.replay_of is not None]
    failed = {letter.dead_letter_id: letter.run_id for letter in evidence.history.dead_letters}
    keys = Counter((run.replay_of, run.idempotency_key) for run in replays)
    for key, count in keys.items():
        if count > 1:
            yield Violation("K15", "", f"{count} replays of {key}")
    good = {failed.get(run.replay_of or "") for run in replays if run.status is RunStatus.COMPLETED}
    # A replay that fails leaves letters of its own; once one of them is replayed, the first letters are resolved.
    replayed = {failed.get(run.replay_of or "") for run in replays}
    taken_over = {failed.get(run.replay_of or "") for run in replays if run.run_id in replayed}
    for letter in evidence.history.dead_letters:
        resolved, of = letter.resolved_at is not None, letter.run_id
        if resolved != (of in good or of in taken_over):
            name = letter.dead_letter_id
            yield Violation("K15", letter.job, f"{name} resolved at {letter.resolved_at} by {letter.resolved_by}")


def check_overlaps(evidence: HistoryIndex) -> Iterator[Violation]:
    """All violations of K11 and K12: the overlap policies."""
    by_schedule: dict[ScheduleUid, list[RunInterval]] = defaultdict(list)
    for interval in evidence.history.run_intervals.values():
        by_schedule[interval.uid].append(interval)
    for run_intervals in by_schedule.values():
        yield from _alone_by_record(run_intervals)
        yield from _alone_by_observation(run_intervals, evidence)
        yield from _in_order(run_intervals, evidence)


def _free(interval: RunInterval) -> bool:
    """Whether it may be active beside others."""
    return interval.forced or (interval.overlap is Overlap.ALLOW)


def _alone_by_record(run_intervals: list[RunInterval]) -> Iterator[Violation]:
    """K11: when a run is activated that may not overlap, all runs activated before it have ended."""
    under_way: list[RunInterval] = []
    for interval in sorted(
        (one for one in run_intervals if one.activated is not None), key=lambda one: one.activated or 0
    ):
        activated = interval.activated or 0
        under_way = [one for one in under_way if one.over is None or one.over > activated]
        if under_way and not _free(interval):
            yield Violation("K11", interval.uid, f"{interval} was activated beside {under_way}")
        under_way.append(interval)


def _alone_by_observation(run_intervals: list[RunInterval], evidence: HistoryIndex) -> Iterator[Violation]:
    """K11: no function starts beside one of another run, unless that was declared lost or timed out before."""
    given_up = {one.held: one.moment for one in evidence.history.reports if one.counted}
    seen: list[tuple[ExecutionObservation, RunInterval]] = []
    ours = {interval.run_id: interval for interval in run_intervals}
    starts = sorted((one for name in ours for one in evidence.starts_of[name]), key=lambda one: one.moment)
    for start in starts:
        interval = ours[start.run_id]
        seen = [(one, other) for one, other in seen if _open(one, evidence, start.moment)]
        # A start of an attempt that was itself declared lost comes from a frozen worker, and is permitted.
        stale = given_up.get(start.held, start.moment) < start.moment
        for one, other in seen:
            lost = given_up.get(one.held, start.moment) < start.moment
            newer = max(interval, other, key=lambda one: one.activated or 0)
            if other is not interval and not _free(newer) and not lost and not stale:
                yield Violation("K11", interval.uid, f"a function of {start.run_id} began beside one of {one.run_id}")
        seen.append((start, interval))


def _open(start: ExecutionObservation, evidence: HistoryIndex, moment: int) -> bool:
    end = evidence.ends.get(start.held)
    return end is None or end.moment > moment


def _in_order(run_intervals: list[RunInterval], evidence: HistoryIndex) -> Iterator[Violation]:
    """K12: of runs that waited together, the one planned first begins first, unless it had ended before."""
    first = {
        one.run_id: evidence.starts_of[one.run_id][0].moment for one in run_intervals if evidence.starts_of[one.run_id]
    }
    waited = [
        one
        for one in run_intervals
        if one.overlap is Overlap.QUEUE and not one.forced and one.activated != one.made + 1
    ]
    for later in waited:
        began = first.get(later.run_id)
        if began is None:
            continue
        for earlier in waited:
            if (earlier.planned_at, earlier.run_id) >= (later.planned_at, later.run_id):
                continue
            together = earlier.made < (later.activated or began) and (earlier.activated or began) > later.made
            over = earlier.over is not None and earlier.over < began
            if together and not over and first.get(earlier.run_id, began) >= began:
                yield Violation("K12", later.uid, f"{later} began before {earlier}")


#: Results after which another attempt of the same task may start.
_JUSTIFYING = (Result.FAILED, Result.TIMED_OUT, Result.SNOOZED, Result.LOST, Result.NEVER_STARTED)
#: The final states of a task by the result of its last attempt.
_OVER = {
    Result.SUCCEEDED: {TaskState.SUCCEEDED, TaskState.OUTPUT_QUARANTINED},
    Result.FAILED: {TaskState.FAILED, TaskState.CANCELLED},
    Result.GAVE_UP: {TaskState.FAILED},
    Result.SNOOZED: {TaskState.CANCELLED},
    Result.TIMED_OUT: {TaskState.TIMEOUT, TaskState.CANCELLED},
    Result.CANCELLED: {TaskState.CANCELLED},
    Result.LOST: {TaskState.FAILED, TaskState.CANCELLED},
    Result.NEVER_STARTED: {TaskState.FAILED, TaskState.CANCELLED},
    Result.DENIED: {TaskState.DENIED},
}
#: Results of workers that started no function.
_UNOBSERVED = (Result.NEVER_STARTED, Result.DENIED)
_S = TaskState
_FAILURES = (_S.FAILED, _S.TIMEOUT, _S.CANCELLED)
#: The transitions that a simulated task may show, written down apart from the table that the stores use. It has no
#: fan-outs and no reports out of order, so that a store which skips the gate or a start is found.
LEGAL_EDGES = frozenset(
    (before, after)
    for before, exits in {
        _S.PENDING: (_S.SCHEDULED, _S.APPROVAL_REQUIRED, _S.DENIED, *_FAILURES),
        _S.APPROVAL_REQUIRED: (_S.PENDING, _S.DENIED, *_FAILURES),
        # Local workers take and start a task in one commit.
        _S.SCHEDULED: (_S.DISPATCHED, _S.RUNNING, _S.PENDING, _S.DENIED, *_FAILURES),
        _S.DISPATCHED: (_S.RUNNING, _S.PENDING, _S.DENIED, *_FAILURES),
        _S.RUNNING: (_S.SUCCEEDED, _S.OUTPUT_QUARANTINED, _S.PENDING, _S.DENIED, *_FAILURES),
        _S.SUCCEEDED: (_S.OUTPUT_QUARANTINED,),
        _S.OUTPUT_QUARANTINED: (_S.SUCCEEDED,),
    }.items()
    for after in exits
)
#: How often a task may be unroutable, or its definition missing, before it fails.
_ROUTINGS, _LAUNCHES = 50, 3
_AFTER_LOSS = RetryPolicy(initial_delay_ms=500, max_delay_ms=30_000)
#: Within this time ready tasks are taken, ends are reported, and lost attempts are found.
MAX_DELAY_MS = 200_000
#: The longest wait of a task that no worker could take, and the longest snooze of the simulated functions.
_LONGEST_ROUTING_DELAY_MS, _LONGEST_SNOOZE_MS = 30_500, 200_000
#: Within this time a worker has reported an end in spite of any fault.
_FAULT_WINDOW_MS = 1_200_000
#: Within this time a worker without faults has stopped a cancelled attempt.
_STOPPED_MS = 70_000
_RUN_STATUS = {TaskState.SUCCEEDED: RunStatus.COMPLETED, TaskState.CANCELLED: RunStatus.CANCELLED}


def check_work(history: SimulationHistory) -> list[Violation]:
    """All violations of the rules K4, K6, K7, K8, K11 to K15, S11, S12, C-10, R-02 and R-07, and of the policy's."""
    evidence = HistoryIndex(history)
    found = [
        Violation("K3", "", f"a function ran for {seen.run_id}, which is not recorded")
        for seen in evidence.unknown_observations
    ]
    for case in evidence.cases.values():
        found += [
            Violation(rule, case.name, f"{case.task.task_id}: {text}") for rule, text in _check_task(case, evidence)
        ]
    found += check_overlaps(evidence)
    found += check_dead_letters(evidence)
    return found + list(check_policy(evidence))


def _check_task(case: TaskHistory, evidence: HistoryIndex) -> Iterator[Finding]:
    history = evidence.history
    yield from _started(case)
    yield from _ruled(case, history)
    yield from _justified(case, history)
    yield from _fenced(case)
    yield from _outcome_is_the_last(case)
    yield from _reports_match_observations(case, evidence)
    yield from _reports_complete(case, evidence)
    yield from _along_the_graph(history.states.get(case.task.task_id, []), case.task.state)
    yield from _terminal(case, evidence)
    yield from _retried(case)
    yield from _not_early(case, history)
    yield from _stopped(case, evidence)
    yield from _shown(case, evidence)
    yield from _within_deadline(case, history)


def _started(case: TaskHistory) -> Iterator[Finding]:
    """K4: a run that has ended, and was not cancelled, has started its function.

    Exceptions: the gate or a worker denied the task; no worker could run it, or its definition was missing, for all
    tries; or it was assigned only to workers that died or fell silent before the start. S12 limits how often that may
    be. R-07 limits the ends by deadlines.
    """
    if (
        case.by_deadline
        or not case.run.over
        or case.run.status is RunStatus.CANCELLED
        or case.task.state is TaskState.DENIED
    ):
        return
    if case.starts:
        return
    limit = _ROUTINGS if case.workflow is not None else _LAUNCHES
    workers = {one.held: one.worker for one in case.grants}
    silent = [one.by != workers.get(one.held) or one.result is Result.NEVER_STARTED for one in case.counted]
    failed = case.task.state in (TaskState.FAILED, TaskState.TIMEOUT)
    if not failed or not (case.task.routings >= limit or (silent and all(silent))):
        yield "K4", f"{case.run.status} without a start, after {case.counted} and {case.task.routings} routings"


def _ruled(case: TaskHistory, history: SimulationHistory) -> Iterator[Finding]:
    """R-02: while a policy is in force, no function starts whose task it did not let run, and a denial has a ruling."""
    if not history.ruled:
        return
    rulings = history.rulings.get(case.task.task_id, ())
    if case.starts and not any(one.decision in PERMISSIONS for one in rulings):
        yield "R-02", f"started with the rulings {[one.decision for one in rulings]}"
    refused = case.task.state is TaskState.DENIED and not any(one.result is Result.DENIED for one in case.counted)
    if refused and not any(one.decision is PolicyDecision.DENY for one in rulings):
        yield "R-02", f"denied with the rulings {[one.decision for one in rulings]}"


def _justified(case: TaskHistory, history: SimulationHistory) -> Iterator[Finding]:
    """K6, K7: a start has an attempt of its own, and every earlier attempt ended with a result that permits it."""
    granted = {one.held: one for one in case.grants}
    begun = set()
    for start in case.starts:
        grant = granted.get(start.held)
        if grant is None or grant.worker != start.worker or grant.moment > start.moment or start.held in begun:
            yield "K6", f"a start at {start.worker} under attempt {start.fence}, which is {grant}"
        begun.add(start.held)
        for earlier in [one for one in case.grants if one.held[1] < start.fence]:
            ends = [one for one in case.counted if one.held == earlier.held and one.moment < start.moment]
            if not any(one.result in _JUSTIFYING for one in ends):
                yield "K6", f"attempt {start.fence} started after {earlier}, which ended with {ends}"
    for one in case.counted:
        grant = granted.get(one.held)
        if one.result is Result.LOST and grant is not None and grant.worker != one.by:
            seen = history.lapsed.get(one.held)
            if seen is None or seen > one.moment:
                yield "K6", f"attempt {one.held[1]} was declared lost before its lease expired"
    if case.only_once and len(case.starts) > 1:
        yield "K7", f"{len(case.starts)} starts"


def _fenced(case: TaskHistory) -> Iterator[Finding]:
    """K8: fencing tokens increase; only the attempt with the highest token counts; it ends once.

    A late report changes nothing.
    """
    fences = [one.held[1] for one in case.grants]
    if fences != sorted(set(fences)):
        yield "K8", f"granted with the fencing tokens {fences}"
    counted = [one.held for one in case.counted]
    if len(set(counted)) != len(counted):
        yield "K8", f"an attempt ended twice: {counted}"
    for one in case.reports:
        newest = max((grant.held[1] for grant in case.grants if grant.moment < one.moment), default=0)
        if one.counted and one.held[1] != newest:
            yield "K8", f"attempt {one.held[1]} counted while {newest} was the newest"
        beside = any(other.counted and other.before is one.before for other in case.reports)
        if not one.counted and not beside and _facts(one.before) != _facts(one.after):
            yield "K8", f"the late {one.result} of attempt {one.held[1]} changed {one.before} to {one.after}"


def _facts(task: Task | None) -> tuple[object, ...] | None:
    return None if task is None else (task.state, task.fence, task.attempts, task.losses, task.routings)


def _outcome_is_the_last(case: TaskHistory) -> Iterator[Finding]:
    """K8: the final state of a task follows from its last attempt, unless it ended while it waited."""
    if case.task.fence != max((one.held[1] for one in case.grants), default=0):
        yield "K8", f"has the fencing token {case.task.fence}, with grants {case.grants}"
    if case.task.state not in TERMINAL or not case.counted or case.by_deadline:
        return
    last = case.counted[-1]
    if last.after is not None and last.after.state not in TERMINAL:
        if case.task.state in (TaskState.SUCCEEDED, TaskState.TIMEOUT, TaskState.OUTPUT_QUARANTINED):
            yield "K8", f"is {case.task.state} without an attempt with that result"
    elif case.task.state not in _OVER[last.result]:
        yield "K8", f"is {case.task.state} after {last.result}"


def _reports_match_observations(case: TaskHistory, evidence: HistoryIndex) -> Iterator[Finding]:
    """K8: the report of a worker matches the observed end; other processes report only losses and timeouts."""
    granted = {one.held: one for one in case.grants}
    for one in case.counted:
        grant, end = granted.get(one.held), evidence.ends.get(one.held)
        if grant is not None and grant.worker != one.by:
            if one.result not in (Result.LOST, Result.NEVER_STARTED, Result.TIMED_OUT):
                yield "K8", f"{one.by} reported {one.result} for an attempt at {grant.worker}"
            continue
        if end is None and one.result is Result.TIMED_OUT and case.by_deadline:
            # It came to its worker after its deadline, and never began.
            continue
        matches = end is not None and end.moment < one.moment and end.result is one.result
        if not matches and one.result not in _UNOBSERVED:
            yield "K8", f"reported as {one.result}, but observed as {end}"


def _reports_complete(case: TaskHistory, evidence: HistoryIndex) -> Iterator[Finding]:
    """K14: a live worker reports the end of every attempt, whether or not it still counts."""
    history = evidence.history
    reported = {(one.held, one.by) for one in case.reports}
    for start in case.starts:
        end, died_ms = evidence.ends.get(start.held), history.deaths.get(start.worker)
        if end is None or end.result is None or (start.held, start.worker) in reported:
            continue
        had_ms = history.ended_elapsed_ms - end.elapsed_ms if died_ms is None else died_ms - end.elapsed_ms
        if had_ms > (MAX_DELAY_MS if died_ms is None else _FAULT_WINDOW_MS):
            yield "K14", f"{start.worker} has not reported {end}"


def _along_the_graph(seen: list[TaskState], final: TaskState) -> Iterator[Finding]:
    """K13: every observed transition is legal, and the final state is the last one observed."""
    if not seen or seen[0] not in (TaskState.PENDING, TaskState.CANCELLED) or seen[-1] is not final:
        yield "K13", f"is {final}, and was observed as {seen}"
    for pair in pairwise(seen):
        if pair not in LEGAL_EDGES:
            yield "K13", f"went from {pair[0]} to {pair[1]}"


def _terminal(case: TaskHistory, evidence: HistoryIndex) -> Iterator[Finding]:
    """K14: a task that has not ended at the end of the simulation waits for something.

    That is: for its time, which may have just come; behind an active run; for its function, which runs in a live
    worker; or for a lease that is valid, or has just expired.
    """
    task, history = case.task, evidence.history
    if task.state in TERMINAL:
        if not case.run.over:
            yield "K14", f"is {task.state}, but its run is {case.run.status}"
        return
    if case.run.over:
        yield "K14", f"is {task.state}, but its run is {case.run.status}"
    if task.state is TaskState.RUNNING:
        yield from _running_rightly(case, evidence)
    elif case.run.queued:
        run_intervals = history.run_intervals.values()
        if not any(one.uid == case.run.schedule_uid and one.activated and one.over is None for one in run_intervals):
            yield "K14", "is queued, but no run is active"
    elif task.state is TaskState.APPROVAL_REQUIRED and history.policy is not None:
        # It waits for votes, as long as its approval is open: R-03.
        return
    elif task.available_at + MAX_DELAY_MS < history.ended_at:
        interval = history.run_intervals.get(case.run.run_id)
        if interval is None or interval.activated_ms + MAX_DELAY_MS < history.ended_elapsed_ms:
            yield "K14", f"is {task.state} since {task.available_at}"


def _running_rightly(case: TaskHistory, evidence: HistoryIndex) -> Iterator[Finding]:
    history, held = evidence.history, (case.task.task_id, case.task.fence)
    begun, end = any(one.held == held for one in case.starts), evidence.ends.get(held)
    worker = case.grants[-1].worker
    if begun and end is None and worker not in history.deaths:
        return
    [attempt] = history.attempts[case.task.task_id][-1:]
    if attempt.lease_until + MAX_DELAY_MS < history.ended_at:
        yield "K14", f"the loss of {worker} was not noticed: {attempt}"


def _retried(case: TaskHistory) -> Iterator[Finding]:
    """S12: as many attempts as the retry policy allows and no more, each after its delay."""
    results: list[Result] = []
    for one in case.counted:
        results += [one.result] if one.result in COUNTING else []
        if one.after is None or one.result not in (Result.FAILED, Result.TIMED_OUT, Result.LOST):
            continue
        again = one.after.state is TaskState.PENDING
        last = one is case.counted[-1]
        if not again and last and case.by_deadline:
            continue
        if again != (_may_go_on(case, results) and not one.stopping):
            yield "S12", f"is {one.after.state} after {results} with {case.retry}"
        elif again and not _delayed_rightly(case, one, len(results)):
            delay = one.after.available_at - one.ended_at
            yield "S12", f"waits for {delay} ms after {results} with {case.retry}"
    if case.retry is not None and len(results) > case.retry.max_attempts:
        yield "S12", f"{len(results)} attempts with {case.retry}"


def _may_go_on(case: TaskHistory, results: list[Result]) -> bool:
    """Whether another attempt follows after these results, each of which used up one."""
    lost = results[-1] is Result.LOST
    if case.only_once or (lost and results.count(Result.LOST) >= LOSSES):
        return False
    return lost if case.retry is None else len(results) < case.retry.max_attempts


def _delayed_rightly(case: TaskHistory, ended: ReportRecord, number: int) -> bool:
    retry = case.retry or _AFTER_LOSS
    delay = min(retry.initial_delay_ms * retry.multiplier ** (number - 1), retry.max_delay_ms)
    low, high = delay * (1 - retry.jitter), delay * (1 + retry.jitter) + retry.jitter_ms
    return ended.after is not None and low - 1 <= ended.after.available_at - ended.ended_at <= high + 1


def _within_deadline(case: TaskHistory, history: SimulationHistory) -> Iterator[Finding]:
    """R-07: a task has the deadline that its job and step give it, does not begin after it, and is over soon after.

    No task ends by its deadline before that, unless its next attempt would begin after it.
    """
    task, at = case.task, case.task.deadline_at
    if at != _deadline_of(case):
        yield "R-07", f"has the deadline {at}, not {_deadline_of(case)}"
    if at is None:
        if case.by_deadline:
            yield "R-07", "was ended by a deadline that it does not have"
        return
    if history.clock_set:
        return
    for start in case.starts:
        if start.at >= at:
            yield "R-07", f"attempt {start.fence} began {start.at - at} ms after its deadline"
    if task.state not in TERMINAL and at + MAX_DELAY_MS < history.ended_at:
        yield "R-07", f"is {task.state} long after its deadline {at}"
    ended_at = history.deadline_ends.get(task.task_id)
    if ended_at is not None and (ended_at < at or not case.by_deadline):
        yield "R-07", f"is {task.state}, and was ended at {ended_at} by its deadline {at}"
    if case.by_deadline and case.counted and ended_at is None:
        yield from _cut_short_rightly(case, case.counted[-1], at)


def _cut_short_rightly(case: TaskHistory, last: ReportRecord, at: int) -> Iterator[Finding]:
    """R-07: the last attempt ended at the deadline, or left no time for the longest delay before another one."""
    retry = case.retry or _AFTER_LOSS
    longest = max(
        retry.max_delay_ms * (1 + retry.jitter) + retry.jitter_ms, _LONGEST_ROUTING_DELAY_MS, _LONGEST_SNOOZE_MS
    )
    if last.ended_at + longest < at:
        yield "R-07", f"was ended {at - last.ended_at} ms before its deadline, after {last.result}"


def _deadline_of(case: TaskHistory) -> int | None:
    """The deadline of the only step of a run, written down apart from the code that the stores use."""
    if case.workflow is None or case.step is None:
        return case.task.deadline_at
    ends = []
    if case.workflow.deadline_ms is not None:
        ends.append(max(case.run.created_at, case.run.planned_at) + case.workflow.deadline_ms)
    if case.step.deadline_ms is not None:
        ends.append(max(case.task.created_at, case.run.planned_at) + case.step.deadline_ms)
    return min(ends, default=None)


def _not_early(case: TaskHistory, history: SimulationHistory) -> Iterator[Finding]:
    """K5, S12: no function starts before its run's time, or before the retry delay is over."""
    interval = history.run_intervals.get(case.run.run_id)
    for start in case.starts:
        # An attempt that was declared lost before its start does not wait for the delay of the next one.
        before = [one for one in case.counted if one.moment < start.moment and one.held[1] < start.fence]
        if before and before[-1].after is not None:
            rule, due, since = "S12", before[-1].after.available_at, before[-1].elapsed_ms
        else:
            rule, due, since = "K5", case.run.fire_at, 0 if interval is None else interval.activated_ms
        if start.at < due and not history.clock_set_between(since, start.elapsed_ms):
            yield rule, f"attempt {start.fence} began {due - start.at} ms early"


def _stopped(case: TaskHistory, evidence: HistoryIndex) -> Iterator[Finding]:
    """S11: after a cancellation no attempt starts, and a worker without faults soon stops the running one."""
    history = evidence.history
    for cancel in [one for one in history.cancelled if one.run_id == case.run.run_id]:
        for start in case.starts:
            grant = next((one for one in case.grants if one.held == start.held), None)
            if grant is not None and grant.moment > cancel.moment:
                yield "S11", f"attempt {start.fence} started after the run had been cancelled"
            end = evidence.ends.get(start.held)
            until = history.ended_elapsed_ms if end is None else end.elapsed_ms
            late = until - cancel.elapsed_ms
            if late > _STOPPED_MS and history.ran_undisturbed(start.worker, cancel.elapsed_ms - _STOPPED_MS, until):
                yield "S11", f"attempt {start.fence} continued for {late} ms after it was cancelled"


def _shown(case: TaskHistory, evidence: HistoryIndex) -> Iterator[Finding]:
    """C-10: the status of a run follows from its task, and the status of its tick from the run."""
    run, state = case.run, case.task.state
    if run.over and run.status is not _RUN_STATUS.get(state, RunStatus.FAILED):
        yield "C-10", f"is {state}, and its run {run.status}"
    schedule = evidence.history.schedules.get(run.schedule_uid) if run.schedule_uid is not None else None
    shown = None if schedule is None else schedule.statuses.get(run.run_id)
    begun = bool(case.grants)
    match run.status:
        case RunStatus.COMPLETED:
            wanted = TickStatus.SUCCESS
        case RunStatus.FAILED:
            wanted = TickStatus.FAILED
        case RunStatus.CANCELLED:
            wanted = TickStatus.FAILED if begun else TickStatus.SKIPPED
        case _:
            wanted = TickStatus.STARTED if begun else TickStatus.ENQUEUED
    if shown is not None and shown is not wanted:
        yield "C-10", f"the tick shows {shown}, its run is {run.status}"
