"""The declarative scheduler with many tasks: all due in one minute, a restart with all of them kept, and none due.

Each figure comes from a process of its own, on the machine's own clock, with the state in a file whose every commit is
flushed to the disk.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, process_time, time

from gnomon.declarative import Scheduler, counters_of
from report import table, write_section

HOUR = timedelta(hours=1)
MINUTE = 60


def minute_from(seconds: float) -> tuple[int, int, float]:
    """The first whole minute at least so many seconds ahead: its minute and hour in UTC, and its instant."""
    boundary = (time() + seconds) // MINUTE * MINUTE + MINUTE
    when = datetime.fromtimestamp(boundary, UTC)
    return when.minute, when.hour, boundary


async def due_together(path: str, tasks: int) -> dict[str, float]:
    """All tasks due in the same minute: when the first and the last began, and when the last outcome was durable."""
    minute, hour, boundary = minute_from(tasks / 20_000 + 2)
    begun: list[float] = []

    async def body() -> None:
        begun.append(time())

    scheduler = Scheduler(path, timezone="UTC")
    before = perf_counter()
    await scheduler.initialize([(f"task-{n}", f"{minute} {hour} * * *", body, HOUR) for n in range(tasks)])
    registered = perf_counter() - before
    assert time() < boundary, "registering took longer than there was time"
    while len(begun) < tasks:
        await asyncio.sleep(0.1)
    await scheduler.stop()
    over = time()
    assert counters_of(scheduler).events["TaskRunCompleted"] == tasks
    return {
        "registered": registered,
        "first": min(begun) - boundary,
        "last": max(begun) - boundary,
        "written": over - boundary,
        "memory": _memory(),
    }


async def restart(path: str, tasks: int) -> dict[str, float]:
    """All tasks kept from another process: until `initialize` has returned, read, compared and on the agenda."""

    async def body() -> None: ...

    registrations = [(f"task-{n}", _spread(n), body, HOUR) for n in range(tasks)]
    scheduler = Scheduler(path, timezone="UTC")
    before = perf_counter()
    await scheduler.initialize(registrations)
    took = perf_counter() - before
    await scheduler.stop()
    return {"took": took, "memory": _memory()}


async def interrupted(path: str, tasks: int) -> dict[str, float]:
    """All tasks were running when their process died: until the last of them has begun again."""
    begun = 0
    all_begun = asyncio.Event()
    die = _is_new(path)

    async def body() -> None:
        nonlocal begun
        begun += 1
        if begun == tasks:
            all_begun.set()
        if die:
            await asyncio.Event().wait()

    scheduler = Scheduler(path, timezone="UTC")
    before = perf_counter()
    await scheduler.initialize([(f"task-{n}", "* * * * *", body, HOUR) for n in range(tasks)])
    await all_begun.wait()
    took = perf_counter() - before
    if not die:
        await scheduler.stop()
    return {"took": took, "memory": _memory()}


async def idle(path: str, tasks: int) -> dict[str, float]:
    """All tasks kept and none due: the cost of two minutes."""

    async def body() -> None: ...

    scheduler = Scheduler(path, timezone="UTC")
    await scheduler.initialize([(f"task-{n}", "0 0 29 2 *", body, HOUR) for n in range(tasks)])
    await asyncio.sleep(1)
    before, polls = process_time(), counters_of(scheduler).polls
    await asyncio.sleep(2 * MINUTE)
    spent = process_time() - before
    looked = counters_of(scheduler).polls - polls
    await scheduler.stop()
    return {"spent": spent, "looked": looked, "memory": _memory()}


def _is_new(path: str) -> bool:
    return not Path(path).exists()


def _spread(number: int) -> str:
    """One of 1,440 schedules, all a year away from the next: a restart, and nothing else."""
    return f"{number % 60} {number // 60 % 24} 29 2 *"


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CASES: dict[str, Callable[[str, int], Awaitable[dict[str, float]]]] = {
    "due": due_together,
    "restart": restart,
    "interrupted": interrupted,
    "idle": idle,
}


def measured(case: str, path: Path, tasks: int) -> dict[str, float]:
    """The figures of a case, from a process of its own."""
    command = [sys.executable, __file__, "--case", case, "--path", str(path), "--tasks", str(tasks)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tasks", type=int, default=100_000)
    options.add_argument("--case", choices=CASES)
    options.add_argument("--path")
    chosen = options.parse_args()
    if chosen.case:
        print(json.dumps(asyncio.run(_figures(chosen.case, chosen.path, chosen.tasks))))
        return
    tasks: int = chosen.tasks
    with tempfile.TemporaryDirectory() as folder:
        due = measured("due", Path(folder, "due.db"), tasks)
        measured("restart", Path(folder, "restart.db"), tasks)
        again = measured("restart", Path(folder, "restart.db"), tasks)
        measured("interrupted", Path(folder, "interrupted.db"), tasks)
        orphans = measured("interrupted", Path(folder, "interrupted.db"), tasks)
        quiet = measured("idle", Path(folder, "idle.db"), tasks)
    rows = [
        ["registered for the first time", f"{due['registered']:.1f} s", "", f"{due['memory']:.0f} MiB"],
        ["due in one minute: the first has begun", f"{due['first']:.2f} s after it", "", ""],
        ["due in one minute: the last has begun", f"{due['last']:.1f} s after it", "10 s", ""],
        ["due in one minute: the last outcome is durable", f"{due['written']:.1f} s after it", "", ""],
        ["restart with all of them kept", f"{again['took']:.1f} s", "5 s", f"{again['memory']:.0f} MiB"],
        ["restart after a kill: the last interrupted one has begun again", f"{orphans['took']:.1f} s", "", ""],
        [f"none due, two minutes: {quiet['looked']:.0f} looks", f"{quiet['spent'] * 1000:.0f} ms of processor", "", ""],
    ]
    body = table([f"{tasks:,} tasks", "took", "target", "memory at most"], rows)
    write_section("Declarative: many tasks in one scheduler", body)


async def _figures(case: str, path: str, tasks: int) -> dict[str, float]:
    return await CASES[case](path, tasks)


if __name__ == "__main__":
    main()
