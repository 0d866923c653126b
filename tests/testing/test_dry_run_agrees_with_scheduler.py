"""The dry run of `gnomon simulate` leaves out tasks and workers, and decides every tick as the whole scheduler does."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.durations import duration_text
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import MINUTE_MS
from gnomon.core.time_expressions import Outage
from gnomon.testing.dry_run import ScheduleDryRun
from gnomon.testing.scheduler import VirtualScheduler

#: On the day after, clocks go forward.
START = ms_of(datetime(2027, 3, 27, 20, tzinfo=UTC))
HOUR = 60 * MINUTE_MS

schedules = st.sampled_from(["0 * * * *", "*/20 * * * *", "30 2 * * *", "45 1-3 * * *", "every 50 minutes"])
jobs = st.fixed_dictionaries(
    {
        "schedule": schedules,
        "overlap": st.sampled_from(["skip", "allow", "queue", "replace"]),
        "catchup": st.sampled_from(["none", "latest", "all", "spread"]),
        "jitter": st.sampled_from(["0s", "5m"]),
        "queue_limit": st.sampled_from([1, 100]),
    }
)


def said(index: int, chosen: dict[str, Any]) -> dict[str, Any]:
    zone = {} if chosen["schedule"].startswith("every") else {"timezone": "Europe/Berlin"}
    return {"name": f"job-{index}", "function": f"f-{index}", "timeout": "1d", **chosen, **zone}


async def compared(words: list[dict[str, Any]], lasting: dict[str, int], outage: Outage | None) -> None:
    until = START + 14 * HOUR
    read = [read_job(one, Defaults(), now=START) for one in words]
    outages = [] if outage is None else [outage]
    loads = await ScheduleDryRun(read, start_at=START + 1).run(until + 1, durations=lasting, outages=outages)
    scheduler = VirtualScheduler(instant_of(START))
    for name, lasts in lasting.items():
        scheduler.function(f"f-{name[-1]}", takes=duration_text(lasts))
    await scheduler.load(words)
    for one in outages:
        await scheduler.run_until(instant_of(one.from_at - 1))
        await scheduler.down_until(instant_of(one.until_at))
    await scheduler.run_until(instant_of(until))
    for name, load in loads.jobs.items():
        reported: Counter[Any] = Counter()
        for tick in scheduler.ticks(name):
            reported[tick.kind, tick.reason] += tick.count
        assert reported == load.ticks, name
        assert sum(run.started_at is not None for run in scheduler.runs(name)) == load.runs, name


#: Some end just when the next tick is planned.
lengths = st.sampled_from([0, 20, 40, 60, 100, 120]) | st.integers(0, 150)


@given(st.lists(jobs, min_size=1, max_size=3), st.lists(lengths, min_size=3, max_size=3))
async def test_both_decide_alike_whatever_is_in_the_way(chosen: list[dict[str, Any]], minutes: list[int]) -> None:
    words = [said(index, one) for index, one in enumerate(chosen)]

    await compared(words, {one["name"]: minutes[index] * MINUTE_MS for index, one in enumerate(words)}, None)


@given(st.lists(jobs, min_size=1, max_size=3), st.integers(1, 400), st.integers(1, 400))
async def test_both_decide_alike_after_an_outage(chosen: list[dict[str, Any]], begins: int, lasts: int) -> None:
    words = [said(index, one) for index, one in enumerate(chosen)]
    outage = Outage(START + begins * MINUTE_MS, START + (begins + lasts) * MINUTE_MS)

    await compared(words, {one["name"]: 0 for one in words}, outage)
