"""The next step is admitted and taken in the commit that ends the one before it: nothing may rest on that."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.adapters.sql import open_sqlite
from gnomon.core.model import RunStatus, TaskId
from gnomon.core.runs.admission import Waiting
from gnomon.core.runs.launch import Launching
from gnomon.core.runs.outcomes import Ending
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.tasks import Held
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.clock import CountedIds, VirtualClock
from support.crew import Crewed, ToldRunner


def step(name: str, *needs: str, **given: str) -> Step:
    return Step(name=name, function="reports.make", depends_on=needs, input=dict(given))


def graph(*steps: Step) -> Workflow:
    return Workflow(workflow_id="report", version=1, steps=steps)


@pytest.fixture
async def crew(tmp_path: Path) -> AsyncIterator[Crewed]:
    """On a file: in memory nothing is shared by a commit."""
    clock = VirtualClock(NOON)
    store = await open_sqlite(str(tmp_path / "gnomon.db"), now=clock.now)
    crew = Crewed(store=store, clock=clock, flags={"worker.slots": 2})
    crew.beside_each_other()
    yield crew
    await store.close()


async def away(*_: object, **__: object) -> frozenset[TaskId]:
    raise StoreUnavailable("away")


async def test_what_had_to_wait_for_a_slot_is_given_what_its_references_lead_to(crew: Crewed) -> None:
    definition = graph(step("left"), step("right"), step("last", "left", "right", path="${steps.left.output}"))
    job = await crew.job(definition)
    await crew.run(job, "a", first_steps=definition.first_steps)
    await crew.go()
    await crew.run(job, "b", first_steps=definition.first_steps)
    await crew.dispatcher.step()
    crew.runner.end_all(output=b'"here"')
    await crew.worker.step()
    assert [one.run.run_id for one in crew.runner.started.values()] == ["run_b", "run_b"]
    # Admitted while both slots are in use, taken when there are more of them than there is to take.
    await crew.dispatcher.step()
    crew.runner.end_all(output=b'"here"')
    await crew.worker.step()

    [last] = crew.runner.started.values()
    assert (last.step.name, last.input) == ("last", {"path": "here"})


@pytest.mark.guarantee("S13")
async def test_what_a_lost_attempt_returned_is_not_given_to_the_next_step(crew: Crewed) -> None:
    definition = graph(step("first"), step("second", "first", path="${steps.first.output}"))
    await crew.run(await crew.job(definition), first_steps=("first",))
    await crew.go()
    [lost] = crew.runner.started
    crew.clock.advance(crew.settings.worker.lease_ms + 1)
    await crew.reconciler.step()
    crew.clock.advance(1000)
    elsewhere = ToldRunner()
    another = crew.another_worker("w2", elsewhere)
    await another.step()
    crew.dispatcher.meanwhile = another.take_along
    await crew.dispatcher.step()
    await another.step()
    elsewhere.end_all(output=b'"what counts"')
    await another.step()
    crew.dispatcher.meanwhile = crew.worker.take_along

    crew.runner.end(lost, output=b'"what does not"')
    await crew.worker.step()
    await crew.go()

    [second] = crew.runner.started.values()
    assert (second.step.name, second.input) == ("second", {"path": "what counts"})


async def test_a_launch_that_was_written_is_none_that_failed_though_its_tasks_could_not_be_passed_on(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await crew.job()
    await crew.worker.step()
    launcher = Launcher(crew.store, crew.store, crew.store, crew.store, crew.clock, CountedIds())
    launcher.hand_over = crew.dispatcher.hand_over
    left: list[bool] = []
    crew.dispatcher.on_left = lambda: left.append(True)
    with monkeypatch.context() as broken:
        broken.setattr(crew.store, "admit", away)
        triggered = await launcher.trigger(job.schedule_id, actor="ada")

    assert (triggered.became, left) == (Launching.STARTED, [True])
    await crew.go()
    assert len(crew.runner.started) == 1


async def test_nobody_goes_on_while_a_report_is_under_way(crew: Crewed, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = graph(step("first"), step("second", "first"))
    run = await crew.run(await crew.job(definition), first_steps=("first",))
    await crew.go()
    crew.runner.end_all()
    slow, report = asyncio.Event(), crew.store.report

    async def slowly(endings: Sequence[Ending]) -> frozenset[Held]:
        await slow.wait()
        return await report(endings)

    with monkeypatch.context() as broken:
        broken.setattr(crew.store, "admit", away)
        broken.setattr(crew.store, "report", slowly)
        stepping = asyncio.ensure_future(crew.worker.step())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not stepping.done()
        slow.set()
        await stepping

    assert crew.worker.in_hand == 0
    await crew.go()
    crew.runner.end_all()
    await crew.go()
    assert (await crew.now(run)).status is RunStatus.COMPLETED


async def test_whoever_looks_for_what_is_left_is_told_if_it_could_not_be_passed_on(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = graph(step("first"), step("second", "first"))
    await crew.run(await crew.job(definition), first_steps=("first",))
    await crew.go()
    crew.runner.end_all()
    left: list[bool] = []
    crew.dispatcher.on_left = lambda: left.append(True)

    async def none(*_: object, **__: object) -> frozenset[TaskId]:
        return frozenset()

    monkeypatch.setattr(crew.store, "admit", none)
    await crew.worker.step()

    assert left == [True]


# ---- alone ---------------------------------------------------------------------------------------


@pytest.fixture
def asked(crew: Crewed, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks a worker that is alone asked for, each time."""
    asked: list[int] = []
    take = crew.store.take

    async def counted(worker: str, *, limit: int, **said: Any) -> Sequence[Waiting]:  # noqa: ANN401 - all else
        asked.append(limit)
        return await take(worker, limit=limit, **said)

    monkeypatch.setattr(crew.store, "take", counted)
    crew.worker.backlog.only_source = True
    return asked


async def test_a_worker_that_is_alone_does_not_ask_again_until_something_was_let_through(
    crew: Crewed, asked: list[int]
) -> None:
    await crew.worker.step()
    await crew.worker.step()
    assert asked == [2]

    await crew.run(await crew.job())
    await crew.dispatcher.step()
    await crew.worker.step()
    assert (asked, len(crew.runner.started)) == ([2, 2], 1)


async def test_a_worker_that_is_alone_takes_what_was_let_through_while_it_had_no_room(
    crew: Crewed, asked: list[int]
) -> None:
    job = await crew.job()
    await crew.worker.step()
    for name in ("a", "b", "c"):
        await crew.run(job, name)
    await crew.dispatcher.step()
    await crew.worker.step()
    assert len(crew.runner.started) == 2

    crew.runner.end_all()
    await crew.worker.step()
    await crew.worker.step()

    assert len(crew.runner.started) == 1
    assert asked


async def test_a_worker_that_is_alone_looks_once_in_a_while_whatever_it_knows(crew: Crewed, asked: list[int]) -> None:
    await crew.worker.step()
    crew.clock.advance(crew.settings.worker.lease_ms)
    await crew.worker.step()

    assert asked == [2, 2]


async def test_nobody_has_to_look_for_steps_that_were_all_passed_on(crew: Crewed) -> None:
    definition = graph(step("first"), step("second", "first"), step("third", "second"))
    await crew.run(await crew.job(definition), first_steps=("first",))
    await crew.go()
    told: list[str] = []
    crew.worker.on_ready = lambda: told.append("look")
    for _ in range(2):
        crew.runner.end_all()
        await crew.worker.step()
        await crew.worker.step()
    assert told == []

    crew.runner.end_all()
    await crew.worker.step()
    assert told == ["look"]
