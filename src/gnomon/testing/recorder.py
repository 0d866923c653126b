"""The recorder of a simulation: after every change it reads the runs and tasks that the change affected."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from gnomon.core.ids import run_id
from gnomon.core.model import Overlap, Run, RunId, Schedule, ScheduleUid, Task, TaskId, TickVerdict
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.deadlines import OverdueEnd
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.ports.store import Store
from gnomon.ports.tasks import AttemptRef
from gnomon.testing.clock import VirtualClock
from gnomon.testing.history import (
    CancelRecord,
    Commit,
    GrantRecord,
    LaunchRecord,
    MarkRecord,
    ReportRecord,
    RunEndRecord,
    RunInterval,
    SimulationHistory,
)
from gnomon.testing.policy_recorder import PolicyRecorder


class HistoryRecorder:
    """Records the order of the changes of a store, and the state after each."""

    def __init__(self, history: SimulationHistory, store: Store, clock: VirtualClock) -> None:
        self._history = history
        self._store = store
        self._clock = clock
        self._tasks: dict[TaskId, Task] = {}
        self._under_way: dict[ScheduleUid, set[RunId]] = defaultdict(set)
        self._leases: dict[AttemptRef, int] = {}
        self.policy = PolicyRecorder(history, store, clock)

    def _elapsed_ms(self) -> int:
        return round(self._clock.elapsed() * 1000)

    # ---- decisions ---------------------------------------------------------------------------

    async def decided(
        self, verdict: TickVerdict, *, at: int, term: int | None, holder: str | None, changed: Schedule | None = None
    ) -> None:
        """Record a verdict that was carried out."""
        uid, spec = verdict.schedule.uid, verdict.schedule.spec
        commit = Commit(
            number=len(self._history.commits),
            uid=uid,
            schedule=verdict.schedule,
            decisions=verdict.decisions,
            at=at,
            elapsed_ms=self._elapsed_ms(),
            term=term,
            holder=holder,
            changed=changed,
        )
        self._history.commits.append(commit)
        made = [d.planned_at for d in verdict.decisions if d.starts_run]
        for planned_at in made:
            self._made(run_id(uid, planned_at), uid, planned_at, spec.overlap)
        if made:
            await self.look(self._under_way[uid] if verdict.replaces else [run_id(uid, at) for at in made])

    def set_back(self, schedule: Schedule) -> None:
        """Record a mark that was set back to the clock."""
        self._history.marks_set_back.append(
            MarkRecord(
                commits=len(self._history.commits),
                uid=schedule.uid,
                revision=schedule.revision,
                to_at=schedule.mark_at,
            )
        )

    async def deleted(self, uid: ScheduleUid, *, at: int) -> None:
        """Record the deletion of a schedule."""
        self._history.deleted[uid] = at
        await self.look(self._under_way[uid])

    def _made(self, run: RunId, uid: ScheduleUid, planned_at: int, overlap: Overlap, *, forced: bool = False) -> None:
        self._history.run_intervals[run] = RunInterval(
            run_id=run, uid=uid, planned_at=planned_at, overlap=overlap, forced=forced, made=self._history.moment()
        )
        self._under_way[uid].add(run)

    # ---- launches and cancellations ----------------------------------------------------------

    async def launched(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Record a launch and its outcome."""
        run = request.run
        schedule = await self._store.schedules.find(run.tenant, run.schedule_id or "")
        if schedule is None or schedule.uid != run.schedule_uid:
            return
        self._history.run_changes.append(
            LaunchRecord(
                commits=len(self._history.commits),
                uid=schedule.uid,
                run_id=run.run_id,
                planned_at=run.planned_at,
                spec=schedule.spec,
                force=request.force,
                waits=request.waits,
                outcome=outcome,
            )
        )
        if outcome in (LaunchOutcome.STARTED, LaunchOutcome.QUEUED):
            self._made(run.run_id, schedule.uid, run.planned_at, schedule.spec.overlap, forced=request.force)
            await self.look(self._under_way[schedule.uid])

    async def cancelled(self, run: RunId, outcome: CancelOutcome) -> None:
        """Record the cancellation of a run."""
        if outcome in (CancelOutcome.CANCELLED, CancelOutcome.ASKED):
            moment, at = self._history.moment(), self._clock.now()
            self._history.cancelled.append(CancelRecord(moment, run, at, self._elapsed_ms()))
            await self.look([run])

    # ---- attempts ----------------------------------------------------------------------------

    async def granted(self, taken: Sequence[ReadyTask], worker: str, lease_ms: int) -> None:
        """Record attempts that were given to a worker."""
        for one in taken:
            held = one.task.task_id, one.task.fence
            self._history.grants.append(GrantRecord(self._history.moment(), held, worker, self._elapsed_ms()))
            self._leases[held] = self._clock.now() + lease_ms
        await self.look(one.run.run_id for one in taken)

    def renewed(self, held: Iterable[AttemptRef], lease_ms: int) -> None:
        """Record the renewal of leases."""
        self._leases |= dict.fromkeys(held, self._clock.now() + lease_ms)

    def looked_for_lapsed(self, held: Iterable[AttemptRef]) -> None:
        """Record which of the open attempts that the reconciler reads have an expired lease."""
        now = self._clock.now()
        for one in held:
            if self._leases.get(one, now) <= now:
                self._history.lapsed.setdefault(one, self._history.moment())

    async def reported(self, endings: Sequence[TaskCompletion], counted: frozenset[AttemptRef], *, by: str) -> None:
        """Record reported ends of attempts, and which of them counted."""
        before = {one.task_id: self._tasks.get(one.task_id) for one in endings}
        runs = {one.run_id: await self._store.executions.find_run(one.run_id) for one in endings}
        await self.look(one.run_id for one in endings)
        for one in endings:
            run = runs[one.run_id]
            self._history.reports.append(
                ReportRecord(
                    moment=self._history.moment(),
                    run_id=one.run_id,
                    held=(one.task_id, one.fence),
                    by=by,
                    result=one.result,
                    ended_at=one.ended_at,
                    elapsed_ms=self._elapsed_ms(),
                    counted=(one.task_id, one.fence) in counted,
                    before=before[one.task_id],
                    after=self._tasks.get(one.task_id),
                    stopping=run is not None and run.cancel_requested_at is not None,
                )
            )

    async def ended_by_deadline(self, ends: Sequence[OverdueEnd]) -> None:
        """Record tasks that were ended by their deadlines while they waited."""
        for one in ends:
            self._history.deadline_ends[one.task_id] = self._clock.now()
        await self.look(one.run_id for one in ends)

    # ---- reading -----------------------------------------------------------------------------

    async def look(self, names: Iterable[RunId]) -> None:
        """Read these runs and their tasks, and the queued runs that may continue because others ended."""
        runs = [run for name in sorted(set(names)) if (run := await self._store.executions.find_run(name)) is not None]
        for task in await self._store.history.tasks(runs):
            self._tasks[task.task_id] = task
            seen = self._history.states.setdefault(task.task_id, [])
            if not seen or seen[-1] is not task.state:
                seen.append(task.state)
        ended = {run.schedule_uid for run in runs if run.over and self._ended(run)}
        for run in runs:
            interval = self._history.run_intervals.get(run.run_id)
            if interval is not None and interval.activated is None and not run.queued and not run.over:
                interval.activated, interval.activated_ms = self._history.moment(), self._elapsed_ms()
        waiting = [name for uid in ended if uid is not None for name in self._under_way[uid] if self._waits(name)]
        if waiting:
            await self.look(waiting)

    def _ended(self, run: Run) -> bool:
        """Record the end of a run. False if it was recorded before."""
        interval = self._history.run_intervals.get(run.run_id)
        if interval is None or interval.over is not None:
            return False
        interval.over = self._history.moment()
        self._under_way[interval.uid].discard(run.run_id)
        commits = len(self._history.commits)
        self._history.run_changes.append(RunEndRecord(commits, interval.uid, run.run_id, run.planned_at))
        return True

    def _waits(self, name: RunId) -> bool:
        return self._history.run_intervals[name].activated is None

    async def look_at_all(self) -> None:
        """Read every run that has not ended."""
        await self.look([name for names in list(self._under_way.values()) for name in names])
