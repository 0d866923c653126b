"""The metrics of events and commits, beyond those that other tests compare with rows."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.adapters.sql.connect import open_store
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan, run_record
from gnomon.core.metrics import METRICS, OTHER_LABEL, CountedStep, MetricChanges, MetricKind
from gnomon.core.model import Run, RunId, RunStatus
from gnomon.services.observability.metrics import BoundedLabels, Histogram, MetricsRecorder
from support.sqlite_files import new_sqlite_file


def a_run(number: int = 0) -> Run:
    schedule = minutely(f"job-{number}")
    verdict = plan(schedule, now=schedule.next_fire_at or NOON)
    return run_record(schedule, verdict.decisions[-1], now=NOON)


def test_the_first_names_are_shown_and_all_others_are_one() -> None:
    names = BoundedLabels(2)

    assert [names.shown(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER_LABEL, "a", OTHER_LABEL]


def test_with_no_room_for_names_none_is_shown() -> None:
    assert BoundedLabels(0).shown("secret-project") == OTHER_LABEL


@pytest.mark.guarantee("S25")
def test_a_hundred_thousand_jobs_leave_as_many_labels_as_there_is_room_for() -> None:
    meter = MetricsRecorder(max_jobs=50)
    meter.dead_lettered([f'job-{number}"\n' for number in range(100_000)])

    counted = meter.counters["dead_letters"]
    assert len(counted) == 51
    assert sum(counted.values()) == 100_000


@pytest.mark.guarantee("S25")
def test_models_without_end_leave_as_many_labels_as_there_is_room_for() -> None:
    meter = MetricsRecorder(max_jobs=1)
    for number in range(100):
        meter.count_changes(MetricChanges(counts=(("agent_cost_micros", ("triage", f"local:{number}"), 1),)))

    counted = meter.counters["agent_cost_micros"]
    # And the one that all others share, of this job, and from before any agent has run.
    assert len(counted) == 22
    assert sum(counted.values()) == 100


@pytest.mark.guarantee("S25")
@pytest.mark.req("R-19")
def test_topics_without_end_leave_as_many_labels_as_there_is_room_for() -> None:
    meter = MetricsRecorder(max_jobs=1)
    steps = [CountedStep("default", f"job-{number}", 1, "main") for number in range(12_000)]
    for step in steps:
        meter.add_by_step("jobs_dispatched", ("job",), step)
        meter.observe_by_step("dispatch_latency_seconds", 20, (), step)
    assert len(meter.counted_steps) == 10_000, "the others are counted at once"

    meter.count_by_topic({step: step.workflow_id for step in meter.counted_steps})

    counted, spreads = meter.counters["jobs_dispatched"], meter.histograms["dispatch_latency_seconds"]
    assert len(counted) == 102, "a hundred topics, the rest of this job, and what is there before anything has happened"
    assert len(spreads) == 101
    assert sum(counted.values()) == sum(sum(one.counts) for one in spreads.values()) == 12_000
    assert not meter.counted_steps


@pytest.mark.req("R-19")
def test_a_worker_of_a_version_without_topics_is_counted_under_the_shared_one() -> None:
    meter = MetricsRecorder(max_jobs=5)
    older = MetricChanges(
        counts=(("jobs_dispatched", ("mail",), 3), ("jobs_completed", ("mail", "failed"), 2)),
        durations=(("dispatch_latency_seconds", (), (5, 7)),),
    )

    meter.count_changes(older)

    assert meter.counters["jobs_dispatched"]["mail", OTHER_LABEL] == 3
    assert meter.counters["jobs_completed"]["mail", "failed", OTHER_LABEL] == 2
    assert sum(meter.histograms["dispatch_latency_seconds"][OTHER_LABEL,].counts) == 2


def test_a_number_on_a_bound_belongs_under_it() -> None:
    spread = Histogram((0.1, 1.0))
    for seconds in (0.1, 0.11, 1.0, 5.0):
        spread.add(seconds)

    assert spread.counts == [1, 2, 1]


@pytest.mark.req("C-13")
def test_a_run_for_which_there_was_nothing_to_launch_is_counted_as_such() -> None:
    meter = MetricsRecorder(max_jobs=10)
    error = "launch_failed: there is no workflow 'x' of version 1"
    meter.ended([(a_run(), RunStatus.FAILED, error, NOON), (a_run(1), RunStatus.FAILED, "no", NOON)])

    assert meter.counters["runs_failed_launch"][()] == 1


def test_a_job_that_is_introduced_after_it_ran_keeps_what_was_counted() -> None:
    meter = MetricsRecorder(max_jobs=10)
    meter.ended([(a_run(), RunStatus.COMPLETED, None, NOON)])
    meter.register_jobs(["job-0"])
    meter.register_jobs(["job-0"])

    executions = meter.counters["executions"]
    assert executions["job-0", "completed", "cron"] == 1
    assert executions["job-0", "failed", "cron"] == 0


def test_steps_that_nobody_asks_about_do_not_pile_up() -> None:
    meter = MetricsRecorder(max_jobs=10)
    for _ in range(2):
        meter.graph_runs_ended([replaced(number) for number in range(6_000)])
    meter.graph_runs_ended([replaced(number) for number in range(6_000, 12_000)])

    assert len(meter.graphs) == 10_000


def replaced(number: int) -> Run:
    return replace(a_run(), run_id=RunId(f"run_{number}"))


def test_tasks_that_are_offered_again_are_counted_one_by_one() -> None:
    meter = MetricsRecorder(max_jobs=10)
    meter.on_event("tasks_replayed", {"count": 7, "topic": "mail"})

    assert meter.counters["orphan_replayed"]["mail",] == 7
    assert meter.counters["events"]["tasks_replayed",] == 1


def test_every_counter_and_histogram_has_numbers_before_anything_has_happened() -> None:
    meter = MetricsRecorder(max_jobs=10)
    families: list[Mapping[str, Mapping[tuple[str, ...], object]]] = [meter.counters, meter.histograms]
    shown = {name: list(samples) for some in families for name, samples in some.items()}

    assert set(shown) == {name for name, measure in METRICS.items() if measure.kind is not MetricKind.GAUGE}
    for name, samples in shown.items():
        assert samples, name
        assert all(len(labels) == len(METRICS[name].labels) for labels in samples)


@pytest.mark.req("R-19")
async def test_the_time_for_which_a_write_about_tasks_waits_is_observed_once_for_each_commit(tmp_path: Path) -> None:
    meter = MetricsRecorder(max_jobs=5)
    file = tmp_path / "gnomon.db"
    new_sqlite_file(file)
    opened = await open_store(f"sqlite:///{file}")
    store = opened.observed(observers=[meter])
    schedule = minutely()
    await store.schedules.add([schedule], actor="ada", tzdata="")
    [waits] = meter.histograms["job_lock_wait_seconds"].values()
    assert not sum(waits.counts), "this write is about no task"
    await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS)
    terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)

    await store.ledger.decide([plan(schedule, now=NOON + 60_000)], now=NOON + 60_000, terms=terms)
    await opened.close()

    assert sum(waits.counts) == 1
    assert 0 <= waits.sum < 60
