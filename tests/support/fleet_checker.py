"""Checks a fault test: its ledger as a history for the checker, and its work against the recorded effects.

The checker reads decisions with their times and terms from the ledger. About bodies only the file of effects
counts, which neither the store nor any service can write.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from msgspec.structs import replace

from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import Attempt, DeadLetter, Result, Run, RunStatus, Schedule, Source, Task, TaskId, Tick
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.testing.checker import check
from gnomon.testing.history import Commit, LaunchRecord, RecordedSchedule, RunEndRecord, SimulationHistory
from support.chaos_fleet import TICKING_JOB, ChaosFleet
from support.effect_functions import Effect

#: Results that allow another attempt of a task, besides a failure, which no body here has.
_RETRYABLE_RESULTS = (Result.LOST, Result.NEVER_STARTED, Result.INTERRUPTED)
_LOSSES = 3
_FOREVER = 1 << 62
_ONCE = "once"
_NEEDS = {"left": ("extract",), "right": ("extract",), "load": ("left", "right")}


async def violations(chaos_run: ChaosFleet, *, skew_ms: int = 0) -> list[str]:
    """All violations; timestamps of two machines may differ by `skew_ms`."""
    await chaos_run.record_shard_holders()
    runs = await chaos_run.runs()
    history = await history_of(chaos_run.store, TICKING_JOB, runs)
    found = [f"{one.rule} {one.schedule}: {one.text}" for one in check(history)]
    found += [f"C3 two held shard {key}: {who}" for key, who in chaos_run.holders.items() if len(who) > 1]
    found += [
        f"S15 {lost} was promised, and is not there" for lost in chaos_run.promised - {run.run_id for run in runs}
    ]
    work = await _work_of(chaos_run, runs)
    for run in runs:
        found += [f"{text} ({run.schedule_id} {run.run_id})" for text in _check_run(run, work, skew_ms)]
    for task in work.tasks.values():
        found += [f"{text} ({task.step} of {task.run_id})" for text in _check_task(task, work, skew_ms)]
    return found


# ---- the ledger ----------------------------------------------------------------------------------


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
        if run.source is not Source.CRON:
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

    tasks: dict[TaskId, Task]
    steps: dict[str, list[Task]]
    jobs: dict[str, str]
    attempts: dict[TaskId, list[Attempt]]
    starts: dict[str, list[Effect]]
    ends: dict[tuple[str, int], Effect]
    letters: dict[TaskId, list[DeadLetter]]


async def _work_of(chaos_run: ChaosFleet, runs: list[Run]) -> _WorkRecord:
    store = chaos_run.store
    tasks = {task.task_id: task for task in await store.history.tasks(runs)}
    work = _WorkRecord(tasks, defaultdict(list), {}, defaultdict(list), defaultdict(list), {}, defaultdict(list))
    for task in tasks.values():
        work.steps[task.run_id].append(task)
    work.jobs.update({run.run_id: run.schedule_id or "" for run in runs})
    for attempt in await store.executions.attempts(list(tasks)):
        work.attempts[attempt.task_id].append(attempt)
    for one in _effects_of_known_tasks(chaos_run, tasks):
        if one.what == "start":
            work.starts[one.task_id].append(one)
        else:
            work.ends[one.task_id, one.fence] = one
    for letter in await store.dead_letters.page("default", after="", limit=1000):
        work.letters[letter.task_id].append(letter)
    for unknown in set(work.starts) - set(tasks):
        work.tasks[TaskId(unknown)] = _unknown_task(unknown, work.starts[unknown][0])
    return work


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
    for earlier in tried[:-1]:
        if earlier.result not in _RETRYABLE_RESULTS:
            yield f"S9: tried again after {earlier}"
    for start in starts:
        early = [one for one in tried if one.number < start.fence and (one.ended_at or 0) > start.at + skew_ms]
        if early:
            yield f"S9: {start} before the end of {early}"
    if work.jobs[task.run_id] == _ONCE and len(starts) > 1:
        yield f"S5: {len(starts)} bodies"
    yield from _check_end(task, work)


def _check_end(task: Task, work: _WorkRecord) -> Iterator[str]:
    """S4, S7, S14: a task has ended once, or was lost as often as allowed and left a dead letter."""
    tried, letters = work.attempts[task.task_id], work.letters[task.task_id]
    once = work.jobs[task.run_id] == _ONCE
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
    if not (once and lost == 1) and lost < _LOSSES and not task.upstream_failed:
        yield f"S4: is {task.state} after {tried}"
    # A task that took three workers down leaves a dead letter, whatever its job says.
    if task.state is TaskState.FAILED and not task.upstream_failed and len(letters) != 1:
        yield f"S14: failed, with {letters}"
