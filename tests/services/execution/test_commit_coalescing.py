"""The next step is admitted and taken in the commit that ends the one before it: nothing may rest on that."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.store import NOON
from gnomon.adapters.sql import open_sqlite
from gnomon.core.model import Overlap, RunId, RunStatus, TaskId
from gnomon.core.runs.admission import Admission, ReadyTask
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import KeyTaken, StoreUnavailable
from gnomon.ports.tasks import AttemptRef
from gnomon.services.operations.launcher import Launcher, ReplayedLetter
from gnomon.testing.clock import CountedIds, VirtualClock
from support.execution import ExecutionHarness, FakeRunner
from support.gates import at_once
from support.sqlite_files import new_sqlite_file

pytestmark = pytest.mark.usefixtures("any_gate")


def step(name: str, *needs: str, **given: str) -> Step:
    return Step(name=name, function="reports.make", depends_on=needs, input=dict(given))


def graph(*steps: Step) -> Workflow:
    return Workflow(workflow_id="report", version=1, steps=steps)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ExecutionHarness]:
    """On a file: in memory nothing is shared by a commit."""
    clock = VirtualClock(NOON)
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=clock.now)
    harness = ExecutionHarness(store=store, clock=clock, flags={"worker.slots": 2})
    harness.share_process()
    yield harness
    await store.close()


async def away(*_: object, **__: object) -> frozenset[TaskId]:
    raise StoreUnavailable("away")


async def test_references_are_resolved_for_a_task_that_waited_for_a_slot(harness: ExecutionHarness) -> None:
    definition = graph(step("left"), step("right"), step("last", "left", "right", path="${steps.left.output}"))
    job = await harness.job(definition)
    await harness.run(job, "a", first_steps=definition.first_steps)
    await harness.run_until_idle()
    await harness.run(job, "b", first_steps=definition.first_steps)
    await harness.dispatcher.step()
    harness.runner.end_all(output=b'"here"')
    await harness.worker.step()
    assert [one.run.run_id for one in harness.runner.started.values()] == ["run_b", "run_b"]
    # Admitted while both slots are in use, taken when there are more of them than there is to take.
    await harness.dispatcher.step()
    harness.runner.end_all(output=b'"here"')
    await harness.worker.step()

    [last] = harness.runner.started.values()
    assert (last.step.name, last.input) == ("last", {"path": "here"})


@pytest.mark.guarantee("S13")
async def test_the_output_of_a_lost_attempt_is_not_given_to_the_next_step(harness: ExecutionHarness) -> None:
    definition = graph(step("first"), step("second", "first", path="${steps.first.output}"))
    await harness.run(await harness.job(definition), first_steps=("first",))
    await harness.run_until_idle()
    [lost] = harness.runner.started
    harness.clock.advance(harness.settings.worker.lease_ms + 1)
    await harness.reconciler.step()
    harness.clock.advance(1000)
    elsewhere = FakeRunner()
    another = harness.new_worker("w2", elsewhere)
    await another.step()
    harness.taker.connect(another)
    await harness.dispatcher.step()
    await another.step()
    elsewhere.end_all(output=b'"what counts"')
    await another.step()
    harness.taker.connect(harness.worker)

    harness.runner.end(lost, output=b'"what does not"')
    await harness.worker.step()
    await harness.run_until_idle()
    # It leaves new tasks to the other worker for a moment, since that one has none.
    harness.clock.advance(100)
    await harness.worker.step()

    [second] = harness.runner.started.values()
    assert (second.step.name, second.input) == ("second", {"path": "what counts"})


async def test_a_launch_that_was_written_is_none_that_failed_though_its_tasks_could_not_be_passed_on(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await harness.job()
    await harness.worker.step()
    store = harness.store
    launcher = Launcher(
        store.runs,
        store.executions,
        store.jobs,
        store.schedules,
        harness.clock,
        CountedIds(),
        write_and_admit=harness.dispatcher.write_and_admit,
    )
    with monkeypatch.context() as broken:
        broken.setattr(harness.store.tasks, "admit", away)
        triggered = await launcher.trigger(job.schedule_id, actor="ada")

    assert (triggered.became, harness.woken) == (LaunchOutcome.STARTED, ["dispatcher"])
    await harness.run_until_idle()
    assert len(harness.runner.started) == 1


@pytest.mark.guarantee("S15")
@pytest.mark.parametrize("replayed", [False, True], ids=["trigger", "replay"])
async def test_a_refused_request_does_not_run_in_place_of_the_accepted_one(
    harness: ExecutionHarness, *, replayed: bool
) -> None:
    job = await harness.job(overlap=Overlap.ALLOW)
    await harness.worker.step()
    store = harness.store
    parts = (store.runs, store.executions, store.jobs, store.schedules, harness.clock, CountedIds())
    beside, here = Launcher(*parts), Launcher(*parts, write_and_admit=harness.dispatcher.write_and_admit)

    async def launch(launcher: Launcher, number: int) -> None:
        if replayed:
            given = msgspec.json.encode({"n": number})
            letter = ReplayedLetter(letter="dl_1", execution=RunId("run_1"), input=given, tenant="default")
            await launcher.replay(job.schedule_id, letter, actor=f"caller {number}")
        else:
            await launcher.trigger(job.schedule_id, actor=f"caller {number}", key="k", input={"n": number})

    # The first is written by another process, which has no dispatcher.
    await launch(beside, 1)
    harness.clock.advance(7)
    with nullcontext() if replayed else pytest.raises(KeyTaken):
        await launch(here, 2)
    await harness.run_until_idle()

    [started] = harness.runner.started.values()
    assert (started.input["n"], started.run.user_id, started.run.planned_at) == (1, "caller 1", harness.clock.now() - 7)


async def test_no_successor_starts_while_a_report_is_in_flight(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = graph(step("first"), step("second", "first"))
    run = await harness.run(await harness.job(definition), first_steps=("first",))
    await harness.run_until_idle()
    harness.runner.end_all()
    slow, report = asyncio.Event(), harness.store.attempts.report

    async def slowly(endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        await slow.wait()
        return await report(endings)

    with monkeypatch.context() as broken:
        broken.setattr(harness.store.tasks, "admit", away)
        broken.setattr(harness.store.attempts, "report", slowly)
        stepping = asyncio.ensure_future(harness.worker.step())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not stepping.done()
        slow.set()
        await stepping

    assert harness.worker.in_hand == 0
    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.run_until_idle()
    assert (await harness.now(run)).status is RunStatus.COMPLETED


async def test_the_dispatcher_is_woken_if_successors_could_not_be_handed_over(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = graph(step("first"), step("second", "first"))
    await harness.run(await harness.job(definition), first_steps=("first",))
    await harness.run_until_idle()
    harness.runner.end_all()
    harness.woken.clear()

    async def none(*_: object, **__: object) -> dict[TaskId, Admission]:
        return {}

    monkeypatch.setattr(harness.store.tasks, "admit", none)
    await harness.worker.step()

    assert harness.woken[0] == "dispatcher"


# ---- alone ---------------------------------------------------------------------------------------


@pytest.fixture
def asked(harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks a worker that is alone asked for, each time."""
    asked: list[int] = []
    take = harness.store.attempts.take

    async def counted(worker: str, *, limit: int, **said: Any) -> Sequence[ReadyTask]:  # noqa: ANN401 - all else
        asked.append(limit)
        return await take(worker, limit=limit, **said)

    monkeypatch.setattr(harness.store.attempts, "take", counted)
    harness.share_process(alone=True)
    return asked


async def test_a_sole_worker_does_not_query_until_something_was_admitted(
    harness: ExecutionHarness, asked: list[int]
) -> None:
    await harness.worker.step()
    await harness.worker.step()
    assert asked == [2]

    await harness.run(await harness.job())
    await harness.dispatcher.step()
    await harness.worker.step()
    assert (asked, len(harness.runner.started)) == ([2, 2], 1)


async def test_a_sole_worker_takes_tasks_admitted_while_it_had_no_slots(
    harness: ExecutionHarness, asked: list[int]
) -> None:
    job = await harness.job()
    await harness.worker.step()
    for name in ("a", "b", "c"):
        await harness.run(job, name)
    await harness.dispatcher.step()
    await harness.worker.step()
    assert len(harness.runner.started) == 2

    harness.runner.end_all()
    await harness.worker.step()
    await harness.worker.step()

    assert len(harness.runner.started) == 1
    assert asked


async def test_a_worker_that_is_alone_looks_once_in_a_while_whatever_it_knows(
    harness: ExecutionHarness, asked: list[int]
) -> None:
    await harness.worker.step()
    harness.clock.advance(harness.settings.worker.lease_ms)
    await harness.worker.step()

    assert asked == [2, 2]


@at_once
async def test_nobody_has_to_look_for_steps_that_were_all_passed_on(harness: ExecutionHarness) -> None:
    definition = graph(step("first"), step("second", "first"), step("third", "second"))
    await harness.run(await harness.job(definition), first_steps=("first",))
    await harness.run_until_idle()
    harness.woken.clear()
    for _ in range(2):
        harness.runner.end_all()
        await harness.worker.step()
        await harness.worker.step()
    assert harness.woken == []

    harness.runner.end_all()
    await harness.worker.step()
    assert harness.woken == ["worker"]
