"""The metrics of a node whose store is a stand-in that can fail."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from contracts.store import NOON, minutely
from gnomon.adapters.prometheus import render_metrics
from gnomon.config.sections import MetricsSettings
from gnomon.core.ledger.plan import plan, run_record
from gnomon.core.metrics import METRICS, MetricChanges, MetricFamily
from gnomon.core.model import Run, RunId, RunStatus, ScheduleUid
from gnomon.core.runs.states import TaskState
from gnomon.errors import StoreUnavailable
from gnomon.ports.maintenance import HeldTasks, JobStats, MarksAhead, StoreStats
from gnomon.services.observability.health import HealthMonitor, StepFailures
from gnomon.services.observability.metrics import MetricsRecorder, MetricsSnapshot
from gnomon.testing.clock import VirtualClock

FOUND = StoreStats(
    store_at=NOON,
    schema=3,
    jobs=3,
    due=1,
    oldest_due_at=NOON - 1500,
    overdue=0,
    ready_since_at=None,
    workers=2,
    shards=256,
    holders=1,
    unresolved=4,
    job_stats=(
        JobStats(uid=ScheduleUid("sch_first"), job="first", next_fire_at=NOON + 60_000, locked=True),
        JobStats(uid=ScheduleUid("sch_second"), job="second", next_fire_at=None, locked=False),
        JobStats(uid=ScheduleUid("sch_third"), job="third", next_fire_at=NOON - 2000, locked=False),
    ),
)


class FakeStatsReader:
    """A stats_reader that finds what it is told to, or fails."""

    def __init__(self) -> None:
        self.away = False
        self.successes: dict[ScheduleUid, int] = {}
        self.stale: Mapping[TaskState, int] = {}
        #: The schedules whose last success was asked for, each time.
        self.looked_for: list[list[ScheduleUid]] = []
        self.of_steps: dict[RunId, Sequence[tuple[str, str]]] = {}

    async def read(self, now: int, *, overdue_before: int, max_jobs: int, stale_before: int = 0) -> StoreStats:
        del now, overdue_before, max_jobs, stale_before
        self._answer()
        return replace(FOUND, stale=self.stale)

    async def held_tasks(self) -> HeldTasks:
        return HeldTasks()

    async def marks_ahead(self) -> MarksAhead:
        return MarksAhead(0)

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        self._answer()
        return {one: self.of_steps[one] for one in runs if one in self.of_steps}

    async def last_successes(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
        self._answer()
        self.looked_for.append(list(uids))
        return {uid: at for uid, at in self.successes.items() if uid in uids}

    def _answer(self) -> None:
        if self.away:
            raise StoreUnavailable("away")


class SnapshotFixture:
    """A metrics snapshot and its sources."""

    def __init__(self, *, max_jobs: int = 10) -> None:
        self.stats_reader, self.clock = FakeStatsReader(), VirtualClock(NOON)
        self.recorder = MetricsRecorder(max_jobs=max_jobs)
        health = HealthMonitor(
            self.stats_reader, self.clock, failures=StepFailures(self.clock), tick_ms=1000, max_jobs=max_jobs
        )
        self.snapshot = MetricsSnapshot(self.recorder, health, self.clock, stats_reader=self.stats_reader)

    async def families(self) -> dict[str, MetricFamily]:
        return {family.metric.name: family for family in await self.snapshot.families()}


@pytest.fixture
def shown() -> SnapshotFixture:
    return SnapshotFixture()


def a_run(name: str) -> Run:
    schedule = minutely("graph")
    verdict = plan(schedule, now=schedule.next_fire_at or NOON)
    return replace(run_record(schedule, verdict.decisions[-1], now=NOON), run_id=RunId(name))


@pytest.mark.req("H-14", "C-13")
async def test_gauges_show_what_the_store_holds(shown: SnapshotFixture) -> None:
    families = await shown.families()

    assert families["schedules_due"].samples == {(): 1}
    assert families["jobs_registered"].samples == {(): 3}
    assert families["next_fire_seconds"].samples == {("first",): 60, ("third",): -2}
    assert families["lock_held"].samples == {("first",): 1, ("second",): 0, ("third",): 0}
    assert families["oldest_due_seconds"].samples == {(): 1.5}
    assert families["dead_letters_unresolved"].samples == {(): 4}


@pytest.mark.req("R-19")
async def test_tasks_that_should_have_been_handled_are_shown_by_state(shown: SnapshotFixture) -> None:
    shown.stats_reader.stale = {TaskState.PENDING: 0, TaskState.RUNNING: 3}

    families = await shown.families()

    assert families["stale_jobs"].samples == {("PENDING",): 0, ("RUNNING",): 3}


async def test_jobs_for_which_there_is_no_room_have_no_gauges() -> None:
    families = await SnapshotFixture(max_jobs=1).families()

    assert families["lock_held"].samples == {("first",): 1}


async def test_while_the_store_is_away_what_was_counted_is_shown_and_what_it_holds_is_not(
    shown: SnapshotFixture,
) -> None:
    shown.stats_reader.away = True
    shown.recorder.dead_lettered(["first"])

    families = await shown.families()

    assert set(families) == set(METRICS)
    assert families["store_up"].samples == {(): 0}
    assert families["jobs_registered"].samples == {}
    assert families["dead_letters"].samples["first",] == 1


async def test_the_steps_of_a_run_are_counted_once(shown: SnapshotFixture) -> None:
    shown.stats_reader.of_steps = {RunId("one"): [("extract", "SUCCEEDED"), ("load", "FAILED")]}
    shown.recorder.graph_runs_ended([a_run("one"), a_run("of one step")])

    await shown.families()
    families = await shown.families()

    counted = {labels: count for labels, count in families["dag_steps"].samples.items() if count}
    assert counted == {("graph", "extract", "succeeded"): 1, ("graph", "load", "failed"): 1}
    assert shown.recorder.graphs == {}


async def test_steps_wait_for_a_store_that_is_away(shown: SnapshotFixture) -> None:
    shown.stats_reader.of_steps = {RunId("one"): [("extract", "SUCCEEDED")]}
    shown.recorder.graph_runs_ended([a_run("one")])
    shown.stats_reader.away = True
    assert await shown.snapshot.step() > 0

    shown.stats_reader.away = False
    await shown.snapshot.step()

    assert shown.recorder.counters["dag_steps"]["graph", "extract", "succeeded"] == 1


#: The metrics of the seed with their labels, as Prometheus sees them.
OF_THE_SEED = {
    "hanzo_scheduler_executions_total": {"job", "status", "trigger"},
    "hanzo_scheduler_retries_total": {"job"},
    "hanzo_scheduler_dead_letters_total": {"job"},
    "hanzo_scheduler_execution_duration_seconds_bucket": {"job", "le"},
    "hanzo_scheduler_jobs_registered": set(),
    "hanzo_scheduler_next_fire_seconds": {"job"},
    "hanzo_scheduler_lock_held": {"job"},
    "hanzo_scheduler_dag_steps_total": {"job", "step", "status"},
    "hanzo_scheduler_leader_active": set(),
}


@pytest.mark.req("H-14")
async def test_the_metrics_of_the_seed_have_their_names_and_labels(shown: SnapshotFixture) -> None:
    families = list((await shown.families()).values())
    leading = MetricFamily(METRICS["leader_active"], {(): 1.0})
    _, text = render_metrics([*families, leading], MetricsSettings().prefix)
    found = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }

    assert {name: found.get(name) for name in OF_THE_SEED} == OF_THE_SEED
    assert (MetricsSettings().enabled, MetricsSettings().port) == (True, 9090)


async def test_the_last_success_of_each_job_is_shown_as_unix_time(shown: SnapshotFixture) -> None:
    run = a_run("one")
    shown.recorder.ended([(run, RunStatus.COMPLETED, None, NOON), (run, RunStatus.FAILED, "no", NOON + 5_000)])
    # The commit of a worker, which is counted later.
    shown.recorder.count_changes(MetricChanges(successes={"graph": NOON - 1_000, "first": NOON + 500}))

    families = await shown.families()

    expected = {("graph",): NOON / 1000, ("first",): (NOON + 500) / 1000}
    assert families["last_success_timestamp_seconds"].samples == expected


async def test_a_server_that_starts_knows_the_last_success_of_each_job(shown: SnapshotFixture) -> None:
    shown.stats_reader.successes = {ScheduleUid("sch_first"): NOON - 60_000, ScheduleUid("sch_third"): NOON - 90_000}
    shown.recorder.succeeded("third", NOON)
    await shown.families()

    families = await shown.families()

    assert families["last_success_timestamp_seconds"].samples == {("first",): NOON / 1000 - 60, ("third",): NOON / 1000}
    assert len(shown.stats_reader.looked_for) == 1
