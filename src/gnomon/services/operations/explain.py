"""Collects the evidence about a job around a time; `core.explain` turns it into sentences."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core.explain.evidence import (
    DeletedPredecessor,
    EventEvidence,
    ExplainedSubject,
    ExplanationKind,
    JobEvidence,
    JobExplanation,
    PauseInterval,
    RunEvidence,
    ScheduleTimeline,
    SpecVersion,
    SubjectExplanation,
    SubjectSentence,
    WorkerEvidence,
)
from gnomon.core.explain.explain import explain_subject, tell_subject
from gnomon.core.explain.rulings import explain_coming_rulings
from gnomon.core.explain.subjects import newest_is_settled, next_subject, subjects_at, subjects_last
from gnomon.core.instants import FOREVER
from gnomon.core.jobs.fields import schedule_name
from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit
from gnomon.core.ledger.restored import RESTORE_ACTION, RESTORED_KIND, StoreRestore, read_restore
from gnomon.core.model import MINUTE_MS, Attempt, Run, RunId, Schedule, ScheduleUid, Task, TaskId, Tick, TickKind
from gnomon.core.policy.ruling import TaskRulings
from gnomon.core.retention import RetentionHorizons, retention_horizons
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import Workflow
from gnomon.core.time_expressions import TimeRange, parse_time_ranges
from gnomon.core.triggers import OnEvent
from gnomon.errors import FieldError, NotFound
from gnomon.ports.audit import AuditQuery
from gnomon.ports.runs import ItemQuery
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import DeletedSchedule, Pause, Revision
from gnomon.ports.store import Store
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.policy_outlook import ExpectedRun, PolicyOutlook

#: The number of earlier runs that are read to find one that blocked a tick.
_LOOK_BACK = 100
#: The number of newest ticks and runs that tell of most jobs why the newest tick was decided as it was.
_FEW = 3
#: The number of deleted jobs of one name that are read.
_MOST_DELETED = 100
_LONGEST = 1000
#: The number of restorations of backups that are read.
_RESTORES = 20
#: The rows that are read around a time: more than a minute can have.
_MOST_AT_ONCE = 1000
#: The number of unfinished items of a step whose attempts are read.
_ITEMS = 20
_OPEN_ATTEMPTS = 1000
#: The number of runs whose rulings are read, and of tasks of each.
_RULED_RUNS, _RULED_TASKS = 50, 200
#: The items of a run that are read, of those that are open and of those that have failed.
_ITEMS_READ = 200
_OPEN_STATES = frozenset(TaskState) - TERMINAL
_FAILED_STATES = TERMINAL - {TaskState.SUCCEEDED}


class _ExplainedSubjects(NamedTuple):
    """The subjects to explain, the evidence so far, and the number of subjects that are left out."""

    found: tuple[ExplainedSubject, ...]
    evidence: JobEvidence
    more: int = 0


class Explainer:
    """Explains a time, or the last ticks of a job, with a handful of queries however long the history is."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        settings: Settings | None = None,
        compute: ComputeQueue | None = None,
        catchup_limit: CatchupLimit = DEFAULT_LIMIT,
        outlook: PolicyOutlook | None = None,
    ) -> None:
        """`outlook` knows what the policy would decide about coming runs; None: nobody does."""
        self._outlook = outlook
        self._compute = compute or ComputeQueue()
        self._store = store
        self._clock = clock
        #: The retention settings; None if history is never deleted.
        self._settings = settings
        self._catchup_limit = catchup_limit

    async def at(self, job: str, moment: str, *, tenant: str = "default") -> JobExplanation:
        """Explain why the job ran or did not run at a time, which may be in the future; the job may be deleted.

        The time has the format of `core.time_expressions`, in the schedule's time zone unless it names another.
        """
        now, timelines = self._clock.now(), await self._timelines(tenant, job)
        ranges = parse_time_ranges(moment, timelines[0].schedule.spec.timezone, now=now)
        if timelines[0].deleted_at is None and ranges[0].first_at < timelines[0].schedule.created_at:
            timelines += await self._deleted_timelines(tenant, job)
        timeline, earlier = _timeline_at(timelines, ranges[0].first_at)
        evidence = JobEvidence(timeline=await self._with_revisions(timeline), earlier=earlier)
        subjects = await self._at(evidence, ranges, now)
        answer = await self._answer(subjects, now)
        return replace(
            answer, explanations=tuple([await self._with_outlook(one, timeline) for one in answer.explanations])
        )

    async def last(self, job: str, limit: int = 3, *, tenant: str = "default") -> JobExplanation:
        """Explain the last ticks of the job, newest first, its active runs and its next run."""
        if not 1 <= limit <= _LONGEST:
            raise FieldError("last", limit, f"must be from 1 to {_LONGEST}")
        now, timelines = self._clock.now(), await self._timelines(tenant, job)
        timeline = await self._with_revisions(timelines[0])
        ticks = await self._store.history.ticks(timeline.schedule.uid, before=FOREVER, limit=limit + _LOOK_BACK)
        evidence = JobEvidence(
            timeline=timeline,
            ticks=tuple(ticks),
            runs=await self._runs(timeline, [FOREVER], limit + _LOOK_BACK),
            events=await self._event_evidence(timeline, FOREVER, limit),
        )
        subjects = _ExplainedSubjects(subjects_last(evidence, limit, now=now), evidence)
        answer = await self._answer(subjects, now)
        coming = explain_subject(evidence, next_subject(evidence, now=now), now=now)
        coming = await self._with_outlook(coming, timelines[0])
        return replace(answer, coming=coming, forgotten_before=await self._forgotten_before(subjects, limit, now))

    async def newest(self, schedules: Sequence[Schedule]) -> Mapping[ScheduleUid, SubjectSentence]:
        """The first sentence of `last(job, 1)` of each of these standing jobs that has any, with few reads for all."""
        found: dict[ScheduleUid, SubjectSentence] = {}
        for start in range(0, len(schedules), _RULED_RUNS):
            found |= await self._newest(schedules[start : start + _RULED_RUNS])
        return found

    async def _newest(self, schedules: Sequence[Schedule]) -> Mapping[ScheduleUid, SubjectSentence]:
        now = self._clock.now()
        evidence = await self._recent_evidence(schedules, _FEW)
        subjects = {uid: subjects_last(one, 1, now=now) for uid, one in evidence.items()}
        unsettled = [one for one in schedules if not newest_is_settled(evidence[one.uid], subjects[one.uid], each=_FEW)]
        more = await self._recent_evidence(unsettled, 1 + _LOOK_BACK)
        evidence |= more
        subjects |= {uid: subjects_last(one, 1, now=now) for uid, one in more.items()}
        first = {uid: found[0] for uid, found in subjects.items() if found}
        ran = await self._told_runs([one.run for one in first.values() if one.run is not None])
        with_runs = {uid for uid, found in subjects.items() if any(one.run is not None for one in found)}
        restores = await self._restores() if with_runs else ()

        def told(uid: ScheduleUid, subject: ExplainedSubject) -> SubjectSentence:
            known = replace(evidence[uid], run_evidence=ran, restores=restores if uid in with_runs else ())
            return tell_subject(known, subject, now=now)

        return await self._compute.run_in_thread(lambda: {uid: told(uid, one) for uid, one in first.items()})

    async def _recent_evidence(self, schedules: Sequence[Schedule], each: int) -> dict[ScheduleUid, JobEvidence]:
        """The evidence about each of these jobs, with so many ticks and runs, and without details of runs."""
        if not schedules:
            return {}
        recent = await self._store.tick_history.recent(schedules, each=each)
        found: dict[ScheduleUid, JobEvidence] = {}
        for one in schedules:
            known = recent[one.uid]
            timeline = self._with_changes(_timeline_of(one), known.revisions, known.pauses)
            found[one.uid] = JobEvidence(
                timeline=timeline,
                ticks=tuple(known.ticks),
                runs=tuple(known.runs),
                events=await self._event_evidence(timeline, FOREVER, 1),
            )
        return found

    async def _told_runs(self, runs: Sequence[Run]) -> Mapping[RunId, RunEvidence]:
        """The evidence about these runs that their sentences need: the attempts only of runs with one task."""
        if not runs:
            return {}
        by_id = {run.run_id: run for run in runs}
        tasks = await self._tasks(list(by_id))
        counts = Counter(task.run_id for task in tasks)
        attempts = await self._store.executions.attempts([one.task_id for one in tasks if counts[one.run_id] == 1])
        workflows = await self._workflows(run for run in runs if not run.over or run.rollback is not None)
        return _run_evidence(by_id, tasks, attempts, workflows, await self._rulings(list(by_id)))

    async def _with_outlook(self, coming: SubjectExplanation, timeline: ScheduleTimeline) -> SubjectExplanation:
        """The explanation of a coming tick, with what the policy would decide about its run."""
        if self._outlook is None or coming.kind is not ExplanationKind.COMING:
            return coming
        schedule = timeline.schedule
        spec = schedule.spec
        workflow = await self._store.jobs.workflow(schedule.tenant, spec.workflow_id, spec.workflow_version)
        if workflow is None:
            return coming
        run = ExpectedRun(tenant=schedule.tenant, job=schedule.schedule_id, workflow=workflow, at=coming.at)
        [found] = await self._outlook.of([run])
        said = explain_coming_rulings(found.steps, found.version, alone=workflow.is_single_step)
        return replace(coming, sentence=" ".join((coming.sentence, *said)))

    # ---- the job -----------------------------------------------------------------------------

    async def _timelines(self, tenant: str, job: str) -> list[ScheduleTimeline]:
        """The schedule of that name, or the deleted ones that had it, newest first, without their revisions."""
        standing = await self._store.schedules.find(schedule_name("tenant", tenant), schedule_name("job", job))
        timelines = await self._deleted_timelines(tenant, job) if standing is None else [_timeline_of(standing)]
        if not timelines:
            raise NotFound("job", job)
        return timelines

    async def _deleted_timelines(self, tenant: str, job: str) -> list[ScheduleTimeline]:
        return [
            _timeline_of(one.schedule, one)
            for one in await self._store.history.deleted(tenant, job, limit=_MOST_DELETED)
        ]

    async def _with_revisions(self, timeline: ScheduleTimeline) -> ScheduleTimeline:
        """The timeline with all revisions and pauses of the schedule."""
        uid = timeline.schedule.uid
        revisions = await self._store.history.revisions(uid)
        return self._with_changes(timeline, revisions, await self._store.history.pauses(uid))

    def _with_changes(
        self, timeline: ScheduleTimeline, revisions: Sequence[Revision], pauses: Sequence[Pause]
    ) -> ScheduleTimeline:
        specs = revisions if timeline.deleted_at is None else revisions[:-1]  # the deletion is a revision, too
        versions = tuple(
            SpecVersion(revision=one.revision, spec=one.schedule.spec, from_at=one.from_at, by=one.actor)
            for one in specs
        )
        intervals = tuple(
            PauseInterval(from_at=one.paused_at, by=one.paused_by, until_at=one.resumed_at, ended_by=one.resumed_by)
            for one in pauses
        )
        return replace(
            timeline,
            versions=versions or timeline.versions,
            pause_intervals=intervals,
            catchup_limit=self._catchup_limit,
        )

    # ---- ticks, runs and events ----------------------------------------------------------------

    async def _at(self, evidence: JobEvidence, ranges: Sequence[TimeRange], now: int) -> _ExplainedSubjects:
        timeline = evidence.timeline
        ends = [_end_of(one) for one in ranges]
        ticks = await self._ticks(timeline, ends)
        near = [one for one in ticks if one.decision.last_at >= ranges[0].first_at]
        ticks = [*await self._instead_of(near, timeline), *ticks]
        upper_bounds = {*ends, FOREVER, *(one.decided_at + 1 for one in near[:1])}
        evidence = replace(
            evidence,
            ticks=tuple(ticks),
            runs=await self._runs(timeline, upper_bounds, _MOST_AT_ONCE),
            events=await self._event_evidence(timeline, ends[-1], _MOST_AT_ONCE),
        )
        found_at = [subjects_at(evidence, one, now=now) for one in ranges]
        found = [await self._with_run(subject) for subjects, _ in found_at for subject in subjects]
        if any(one.started is None and one.entry is None for one in found):
            evidence = replace(evidence, horizons=await self._kept(timeline, now))
        return _ExplainedSubjects(tuple(found), evidence, sum(more for _, more in found_at))

    async def _forgotten_before(self, subjects: _ExplainedSubjects, limit: int, now: int) -> int | None:
        """The time from which on history is kept, if it may explain why fewer ticks than requested were found."""
        timeline = subjects.evidence.timeline
        kept = None if len(subjects.found) >= limit else await self._kept(timeline, now)
        return None if kept is None or timeline.schedule.created_at >= kept.runs_at else kept.runs_at

    async def _with_run(self, subject: ExplainedSubject) -> ExplainedSubject:
        """The subject with its run, which may be beyond the rows that were read."""
        if subject.run is not None or subject.started is None:
            return subject
        return replace(subject, run=await self._store.executions.find_run(subject.started))

    async def _kept(self, timeline: ScheduleTimeline, now: int) -> RetentionHorizons | None:
        """The time from which on the job's history is kept, to the minute; None if all of it is."""
        if self._settings is None:
            return None
        schedule, usual = timeline.schedule, self._settings.execution.history_retention_days
        newest = await self._store.jobs.newest_workflows(schedule.tenant, [schedule.spec.workflow_id])
        own = [one.retention_days for one in newest if one.retention_days is not None]
        now, dedupe_ms = now - now % MINUTE_MS, self._settings.cleaner.dedupe_ms
        window = schedule.spec.catchup_window_ms
        kept = retention_horizons(*own or [usual], dedupe_ms=dedupe_ms, catchup_window_ms=window, now=now)
        if not isinstance(schedule.spec.trigger, OnEvent):
            return kept
        # Events are shared by all jobs: they are deleted by the default retention, not by the job's.
        events = retention_horizons(usual, dedupe_ms=dedupe_ms, now=now)
        return RetentionHorizons(max(kept.runs_at, events.keys_at), kept.keys_at)

    async def _ticks(self, timeline: ScheduleTimeline, ends: Sequence[int]) -> list[Tick]:
        """The ticks before the end of each time range, newest first."""
        pages = [
            await self._store.history.ticks(timeline.schedule.uid, before=end, limit=_MOST_AT_ONCE) for end in ends
        ]
        found = {one.decision.planned_at: one for page in pages for one in page}
        return [found[at] for at in sorted(found, reverse=True)]

    async def _instead_of(self, near: Sequence[Tick], timeline: ScheduleTimeline) -> Sequence[Tick]:
        """The newer ticks that were decided together with a coalesced one, and replace it."""
        coalesced = [one for one in near if one.decision.kind is TickKind.COALESCED]
        if not coalesced:
            return ()
        before = coalesced[0].decided_at + timeline.schedule.spec.jitter_ms + 1
        found = await self._store.history.ticks(timeline.schedule.uid, before=before, limit=2)
        return [one for one in found if one.decision.planned_at > coalesced[0].decision.last_at]

    async def _runs(self, timeline: ScheduleTimeline, upper_bounds: Iterable[int], limit: int) -> tuple[Run, ...]:
        found: dict[RunId, Run] = {}
        for before in upper_bounds:
            page = await self._store.history.runs(timeline.schedule.uid, before=before, limit=limit)
            found |= {run.run_id: run for run in page}
        return tuple(sorted(found.values(), key=lambda run: (run.planned_at, run.run_id), reverse=True))

    async def _event_evidence(self, timeline: ScheduleTimeline, before: int, limit: int) -> tuple[EventEvidence, ...]:
        schedule, trigger = timeline.schedule, timeline.version_at(before).spec.trigger
        if not isinstance(trigger, OnEvent):
            return ()
        events = await self._store.events.page(schedule.tenant, name=trigger.event, after=(before, ""), limit=limit)
        emitted = [one for one in events if one.emitted_at >= schedule.created_at]
        entries = await self._store.events.effects([one.event_id for one in emitted]) if emitted else ()
        ours = {one.event_id: one for one in entries if one.schedule_uid == schedule.uid}
        return tuple(EventEvidence(one, ours.get(one.event_id)) for one in emitted)

    # ---- tasks, attempts and workers -----------------------------------------------------------

    async def _answer(self, subjects: _ExplainedSubjects, now: int) -> JobExplanation:
        evidence = await self._with_work(subjects)
        schedule = evidence.timeline.schedule
        # In a thread: a run may have thousands of waiting tasks, each with a sentence of its own.
        explanations = await self._compute.run_in_thread(
            lambda: tuple(explain_subject(evidence, one, now=now) for one in subjects.found)
        )
        return JobExplanation(
            job=schedule.schedule_id,
            timezone=schedule.spec.timezone,
            schedule=schedule.spec.trigger.describe(),
            explanations=explanations,
            more=subjects.more,
        )

    async def _with_work(self, subjects: _ExplainedSubjects) -> JobEvidence:
        """The evidence with the tasks and attempts of the runs, and the workers that could execute them."""
        runs = {one.run.run_id: one.run for one in subjects.found if one.run is not None}
        if not runs:
            return subjects.evidence
        restores = await self._restores()
        tasks = await self._tasks(list(runs))
        attempts = await self._store.executions.attempts(_tasks_to_inspect(tasks))
        workflows = await self._workflows(run for run in runs.values() if not run.over or run.rollback is not None)
        rulings = await self._rulings(list(runs))
        ran = _run_evidence(runs, tasks, attempts, workflows, rulings)
        ready = [task.task_id for task in tasks if task.state is TaskState.SCHEDULED]
        placements = await self._store.placement.placements(ready) if ready else {}
        return replace(
            subjects.evidence,
            run_evidence=ran,
            workers=await self._attempt_evidence(tasks),
            placements=placements,
            restores=restores,
        )

    async def _rulings(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[TaskRulings]]:
        """The rulings about the tasks of the first of these runs: a policy here, or a kernel, may have made some."""
        return {
            run_id: await self._store.rulings.of_tasks(run_id, limit=_RULED_TASKS)
            for run_id in await self._store.rulings.ruled_runs(runs[:_RULED_RUNS])
        }

    async def _restores(self) -> tuple[StoreRestore, ...]:
        """The last restorations of backups, which the audit trail records."""
        query = AuditQuery(tenant="default", kind=RESTORED_KIND, action=RESTORE_ACTION, limit=_RESTORES)
        found = await self._store.audit.page(query)
        return tuple(read_restore(one.entry.details) for one in found)

    async def _tasks(self, runs: Sequence[RunId]) -> list[Task]:
        """The tasks of the steps, and of the first items that are open or have failed."""
        found = list(await self._store.run_tasks.steps(runs))
        for run_id in dict.fromkeys(one.run_id for one in found if one.open_items):
            found += await self._store.run_tasks.items(_items_query(run_id, _OPEN_STATES))
        for run_id in dict.fromkeys(one.run_id for one in found if one.failed_items):
            found += await self._store.run_tasks.items(_items_query(run_id, _FAILED_STATES))
        return found

    async def _workflows(self, runs: Iterable[Run]) -> dict[tuple[str, int], Workflow]:
        """The workflows of the runs: one query per version, of which there are few."""
        versions = {(run.tenant, run.workflow_id, run.workflow_version) for run in runs}
        found = [await self._store.jobs.workflow(*one) for one in sorted(versions)]
        return {(one.workflow_id, one.version): one for one in found if one is not None}

    async def _attempt_evidence(self, tasks: Sequence[Task]) -> tuple[WorkerEvidence, ...]:
        if all(task.state in TERMINAL for task in tasks):
            return ()
        busy = Counter[str]()
        if any(task.state is TaskState.SCHEDULED for task in tasks):
            page = await self._store.attempts.open_attempts(after=TaskId(""), limit=_OPEN_ATTEMPTS)
            busy = Counter(one.attempt.worker for one in page.attempts)
        return tuple(
            WorkerEvidence(
                worker=worker.worker,
                functions=worker.functions,
                slots=worker.slots,
                busy=busy[worker.worker],
                pool=worker.pool,
            )
            for worker in await self._store.workers.alive()
        )


def _timeline_of(schedule: Schedule, deleted: DeletedSchedule | None = None) -> ScheduleTimeline:
    first = SpecVersion(revision=1, spec=schedule.spec, from_at=schedule.created_at, by="")
    if deleted is None:
        return ScheduleTimeline(schedule=schedule, versions=(first,))
    return ScheduleTimeline(
        schedule=schedule, versions=(first,), deleted_at=deleted.deleted_at, deleted_by=deleted.deleted_by
    )


def _timeline_at(timelines: Sequence[ScheduleTimeline], at: int) -> tuple[ScheduleTimeline, DeletedPredecessor | None]:
    """The timeline that covers `at`; else the next one with its deleted predecessor, or the last one."""
    before = [one for one in timelines if one.deleted_at is not None and one.deleted_at <= at]
    later = [one for one in timelines if one not in before]
    covering = [one for one in later if one.schedule.created_at <= at]
    if covering or not before or not later:
        return (covering or later[-1:] or list(timelines))[0], None
    last = before[0]
    return later[-1], DeletedPredecessor(deleted_at=last.deleted_at or 0, deleted_by=last.deleted_by)


def _end_of(span: TimeRange) -> int:
    """The end of the range; a time that a clock change skips fires at the next whole minute."""
    return span.last_at + (1 if span.skipped is None else MINUTE_MS)


def _run_evidence(
    runs: Mapping[RunId, Run],
    tasks: Sequence[Task],
    attempts: Sequence[Attempt],
    workflows: Mapping[tuple[str, int], Workflow],
    rulings: Mapping[RunId, Sequence[TaskRulings]],
) -> dict[RunId, RunEvidence]:
    """The evidence of each run, in one pass over the tasks of all of them."""
    tasks_of, attempts_of = defaultdict[RunId, list[Task]](list), defaultdict[RunId, list[Attempt]](list)
    owners: dict[TaskId, RunId] = {}
    for task in tasks:
        tasks_of[task.run_id].append(task)
        owners[task.task_id] = task.run_id
    for one in attempts:
        attempts_of[owners[one.task_id]].append(one)
    return {
        run_id: RunEvidence(
            tasks=tuple(tasks_of[run_id]),
            attempts=tuple(attempts_of[run_id]),
            rulings=tuple(ruling for one in rulings.get(run_id, ()) for ruling in one.rulings),
            approvals=tuple(approval for one in rulings.get(run_id, ()) for approval in one.approvals),
            workflow=workflows.get((run.workflow_id, run.workflow_version)),
        )
        for run_id, run in runs.items()
    }


def _items_query(run_id: RunId, states: frozenset[TaskState]) -> ItemQuery:
    return ItemQuery(run_id=run_id, states=states, limit=_ITEMS_READ)


def _tasks_to_inspect(tasks: Sequence[Task]) -> list[TaskId]:
    """The tasks whose attempts are read: every step, and the first unfinished items."""
    items = [task for task in tasks if task.parent is not None and task.state is not TaskState.SUCCEEDED]
    items.sort(key=lambda task: (task.state in TERMINAL, task.item))
    return [task.task_id for task in (*(one for one in tasks if one.parent is None), *items[:_ITEMS])]
