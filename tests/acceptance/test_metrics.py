"""Deployments of every shape that are busy in every way, seen from outside: what is scraped is what the rows say."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa

from gnomon.adapters.host import SystemClock
from gnomon.app.operations import Operations
from gnomon.app.server import ServerOptions, serve
from gnomon.config.settings import load
from gnomon.core.metrics import METRICS
from gnomon.core.model import RunId
from gnomon.errors import UsageError
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.observed_deployments import (
    CANARY,
    PREFIX,
    SHAPES,
    Served,
    another_server_has_one,
    on_the_database,
    served,
    shaped,
)
from support.postgres_server import Postgres, postgres
from support.promql import exposed_name
from support.row_editing import transactions_of


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(f"sqlite:///{tmp_path}/gnomon.db", tmp_path) as one:
        yield one


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[*SHAPES, pytest.param("postgres", marks=pytest.mark.thorough)]
)
async def busy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A deployment after a life with everything in it, at rest: no test changes it."""
    async with shaped(request.param, tmp_path_factory.mktemp("busy")) as one:
        await live(one)
        yield one


async def live(one: Served) -> None:
    """Runs succeed, fail, are tried again, buried, skipped, replaced and cancelled."""
    for job in ("fails", "graph", "wide", "lost", "in-line", "in-line"):
        await one.trigger(job)
    to_cancel = [await one.trigger(job) for job in ("replaced", "replaced", "replaced", "waits", "stuck")][2:]

    async def stuck() -> bool:
        waiting = "SELECT count(*) FROM task WHERE wait_reason = 'retry' AND parent IS NOT NULL AND state = 'PENDING'"
        return await one.rows(waiting) == Counter({(): 2})

    await one.until(stuck)
    for run in to_cancel:
        await one.node.store.runs.cancel(RunId(run), reason="enough", now=SystemClock().now())
    # Of its two runs, one is under way and one has not had its turn.
    await one.node.schedules.delete("in-line", actor="ada")
    one.node.check_soon()

    async def skipped() -> object:
        return await one.counted("runs_skipped_overlap")

    await one.until(skipped)
    await one.rest()


# ---- counters and rows ---------------------------------------------------------------------------

OF_JOB = "coalesce(run.schedule_id, run.workflow_id)"
TASKS = "task JOIN run ON run.run_id = task.run_id"
ATTEMPTS = "attempt JOIN task ON task.task_id = attempt.task_id JOIN run ON run.run_id = task.run_id"
#: Or would have been, had the run not been cancelled.
TRIED_AGAIN = "result = 'failed' AND (number < fence OR task.state = 'CANCELLED')"
OF_GRAPHS = "parent IS NULL AND step <> 'main'"
#: A counter, the labels to compare, and what the rows say about it.
AGREE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "executions": (
        ("job", "status", "trigger"),
        f"SELECT {OF_JOB}, status, source, count(*) FROM run GROUP BY 1, 2, 3",  # noqa: S608 - our own words, here and below
    ),
    "execution_duration_seconds": (
        ("job",),
        f"SELECT {OF_JOB}, count(*) FROM run WHERE started_at IS NOT NULL GROUP BY 1",  # noqa: S608
    ),
    "dead_letters": (("job",), "SELECT job, count(*) FROM dead_letter GROUP BY 1"),
    "retries": (
        ("job",),
        f"SELECT {OF_JOB}, count(*) FROM {ATTEMPTS} WHERE {TRIED_AGAIN} GROUP BY 1",  # noqa: S608
    ),
    "ticks_decided": (
        ("job", "kind", "reason"),
        "SELECT schedule_id, kind, reason, sum(count) FROM tick GROUP BY 1, 2, 3",
    ),
    "runs_emitted": ((), "SELECT count(*) FROM tick WHERE run_id IS NOT NULL"),
    "runs_skipped_overlap": ((), "SELECT sum(count) FROM tick WHERE reason IN ('overlap', 'queue_full')"),
    "schedule_drift_seconds": ((), "SELECT count(*) FROM tick WHERE kind = 'fired'"),
    "start_delay_seconds": ((), "SELECT count(*) FROM run WHERE source = 'cron' AND started_at IS NOT NULL"),
    "jobs_received": (("job",), f"SELECT {OF_JOB}, count(*) FROM run GROUP BY 1"),  # noqa: S608
    "dispatch_latency_seconds": ((), f"SELECT count(*) FROM {ATTEMPTS} WHERE worker <> 'gnomon'"),  # noqa: S608
    "jobs_completed": (("job", "status"), f"SELECT {OF_JOB}, status, count(*) FROM run GROUP BY 1, 2"),  # noqa: S608
    "jobs_dispatched": (
        ("job",),
        f"SELECT {OF_JOB}, count(*) FROM {ATTEMPTS} WHERE worker <> 'gnomon' GROUP BY 1",  # noqa: S608
    ),
    "attempts_ended": (("result",), "SELECT result, count(*) FROM attempt GROUP BY 1"),
    "dag_steps": (
        ("job", "step", "status"),
        f"SELECT {OF_JOB}, step, lower(state), count(*) FROM {TASKS} WHERE {OF_GRAPHS} GROUP BY 1, 2, 3",  # noqa: S608
    ),
}
#: The topics of the steps of each job; that of the first step under no name.
TOPICS: Mapping[str, Mapping[str, str]] = {
    "beat": {"": "fine"},
    "fails": {"": "failures"},
    **{job: {"": "slow"} for job in ("slow", "replaced", "in-line")},
    "lost": {"": "nowhere"},
    "waits": {"": "other", "after": "fine"},
    "stuck": {"": "fails"},
    "graph": {"": "fine", "bad": "fails"},
    "wide": {"": "three", "each": "fine-any", "inner": "other"},
}
#: A counter, its labels between job and topic, and the rows by job, step and these labels.
BY_TOPIC = [
    ("jobs_received", (), f"SELECT {OF_JOB}, '', count(*) FROM run GROUP BY 1"),  # noqa: S608
    ("jobs_completed", ("status",), f"SELECT {OF_JOB}, '', status, count(*) FROM run GROUP BY 1, 3"),  # noqa: S608
    (
        "jobs_dispatched",
        (),
        f"SELECT {OF_JOB}, step, count(*) FROM {ATTEMPTS} WHERE worker <> 'gnomon' GROUP BY 1, 2",  # noqa: S608
    ),
]


@pytest.mark.req("H-14", "C-13", "R-19")
@pytest.mark.guarantee("S21")
@pytest.mark.asyncio(loop_scope="module")
async def test_at_rest_every_counter_equals_the_rows(busy: Served) -> None:
    differ = {}
    for name, (labels, query) in AGREE.items():
        counted, rows = await busy.counted(name, *labels), await busy.rows(query)
        assert rows, f"nothing happened that {name} counts"
        if counted != rows:
            differ[name] = counted, rows

    assert differ == {}
    for name, labels, query in BY_TOPIC:
        rows = Counter[tuple[str, ...]]()
        for (job, step, *rest), count in (await busy.rows(query)).items():
            rows[job, *rest, TOPICS[job].get(step, TOPICS[job][""])] += count
        assert await busy.counted(name, "job", *labels, "topic") == rows, name
    dispatched = await busy.counted("jobs_dispatched", "topic")
    assert await busy.counted("dispatch_latency_seconds", "topic") == dispatched


@pytest.mark.guarantee("S24")
@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_that_is_scraped_is_a_secret_or_names_a_single_run(busy: Served) -> None:
    text = (await busy.get("/metrics"))[1] + (await busy.get("/readyz"))[1] + (await busy.get("/livez"))[1]

    assert CANARY not in text
    assert busy.node.settings.database.url not in text
    assert not re.search(r"(run|task|worker|node|sch|dl|evt)_[0-9a-f]{8}", text)


@pytest.mark.req("H-14", "H-16")
async def test_of_two_nodes_each_counts_what_it_committed(tmp_path: Path) -> None:
    async with (
        postgres(18).database() as url,
        served(url, tmp_path) as one,
        served(url, tmp_path) as other,
    ):
        for job in ("fails", "graph", "wide"):
            await one.trigger(job)
            await other.trigger(job)
        other.release.set()
        await one.rest()
        await other.reported()

        for name, (labels, query) in AGREE.items():
            counted = await one.counted(name, *labels) + await other.counted(name, *labels)
            assert counted == await one.rows(query), name


@pytest.mark.thorough
@pytest.mark.req("H-14", "H-16")
async def test_of_two_servers_one_counts_what_a_worker_committed_whichever_reads(tmp_path: Path) -> None:
    async with (
        postgres(18).database() as url,
        served(url, tmp_path, worker=on_the_database) as one,
        served(url, tmp_path, worker=another_server_has_one) as other,
    ):
        for job in ("fails", "graph", "wide"):
            await one.trigger(job)
            # The server that reads loses its lease in between: both may read at the same time.
            await one.node.coordination.release_singletons()
            await other.trigger(job)
            await other.node.coordination.release_singletons()
        await one.rest()
        await other.reported()

        for name, (labels, query) in AGREE.items():
            counted = await one.counted(name, *labels) + await other.counted(name, *labels)
            assert counted == await one.rows(query), name


async def test_commits_of_a_command_are_counted_by_the_server(sqlite: Served) -> None:
    async with Operations.open(sqlite.node.settings) as operations:
        await operations.launcher.trigger("graph", actor="ada")

    async def counted() -> bool:
        return (await sqlite.counted("jobs_received", "job"))["graph",] == 1

    await sqlite.until(counted)


# ---- what is there from the first moment ---------------------------------------------------------


@pytest.mark.req("H-14", "C-13")
async def test_every_measure_is_shown_from_the_first_moment(tmp_path: Path) -> None:
    async with served(f"sqlite:///{tmp_path}/gnomon.db", tmp_path) as one:
        families = await one.families()

    assert set(families) == {PREFIX + name for name in METRICS}
    silent = {name for name, family in families.items() if not family.samples}
    assert silent <= {PREFIX + name for name, measure in METRICS.items() if measure.may_be_absent}


async def test_each_job_shows_that_it_has_not_failed_and_missed_nothing_yet(sqlite: Served) -> None:
    families = await sqlite.families()
    failed = [one for one in families[PREFIX + "executions"].samples if one.labels["status"] == "failed"]
    missed = [one for one in families[PREFIX + "ticks_decided"].samples if one.labels["kind"] == "missed"]

    assert {one.labels["job"] for one in failed} >= {"fails", "beat"}
    assert {one.labels["job"] for one in missed} >= {"fails", "beat"}


@pytest.mark.req("H-14")
async def test_a_node_that_decides_ticks_says_so(sqlite: Served) -> None:
    async def leads() -> bool:
        return bool((await sqlite.families())[PREFIX + "leader_active"].samples)

    await sqlite.until(leads)

    [sample] = (await sqlite.families())[PREFIX + "leader_active"].samples
    assert sample.value == 1


@pytest.mark.req("H-14")
async def test_the_lock_of_a_job_shows_while_it_is_held(sqlite: Served) -> None:
    async def held() -> bool:
        samples = (await sqlite.families())[PREFIX + "lock_held"].samples
        return {sample.labels["job"]: sample.value for sample in samples}.get("slow") == 1

    await sqlite.until(held)
    await sqlite.rest()

    async def free() -> bool:
        return not await held()

    await sqlite.until(free)


async def test_the_next_fire_of_each_job_that_has_one_is_shown(sqlite: Served) -> None:
    async def shown() -> bool:
        samples = (await sqlite.families())[PREFIX + "next_fire_seconds"].samples
        assert {sample.labels["job"] for sample in samples} == {"beat", "slow"}
        assert all(sample.value <= 0.2 for sample in samples)
        # On a busy machine a fire may be overdue for a while.
        return all(sample.value > -1 for sample in samples)

    await sqlite.until(shown)


# ---- settings ------------------------------------------------------------------------------------


async def test_beyond_so_many_jobs_all_are_counted_together(tmp_path: Path) -> None:
    async with served(f"sqlite:///{tmp_path}/gnomon.db", tmp_path, metrics__max_jobs=2) as one:
        await one.families()
        for job in ("fails", "graph", "wide"):
            await one.trigger(job)
        await one.rest()
        shown = await one.counted("executions", "job")
        rows = await one.rows("SELECT count(*) FROM run")
        labels = {
            sample.labels["job"]
            for family in (await one.families()).values()
            for sample in family.samples
            if "job" in sample.labels
        }

    assert len(labels) == 3
    assert "other" in labels
    assert sum(shown.values()) == sum(rows.values())


@pytest.mark.req("H-14")
async def test_the_names_begin_with_what_the_settings_say(tmp_path: Path) -> None:
    async with served(f"sqlite:///{tmp_path}/gnomon.db", tmp_path, metrics__prefix="acme_") as one:
        text = (await one.get("/metrics"))[1]

    assert all(exposed_name(measure, "acme_") in text for measure in METRICS.values())
    assert "hanzo" not in text


async def test_a_port_that_is_taken_is_refused_with_the_setting(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    flags = {"database.url": f"sqlite:///{tmp_path}/gnomon.db", "metrics.port": port}
    plan = ServerOptions(settings=load(flags=flags), functions=Functions(), events=Recorder(), strict=True)

    async with taken:
        with pytest.raises(UsageError, match=rf"metrics\.port: {port} .* is taken"):
            await serve(plan, asyncio.Event())


async def test_inside_another_program_a_port_that_is_taken_is_announced_and_done_without(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    events, stop = Recorder(), asyncio.Event()
    flags = {
        "database.url": f"sqlite:///{tmp_path}/gnomon.db",
        "metrics.port": taken.sockets[0].getsockname()[1],
    }
    plan = ServerOptions(settings=load(flags=flags), functions=Functions(), events=events)

    async with taken:
        await serve(plan, stop, ready=lambda _: stop.set())

    assert "metrics_unavailable" in events.names()


async def test_without_metrics_nobody_listens(tmp_path: Path) -> None:
    events, stop = Recorder(), asyncio.Event()
    flags = {"database.url": f"sqlite:///{tmp_path}/gnomon.db", "metrics.enabled": False}
    plan = ServerOptions(settings=load(flags=flags), functions=Functions(), events=events)

    await serve(plan, stop, ready=lambda _: stop.set())

    assert "metrics_shown" not in events.names()


# ---- probes --------------------------------------------------------------------------------------


@pytest.mark.req("H-17", "Z-11")
async def test_a_node_that_is_well_is_ready_and_alive(sqlite: Served) -> None:
    assert (await sqlite.get("/readyz"))[0] == 200
    assert (await sqlite.get("/livez"))[0] == 200


@pytest.mark.req("Z-11")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_job_that_fails_makes_nobody_ill(busy: Served) -> None:
    assert '"status":"ok"' in (await busy.get("/readyz"))[1]


@pytest.mark.req("Z-11")
async def test_a_store_that_is_gone_makes_a_node_unready_but_not_dead(sqlite: Served) -> None:
    async def renamed(before: str, after: str) -> None:
        await transactions_of(sqlite.node.store).write(
            lambda conn: conn.execute(sa.text(f"ALTER TABLE {before} RENAME TO {after}"))
        )

    async def status(expected: int) -> bool:
        return (await sqlite.get("/readyz"))[0] == expected

    await renamed("worker", "elsewhere")
    await sqlite.until(lambda: status(503))

    assert (await sqlite.get("/livez"))[0] == 200
    assert '"store":"error"' in (await sqlite.get("/readyz"))[1]
    assert (await sqlite.families())[PREFIX + "store_up"].samples[0].value == 0

    await renamed("elsewhere", "worker")
    await sqlite.until(lambda: status(200))


@pytest.mark.req("Z-11")
@pytest.mark.guarantee("S21")
async def test_a_frozen_database_makes_a_node_unready_until_it_continues(tmp_path: Path) -> None:
    with Postgres(18) as server:
        async with server.database() as url, served(url, tmp_path) as one:

            async def status(expected: int) -> bool:
                return (await one.get("/readyz"))[0] == expected

            await one.until(lambda: status(200))
            with server.frozen():
                assert await one.get("/livez") == (200, '{"alive":true}\n')
                await one.until(lambda: status(503))
                assert (await one.get("/livez"))[0] == 200
            await one.until(lambda: status(200))
