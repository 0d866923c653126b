"""The end of tasks and runs in memory, and what follows from it: the next steps, room for others, dead letters."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence, ValuesView

from msgspec.structs import replace

from gnomon.core.ledger.plan import superseded_run
from gnomon.core.model import (
    ENGINE,
    Attempt,
    DeadLetter,
    LogLine,
    Result,
    Run,
    RunId,
    RunStatus,
    Schedule,
    ScheduleUid,
    Source,
    Task,
    TaskId,
    Tick,
    TickStatus,
)
from gnomon.core.runs.admission import Admission
from gnomon.core.runs.dag import ItemTotals, graph_progress, items_outcome, run_outcome, step_state
from gnomon.core.runs.external_events import EventBatch, EventEffect, ExternalEvent
from gnomon.core.runs.launch import advance_queue, next_tasks, skipped_task, sub_run_id
from gnomon.core.runs.outcomes import (
    Assignment,
    AttemptOutcome,
    GiveUpLimits,
    TaskCompletion,
    cancel_instead_of_retry,
    complete_attempt,
    dead_letter,
    run_status,
    tick_status,
)
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.states import ASSIGNED, TERMINAL, WAITING, TaskState, WaitReason, check_initial, check_transition
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.tasks import AttemptRef, WorkerInfo


class TaskTable(MutableMapping[TaskId, Task]):
    """All tasks. Every write checks the state of the task against the table of transitions.

    `live` holds the tasks that are not over: most queries are about these.
    """

    def __init__(self) -> None:
        self._rows: dict[TaskId, Task] = {}
        self.live: dict[TaskId, Task] = {}

    def __getitem__(self, task_id: TaskId) -> Task:
        return self._rows[task_id]

    def __setitem__(self, task_id: TaskId, task: Task) -> None:
        current = self._rows.get(task_id)
        if current is None:
            check_initial(task_id, task.state)
        elif task.state is not current.state:
            check_transition(task_id, current.state, task.state)
        self._put(task)

    def _put(self, task: Task) -> None:
        self._rows[task.task_id] = task
        if task.state in TERMINAL:
            self.live.pop(task.task_id, None)
        else:
            self.live[task.task_id] = task

    def __delitem__(self, task_id: TaskId) -> None:
        del self._rows[task_id]
        self.live.pop(task_id, None)

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def values(self) -> ValuesView[Task]:
        """The rows themselves: the inherited view looks each one up by its key."""
        return self._rows.values()

    def add(self, tasks: Iterable[Task]) -> None:
        """Add new tasks."""
        for task in tasks:
            self[task.task_id] = task


class MemoryCompletion(ABC):
    """Everything that is kept, and the rules by which it ends."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._schedules: dict[ScheduleUid, Schedule] = {}
        self._ticks: dict[tuple[ScheduleUid, int], Tick] = {}
        self._runs: dict[RunId, Run] = {}
        self._tasks = TaskTable()
        self._attempts: dict[AttemptRef, Attempt] = {}
        self._payloads: dict[tuple[str, str], bytes] = {}
        self._logs: dict[TaskId, list[LogLine]] = {}
        self._dead_letters: dict[str, DeadLetter] = {}
        self._workers: dict[str, tuple[WorkerInfo, int]] = {}
        self._placements: dict[TaskId, Placement] = {}
        self._workflows: dict[tuple[str, str], list[Workflow]] = {}
        self._events: dict[str, ExternalEvent] = {}
        self._entries: dict[tuple[str, ScheduleUid], EventEffect] = {}
        self._gatherings: dict[ScheduleUid, EventBatch] = {}

    def _after_task_end(self, ended: TaskCompletion | Admission, error: str | None, now: int) -> None:
        task, run = self._tasks[ended.task_id], self._runs[ended.run_id]
        if ended.dead_letter is not None:
            attempts = [attempt for held, attempt in self._attempts.items() if held[0] == task.task_id]
            given = self._payloads.get((run.run_id, "input"))
            made = dead_letter(task, run, attempts, ended.dead_letter, error, given, now=now)
            self._dead_letters.setdefault(made.dead_letter_id, made)
        if task.parent is not None and ended.graph is not None:
            self._count_ended_item(task, ended.graph, now)
        elif ended.graph is None:
            self._end_run(run, run_status(task.state), error, now)
        else:
            self._advance(run, ended.graph, now)

    # ---- graphs ------------------------------------------------------------------------------

    def _advance(self, run: Run, graph: Workflow, now: int) -> None:
        """The steps whose turn has come have tasks, and the run is over if all of them are."""
        if run.over:
            return
        tasks = {task.step: task for task in self._of_run(run.run_id) if task.parent is None}
        states = {name: step_state(task) for name, task in tasks.items()}
        after = graph_progress(graph, states, cancelled=run.cancel_requested_at is not None)
        made = [
            *next_tasks(run, after.ready, held=False, now=now),
            *next_tasks(run, after.held, held=True, now=now),
            *(skipped_task(run, one, now=now) for one in after.not_run),
        ]
        self._tasks.add(made)
        for name in after.released:
            self._release(tasks[name], now)
        if after.status is not None:
            self._end_run(run, after.status, after.error, now)

    def _release(self, task: Task, now: int) -> None:
        self._tasks[task.task_id] = replace(task, wait_reason=WaitReason.READY, available_at=now)

    def _of_run(self, run_id: RunId) -> list[Task]:
        return [task for task in self._tasks.values() if task.run_id == run_id]

    def _items(self, parent: TaskId) -> list[Task]:
        return sorted((t for t in self._tasks.values() if t.parent == parent), key=lambda t: t.item or 0)

    def _count_ended_item(self, item: Task, graph: Workflow, now: int) -> None:
        """The step counts one item less, and lets the next one begin; with the last one it is over."""
        parent = self._tasks[item.parent or item.task_id]
        failed = parent.failed_items + (item.state is not TaskState.SUCCEEDED)
        parent = self._tasks[parent.task_id] = replace(parent, open_items=parent.open_items - 1, failed_items=failed)
        items = self._items(parent.task_id)
        waiting = [t for t in items if t.state is TaskState.PENDING and t.wait_reason is WaitReason.DEPS]
        for one in waiting[:1]:
            self._release(one, now)
        if not parent.open_items:
            self._end_items(parent, items, graph, now)

    def _end_items(self, parent: Task, items: Sequence[Task], graph: Workflow, now: int) -> None:
        outputs = [self._payloads.get((one.task_id, "output")) for one in items]
        cancelled = self._runs[parent.run_id].cancel_requested_at is not None
        ended = ItemTotals(count=len(items), failed=parent.failed_items, size=sum(len(one or b"") for one in outputs))
        self._end_engine_task(parent, graph, items_outcome(ended, outputs, cancelled=cancelled), now)

    def _end_engine_task(self, held: Task, graph: Workflow, outcome: AttemptOutcome, now: int) -> None:
        """A task that no worker had in hand has ended."""
        step = graph.step(held.step) or graph.steps[0]
        had = Assignment(task=held, run=self._runs[held.run_id], workflow=graph, step=step, input={})
        self._end_attempt(complete_attempt(had, outcome, now=now, limits=GiveUpLimits()))

    def _end_awaiting_step(self, run: Run, now: int) -> None:
        """The step that started the run, and waits for it, is over as well."""
        held = self._tasks[run.parent_task] if run.parent_task else None
        if held is None or held.state is not TaskState.RUNNING or run.run_id != sub_run_id(held):
            return
        waits, made_from = self._graph_of(self._runs[held.run_id]), self._graph_of(run)
        if waits is not None:
            steps = [task for task in self._of_run(run.run_id) if task.parent is None]
            outputs = {task.step: self._payloads.get((task.task_id, "output")) for task in steps}
            self._end_engine_task(held, waits, run_outcome(run, made_from, outputs), now)

    def _graph_of(self, run: Run) -> Workflow | None:
        return self._version(run.tenant, run.workflow_id, run.workflow_version)

    def _graph_of_spec(self, schedule: Schedule) -> Workflow | None:
        return self._version(schedule.tenant, schedule.spec.workflow_id, schedule.spec.workflow_version)

    def _version(self, tenant: str, workflow_id: str, version: int) -> Workflow | None:
        versions = self._workflows.get((tenant, workflow_id), [])
        return next((one for one in versions if one.version == version), None)

    def _end_run(self, run: Run, status: RunStatus, error: str | None, now: int) -> None:
        why = None if status is RunStatus.COMPLETED else run.error or error
        ended = replace(run, status=status, queued=False, completed_at=now, error=why)
        self._runs[run.run_id] = ended
        self._set_tick(ended, tick_status(status, started=ended.started_at is not None))
        if status is RunStatus.COMPLETED and ended.replay_of is not None:
            self._resolve(ended.replay_of, f"replay {ended.run_id}", now)
        schedule = self._schedules.get(ended.schedule_uid) if ended.schedule_uid else None
        if schedule is not None:
            self._release_slot(schedule, active=schedule.active_runs - (not run.queued), now=now)
            if schedule.spec.delete_after_run and run.source is Source.CRON:
                self._retire(self._schedules[schedule.uid], status, now)
        if ended.parent_task is not None:
            self._end_awaiting_step(ended, now)

    @abstractmethod
    def _retire(self, schedule: Schedule, status: RunStatus, now: int) -> None:
        """A one-shot has done its work: it is gone if that was well, paused if not."""

    def _release_slot(self, schedule: Schedule, *, active: int, now: int) -> None:
        runs = self._runs.values() if schedule.queued_runs else ()
        queued = [r for r in runs if r.schedule_uid == schedule.uid and r.queued and not r.over]
        room = advance_queue(active=active, waiting=tuple(sorted(queued, key=lambda r: (r.planned_at, r.run_id))))
        self._schedules[schedule.uid] = replace(schedule, active_runs=room.active, queued_runs=room.queued)
        if room.released is not None:
            freed = room.released
            self._runs[freed.run_id] = replace(freed, queued=False)
            wait = WaitReason.DELAY if freed.fire_at > now else WaitReason.READY
            self._set_tasks(freed.run_id, wait_reason=wait)

    def _set_tick(self, run: Run, status: TickStatus) -> None:
        if run.schedule_uid is None:
            return
        tick = self._ticks.get((run.schedule_uid, run.planned_at))
        if tick is not None and tick.run_id == run.run_id:
            self._ticks[run.schedule_uid, run.planned_at] = replace(tick, status=status)

    def _set_tasks(self, run_id: RunId, **changes: object) -> None:
        for task in [task for task in self._tasks.values() if task.run_id == run_id]:
            self._tasks[task.task_id] = replace(task, **changes)

    def _supersede(self, uid: ScheduleUid, now: int, *, by: RunId) -> None:
        """The schedule's runs, all but the one that replaces them, are over or asked to end."""
        # First those that wait: nobody may take a turn that is about to be cancelled.
        for made in sorted(self._under_way(uid), key=lambda made: not made.queued):
            if made.run_id != by:
                self._stop_run(superseded_run(made, now=now), now)

    def _cancel_queued(self, uid: ScheduleUid, now: int) -> None:
        for made in self._under_way(uid):
            if made.queued:
                self._stop_run(superseded_run(made, now=now, why="its schedule was deleted"), now)

    def _under_way(self, uid: ScheduleUid) -> list[Run]:
        return [made for made in self._runs.values() if made.schedule_uid == uid and not made.over]

    def _cancel(self, run: Run, reason: str, now: int) -> None:
        asked_at = now if run.cancel_requested_at is None else run.cancel_requested_at
        self._stop_run(replace(run, cancel_requested_at=asked_at, error=run.error or reason), now)

    def _stop_run(self, stopped: Run, now: int) -> None:
        """What waits of the run is cancelled; so is the run, if nothing else is left of it."""
        self._runs[stopped.run_id] = stopped
        for task in self._of_run(stopped.run_id):
            if task.state in WAITING:
                self._tasks[task.task_id] = replace(task, state=TaskState.CANCELLED, note=stopped.error)
        if stopped.over:
            self._set_tick(stopped, TickStatus.SKIPPED)
            return
        for made in [run for run in self._runs.values() if run.parent_task and not run.over]:
            if made.parent_task and self._tasks[made.parent_task].run_id == stopped.run_id:
                self._cancel(made, stopped.error or "", now)
        if not self._runs[stopped.run_id].over:
            self._end_idle_run(stopped, now)

    def _end_idle_run(self, stopped: Run, now: int) -> None:
        """Steps whose items are all over are over, and so is the run if nobody has anything of it in hand."""
        for task in self._of_run(stopped.run_id):
            if task.state is TaskState.RUNNING and task.open_items:
                left = sum(one.state not in TERMINAL for one in self._items(task.task_id))
                self._tasks[task.task_id] = replace(task, open_items=left)
        in_hand = [task for task in self._of_run(stopped.run_id) if task.state in ASSIGNED]
        inner = [task for task in in_hand if self._attempts[task.task_id, task.fence].worker == ENGINE]
        subs = {run.parent_task for run in self._runs.values() if not run.over}
        idle = [task for task in inner if not task.open_items and task.task_id not in subs]
        for task in idle:
            held = task.task_id, task.fence
            self._tasks[task.task_id] = replace(task, state=TaskState.CANCELLED, note=stopped.error)
            self._attempts[held] = replace(self._attempts[held], ended_at=now, result=Result.CANCELLED)
        if len(idle) == len(in_hand):
            self._end_run(stopped, RunStatus.CANCELLED, stopped.error, now)

    def _end_attempt(self, one: TaskCompletion) -> bool:
        held = one.task_id, one.fence
        if self._state(held) not in ASSIGNED or one.lease_until not in (None, self._attempts[held].lease_until):
            return False
        if one.reported_by is not None and self._started_by_other(held, one.reported_by):
            return False
        if self._runs[one.run_id].cancel_requested_at is not None:
            one = cancel_instead_of_retry(one)
        # The end of an attempt is a transition even if the state stays the same.
        check_transition(one.task_id, self._tasks[one.task_id].state, one.state)
        self._tasks[one.task_id] = replace(
            self._tasks[one.task_id],
            state=one.state,
            wait_reason=one.wait_reason,
            available_at=one.available_at,
            attempts=one.attempts,
            losses=one.losses,
            routings=one.routings,
            note=one.error,
        )
        self._attempts[held] = replace(self._attempts[held], ended_at=one.ended_at, result=one.result, error=one.error)
        if one.output is not None:
            self._payloads[one.task_id, "output"] = one.output
        self._logs.setdefault(one.task_id, []).extend(one.logs)
        if one.over:
            self._after_task_end(one, one.error, one.ended_at)
        return True

    def _started_by_other(self, held: AttemptRef, worker: str) -> bool:
        """Whether somebody else than the worker has begun the attempt."""
        attempt = self._attempts[held]
        return attempt.started_at is not None and attempt.worker != worker

    def _state(self, held: AttemptRef) -> TaskState | None:
        """The state of the task, if that is its current attempt."""
        task = self._tasks.get(held[0])
        return task.state if task is not None and task.fence == held[1] else None

    def _resolve(self, dead_letter_id: str, by: str, now: int) -> bool:
        letter = self._dead_letters.get(dead_letter_id)
        if letter is None or letter.resolved_at is not None:
            return False
        self._dead_letters[dead_letter_id] = replace(letter, resolved_at=now, resolved_by=by)
        return True
