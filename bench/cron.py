"""How long it takes to find the next fire: gnomon, cronsim, croniter and APScheduler in one run."""

import gc
import random
import statistics
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import perf_counter_ns
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim

from gnomon import Cron
from report import table, write_section

EXPRESSIONS = (
    "* * * * *",
    "*/5 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "0 9 * * 1-5",
    "0 */6 * * *",
    "15,45 8-18 * * *",
    "0 0 1,15 * *",
    "0 6 * * 1",
    "0 0 1 */3 *",
)
ZONES = ("UTC", "America/New_York", "Europe/Berlin")
START = datetime(2026, 1, 15, 7, 3, tzinfo=UTC)
FIRES = 300
ROUNDS = 7

Walk = Callable[[int], None]


def gnomon_walk(expression: str, zone: str) -> Walk:
    next_after = Cron(expression, zone).next_after

    def walk(count: int) -> None:
        instant: datetime | None = START
        for _ in range(count):
            instant = next_after(instant)  # type: ignore[arg-type]  # these schedules never end

    return walk


def cronsim_walk(expression: str, zone: str) -> Walk:
    start = START if zone == "UTC" else START.astimezone(ZoneInfo(zone))

    def walk(count: int) -> None:
        fires = CronSim(expression, start)
        for _ in range(count):
            next(fires)

    return walk


def croniter_walk(expression: str, zone: str) -> Walk:
    start = START.astimezone(ZoneInfo(zone))

    def walk(count: int) -> None:
        fires = croniter(expression, start)
        for _ in range(count):
            fires.get_next(datetime)

    return walk


def apscheduler_walk(expression: str, zone: str) -> Walk:
    trigger = CronTrigger.from_crontab(expression, timezone=ZoneInfo(zone))

    def walk(count: int) -> None:
        instant = START.astimezone(ZoneInfo(zone))
        for _ in range(count):
            instant = trigger.get_next_fire_time(instant, instant + timedelta(microseconds=1))

    return walk


PEERS = {
    "gnomon": gnomon_walk,
    "cronsim": cronsim_walk,
    "croniter": croniter_walk,
    "APScheduler 3": apscheduler_walk,
}


def nanoseconds(walk: Walk) -> float:
    """The time of one step: the median of some rounds, after one to warm up."""
    walk(FIRES)
    times = []
    for _ in range(ROUNDS):
        began = perf_counter_ns()
        walk(FIRES)
        times.append((perf_counter_ns() - began) / FIRES)
    return statistics.median(times)


def distinct(count: int) -> list[str]:
    """Many different expressions of the kinds people write."""
    rng = random.Random("distinct")
    days = ("* * *", "* * 1-5", "* * 0", "1 * *", "L * *", "*/2 * *", "1,15 * *", "* */3 1#1")
    found: set[str] = set()
    while len(found) < count:
        minutes = rng.choice((str(rng.randrange(60)), f"{rng.randrange(30)},{rng.randrange(30, 60)}", "*/5"))
        hours = rng.choice((str(rng.randrange(24)), f"{rng.randrange(12)}-{rng.randrange(12, 24)}", "*", "*/2"))
        found.add(f"{minutes} {hours} {rng.choice(days)}")
    return sorted(found)


def parse_and_memory() -> str:
    """The time and memory that a schedule costs to create."""
    texts = distinct(100_000)
    gc.collect()
    began = perf_counter_ns()
    crons = [Cron(text) for text in texts]
    each = (perf_counter_ns() - began) / len(texts) / 1000
    for cron in crons:
        cron.next_after(START)
    del crons
    gc.collect()
    tracemalloc.start()
    crons = [Cron(text) for text in texts]
    for cron in crons:
        cron.next_after(START)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (
        f"Reading an expression: {each:.1f} µs. 100,000 distinct schedules, each asked once: "
        f"{size / 2**20:.0f} MiB, {size / len(texts):.0f} bytes each."
    )


def main() -> None:
    rows, medians = [], {}
    for zone in ZONES:
        figures = {name: [nanoseconds(make(text, zone)) for text in EXPRESSIONS] for name, make in PEERS.items()}
        for name, times in figures.items():
            medians[name, zone] = statistics.median(times)
            ratio = medians[name, zone] / medians["gnomon", zone]
            span = f"{min(times):,.0f} to {max(times):,.0f}"
            rows.append([zone, name, f"{medians[name, zone]:,.0f}", span, f"{ratio:.1f}x"])
    best = min(
        min(medians[name, zone] for name in PEERS if name != "gnomon") / medians["gnomon", zone] for zone in ZONES
    )
    body = table(["zone", "library", "ns per next, median of 10 expressions", "range", "against gnomon"], rows)
    verdict = f"The best peer takes at least {best:.1f} times as long. {parse_and_memory()}"
    write_section("Cron: finding the next fire", f"{body}\n\n{verdict}")


if __name__ == "__main__":
    main()
