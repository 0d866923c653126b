"""Tasks, attempts and runs in memory. No method awaits half-way, so each one is a transaction by itself."""

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec.structs import replace

from gnomon.core.attempts import Ending, run_status, stopped_instead, tick_status
from gnomon.core.dead_letters import dead_letter
from gnomon.core.gating import Admission, Waiting
from gnomon.core.launching import Cancelling, Launch, Launching, first_tasks, launching, room_made
from gnomon.core.model import (
    Attempt,
    DeadLetter,
    LogLine,
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
from gnomon.core.plan import superseded
from gnomon.core.reconciling import OpenAttempt
from gnomon.core.states import TERMINAL, TaskState, WaitReason
from gnomon.core.workflow import Workflow
from gnomon.ports.runs import RunQuery
from gnomon.ports.work import Held, OpenPage, Renewal
from gnomon.ports.workers import WorkerCard

_HELD_BACK = (WaitReason.DEPS, WaitReason.QUEUE)
_IN_HAND = (TaskState.DISPATCHED, TaskState.RUNNING)


class MemoryWork:
    """What comes after a decision: the ports Work, Workers, Runs, Executions and DeadLetters."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._schedules: dict[ScheduleUid, Schedule] = {}
        self._ticks: dict[tuple[ScheduleUid, int], Tick] = {}
        self._runs: dict[RunId, Run] = {}
        self._tasks: dict[TaskId, Task] = {}
        self._attempts: dict[Held, Attempt] = {}
        self._payloads: dict[tuple[str, str], bytes] = {}
        self._logs: dict[TaskId, list[LogLine]] = {}
        self._dead_letters: dict[str, DeadLetter] = {}
        self._workers: dict[str, tuple[WorkerCard, int]] = {}
        self._workflows: dict[tuple[str, str], list[Workflow]] = {}

    # ---- work --------------------------------------------------------------------------------

    async def waiting(self, now: int, *, limit: int) -> Sequence[Waiting]:
        """See Work.waiting."""
        found = sorted((t for t in self._waiting_tasks() if t.available_at <= now), key=_earliest)
        return [self._with_run(task) for task in found[:limit]]

    async def next_available_at(self) -> int | None:
        """See Work.next_available_at."""
        return min((task.available_at for task in self._waiting_tasks()), default=None)

    def _waiting_tasks(self) -> Iterable[Task]:
        tasks = self._tasks.values()
        return (t for t in tasks if t.state is TaskState.PENDING and t.wait_reason not in _HELD_BACK)

    def _with_run(self, task: Task) -> Waiting:
        return Waiting(task=task, run=self._runs[task.run_id], input=self._payloads.get((task.run_id, "input")))

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> frozenset[TaskId]:
        """See Work.admit."""
        done = set()
        for one in admissions:
            task = self._tasks.get(one.task_id)
            if task is None or task.state is not TaskState.PENDING or one.fence not in (None, task.fence):
                continue
            self._tasks[task.task_id] = replace(
                task,
                state=one.state,
                wait_reason=one.wait_reason,
                available_at=one.available_at,
                routings=one.routings,
                note=one.note,
            )
            done.add(task.task_id)
            if one.over:
                self._over(one, one.note, now)
        return frozenset(done)

    async def take(self, worker: str, *, limit: int, lease_ms: int, now: int, begin: bool = True) -> Sequence[Waiting]:
        """See Work.take."""
        ready = sorted((t for t in self._tasks.values() if t.state is TaskState.SCHEDULED), key=_earliest)
        taken = []
        for task in ready[:limit]:
            held = replace(task, state=TaskState.DISPATCHED, fence=task.fence + 1, note=None)
            self._tasks[task.task_id] = held
            self._attempts[task.task_id, held.fence] = Attempt(
                task_id=task.task_id,
                number=held.fence,
                worker=worker,
                lease_until=self._now() + lease_ms,
                dispatched_at=now,
            )
            if begin:
                self._start((task.task_id, held.fence), now)
            taken.append(self._with_run(self._tasks[task.task_id]))
        return taken

    async def begin(self, held: Collection[Held], *, now: int) -> frozenset[Held]:
        """See Work.begin."""
        granted = frozenset(one for one in held if self._state(one) is TaskState.DISPATCHED)
        for one in granted:
            self._start(one, now)
        return granted

    def _state(self, held: Held) -> TaskState | None:
        """The state of the task, if that is its current attempt."""
        task = self._tasks.get(held[0])
        return task.state if task is not None and task.fence == held[1] else None

    def _start(self, held: Held, now: int) -> None:
        task = self._tasks[held[0]] = replace(self._tasks[held[0]], state=TaskState.RUNNING)
        self._attempts[held] = replace(self._attempts[held], started_at=now)
        run = self._runs[task.run_id]
        if run.started_at is None:
            self._runs[run.run_id] = replace(run, status=RunStatus.RUNNING, started_at=now)
            self._set_tick(run, TickStatus.STARTED)

    async def renew(self, worker: str, held: Collection[Held], *, lease_ms: int) -> Renewal:
        """See Work.renew."""
        del worker
        ours = [one for one in held if self._state(one) in _IN_HAND]
        for one in ours:
            self._attempts[one] = replace(self._attempts[one], lease_until=self._now() + lease_ms)
        to_cancel = (one for one in ours if self._runs[self._tasks[one[0]].run_id].cancel_requested_at is not None)
        return Renewal(lost=frozenset(held) - frozenset(ours), to_cancel=frozenset(to_cancel))

    async def report(self, endings: Sequence[Ending]) -> frozenset[Held]:
        """See Work.report."""
        return frozenset((one.task_id, one.fence) for one in endings if self._end_attempt(one))

    def _end_attempt(self, one: Ending) -> bool:
        held = one.task_id, one.fence
        if self._state(held) not in _IN_HAND or one.lease_until not in (None, self._attempts[held].lease_until):
            return False
        if self._runs[one.run_id].cancel_requested_at is not None:
            one = stopped_instead(one)
        self._attempts[held] = replace(self._attempts[held], ended_at=one.ended_at, result=one.result, error=one.error)
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
        if one.output is not None:
            self._payloads[one.task_id, "output"] = one.output
        self._logs.setdefault(one.task_id, []).extend(one.logs)
        if one.over:
            self._over(one, one.error, one.ended_at)
        return True

    async def asked_to_stop(self, worker: str) -> frozenset[Held]:
        """See Work.asked_to_stop."""
        ours = (held for held, one in self._attempts.items() if one.worker == worker and one.ended_at is None)
        return frozenset(
            held for held in ours if self._runs[self._tasks[held[0]].run_id].cancel_requested_at is not None
        )

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenPage:
        """See Work.open_attempts."""
        found = sorted(held for held, attempt in self._attempts.items() if attempt.ended_at is None and held[0] > after)
        tasks = [(self._tasks[task_id], self._attempts[task_id, number]) for task_id, number in found[:limit]]
        page = [OpenAttempt(task=task, run=self._runs[task.run_id], attempt=attempt) for task, attempt in tasks]
        return OpenPage(page, self._now())

    # ---- the end of tasks and runs -----------------------------------------------------------

    def _over(self, ended: Ending | Admission, error: str | None, now: int) -> None:
        task, run = self._tasks[ended.task_id], self._runs[ended.run_id]
        if ended.dead_letter is not None:
            attempts = [attempt for held, attempt in self._attempts.items() if held[0] == task.task_id]
            given = self._payloads.get((run.run_id, "input"))
            made = dead_letter(task, run, attempts, ended.dead_letter, error, given, now=now)
            self._dead_letters.setdefault(made.dead_letter_id, made)
        if ended.alone:
            self._end_run(run, run_status(task.state), error, now)

    def _end_run(self, run: Run, status: RunStatus, error: str | None, now: int) -> None:
        why = None if status is RunStatus.COMPLETED else run.error or error
        ended = replace(run, status=status, queued=False, completed_at=now, error=why)
        self._runs[run.run_id] = ended
        self._set_tick(ended, tick_status(status, started=ended.started_at is not None))
        if status is RunStatus.COMPLETED and ended.replay_of is not None:
            self._resolve(ended.replay_of, f"replay {ended.run_id}", now)
        schedule = self._schedules.get(ended.schedule_uid) if ended.schedule_uid else None
        if schedule is not None:
            self._make_room(schedule, active=schedule.active_runs - (not run.queued), now=now)
            if schedule.spec.delete_after_run and run.source is Source.CRON:
                self._retire(self._schedules[schedule.uid], status, now)

    def _retire(self, schedule: Schedule, status: RunStatus, now: int) -> None:
        """A one-shot has done its work: it is gone if that was well, paused if not."""
        raise NotImplementedError

    def _make_room(self, schedule: Schedule, *, active: int, now: int) -> None:
        queued = [r for r in self._runs.values() if r.schedule_uid == schedule.uid and r.queued and not r.over]
        room = room_made(active=active, waiting=tuple(sorted(queued, key=lambda r: (r.planned_at, r.run_id))))
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
                self._halt(superseded(made, now=now), now)

    def _cancel_queued(self, uid: ScheduleUid, now: int) -> None:
        for made in self._under_way(uid):
            if made.queued:
                self._halt(superseded(made, now=now, why="its schedule was deleted"), now)

    def _under_way(self, uid: ScheduleUid) -> list[Run]:
        return [made for made in self._runs.values() if made.schedule_uid == uid and not made.over]

    def _halt(self, stopped: Run, now: int) -> None:
        """What waits of the run is cancelled; so is the run, if nothing else is left of it."""
        self._runs[stopped.run_id] = stopped
        for task in [task for task in self._tasks.values() if task.run_id == stopped.run_id]:
            if task.state not in TERMINAL and task.state not in _IN_HAND:
                self._tasks[task.task_id] = replace(task, state=TaskState.CANCELLED, note=stopped.error)
        if stopped.over:
            self._set_tick(stopped, TickStatus.SKIPPED)
        elif not any(t.state in _IN_HAND for t in self._tasks.values() if t.run_id == stopped.run_id):
            self._end_run(stopped, RunStatus.CANCELLED, stopped.error, now)

    # ---- workers -----------------------------------------------------------------------------

    async def enlist(self, card: WorkerCard, *, ttl_ms: int) -> None:
        """See Workers.enlist."""
        self._workers[card.worker] = card, self._now() + ttl_ms

    async def workers(self) -> Sequence[WorkerCard]:
        """See Workers.workers."""
        now = self._now()
        return [card for _, (card, until) in sorted(self._workers.items()) if until > now]

    async def dismiss(self, worker: str) -> None:
        """See Workers.dismiss."""
        self._workers.pop(worker, None)

    # ---- runs --------------------------------------------------------------------------------

    async def launch(self, launches: Sequence[Launch], *, now: int) -> Sequence[Launching]:
        """See Runs.launch."""
        return [self._launch(one, now) for one in launches]

    def _launch(self, wish: Launch, now: int) -> Launching:
        run = wish.run
        if run.run_id in self._runs:
            return Launching.ALREADY
        became, replaces, schedule = Launching.STARTED, False, None
        if run.schedule_uid is not None:
            schedule = self._schedules.get(run.schedule_uid)
            if schedule is None:
                return Launching.GONE
            counts = {"active": schedule.active_runs, "queued": schedule.queued_runs}
            became, replaces = launching(schedule.spec, **counts, force=wish.force)
            if became not in (Launching.STARTED, Launching.QUEUED):
                return became
            run = replace(run, queued=became is Launching.QUEUED)
            if replaces:
                schedule = replace(schedule, queued_runs=0)
        self._add_run(run, wish, schedule, now)
        if schedule is not None and replaces:
            self._supersede(schedule.uid, now, by=run.run_id)
        return became

    def _add_run(self, run: Run, wish: Launch, schedule: Schedule | None, now: int) -> None:
        self._runs[run.run_id] = run
        self._tasks |= {task.task_id: task for task in first_tasks(run, wish.first_steps, now=now)}
        if wish.input is not None:
            self._payloads[run.run_id, "input"] = wish.input
        if run.replay_of is not None:
            letter = self._dead_letters[run.replay_of]
            self._dead_letters[run.replay_of] = replace(letter, replayed_by=run.run_id)
        if schedule is not None:
            active, queued = schedule.active_runs + (not run.queued), schedule.queued_runs + run.queued
            self._schedules[schedule.uid] = replace(schedule, active_runs=active, queued_runs=queued)

    async def cancel(self, run_id: RunId, *, reason: str, now: int) -> Cancelling:
        """See Runs.cancel."""
        run = self._runs.get(run_id)
        if run is None:
            return Cancelling.UNKNOWN
        if run.over:
            return Cancelling.OVER
        asked_at = now if run.cancel_requested_at is None else run.cancel_requested_at
        self._halt(replace(run, cancel_requested_at=asked_at, error=run.error or reason), now)
        return Cancelling.CANCELLED if self._runs[run_id].over else Cancelling.ASKED

    # ---- executions --------------------------------------------------------------------------

    async def find_run(self, run_id: RunId) -> Run | None:
        """See Executions.find_run."""
        return self._runs.get(run_id)

    async def list_runs(self, query: RunQuery) -> Sequence[Run]:
        """See Executions.list_runs."""
        found = [
            run
            for run in self._runs.values()
            if run.tenant == query.tenant
            and query.schedule_id in (None, run.schedule_id)
            and query.status in (None, run.status)
            and (query.after is None or (run.created_at, run.run_id) < query.after)
        ]
        return sorted(found, key=lambda run: (run.created_at, run.run_id), reverse=True)[: query.limit]

    async def attempts(self, tasks: Sequence[TaskId]) -> Sequence[Attempt]:
        """See Executions.attempts."""
        return [attempt for held, attempt in sorted(self._attempts.items()) if held[0] in tasks]

    async def payload(self, owner_id: str, kind: str) -> bytes | None:
        """See Executions.payload."""
        return self._payloads.get((owner_id, kind))

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """See Executions.log_lines."""
        return self._logs.get(task_id, [])[after : after + limit]

    # ---- dead letters ------------------------------------------------------------------------

    async def find_dead_letter(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetters.find_dead_letter."""
        found = self._dead_letters.get(dead_letter_id)
        return found if found is not None and found.tenant == tenant else None

    async def list_dead_letters(
        self, tenant: str, *, job: str | None = None, unresolved: bool = False, after: str = "", limit: int = 100
    ) -> Sequence[DeadLetter]:
        """See DeadLetters.list_dead_letters."""
        found = [
            letter
            for name, letter in sorted(self._dead_letters.items())
            if letter.tenant == tenant
            and job in (None, letter.job)
            and not (unresolved and letter.resolved_at is not None)
            and name > after
        ]
        return found[:limit]

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """See DeadLetters.resolve."""
        ours = [name for name in dead_letter_ids if await self.find_dead_letter(tenant, name)]
        return sum(self._resolve(name, by, now) for name in ours)

    def _resolve(self, dead_letter_id: str, by: str, now: int) -> bool:
        letter = self._dead_letters[dead_letter_id]
        if letter.resolved_at is not None:
            return False
        self._dead_letters[dead_letter_id] = replace(letter, resolved_at=now, resolved_by=by)
        return True


def _earliest(task: Task) -> tuple[int, str]:
    return task.available_at, task.task_id
