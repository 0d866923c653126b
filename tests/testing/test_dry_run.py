"""A dry run: the real ticker over the jobs of a file, with runs that only take their time."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from gnomon.core.instants import instant_of, ms_of
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import DAY_MS, MINUTE_MS, Reason, TickKind
from gnomon.core.time_expressions import Outage
from gnomon.testing.dry_run import LoadReport, ScheduleDryRun

#: A Monday.
START = ms_of(datetime(2027, 3, 22, tzinfo=UTC))
HOUR = 60 * MINUTE_MS


def job(name: str = "report", schedule: str = "0 * * * *", **said: Any) -> Job:  # noqa: ANN401 - any field of a job
    return read_job({"name": name, "schedule": schedule, "function": "f"} | said, Defaults(), now=START)


async def loads(
    *jobs: Job, hours: int = 24, lasts: int = 0, down: tuple[int, int] | None = None, zone: str = "UTC"
) -> LoadReport:
    outages = [] if down is None else [Outage(START + down[0], START + down[1])]
    dry_run = ScheduleDryRun(jobs, start_at=START, zone=zone)
    return await dry_run.run(START + hours * HOUR, durations={}, usual_ms=lasts, outages=outages)


async def test_the_first_moment_belongs_to_it_and_the_last_does_not() -> None:
    found = await loads(job(), hours=24)

    assert found.days() == {START // DAY_MS: [1] * 24}


async def test_days_and_hours_are_those_of_the_zone() -> None:
    found = await loads(job(schedule="0 2 * * *"), hours=24, zone="Asia/Tokyo")

    assert found.days() == {START // DAY_MS: [0] * 11 + [1] + [0] * 12}


@pytest.mark.parametrize(
    ("overlap", "runs", "kind", "reason", "count"),
    [
        ("skip", 12, TickKind.SKIPPED, Reason.OVERLAP, 12),
        ("allow", 24, TickKind.FIRED, Reason.ON_TIME, 24),
        ("queue", 16, TickKind.QUEUED, Reason.BEHIND_A_RUN, 23),
        ("replace", 24, TickKind.QUEUED, Reason.REPLACES_A_RUN, 23),
    ],
)
async def test_a_run_that_lasts_longer_than_the_hour_meets_the_overlap_policy(
    overlap: str, runs: int, kind: TickKind, reason: Reason, count: int
) -> None:
    found = (await loads(job(overlap=overlap), lasts=90 * MINUTE_MS)).jobs["report"]

    assert (found.runs, found.ticks[kind, reason], found.planned) == (runs, count, 24)


async def test_a_full_queue_is_reported() -> None:
    found = (await loads(job(overlap="queue", queue_limit=2), lasts=5 * HOUR)).jobs["report"]

    assert found.most_waiting == 2
    assert found.ticks[TickKind.SKIPPED, Reason.QUEUE_FULL] > 0


async def test_runs_beside_another_are_counted() -> None:
    assert (await loads(job(overlap="allow"), lasts=90 * MINUTE_MS)).jobs["report"].beside == 23


@pytest.mark.parametrize(
    ("catchup", "fates"),
    [
        ("none", {(TickKind.MISSED, Reason.CATCHUP_NONE): 3}),
        ("latest", {(TickKind.COALESCED, Reason.NEWER_TICK): 2, (TickKind.FIRED, Reason.CAUGHT_UP): 1}),
        ("all", {(TickKind.FIRED, Reason.CAUGHT_UP): 3}),
    ],
)
async def test_after_an_outage_the_catch_up_policy_counts(
    catchup: str, fates: dict[tuple[TickKind, Reason], int]
) -> None:
    down = 90 * MINUTE_MS, 270 * MINUTE_MS

    [impact] = (await loads(job(catchup=catchup, overlap="allow"), down=down)).outage_impacts

    assert {(kind, reason): count for (_, kind, reason), count in impact.ticks.items()} == fates


async def test_an_outage_to_the_end_leaves_everything_undecided() -> None:
    found = await loads(job(catchup="all"), hours=4, down=(90 * MINUTE_MS, 4 * HOUR))

    assert (found.jobs["report"].planned, found.outage_impacts[0].ticks) == (2, {})


async def test_runs_that_an_outage_interrupts_start_again_and_block_others() -> None:
    found = await loads(job(catchup="all"), lasts=30 * MINUTE_MS, down=(70 * MINUTE_MS, 110 * MINUTE_MS))

    # The run of one o'clock, lost at ten past, is under way again from ten to two until twenty past two.
    assert found.jobs["report"].ticks[TickKind.SKIPPED, Reason.OVERLAP] == 1


async def test_an_at_most_once_run_does_not_start_again() -> None:
    once = job(delivery="at_most_once")

    found = await loads(once, lasts=30 * MINUTE_MS, down=(70 * MINUTE_MS, 110 * MINUTE_MS))

    assert found.jobs["report"].ticks[TickKind.SKIPPED, Reason.OVERLAP] == 0


async def test_jobs_that_start_in_the_same_second_collide() -> None:
    found = await loads(job("a"), job("b", "30 * * * *"), job("c", "0 */12 * * *"), hours=24)

    assert (found.colliding_seconds, found.colliding_minutes) == (2, 2)
    assert [(one.jobs, instant_of(one.at).hour) for one in found.collisions] == [(("a", "c"), 0), (("a", "c"), 12)]


async def test_jobs_that_start_in_the_same_minute_differ_from_those_in_the_same_second() -> None:
    found = await loads(job("a", "0 0 * * * *"), job("b", "30 0 * * * *"), hours=2)

    assert (found.colliding_seconds, found.colliding_minutes) == (0, 2)


async def test_the_largest_collisions_are_kept_and_the_earliest_of_them_comes_first() -> None:
    found = await loads(job("a", "* * * * *"), job("b", "* * * * *"), job("c", "30 7 * * *"), hours=24)

    assert found.colliding_seconds == 24 * 60
    assert [len(one.jobs) for one in found.collisions] == [3] + [2] * 9
    assert [instant_of(one.at).minute for one in found.collisions[1:]] == list(range(9))


async def test_disabled_jobs_are_left_out() -> None:
    assert (await loads(job(), job("off", enabled=False))).jobs.keys() == {"report"}


async def test_a_day_that_lacks_an_hour_is_met_as_the_job_says() -> None:
    night = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"}
    skips = job("skips", dst={"gap": "skip", "fold": "first"}, **night)

    found = await loads(job("makes-up", **night), skips, hours=7 * 24)

    assert {name: load.runs for name, load in found.jobs.items()} == {"makes-up": 7, "skips": 6}


async def test_a_hundred_jobs_take_seconds_for_a_month() -> None:
    kinds = ["*/15 * * * *"] * 20 + ["0 * * * *"] * 30 + ["30 2 * * *", "0 9 * * 1-5"] * 25
    jobs = [job(f"job-{place}", kind) for place, kind in enumerate(kinds)]
    began = time.process_time()

    found = await loads(*jobs, hours=30 * 24, lasts=MINUTE_MS)

    assert sum(load.runs for load in found.jobs.values()) > 80_000
    assert time.process_time() - began < 10
