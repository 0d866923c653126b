"""The explainer: gathers what is known about a job around a moment, and has it put into sentences."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core.explain.evidence import (
    DeletedPredecessor,
    EventEvidence,
    ExplainedSubject,
    JobEvidence,
    JobExplanation,
    PauseInterval,
    RunEvidence,
    ScheduleTimeline,
    SpecVersion,
    WorkerEvidence,
)
from gnomon.core.explain.explain import explain_subject
from gnomon.core.explain.subjects import next_subject, subjects_at, subjects_last
from gnomon.core.instants import FOREVER
from gnomon.core.jobs.fields import schedule_name
from gnomon.core.model import MINUTE_MS, Run, RunId, Schedule, Task, TaskId, Tick, TickKind
from gnomon.core.retention import RetentionHorizons, retention_horizons
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import Workflow
from gnomon.core.time_expressions import TimeRange, parse_time_ranges
from gnomon.core.triggers import OnEvent
from gnomon.errors import FieldError, NotFound
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import DeletedSchedule
from gnomon.ports.store import Store

#: How far back runs are looked for that may stand in the way.
_LOOK_BACK = 100
#: How many earlier jobs of one name are looked at.
_NAMESAKES = 100
_LONGEST = 1000
#: More than there can be in a minute.
_MOST_AT_ONCE = 1000
#: Of how many items of a step that are not done the attempts are looked at.
_ITEMS = 20
_OPEN_ATTEMPTS = 1000


class _ExplainedSubjects(NamedTuple):
    """What is to be explained, what is known so far, and how much more there is than will be told."""

    found: tuple[ExplainedSubject, ...]
    evidence: JobEvidence
    more: int = 0


class Explainer:
    """Says why: of a moment, or of what happened last. It asks a handful of questions, however much happened."""

    def __init__(self, store: Store, clock: Clock, *, settings: Settings | None = None) -> None:
        self._store = store
        self._clock = clock
        #: By which history is removed; None if it never is.
        self._settings = settings

    async def at(self, job: str, moment: str, *, tenant: str = "default") -> JobExplanation:
        """Why the job did what it did at a moment, or did nothing; also of one to come, and of a deleted job.

        The moment is one that `core.moments` reads, on the clocks of the schedule if it names none.
        """
        now, lives = self._clock.now(), await self._timelines(tenant, job)
        moments = parse_time_ranges(moment, lives[0].schedule.spec.timezone, now=now)
        if lives[0].deleted_at is None and moments[0].first_at < lives[0].schedule.created_at:
            lives += await self._gone(tenant, job)
        life, earlier = _timeline_at(lives, moments[0].first_at)
        evidence = JobEvidence(timeline=await self._with_revisions(life), earlier=earlier)
        subjects = await self._at(evidence, moments, now)
        return await self._answer(subjects, now)

    async def last(self, job: str, limit: int = 3, *, tenant: str = "default") -> JobExplanation:
        """Why what the job did last became of it, newest first, what goes on, and what comes next."""
        if not 1 <= limit <= _LONGEST:
            raise FieldError("last", limit, f"must be from 1 to {_LONGEST}")
        now, lives = self._clock.now(), await self._timelines(tenant, job)
        life = await self._with_revisions(lives[0])
        ticks = await self._store.history.ticks(life.schedule.uid, before=FOREVER, limit=limit + _LOOK_BACK)
        evidence = JobEvidence(
            timeline=life,
            ticks=tuple(ticks),
            runs=await self._runs(life, [FOREVER], limit + _LOOK_BACK),
            events=await self._event_evidence(life, FOREVER, limit),
        )
        subjects = _ExplainedSubjects(subjects_last(evidence, limit, now=now), evidence)
        answer = await self._answer(subjects, now)
        coming = explain_subject(evidence, next_subject(evidence, now=now), now=now)
        return replace(answer, coming=coming, forgotten_before=await self._forgotten_before(subjects, limit, now))

    # ---- who it is ---------------------------------------------------------------------------

    async def _timelines(self, tenant: str, job: str) -> list[ScheduleTimeline]:
        """The schedule of that name, or those that had it and are gone, newest first, as far as their own rows say."""
        standing = await self._store.schedules.find(schedule_name("tenant", tenant), schedule_name("job", job))
        lives = await self._gone(tenant, job) if standing is None else [_timeline_of(standing)]
        if not lives:
            raise NotFound("job", job)
        return lives

    async def _gone(self, tenant: str, job: str) -> list[ScheduleTimeline]:
        return [
            _timeline_of(one.schedule, one) for one in await self._store.history.deleted(tenant, job, limit=_NAMESAKES)
        ]

    async def _with_revisions(self, life: ScheduleTimeline) -> ScheduleTimeline:
        """The life with all that the schedule has said, and when it was paused."""
        uid = life.schedule.uid
        revisions = await self._store.history.revisions(uid)
        said = revisions if life.deleted_at is None else revisions[:-1]  # its end is a revision, too
        versions = tuple(
            SpecVersion(revision=one.revision, spec=one.schedule.spec, from_at=one.from_at, by=one.actor)
            for one in said
        )
        rests = tuple(
            PauseInterval(from_at=one.paused_at, by=one.paused_by, until_at=one.resumed_at, ended_by=one.resumed_by)
            for one in await self._store.history.pauses(uid)
        )
        return replace(life, versions=versions or life.versions, pause_intervals=rests)

    # ---- what happened -----------------------------------------------------------------------

    async def _at(self, evidence: JobEvidence, moments: Sequence[TimeRange], now: int) -> _ExplainedSubjects:
        life = evidence.timeline
        ends = [_end_of(moment) for moment in moments]
        ticks = await self._ticks(life, ends)
        near = [one for one in ticks if one.decision.last_at >= moments[0].first_at]
        ticks = [*await self._instead_of(near, life), *ticks]
        befores = {*ends, FOREVER, *(one.decided_at + 1 for one in near[:1])}
        evidence = replace(
            evidence,
            ticks=tuple(ticks),
            runs=await self._runs(life, befores, _MOST_AT_ONCE),
            events=await self._event_evidence(life, ends[-1], _MOST_AT_ONCE),
        )
        told = [subjects_at(evidence, moment, now=now) for moment in moments]
        found = [await self._with_run(subject) for subjects, _ in told for subject in subjects]
        if any(one.started is None and one.entry is None for one in found):
            evidence = replace(evidence, horizons=await self._kept(life, now))
        return _ExplainedSubjects(tuple(found), evidence, sum(more for _, more in told))

    async def _forgotten_before(self, subjects: _ExplainedSubjects, limit: int, now: int) -> int | None:
        """From when on history is kept, if less was found than was asked for and there may have been more."""
        life = subjects.evidence.timeline
        kept = None if len(subjects.found) >= limit else await self._kept(life, now)
        return None if kept is None or life.schedule.created_at >= kept.runs_at else kept.runs_at

    async def _with_run(self, subject: ExplainedSubject) -> ExplainedSubject:
        """The subject with its run, also if there are more at that moment than were looked at."""
        if subject.run is not None or subject.started is None:
            return subject
        return replace(subject, run=await self._store.executions.find_run(subject.started))

    async def _kept(self, life: ScheduleTimeline, now: int) -> RetentionHorizons | None:
        """From when on the job's history is kept, to the minute; None if all of it is."""
        if self._settings is None:
            return None
        schedule, usual = life.schedule, self._settings.execution.history_retention_days
        newest = await self._store.jobs.newest_workflows(schedule.tenant, [schedule.spec.workflow_id])
        said = [one.retention_days for one in newest if one.retention_days is not None]
        now, dedupe_ms = now - now % MINUTE_MS, self._settings.cleaner.dedupe_ms
        window = schedule.spec.catchup_window_ms
        kept = retention_horizons(*said or [usual], dedupe_ms=dedupe_ms, catchup_window_ms=window, now=now)
        if not isinstance(schedule.spec.trigger, OnEvent):
            return kept
        # Events are everybody's, and go when those of all jobs do.
        events = retention_horizons(usual, dedupe_ms=dedupe_ms, now=now)
        return RetentionHorizons(max(kept.runs_at, events.keys_at), kept.keys_at)

    async def _ticks(self, life: ScheduleTimeline, ends: Sequence[int]) -> list[Tick]:
        """Those before each of the moments has ended, newest first."""
        pages = [await self._store.history.ticks(life.schedule.uid, before=end, limit=_MOST_AT_ONCE) for end in ends]
        found = {one.decision.planned_at: one for page in pages for one in page}
        return [found[at] for at in sorted(found, reverse=True)]

    async def _instead_of(self, near: Sequence[Tick], life: ScheduleTimeline) -> Sequence[Tick]:
        """The newest ticks that were decided together with one that was left to a newer one."""
        let_go = [one for one in near if one.decision.kind is TickKind.COALESCED]
        if not let_go:
            return ()
        before = let_go[0].decided_at + life.schedule.spec.jitter_ms + 1
        found = await self._store.history.ticks(life.schedule.uid, before=before, limit=2)
        return [one for one in found if one.decision.planned_at > let_go[0].decision.last_at]

    async def _runs(self, life: ScheduleTimeline, befores: Iterable[int], limit: int) -> tuple[Run, ...]:
        found: dict[RunId, Run] = {}
        for before in befores:
            page = await self._store.history.runs(life.schedule.uid, before=before, limit=limit)
            found |= {run.run_id: run for run in page}
        return tuple(sorted(found.values(), key=lambda run: (run.planned_at, run.run_id), reverse=True))

    async def _event_evidence(self, life: ScheduleTimeline, before: int, limit: int) -> tuple[EventEvidence, ...]:
        schedule, trigger = life.schedule, life.version_at(before).spec.trigger
        if not isinstance(trigger, OnEvent):
            return ()
        events = await self._store.events.page(schedule.tenant, name=trigger.event, after=(before, ""), limit=limit)
        lived = [one for one in events if one.emitted_at >= schedule.created_at]
        entries = await self._store.events.effects([one.event_id for one in lived]) if lived else ()
        ours = {one.event_id: one for one in entries if one.schedule_uid == schedule.uid}
        return tuple(EventEvidence(one, ours.get(one.event_id)) for one in lived)

    # ---- what became of it -------------------------------------------------------------------

    async def _answer(self, subjects: _ExplainedSubjects, now: int) -> JobExplanation:
        evidence = await self._with_work(subjects)
        schedule = evidence.timeline.schedule
        return JobExplanation(
            job=schedule.schedule_id,
            timezone=schedule.spec.timezone,
            schedule=schedule.spec.trigger.describe(),
            explanations=tuple(explain_subject(evidence, one, now=now) for one in subjects.found),
            more=subjects.more,
        )

    async def _with_work(self, subjects: _ExplainedSubjects) -> JobEvidence:
        """The evidence with what the runs are made of, and who could carry them out."""
        runs = {one.run.run_id: one.run for one in subjects.found if one.run is not None}
        if not runs:
            return subjects.evidence
        tasks = await self._store.history.tasks(list(runs.values()))
        attempts = await self._store.executions.attempts(_tasks_to_inspect(tasks))
        workflows = await self._workflows(run for run in runs.values() if not run.over)
        owners = {task.task_id: task.run_id for task in tasks}
        ran = {
            run_id: RunEvidence(
                tasks=tuple(task for task in tasks if task.run_id == run_id),
                attempts=tuple(one for one in attempts if owners[one.task_id] == run_id),
                workflow=workflows.get((run.workflow_id, run.workflow_version)),
            )
            for run_id, run in runs.items()
        }
        ready = [task.task_id for task in tasks if task.state is TaskState.SCHEDULED]
        where = await self._store.placement.placements(ready) if ready else {}
        return replace(
            subjects.evidence, run_evidence=ran, workers=await self._attempt_evidence(tasks), placements=where
        )

    async def _workflows(self, runs: Iterable[Run]) -> dict[tuple[str, int], Workflow]:
        """What the runs go by: one question for each version, of which there are few."""
        wanted = {(run.tenant, run.workflow_id, run.workflow_version) for run in runs}
        found = [await self._store.jobs.workflow(*one) for one in sorted(wanted)]
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
                worker=card.worker,
                functions=card.functions,
                slots=card.slots,
                busy=busy[card.worker],
                pool=card.pool,
            )
            for card in await self._store.workers.alive()
        )


def _timeline_of(schedule: Schedule, gone: DeletedSchedule | None = None) -> ScheduleTimeline:
    first = SpecVersion(revision=1, spec=schedule.spec, from_at=schedule.created_at, by="")
    if gone is None:
        return ScheduleTimeline(schedule=schedule, versions=(first,))
    return ScheduleTimeline(
        schedule=schedule, versions=(first,), deleted_at=gone.deleted_at, deleted_by=gone.deleted_by
    )


def _timeline_at(lives: Sequence[ScheduleTimeline], at: int) -> tuple[ScheduleTimeline, DeletedPredecessor | None]:
    """The one that lived then; else the first that came after, or the last there was, and who was there before."""
    before = [one for one in lives if one.deleted_at is not None and one.deleted_at <= at]
    later = [one for one in lives if one not in before]
    living = [one for one in later if one.schedule.created_at <= at]
    if living or not before or not later:
        return (living or later[-1:] or list(lives))[0], None
    last = before[0]
    return later[-1], DeletedPredecessor(deleted_at=last.deleted_at or 0, deleted_by=last.deleted_by)


def _end_of(moment: TimeRange) -> int:
    """When all that belongs to the moment is over: what clocks have skipped is made up for at the next whole minute."""
    return moment.last_at + (1 if moment.skipped is None else MINUTE_MS)


def _tasks_to_inspect(tasks: Sequence[Task]) -> list[TaskId]:
    """The tasks whose attempts are told: every step, and of the items those that are not done, the first few."""
    items = [task for task in tasks if task.parent is not None and task.state is not TaskState.SUCCEEDED]
    items.sort(key=lambda task: (task.state in TERMINAL, task.item))
    return [task.task_id for task in (*(one for one in tasks if one.parent is None), *items[:_ITEMS])]
