"""Outputs that are too large to be read before they are stored: they are taken away soon, through any crash."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql import bulk
from gnomon.adapters.sql.store import SqlStore
from gnomon.app.kernel import KERNEL_BREAKER, OUTPUT_KERNEL_BREAKER
from gnomon.app.node import Node
from gnomon.app.operations import Operations
from gnomon.app.settings import schedule_defaults
from gnomon.config.settings import load
from gnomon.core.jobs.job import read_job
from gnomon.core.model import Run, RunStatus
from gnomon.core.output_policy.ruling import HeldStatus, OutputPhase
from gnomon.core.runs.states import TaskState
from gnomon.ports.output_policy import HeldOutputQuery
from gnomon.runners.context import GiveUp
from gnomon.runners.registry import Functions
from gnomon.services.execution.late_output_checker import LateOutputChecker
from gnomon.testing.clock import Recorder
from support.fleet_processes import all_runs, launch, wait_until, wait_until_all_over
from support.fleet_shapes import SHAPES, Shape, running_shape
from support.gnomon_processes import GnomonProcess, policy_server
from support.output_policies import HOLD_ALL, KEY, policy_text
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file

pytestmark = [pytest.mark.req("R-06"), pytest.mark.timeout(180)]
#: Nothing larger than this is read at once.
INLINE = 200
RUNS = 40
CHECKED = {"GNOMON_OUTPUT_POLICY__ENABLED": "true", "GNOMON_OUTPUT_POLICY__INLINE_BYTES": str(INLINE)}
#: The key is put together by the program, so that no definition has it.
JOBS = """
jobs:
  - name: leak
    overlap: allow
    command: "printf 'AKIA%s ' IOSFODNN7EXAMPLE; head -c 400 /dev/zero | tr '\\\\0' x"
  - {name: plan, overlap: allow, command: "printf 'the plan of the harb%s' our"}
"""
PAYLOADS = bulk.statement("SELECT owner_id, kind, body FROM payload")
EVERYONE = HeldOutputQuery(tenant="default", status=None, after=None, limit=1000)


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        new_sqlite_file(tmp_path / "gnomon.db")
        yield f"sqlite:///{tmp_path / 'gnomon.db'}"
    else:
        async with postgres(18).database() as address:
            yield address


def leaking(seen: list[object]) -> Functions:
    functions = Functions()

    @functions.function("leak")
    def leak(**given: object) -> list[str]:
        del given
        return ["x" * INLINE, KEY]

    @functions.function("see")
    def see(**given: object) -> None:
        seen.append(given)

    @functions.function("fail")
    def fail(**given: object) -> None:
        del given
        raise GiveUp("no")

    return functions


STEPS = [
    {"step": "each", "function": "leak", "foreach": [1, 2]},
    {"step": "below", "workflow": "inner"},
    {"step": "see", "function": "see", "depends_on": ["each", "below"], "input": {
        "all": "${steps.each.output}", "inner": "${steps.below.output}"}},
    {"step": "nested", "workflow": "peek", "depends_on": ["below"], "input": {"got": "${steps.below.output}"}},
]  # fmt: skip
DOOMED = [
    {"step": "leak", "function": "leak"},
    {"step": "nested", "workflow": "fails", "depends_on": ["leak"], "input": {"got": "${steps.leak.output}"}},
]  # fmt: skip
FAILING = [{"step": "look", "function": "see"}, {"step": "fail", "function": "fail", "depends_on": ["look"]}]
INNER = [
    {"step": "first", "function": "leak"},
    {"step": "last", "function": "leak", "depends_on": ["first"], "input": {"got": "${steps.first.output}"}},
]


async def test_every_copy_that_the_engine_has_made_goes_with_the_output(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(flags={"database.url": url, "output_policy.enabled": True, "output_policy.inline_bytes": INLINE})
    seen, may_check = list[object](), asyncio.Event()
    look = LateOutputChecker._look  # noqa: SLF001 - the checks begin when all runs are over

    async def look_later(checker: LateOutputChecker) -> float:
        return await look(checker) if may_check.is_set() else 0.02

    monkeypatch.setattr(LateOutputChecker, "_look", look_later)
    async with AsyncExitStack() as stack, Operations.open(settings) as operations:
        store = operations.store
        await store.policies.add(policy_text(*HOLD_ALL), author="ada", now=1)
        node = await Node.open(settings, events=Recorder(), functions=leaking(seen))
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        stack.push_async_callback(node.close)
        now = SystemClock().now()
        jobs = [read_job(one, schedule_defaults(settings), now=now) for one in (
            {"name": "inner", "dag": INNER}, {"name": "outer", "dag": STEPS},
            {"name": "peek", "dag": FAILING[:1]},
            {"name": "fails", "dead_letter": True, "dag": FAILING}, {"name": "doomed", "dag": DOOMED})]  # fmt: skip
        await operations.jobs.apply(jobs, actor="ada")
        run_id = (await operations.launcher.trigger("outer", actor="ada")).run_id
        doomed = (await operations.launcher.trigger("doomed", actor="ada")).run_id
        async with asyncio.timeout(60):
            while (failed := await store.executions.find_run(doomed)) is None or not failed.over:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            while (run := await store.executions.find_run(run_id)) is None or not run.over:  # noqa: ASYNC110 - the node writes it
                await asyncio.sleep(0.02)
            assert run.status is RunStatus.COMPLETED
            assert len(seen) == 3
            letters = [one for one in await store.dead_letters.page("default") if one.step == "fail"]
            assert [KEY.encode() in (one.input or b"") for one in letters] == [True]
            assert KEY in f"{seen}"
            may_check.set()
            while await store.late_checks.oldest(1):  # noqa: ASYNC110 - the node checks them
                await asyncio.sleep(0.02)
        stop.set()
        await running
        held = {one.ruling.step + one.ruling.run_id: one.ruling for one in await store.held_outputs.page(EVERYONE)}
        payloads = await _payloads(store)
        letters = list(await store.dead_letters.page("default"))
        again = await store.executions.find_run(run_id)

    assert again == run
    assert [one for one in payloads if KEY.encode() in one[2]] == []
    assert {body for _, kind, body in payloads if kind == "output" and b"null" in body} >= {b"[null,null]"}
    [last] = [one for one in held.values() if one.step == "last"]
    [first] = [one for one in held.values() if one.step == "first"]
    assert set(last.readers) == {f"see of {run.run_id}", f"nested of {run.run_id}", last.readers[-1]}
    assert last.readers[-1].startswith("look of run_")
    assert {one.input for one in letters if one.step == "fail"} == {None}
    assert set(first.readers) == {"last"}
    assert {one.readers for one in held.values() if one.step == "each"} == {("see",)}
    assert {one.phase for one in held.values()} == {OutputPhase.LATE}


async def _payloads(store: object) -> list[tuple[str, str, bytes]]:
    read = store.late_checks._transactions.read  # type: ignore[attr-defined]  # noqa: SLF001 - everything that is stored
    return [tuple(row) for row in await read(lambda conn: bulk.fetch_rows(conn, PAYLOADS))]


# ---- processes that are killed ---------------------------------------------------------------------


@pytest.fixture(params=SHAPES)
async def shape(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Shape, SqlStore]]:
    async with running_shape(request.param, JOBS, tmp_path, **CHECKED) as running:
        yield running


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_scheduler_that_dies_or_freezes_among_checks_leaves_the_rest_to_the_next_one(
    shape: tuple[Shape, SqlStore], number: signal.Signals
) -> None:
    fleet, store = shape
    with fleet.scheduler() as first:
        await wait_until(partial(_is_registered, store))
        await launch(store, "leak", RUNS)
        await wait_until(partial(_some_held, store))
        first.signal(number)
        if number is signal.SIGKILL:
            first.kill()
            await _all_held(fleet, store)
        elif fleet.alone:
            # The frozen process has the lock of the file; it goes on itself.
            first.signal(signal.SIGCONT)
            await _wait_for_all(store)
        else:
            await _all_held(fleet, store)
            first.signal(signal.SIGCONT)
            assert first.terminate() == 0

    runs = await all_runs(store)
    tasks = await store.history.tasks(runs)
    held = await store.held_outputs.page(EVERYONE)
    letters = await store.dead_letters.page(
        "default", job=None, unresolved=False, oldest_first=False, after=None, limit=1000
    )
    assert len(runs) == len(tasks) == len(held) == len(letters) == RUNS
    assert {one.state for one in tasks} == {TaskState.OUTPUT_QUARANTINED}
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert {(one.ruling.phase, one.ruling.status) for one in held} == {(OutputPhase.LATE, HeldStatus.HELD)}
    assert {one.reason for one in letters} == {"output_quarantined"}
    assert [one for one in await _payloads(store) if KEY.encode() in one[2]] == []


# ---- another service judges --------------------------------------------------------------------------

SERVICE = """
default_decision: allow
output_rules:
  - {id: plans, match: {keywords: [harbour]}, decision: quarantine, reason: a plan}
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[GnomonProcess, int]]:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE)
    with policy_server(file, "grpc") as running:
        yield running


@pytest.mark.req("R-14")
@pytest.mark.parametrize("name", SHAPES)
async def test_a_scheduler_killed_while_the_service_hangs_leaves_its_question_to_the_next_one(
    name: str, tmp_path: Path, service: tuple[GnomonProcess, int]
) -> None:
    kernel, port = service
    said = {
        "GNOMON_OUTPUT_POLICY__KERNEL": f"grpc://127.0.0.1:{port}",
        "GNOMON_OUTPUT_POLICY__KERNEL_TIMEOUT": "2m",
        "GNOMON_OUTPUT_POLICY__LATE_TIMEOUT": "5m",
    }
    async with running_shape(name, JOBS, tmp_path, **CHECKED, **said) as (fleet, store):
        kernel.signal(signal.SIGSTOP)
        with fleet.scheduler() as first:
            await wait_until(partial(_is_registered, store, "plan"))
            await launch(store, "plan", 3)
            await wait_until_all_over(store)
            assert len(await store.late_checks.oldest(10)) == 3
            first.kill()
        kernel.signal(signal.SIGCONT)
        await _all_held(fleet, store)
        tasks = await store.history.tasks(await all_runs(store))
        held = await store.held_outputs.page(EVERYONE)

    assert {one.state for one in tasks} == {TaskState.OUTPUT_QUARANTINED}
    assert [(one.ruling.rule, one.ruling.phase) for one in held] == [("plans", OutputPhase.LATE)] * 3


@pytest.mark.req("R-05", "R-12", "R-14")
@pytest.mark.parametrize("name", SHAPES)
async def test_a_killed_service_delays_no_execution_and_its_outputs_stay(
    name: str, tmp_path: Path, service: tuple[GnomonProcess, int]
) -> None:
    kernel, port = service
    said = {"GNOMON_OUTPUT_POLICY__KERNEL": f"grpc://127.0.0.1:{port}"}
    async with running_shape(name, JOBS, tmp_path, **CHECKED, **said) as (fleet, store):
        kernel.kill()
        with fleet.scheduler() as running:
            await wait_until(partial(_is_registered, store, "plan"))
            await launch(store, "plan", 8)
            await _wait_for_all(store)
            opened = await store.breakers.find(OUTPUT_KERNEL_BREAKER)
            other = await store.breakers.find(KERNEL_BREAKER)
            assert running.terminate() == 0
        tasks = await store.history.tasks(await all_runs(store))
        outputs = await store.executions.payloads([one.task_id for one in tasks], "output")

    assert {one.state for one in tasks} == {TaskState.SUCCEEDED}
    assert len(outputs) == 8
    assert opened is not None
    assert opened.breaker.open_until is not None
    assert other is None


async def _all_held(fleet: Shape, store: SqlStore) -> None:
    with fleet.scheduler():
        await _wait_for_all(store)


async def _wait_for_all(store: SqlStore) -> None:
    await wait_until_all_over(store)
    await wait_until(partial(_none_left, store))


async def _is_registered(store: SqlStore, job: str = "leak") -> bool:
    return await store.schedules.find("default", job) is not None


async def _some_held(store: SqlStore) -> bool:
    return bool(await store.held_outputs.page(EVERYONE))


async def _none_left(store: SqlStore) -> bool:
    runs: list[Run] = await all_runs(store)
    tasks = await store.history.tasks(runs)
    is_over = all(one.state in (TaskState.SUCCEEDED, TaskState.OUTPUT_QUARANTINED) for one in tasks)
    return is_over and not await store.late_checks.oldest(1)
