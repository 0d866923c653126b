"""The costs of a run: processor time of each process, statements of PostgreSQL, bytes written."""

from time import perf_counter

from cluster_setup import Cluster, cluster, launch_runs, register, until_over
from report import table
from resource_usage import processor_seconds

_SHOWN = 16


async def cost_of_a_run(shape: str, count: int, slots: int, jobs: int) -> str:
    """Tables of the costs per run."""
    async with cluster(shape, slots=slots, logged=True) as up:
        names = await register(up.node, "note", jobs)
        await launch_runs(up.node, names, 200)
        await until_over(up.node, names)
        await up.account.open()
        before = {name: processor_seconds(pid) for name, pid in up.pids.items()}
        began = perf_counter()
        await launch_runs(up.node, names, count)
        await until_over(up.node, names)
        took = perf_counter() - began
        spent = {name: processor_seconds(pid) - before[name] for name, pid in up.pids.items()}
        return "\n\n".join([_processors(spent, took, count), await _written(up, count), _statements(up, count)])


def _processors(spent: dict[str, float], took: float, count: int) -> str:
    rows = [[name, f"{seconds / count * 1e6:,.0f} µs", f"{seconds / took:.0%}"] for name, seconds in spent.items()]
    rows.append(["all", f"{sum(spent.values()) / count * 1e6:,.0f} µs", f"{sum(spent.values()) / took:.0%}"])
    note = f"{count:,} no-op runs at {count / took:,.0f} a second, with every statement logged, which costs some of it."
    return f"{note}\n\n{table(['process', 'processor time a run', 'of one core'], rows)}"


async def _written(up: Cluster, count: int) -> str:
    wal = await up.account.written()
    commits, _ = up.account.statements().get("COMMIT;", (0, 0.0))
    rows = await up.account.bytes_a_row()
    kept = ", ".join(f"{name} {size:,}" for name, (_, size) in rows.items() if name != "schedule")
    return (
        f"{wal / count:,.0f} bytes of WAL a run, and {count / max(1, commits):,.0f} runs a commit. "
        f"Bytes a row, with its share of the indexes and of what waits to be vacuumed: {kept}."
    )


def _statements(up: Cluster, count: int) -> str:
    found = sorted(up.account.statements().items(), key=lambda one: one[1][1], reverse=True)
    rows = [[f"`{text}`", f"{times:,}", f"{took / count * 1000:,.1f} µs"] for text, (times, took) in found[:_SHOWN]]
    times, took = (sum(one[place] for _, one in found) for place in (0, 1))
    rows.append([f"all {len(found)}", f"{times:,}", f"{took / count * 1000:,.1f} µs"])
    return table(["statement", "times", "in the server, a run"], rows)
