"""Searches jobs by name, description, tag and state, in several orders, with their newest ticks."""

from collections.abc import Collection, Sequence
from enum import StrEnum

from msgspec import Struct

from gnomon.core.model import Schedule, ScheduleUid, TickStatus
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import ScheduleOrder, SchedulePosition, Schedules, TickHistory, TickMark, schedule_position
from gnomon.services.operations.executions import SearchPage
from gnomon.services.operations.jobs import JobService, JobView
from gnomon.services.operations.overview import OVERDUE_MS
from gnomon.services.operations.presenters.jobs import state_of

#: The number of newest ticks of each job.
STRIP = 20
#: The jobs that are looked at for one page of matches, and at once.
_SCAN_LIMIT, _BATCH = 1000, 100


class JobStateFilter(StrEnum):
    """The states by which jobs are listed: the words of their summaries, `failing` and `overdue`."""

    ACTIVE = "active"
    PAUSED = "paused"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    MISSED = "missed"
    #: Of its newest ticks, the last one whose execution has ended has failed.
    FAILING = "failing"
    #: Its next fire should have been decided a second ago or longer.
    OVERDUE = "overdue"


class JobFilter(Struct, frozen=True, kw_only=True):
    """A selection of jobs: all of a tenant, narrowed by the fields that are set."""

    #: A part of the name, the description or a tag, in upper or lower case.
    text: str | None = None
    tag: str | None = None
    state: JobStateFilter | None = None
    names: frozenset[str] | None = None


class ListedJob(Struct, frozen=True):
    """A job in a list, with its newest ticks, newest first; None if they were not asked for."""

    view: JobView
    ticks: Sequence[TickMark] | None = None


class JobSearchService:
    """Searches jobs. It looks at a limited number of them for a page, so that a page may have fewer than its limit."""

    def __init__(
        self,
        jobs: JobService,
        schedules: Schedules,
        ticks: TickHistory,
        clock: Clock,
        *,
        scan_limit: int = _SCAN_LIMIT,
    ) -> None:
        self._clock = clock
        self._jobs = jobs
        self._schedules = schedules
        self._ticks = ticks
        self._scan_limit = scan_limit
        self._batch = min(scan_limit, _BATCH)

    async def page(
        self,
        filters: JobFilter,
        *,
        tenant: str,
        order: ScheduleOrder = ScheduleOrder.NAME,
        after: SchedulePosition | None = None,
        limit: int = 100,
        with_ticks: bool = False,
    ) -> SearchPage[ListedJob, SchedulePosition]:
        """The jobs that match, after a position in that order."""
        size = limit if filters == JobFilter() else self._batch
        found: list[JobView] = []
        for _ in range(max(1, self._scan_limit // size)):
            schedules = await self._schedules.in_order(tenant, order, after=after, limit=size)
            matches = await self._matches(schedules, filters, tenant)
            missing = limit - len(found)
            found += matches[:missing]
            if len(matches) > missing or (len(found) == limit and len(schedules) == size):
                return await self._listed(found, schedule_position(found[-1].schedule, order), with_ticks=with_ticks)
            if len(schedules) < size:
                return await self._listed(found, None, with_ticks=with_ticks)
            after = schedule_position(schedules[-1], order)
        return await self._listed(found, after, with_ticks=with_ticks)

    async def _listed(
        self, views: Sequence[JobView], after: SchedulePosition | None, *, with_ticks: bool
    ) -> SearchPage[ListedJob, SchedulePosition]:
        if not with_ticks:
            return SearchPage([ListedJob(view) for view in views], after)
        ticks = await self._ticks.newest([view.schedule.uid for view in views], each=STRIP)
        return SearchPage([ListedJob(view, ticks.get(view.schedule.uid, ())) for view in views], after)

    async def _matches(self, schedules: Sequence[Schedule], filters: JobFilter, tenant: str) -> list[JobView]:
        """The views of the schedules that match. Costly questions are asked only about those that may still match."""
        if filters.names is not None:
            schedules = [one for one in schedules if one.schedule_id in filters.names]
        if filters.text is not None or filters.tag is not None:
            workflows = await self._jobs.workflows_of(schedules, tenant=tenant)
            schedules = [one for one in schedules if _has_words(one, workflows.get(one.uid), filters)]
        if filters.state is JobStateFilter.FAILING:
            failing = await self._failing([one.uid for one in schedules])
            schedules = [one for one in schedules if one.uid in failing]
        elif filters.state is JobStateFilter.OVERDUE:
            before = self._clock.now() - OVERDUE_MS
            schedules = [one for one in schedules if one.next_fire_at is not None and one.next_fire_at < before]
        elif filters.state is not None:
            schedules = [one for one in schedules if _may_be(one, filters.state)]
        views = await self._jobs.views(schedules, tenant=tenant)
        if filters.state in (None, JobStateFilter.FAILING, JobStateFilter.OVERDUE):
            return views
        return [view for view in views if filters.state.value in _words(view)]

    async def _failing(self, uids: Sequence[ScheduleUid]) -> Collection[ScheduleUid]:
        """The schedules whose last execution to end has failed. The newest tick alone tells it of most jobs."""
        ticks: dict[ScheduleUid, Sequence[TickMark]] = {**await self._ticks.newest(uids, each=1)}
        open_still = [uid for uid, marks in ticks.items() if _last_end(marks) is None]
        if open_still:
            ticks |= await self._ticks.newest(open_still, each=STRIP)
        return {uid for uid, marks in ticks.items() if _last_end(marks) is TickStatus.FAILED}


def _last_end(marks: Sequence[TickMark]) -> TickStatus | None:
    """The status of the newest tick whose execution has ended."""
    ended = (mark.status for mark in marks if mark.status in (TickStatus.SUCCESS, TickStatus.FAILED))
    return next(ended, None)


def _has_words(schedule: Schedule, workflow: Workflow | None, filters: JobFilter) -> bool:
    tags = () if workflow is None else workflow.tags
    if filters.tag is not None and filters.tag not in tags:
        return False
    if filters.text is None:
        return True
    text = filters.text.casefold()
    about = "" if workflow is None else workflow.description
    return any(text in one.casefold() for one in (schedule.schedule_id, about, *tags))


def _may_be(schedule: Schedule, state: JobStateFilter) -> bool:
    """Whether the schedule alone leaves open that its job is in that state."""
    under_way = schedule.active_runs + schedule.queued_runs > 0
    if state is JobStateFilter.PAUSED:
        return schedule.paused_at is not None
    if state in (JobStateFilter.RUNNING, JobStateFilter.WAITING):
        return under_way
    return not under_way and schedule.paused_at is None


def _words(view: JobView) -> list[str]:
    """The states of a job: of `running, paused`, both."""
    return state_of(view.schedule, running=view.running, last_kind=view.last_kind).split(", ")
