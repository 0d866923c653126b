"""Checks a fault test: its ledger, and its work against the recorded effects.

The checker reads decisions with their times and terms from the ledger. About bodies only the file of effects
counts, which neither the store nor any service can write.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import (
    Attempt,
    DeadLetter,
    Overlap,
    Result,
    Run,
    RunSource,
    RunStatus,
    Schedule,
    Task,
    TaskId,
    Tick,
)
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import Workflow
from gnomon.testing.checker import check
from gnomon.testing.history import Commit, LaunchRecord, RecordedSchedule, RunEndRecord, SimulationHistory
from support.chaos_fleet import ONE_SCHEDULE, TICKING_JOB, ChaosFleet, Workload
from support.effect_functions import Effect
from support.ledger_checker import LedgerRows, ledger_violations

#: Results that allow another attempt of a task, besides a failure of a job with retries.
_RETRYABLE_RESULTS = (Result.LOST, Result.NEVER_STARTED, Result.INTERRUPTED)
_LOSSES = 3
_FOREVER = 1 << 62
#: Two processes stamp by clocks that follow the store's with this tolerance.
_STAMPS_DIFFER_MS = 1_000
_NEEDS = {"left": ("extract",), "right": ("extract",), "load": ("left", "right")}
#: By how much a tick planned at a time may be decided late; None for times with faults.
LateBy = Callable[[int], int | None]


def _any_time(_: int) -> int | None:
    return None


async def violations(chaos_run: ChaosFleet, *, skew_ms: int = 0, late_by: LateBy = _any_time) -> list[str]:
    """All violations; timestamps of two machines may differ by `skew_ms`, and decisions be late by `late_by`."""
    runs = await chaos_run.runs()
    found = await _ledger_violations(chaos_run, runs, late_by)
    if not chaos_run.shape.sqlite:
        await chaos_run.record_shard_holders()
    found += [f"C3 two held shard {key}: {who}" for key, who in chaos_run.holders.items() if len(who) > 1]
    found += [
        f"S15 {lost} was promised, and is not there" for lost in chaos_run.promised - {run.run_id for run in runs}
    ]
    work = await _work_of(chaos_run, runs)
    for run in runs:
        found += [f"{text} ({run.schedule_id} {run.run_id})" for text in _check_run(run, work, skew_ms)]
    for task in work.tasks.values():
        found += [f"{text} ({task.step} of {task.run_id})" for text in _check_task(task, work, skew_ms)]
    return found + list(_check_overlap(work, skew_ms))


# ---- the ledger ----------------------------------------------------------------------------------


async def _ledger_violations(chaos_run: ChaosFleet, runs: list[Run], late_by: LateBy) -> list[str]:
    if chaos_run.workload is ONE_SCHEDULE:
        history = await history_of(chaos_run.store, TICKING_JOB, runs)
        return [f"{one.rule} {one.schedule}: {one.text}" for one in check(history)]
    rows = [await _ledger_rows(chaos_run.store, name, runs) for name in chaos_run.workload.ticking]
    return [text for one in rows for text in ledger_violations(one, late_by)]


async def _ledger_rows(store: SqlStore, job: str, runs: list[Run]) -> LedgerRows:
    schedule = await store.schedules.find("default", job)
    assert schedule is not None
    ticks = await store.history.ticks(schedule.uid, before=_FOREVER, limit=100_000)
    return LedgerRows(
        schedule=schedule,
        revisions=await store.history.revisions(schedule.uid),
        pauses=await store.history.pauses(schedule.uid),
        ticks=sorted(ticks, key=lambda one: one.decision.planned_at),
        runs=sorted((run for run in runs if run.schedule_uid == schedule.uid), key=lambda run: run.planned_at),
    )


async def history_of(store: SqlStore, job: str, runs: list[Run]) -> SimulationHistory:
    """The history of every tick of a job that was paused in the end, for the checker.

    No period counts as quiet: the fleet has faults, and many processes share a small machine.
    """
    history = SimulationHistory(started_at=0, faults=[(0, _FOREVER)])
    schedule = await store.schedules.find("default", job)
    assert schedule is not None
    ticks = await store.history.ticks(schedule.uid, before=_FOREVER, limit=100_000)
    own = tuple(run for run in runs if run.schedule_uid == schedule.uid)
    history.schedules[schedule.uid] = RecordedSchedule(
        uid=schedule.uid,
        revisions=tuple(await store.history.revisions(schedule.uid)),
        pauses=tuple(await store.history.pauses(schedule.uid)),
        runs=own,
        final=schedule,
        ledger={tick.decision.planned_at: tick.decision for tick in ticks},
    )
    history.commits = _commits(history.schedules[schedule.uid], sorted(ticks, key=lambda one: one.decision.planned_at))
    number = len(history.commits)
    for run in own:
        if run.source is not RunSource.CRON:
            launch = LaunchRecord(
                number, schedule.uid, run.run_id, run.planned_at, schedule.spec, False, LaunchOutcome.STARTED
            )
            history.run_changes.append(launch)
    history.run_changes += [RunEndRecord(number, schedule.uid, run.run_id, run.planned_at) for run in own if run.over]
    return history


def _commits(life: RecordedSchedule, ticks: list[Tick]) -> list[Commit]:
    """The ticks that were written together, under one term at one moment. The last commit is the final pause."""
    [revision], [pause] = life.revisions, life.pauses
    assert life.final is not None
    found: list[Commit] = []
    mark = revision.schedule.created_at
    for (at, term), together in groupby(ticks, key=lambda one: (one.decided_at, one.term)):
        decisions = tuple(one.decision for one in together)
        if at != pause.paused_at:
            holder = f"term {term}"
            found.append(_commit(len(found), revision.schedule, mark, decisions, at=at, term=term, holder=holder))
            mark = decisions[-1].last_at
    last = tuple(one.decision for one in ticks if one.decided_at == pause.paused_at)
    pausing = _commit(len(found), revision.schedule, mark, last, at=pause.paused_at, term=None, holder=None)
    return [*found, _changing(pausing, life.final)]


def _commit(number: int, schedule: Schedule, mark_at: int, decisions: tuple[object, ...], **said: object) -> Commit:
    read = replace(schedule, mark_at=mark_at, paused_at=None)
    return Commit(number=number, uid=schedule.uid, schedule=read, decisions=decisions, elapsed_ms=0, **said)  # type: ignore[arg-type]


def _changing(commit: Commit, changed: Schedule) -> Commit:
    from dataclasses import replace as with_fields

    return with_fields(commit, changed=changed)


# ---- the work ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _WorkRecord:
    """The work of a test: runs, tasks, attempts and effects, grouped."""

    workload: Workload
    runs: dict[str, Run]
    tasks: dict[TaskId, Task]
    steps: dict[str, list[Task]]
    jobs: dict[str, str]
    attempts: dict[TaskId, list[Attempt]]
    starts: dict[str, list[Effect]]
    ends: dict[tuple[str, int], Effect]
    letters: dict[TaskId, list[DeadLetter]]
    workflows: dict[tuple[str, int], Workflow]
    #: The inputs that runs were given.
    inputs: Mapping[str, bytes]

    def job_of(self, task: Task) -> str:
        return self.jobs[task.run_id]

    def input_of(self, task: Task) -> dict[str, Any]:
        """The input of a task by the record: of its run or else of its job, with the fields of its step."""
        run = self.runs[task.run_id]
        workflow = self.workflows[run.workflow_id, run.workflow_version]
        given = self.inputs.get(run.run_id)
        base: dict[str, Any] = workflow.input if given is None else msgspec.json.decode(given)
        step = workflow.step(task.step)
        assert step is not None, task
        return base | step.input


async def _work_of(chaos_run: ChaosFleet, runs: list[Run]) -> _WorkRecord:
    store = chaos_run.store
    tasks = {task.task_id: task for task in await store.history.tasks(runs)}
    work = _WorkRecord(
        workload=chaos_run.workload,
        runs={run.run_id: run for run in runs},
        tasks=tasks,
        steps=defaultdict(list),
        jobs={run.run_id: run.schedule_id or "" for run in runs},
        attempts=defaultdict(list),
        starts=defaultdict(list),
        ends={},
        letters=defaultdict(list),
        workflows=await _workflows_of(store, runs),
        inputs=await store.executions.payloads([run.run_id for run in runs], "input"),
    )
    for task in tasks.values():
        work.steps[task.run_id].append(task)
    for attempt in await store.executions.attempts(list(tasks)):
        work.attempts[attempt.task_id].append(attempt)
    for one in _effects_of_known_tasks(chaos_run, tasks):
        if one.what == "start":
            work.starts[one.task_id].append(one)
        else:
            work.ends[one.task_id, one.fence] = one
    for letter in await store.dead_letters.page("default", limit=1000):
        work.letters[letter.task_id].append(letter)
    for unknown in set(work.starts) - set(tasks):
        work.tasks[TaskId(unknown)] = _unknown_task(unknown, work.starts[unknown][0])
    return work


async def _workflows_of(store: SqlStore, runs: list[Run]) -> dict[tuple[str, int], Workflow]:
    found = {}
    for name, version in {(run.workflow_id, run.workflow_version) for run in runs}:
        workflow = await store.jobs.workflow("default", name, version)
        assert workflow is not None, (name, version)
        found[name, version] = workflow
    return found


def _effects_of_known_tasks(chaos_run: ChaosFleet, tasks: Mapping[TaskId, Task]) -> Iterator[Effect]:
    """All effects without those of starts that the store has lost with its tail."""
    effects = chaos_run.effects()
    last = {one.task_id: number for number, one in enumerate(effects) if one.what == "start"}
    since, until = chaos_run.forgotten
    for number, one in enumerate(effects):
        gone = since <= one.at <= until and (TaskId(one.task_id) not in tasks or last[one.task_id] > number)
        if one.what != "start" or not gone:
            yield one


def _unknown_task(name: str, start: Effect) -> Task:
    raise AssertionError(f"K3: a body of {name} at {start}, which is not on record")


def _check_run(run: Run, work: _WorkRecord, skew_ms: int) -> Iterator[str]:
    if not run.over:
        yield f"S17: still {run.status}"
    tasks = work.steps[run.run_id]
    begun = min((one.at for task in tasks for one in work.starts[task.task_id]), default=run.fire_at)
    if begun < run.fire_at - skew_ms:
        yield f"S3: began {run.fire_at - begun} ms early"
    done = all(task.state is TaskState.SUCCEEDED for task in tasks)
    if (run.status is RunStatus.COMPLETED) != done:
        yield f"C-10: {run.status}, with {[task.state for task in tasks]}"
    if run.schedule_id == "graph" and done:
        yield from _check_step_order(run, work)


def _check_step_order(run: Run, work: _WorkRecord) -> Iterator[str]:
    """S13: a step begins after all steps that it needs have succeeded."""
    tasks = {task.step: task for task in work.steps[run.run_id]}
    if set(tasks) != {"extract", *_NEEDS}:
        yield f"S13: the steps are {sorted(tasks)}"
    for step, needs in _NEEDS.items():
        for need in needs:
            end = work.ends.get((tasks[need].task_id, tasks[need].fence))
            if end is None or end.at > work.starts[tasks[step].task_id][0].at:
                yield f"S13: {step} began before {need} had ended: {end}"


def _check_task(task: Task, work: _WorkRecord, skew_ms: int) -> Iterator[str]:
    tried, starts = work.attempts[task.task_id], work.starts[task.task_id]
    fences = [one.fence for one in starts]
    if task.state not in TERMINAL:
        yield f"S17: still {task.state}"
    if len(set(fences)) != len(fences):
        yield f"S9: begun twice under one attempt: {starts}"
    if not set(fences) <= {one.number for one in tried}:
        yield f"S9: a body ran under {fences}, and on record are {tried}"
    limit = work.workload.max_attempts.get(work.job_of(task), 1)
    for number, earlier in enumerate(tried[:-1], 1):
        failed = sum(one.result is Result.FAILED for one in tried[:number])
        if earlier.result not in _RETRYABLE_RESULTS and not (earlier.result is Result.FAILED and failed < limit):
            yield f"S9: tried again after {earlier}"
    yield from _check_delays(task, work)
    for start in starts:
        early = [one for one in tried if one.number < start.fence and (one.ended_at or 0) > start.at + skew_ms]
        if early:
            yield f"S9: {start} before the end of {early}"
        if start.input != work.input_of(task):
            yield f"S15: {start} was given another input than {work.input_of(task)}"
    if work.job_of(task) in work.workload.at_most_once and len(starts) > 1:
        yield f"S5: {len(starts)} bodies"
    yield from _check_end(task, work)


def _check_delays(task: Task, work: _WorkRecord) -> Iterator[str]:
    """H-08: the attempt after a failed one begins when the delay of the job is over."""
    delay = work.workload.retry_delays_ms.get(work.job_of(task), 0) - _STAMPS_DIFFER_MS
    begun = {one.fence: one.at for one in work.starts[task.task_id]}
    for failed in work.attempts[task.task_id]:
        again = begun.get(failed.number + 1)
        if failed.result is Result.FAILED and again is not None and again < (failed.ended_at or 0) + delay:
            yield f"H-08: tried again {again - (failed.ended_at or 0)} ms after {failed}"


def _check_end(task: Task, work: _WorkRecord) -> Iterator[str]:
    """S4, S7, S14: a task has ended once, or used up its attempts and left the dead letter that it has to leave."""
    tried, letters, job = work.attempts[task.task_id], work.letters[task.task_id], work.job_of(task)
    well = [one.number for one in tried if one.result is Result.SUCCEEDED]
    lost = sum(one.result is Result.LOST for one in tried)
    if task.state is TaskState.SUCCEEDED:
        if well != [task.fence] or (task.task_id, task.fence) not in work.ends:
            yield f"S7: succeeded at fence {task.fence}, with {tried}"
        if letters:
            yield f"S14: succeeded, with {letters}"
        return
    if well:
        yield f"S7: is {task.state} after {tried}"
    if not (_gave_up_rightly(task, work) or task.upstream_failed or _was_replaced(task, work)):
        yield f"S4: is {task.state} after {tried}"
    # A task that took three workers down leaves a dead letter, whatever its job says.
    wanted = job in work.workload.dead_letters or lost >= _LOSSES
    if task.state is TaskState.FAILED and not task.upstream_failed and len(letters) != wanted:
        yield f"S14: failed, with {letters}"


def _gave_up_rightly(task: Task, work: _WorkRecord) -> bool:
    """Whether the task has used up what its job allows."""
    results = [one.result for one in work.attempts[task.task_id]]
    failed, lost = results.count(Result.FAILED), results.count(Result.LOST)
    if work.job_of(task) in work.workload.at_most_once:
        return lost == 1 or Result.INTERRUPTED in results
    limit = work.workload.max_attempts.get(work.job_of(task))
    return lost >= _LOSSES or (limit is not None and failed + lost >= limit)


def _was_replaced(task: Task, work: _WorkRecord) -> bool:
    """Whether a newer run cancelled it."""
    run = work.runs[task.run_id]
    return run.status is RunStatus.CANCELLED and work.workload.one_at_a_time.get(work.job_of(task)) is Overlap.REPLACE


def _check_overlap(work: _WorkRecord, skew_ms: int) -> Iterator[str]:
    """C-05: runs of a schedule that admits one at a time follow each other, queued ones in planned order."""
    by_job: dict[str, list[Run]] = defaultdict(list)
    for run in work.runs.values():
        by_job[run.schedule_id or ""].append(run)
    for job in work.workload.one_at_a_time:
        begun = sorted((start, run) for run in by_job[job] for start in [_first_start(run, work)] if start is not None)
        for (_, earlier), (start, later) in pairwise(begun):
            ended = max((end for end in _known_ends(earlier, work)), default=0)
            if ended > start + skew_ms:
                yield f"C-05: {later.run_id} of {job} began {ended - start} ms before the end of {earlier.run_id}"
            if work.workload.one_at_a_time[job] is Overlap.QUEUE and earlier.planned_at > later.planned_at:
                yield f"C-05: {later.run_id} of {job} overtook {earlier.run_id}"


def _first_start(run: Run, work: _WorkRecord) -> int | None:
    return min((one.at for task in work.steps[run.run_id] for one in work.starts[task.task_id]), default=None)


def _known_ends(run: Run, work: _WorkRecord) -> Iterator[int]:
    """The ends of attempts; not of lost ones, whose bodies may go on unseen."""
    for task in work.steps[run.run_id]:
        yield from (one.ended_at or 0 for one in work.attempts[task.task_id] if one.result is not Result.LOST)
