"""A server and one worker in a process of its own: no-op runs a second, how late they begin, a storm, what a run costs.

Each part can be measured alone (`--parts runs`), in one shape alone (`--shapes alone`), and without peers. Peers run
from an environment of their own (`.venv/peers`), each with one process that asks and one that works, on the same
PostgreSQL, in the same run.
"""

import argparse
import asyncio
import cProfile
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import perf_counter, time

from cluster_costs import cost_of_a_run
from cluster_setup import SHAPES, cluster, launch_runs, recorded_messages, register, trigger_runs, until_over
from cluster_storm import Storm, storm
from gnomon.core.model import RunId
from node_setup import quantiles
from report import table, write_section
from support.postgres_server import postgres

PEERS = {"pgqueuer, batches of 100": "pgqueuer_jobs.py", "procrastinate, 5 at once": "procrastinate_jobs.py"}
_PEERS = Path(__file__).parents[1] / ".venv" / "peers" / "bin" / "python"
_ROUNDS = 100


# ---- runs a second -------------------------------------------------------------------------------


async def runs_a_second(shape: str, chosen: argparse.Namespace, profile: str | None = None) -> float:
    """Runs a second, from the first that is asked for to the end of the last."""
    async with cluster(shape, slots=chosen.slots) as up:
        count: int = chosen.count
        jobs = await register(up.node, "note", chosen.jobs)
        await launch_runs(up.node, jobs, 200)
        await until_over(up.node, jobs)
        profiler = cProfile.Profile() if profile else None
        if profiler is not None:
            profiler.enable()
        began = perf_counter()
        await launch_runs(up.node, jobs, count)
        await until_over(up.node, jobs)
        rate = count / (perf_counter() - began)
        if profiler is not None:
            profiler.disable()
            profiler.dump_stats(str(profile))
        return rate


def peer(python: Path, script: str, count: int) -> float:
    """Runs a second of a peer, on the same server."""
    url = asyncio.run(postgres(18).empty())
    path = Path(__file__).parent / "peers" / script
    done = subprocess.run(  # noqa: S603 - our own scripts
        [str(python), str(path), url, str(count)], capture_output=True, text=True, timeout=600, check=True
    )
    return float(json.loads(done.stdout[done.stdout.rindex("{") :])["rate"])


def runs(chosen: argparse.Namespace) -> None:
    """Measure and write the section."""
    figures = {
        f"gnomon on {SHAPES[shape]}, with history": asyncio.run(runs_a_second(shape, chosen)) for shape in chosen.shapes
    }
    peers = {} if chosen.without_peers else {name: peer(chosen.peers, it, chosen.count) for name, it in PEERS.items()}
    titles = ["scheduler", "runs per second", *(f"against {name.partition(',')[0]}" for name in peers)]
    rows = [
        [name, f"{rate:,.0f}", *(f"{rate / other:.2f}x" for other in peers.values())]
        for name, rate in {**figures, **peers}.items()
    ]
    note = (
        f"{chosen.count:,} no-op coroutines of {chosen.jobs} jobs, asked for in lots of 1,000 and brought to their end "
        f"by one worker in a process of its own with {chosen.slots} slots, from the first that is asked for to the end "
        "of the last. Ours keeps the run, the task and the attempt of each; pgqueuer lines of a log, procrastinate the "
        "job and its events."
    )
    write_section("Cluster: no-op runs", f"{table(titles, rows)}\n\n{note}")


# ---- how late bodies begin -----------------------------------------------------------------------


async def lateness(shape: str, rate: int, seconds: int, slots: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds to the beginning of bodies at so many a second: from being asked for, from being taken, and sent."""
    async with cluster(shape, slots=slots) as up, recorded_messages(up.bus) as heard:
        node = up.node
        asked: dict[RunId, float] = {}
        jobs = await register(node, "stamp")
        began, each = perf_counter(), max(1, rate // _ROUNDS)
        for number in range(_ROUNDS * seconds):
            await asyncio.sleep(max(0.0, began + number / _ROUNDS - perf_counter()))
            moment = time()
            asked |= dict.fromkeys(await trigger_runs(node, jobs[0], each), moment)
        await until_over(node, jobs)
        schedule = await node.store.schedules.find("default", jobs[0])
        assert schedule is not None
        kept = await node.store.history.runs(schedule.uid, before=1 << 62, limit=len(asked))
        tasks = {task.task_id: task.run_id for task in await node.store.history.tasks(kept)}
        begun = await node.store.executions.payloads(list(tasks), "output")
        taken = {one.task_id: one.dispatched_at for one in await node.store.executions.attempts(list(tasks))}
    # The first second is for warming up.
    in_order = sorted(taken, key=lambda name: asked[tasks[name]])[rate:]
    stamps = {name: float(begun[name] or b"nan") for name in in_order}
    sent = sent_at(heard)
    return (
        [(stamps[name] - asked[tasks[name]]) * 1000 for name in in_order],
        [stamps[name] * 1000 - taken[name] for name in in_order],
        [(stamps[name] - sent[name]) * 1000 for name in in_order if name in sent],
    )


def sent_at(orders: list[bytes]) -> dict[str, float]:
    """The times when the messages were sent, by task."""
    read = [json.loads(one) for one in orders]
    return {one["data"]["task_id"]: datetime.fromisoformat(one["timestamp"]).timestamp() for one in read}


def starts(chosen: argparse.Namespace) -> None:
    """Measure and write the section."""
    rows = []
    for shape in chosen.shapes:
        asked, taken, sent = asyncio.run(lateness(shape, chosen.rate, chosen.seconds, chosen.slots))
        rows.append([SHAPES[shape], quantiles(asked), quantiles(taken), quantiles(sent) if sent else "nothing is sent"])
    note = (
        f"At {chosen.rate} a second over {chosen.seconds - 1} seconds, until the body begins in the worker's process. "
        "Over NATS a task is taken in the commit in which it was asked for, and sent once that is on the disk; "
        "without, the worker takes it by itself, in a commit of its own."
    )
    titles = [
        "gnomon server and one worker",
        "from being asked for",
        "from being taken out of the store",
        "from being sent",
    ]
    write_section("Cluster: from dispatch to start", f"{table(titles, rows)}\n\n{note}")


# ---- a storm -------------------------------------------------------------------------------------


def storms(chosen: argparse.Namespace) -> None:
    """Measure and write the section."""
    rows = []
    for shape in chosen.shapes:
        found: Storm = asyncio.run(storm(shape, chosen.schedules, chosen.slots))
        moments = [f"{moment:.1f} s" for moment in (found.decided, found.over)]
        rows.append([SHAPES[shape], f"{found.runs:,}", *moments, quantiles(found.before), quantiles(found.answers)])
    note = (
        f"{chosen.schedules:,} schedules that are due in the same second, `gnomon server` and one worker, each a "
        "process. Meanwhile 20 requests a second ask for a page of jobs, a page of executions and one job."
    )
    titles = ["shape", "executed", "all decided after", "all over after", "the API before", "the API meanwhile"]
    write_section("Cluster: a storm, and the API meanwhile", f"{table(titles, rows)}\n\n{note}")


# ---- costs of a run ------------------------------------------------------------------------------


def costs(chosen: argparse.Namespace) -> None:
    """Measure and write the section."""
    for shape in chosen.shapes:
        body = asyncio.run(cost_of_a_run(shape, chosen.count, chosen.slots, chosen.jobs))
        write_section(f"Cluster: where the time goes on {SHAPES[shape]}", body)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "runs": runs,
    "starts": starts,
    "storm": storms,
    "costs": costs,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    options.add_argument("--count", type=int, default=20_000, help="how many runs are measured")
    options.add_argument("--jobs", type=int, default=10, help="of how many jobs; one has all counted on one row")
    options.add_argument("--slots", type=int, default=1000)
    options.add_argument("--rate", type=int, default=500, help="at how many runs a second lateness is measured")
    options.add_argument("--seconds", type=int, default=10, help="for how long")
    options.add_argument("--schedules", type=int, default=100_000, help="how many are due in the storm")
    options.add_argument(
        "--peers", type=Path, default=_PEERS, metavar="PYTHON", help="the interpreter that has the peers"
    )
    options.add_argument("--without-peers", action="store_true")
    options.add_argument("--profile", metavar="FILE", help="only leave a profile of the server there, of one shape")
    chosen = options.parse_args()
    sys.setswitchinterval(0.0005)
    if chosen.profile:
        asyncio.run(runs_a_second(chosen.shapes[0], chosen, chosen.profile))
        return
    for part in chosen.parts:
        PARTS[part](chosen)


if __name__ == "__main__":
    main()
