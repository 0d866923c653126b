"""Runs of several steps, brought to their end by the harness."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.config.sections import SecretsSettings
from gnomon.core.model import Result, Run, RunStatus
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import RetryPolicy, Step, When, Workflow
from gnomon.ports.schedules import JobChangeset
from gnomon.runners.secrets import SecretSource
from support.execution import ExecutionHarness
from support.gates import at_once
from support.graph_runs import HarnessFactory, ScriptedGraphRun, acted, graph, step

pytestmark = pytest.mark.usefixtures("any_gate")


DIAMOND = (step("extract"), step("left", "extract"), step("right", "extract"), step("load", "left", "right"))


@pytest.mark.req("H-07")
@pytest.mark.guarantee("S13")
async def test_a_step_starts_when_all_that_it_depends_on_have_succeeded(backend: HarnessFactory) -> None:
    play = await acted(backend, *DIAMOND)
    assert play.running() == ["extract"]
    await play.end("extract")
    assert play.running() == ["left", "right"]
    await play.end("left")
    assert play.running() == ["right"]
    await play.end("right")
    assert play.running() == ["load"]
    await play.end("load")

    assert await play.status() is RunStatus.COMPLETED


@pytest.mark.req("H-07")
@pytest.mark.guarantee("S13")
async def test_a_step_that_fails_for_good_cancels_everything_behind_it_and_fails_the_run(
    backend: HarnessFactory,
) -> None:
    play = await acted(backend, *DIAMOND)
    await play.end("extract")
    await play.end("left", Result.FAILED, error="no disk")
    assert await play.status() is RunStatus.RUNNING
    await play.end("right")

    ended = await play.harness.now(play.run)
    assert (ended.status, ended.error) == (RunStatus.FAILED, "step left: no disk")
    assert (await play.states())["load"] == "CANCELLED"
    [load] = [t for t in await play.harness.store.history.tasks([play.run]) if t.step == "load"]
    assert (load.note, load.upstream_failed) == ("left did not succeed", True)


async def test_a_step_has_its_own_retries(backend: HarnessFactory) -> None:
    retry = RetryPolicy(max_attempts=2, initial_delay_ms=1000, jitter=0)
    play = await acted(backend, step("one", retry=retry), step("two", "one"))
    await play.end("one", Result.FAILED)
    play.harness.clock.advance(1000)
    await play.harness.run_until_idle()
    await play.end("one")

    assert play.running() == ["two"]


async def test_cleaning_up_happens_however_it_ended(backend: HarnessFactory) -> None:
    play = await acted(backend, step("work"), step("clean", "work", when=When.ALL_DONE))
    await play.end("work", Result.FAILED)
    assert play.running() == ["clean"]
    await play.end("clean")

    assert await play.status() is RunStatus.FAILED


@pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED])
async def test_a_step_for_failures_runs_only_if_another_failed(backend: HarnessFactory, result: Result) -> None:
    play = await acted(backend, step("work"), step("tell", "work", when=When.ANY_FAILED))
    await play.end("work", result)

    assert play.running() == (["tell"] if result is Result.FAILED else [])
    if result is Result.SUCCEEDED:
        assert await play.status() is RunStatus.COMPLETED
        [tell] = [t for t in await play.harness.store.history.tasks([play.run]) if t.step == "tell"]
        assert (tell.state, tell.skipped) == (TaskState.CANCELLED, True)


async def test_outputs_are_taken_over_as_values_and_inside_texts(backend: HarnessFactory) -> None:
    taking = step(
        "load",
        "extract",
        input={"rows": "${steps.extract.output.rows}", "text": "from ${steps.extract.output.path}, ${input.mode}"},
    )
    play = await acted(backend, step("extract"), taking, input={"mode": "full"})
    await play.end("extract", output=b'{"rows":[1,2],"path":"/x"}')

    assert play.given("load") == {"mode": "full", "rows": [1, 2], "text": "from /x, full"}


async def test_the_only_step_of_a_graph_takes_from_the_input_of_its_run(backend: HarnessFactory) -> None:
    play = await acted(backend, step("load", input={"path": "${input.event.path}"}), input={"event": {"path": "/x"}})

    assert play.given("load")["path"] == "/x"


async def test_a_reference_that_leads_nowhere_fails_the_step_with_its_name(backend: HarnessFactory) -> None:
    play = await acted(
        backend, step("extract"), step("load", "extract", input={"rows": "${steps.extract.output.rows}"})
    )
    await play.end("extract", output=b'{"lines":1}')

    ended = await play.harness.now(play.run)
    assert ended.status is RunStatus.FAILED
    assert "${steps.extract.output.rows}" in (ended.error or "")


@pytest.mark.req("H-22")
@pytest.mark.guarantee("S24")
@pytest.mark.parametrize("after", ["input", "foreach", "if"])
async def test_an_unresolvable_input_fails_its_step_and_blocks_no_other(backend: HarnessFactory, after: str) -> None:
    """Deeper than the dispatcher can read."""
    said: dict[str, Any] = {
        "input": {"input": {"all": "${steps.first.output}"}},
        "foreach": {"foreach": "${steps.first.output}"},
        "if": {"condition": "steps.first.output == 1"},
    }
    play = await acted(backend, step("first"), step("second", "first", **said[after]), step("beside", "first"))
    depth = sys.getrecursionlimit()

    await play.end("first", output=b"[" * depth + b"]" * depth)

    assert (await play.states())["second"] == "FAILED"
    assert play.running() == ["beside"]


async def test_an_output_cannot_reference_secrets(backend: HarnessFactory) -> None:
    play = await acted(backend, step("fetch"), step("use", "fetch", input={"text": "${steps.fetch.output.page}"}))
    await play.end("fetch", output=b'{"page":["hello ${secret:TOKEN}"]}')

    allowed = SecretSource(SecretsSettings(allow=("TOKEN",)), {"TOKEN": "hunter22"})
    given = allowed.resolve(play.given("use"), tenant="default", job="job")
    assert given == ({"text": ["hello ${secret:TOKEN}"]}, {})


async def test_halves_from_two_steps_make_no_secret(backend: HarnessFactory) -> None:
    joined = {"text": "${steps.a.output}${steps.b.output}", "mine": "${secret:TOKEN}"}
    play = await acted(backend, step("a"), step("b", "a"), step("use", "b", input=joined))
    await play.end("a", output=b'"${sec"')
    await play.end("b", output=b'"ret:TOKEN}"')

    allowed = SecretSource(SecretsSettings(allow=("TOKEN",)), {"TOKEN": "hunter22"})
    given, found = allowed.resolve(play.given("use"), tenant="default", job="job")
    assert given == {"text": "${secret:TOKEN}", "mine": "hunter22"}
    assert found == {"TOKEN": "hunter22"}


@pytest.mark.parametrize(("rows", "runs"), [(5, True), (0, False)])
async def test_a_step_whose_condition_does_not_hold_is_skipped(backend: HarnessFactory, rows: int, runs: bool) -> None:  # noqa: FBT001
    play = await acted(
        backend, step("count"), step("load", "count", condition="steps.count.output.rows > 0"), step("after", "load")
    )
    await play.end("count", output=b'{"rows":%d}' % rows)

    assert play.running() == (["load"] if runs else [])
    if not runs:
        assert await play.status() is RunStatus.COMPLETED
        assert await play.states() == {"count": "SUCCEEDED", "load": "CANCELLED", "after": "CANCELLED"}


@pytest.mark.req("R-16")
async def test_a_step_waits_for_its_delay_and_needs_no_worker_for_it(backend: HarnessFactory) -> None:
    play = await acted(
        backend,
        step("one"),
        step("pause", "one", function="", delay_ms=5000),
        step("two", "pause"),
        flags={"worker.poll_secs": 60},
    )
    await play.end("one")
    [pause] = [t for t in await play.harness.store.history.tasks([play.run]) if t.step == "pause"]
    assert (pause.state, pause.wait_reason, pause.available_at) == (TaskState.PENDING, WaitReason.DELAY, NOON + 5000)
    assert await play.harness.dispatcher.step() == 5.0

    play.harness.clock.advance(5000)
    await play.harness.run_until_idle()

    assert play.running() == ["two"]


async def test_a_step_waits_until_an_instant_that_another_gave(backend: HarnessFactory) -> None:
    play = await acted(backend, step("one"), step("two", "one", delay_until="${steps.one.output}"))
    await play.end("one", output=b'"2026-03-02T12:00:30Z"')
    assert play.running() == []
    play.harness.clock.advance(30_000)
    await play.harness.run_until_idle()

    assert play.running() == ["two"]


async def test_a_step_is_done_for_each_item_so_many_at_once(backend: HarnessFactory) -> None:
    each = step(
        "each", "list", foreach="${steps.list.output}", input={"n": "${item.n}", "i": "${index}"}, max_parallel=2
    )
    play = await acted(backend, step("list"), each, step("sum", "each", input={"all": "${steps.each.output}"}))
    await play.end("list", output=b'[{"n":10},{"n":20},{"n":30}]')
    assert play.running() == ["each[0]", "each[1]"]
    given = [one.input for one in play.harness.runner.started.values()]
    assert given == [{"n": 10, "i": 0}, {"n": 20, "i": 1}]
    await play.end("each[0]", output=b"1")
    assert play.running() == ["each[1]", "each[2]"]
    await play.end("each[2]", output=b"3")
    await play.end("each[1]", output=b"2")

    assert play.given("sum")["all"] == [1, 2, 3]
    await play.end("sum")
    assert await play.status() is RunStatus.COMPLETED


async def test_an_item_is_given_what_the_step_says_and_nothing_of_the_run(backend: HarnessFactory) -> None:
    play = await acted(backend, step("each", foreach="${input.all}"), input={"all": [7]})

    assert play.given("each") == {"item": 7, "index": 0}


async def test_the_list_of_items_is_not_read_again_for_each_item(
    backend: HarnessFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = await acted(backend, step("list"), step("each", "list", foreach="${steps.list.output}"))
    reads: list[Sequence[str]] = []
    payloads = play.harness.store.executions.payloads

    async def counted(owners: Sequence[str], kind: str) -> Mapping[str, bytes]:
        reads.append(owners)
        return await payloads(owners, kind)

    monkeypatch.setattr(play.harness.store.executions, "payloads", counted)
    await play.end("list", output=b"[1, 2, 3, 4]")

    assert len(play.running()) == 4
    assert len(reads) == 1


async def test_outputs_of_items_are_joined_only_within_the_limit(
    backend: HarnessFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.core.runs.dag.LARGEST_OUTPUT", 100)
    play = await acted(backend, step("each", foreach=[1, 2, 3]))
    for number in range(3):
        await play.end(f"each[{number}]", output=b"1" * 50)

    [whole] = [task for task in await play.harness.store.history.tasks([play.run]) if task.parent is None]
    assert await play.status() is RunStatus.COMPLETED
    assert await play.harness.store.executions.payload(whole.task_id, "output") == b'{"truncated":true,"bytes":150}'


async def test_items_that_are_given_too_much_in_all_fail_their_step(
    backend: HarnessFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.core.runs.prepare.LARGEST_ITEMS", 100)
    given = {"all": "${steps.first.output}"}
    play = await acted(backend, step("first"), step("each", "first", foreach=[1, 2, 3], input=given))
    await play.end("first", output=b'"' + b"x" * 50 + b'"')

    [failed] = [task for task in await play.harness.store.history.tasks([play.run]) if task.step == "each"]
    assert (failed.state, play.running()) == (TaskState.FAILED, [])
    assert failed.note == (
        "bad_input: foreach: '3 items' is given more than 100 bytes in all: pass references to large data to each item"
        " instead"
    )


async def test_one_item_that_fails_fails_the_step_after_all_others_are_done(backend: HarnessFactory) -> None:
    play = await acted(backend, step("each", foreach=[1, 2, 3]), step("after", "each"))
    await play.end("each[1]", Result.FAILED, error="bad")
    await play.end("each[0]")
    await play.end("each[2]")

    ended = await play.harness.now(play.run)
    assert (ended.status, ended.error) == (RunStatus.FAILED, "step each: 1 of 3 items did not succeed")


async def test_nothing_to_do_for_each_is_done_at_once(backend: HarnessFactory) -> None:
    play = await acted(backend, step("each", foreach=[]), step("after", "each", input={"all": "${steps.each.output}"}))

    assert play.given("after") == {"all": []}


async def test_no_more_steps_are_under_way_than_the_workflow_allows(backend: HarnessFactory) -> None:
    play = await acted(backend, step("first"), *(step(name, "first") for name in "abc"), max_parallel=2)
    await play.end("first")
    assert play.running() == ["a", "b"]
    await play.end("b")
    assert play.running() == ["a", "c"]


async def with_sub(backend: HarnessFactory, play_steps: tuple[Step, ...], **said: Any) -> tuple[ExecutionHarness, Run]:  # noqa: ANN401
    harness = backend.harness()
    other = Workflow(workflow_id="other", version=1, steps=(step("inner"),), input={"base": 1})
    await harness.store.jobs.apply(JobChangeset(workflows=[other]), now=NOON, actor="ada", tzdata="")
    definition = graph(*play_steps, **said)
    run = await harness.run(await harness.job(definition), first_steps=definition.first_steps)
    await harness.run_until_idle()
    return harness, run


async def test_a_step_runs_another_workflow_and_waits_for_it(backend: HarnessFactory) -> None:
    harness, run = await with_sub(
        backend,
        (
            step("sub", function="", workflow="other", input={"x": 2}),
            step("after", "sub", input={"y": "${steps.sub.output}"}),
        ),
    )
    play = ScriptedGraphRun(harness, run)
    assert play.running() == ["inner"]
    assert play.given("inner") == {"base": 1, "x": 2}
    await play.end("inner", output=b"7")

    assert play.running() == ["after"]
    assert play.given("after") == {"y": 7}
    await play.end("after")
    assert await play.status() is RunStatus.COMPLETED


async def test_a_workflow_that_fails_fails_the_step_that_ran_it(backend: HarnessFactory) -> None:
    harness, run = await with_sub(backend, (step("sub", function="", workflow="other"), step("after", "sub")))
    await ScriptedGraphRun(harness, run).end("inner", Result.FAILED, error="broken")

    ended = await harness.now(run)
    assert ended.status is RunStatus.FAILED
    assert "broken" in (ended.error or "")


@pytest.mark.req("H-26")
async def test_cancelling_a_run_cancels_what_it_waits_for(backend: HarnessFactory) -> None:
    harness, run = await with_sub(backend, (step("sub", function="", workflow="other"), step("after", "sub")))
    await harness.store.runs.cancel(run.run_id, reason="enough", now=NOON)
    harness.worker.check_soon()
    await harness.run_until_idle()
    await harness.run_until_idle()

    assert [why for _, why in harness.runner.stopped] == [Result.CANCELLED]
    assert (await harness.now(run)).status is RunStatus.CANCELLED


@pytest.mark.req("H-26")
async def test_cancelling_ends_what_waits_at_once_and_what_runs_when_it_stops(backend: HarnessFactory) -> None:
    play = await acted(backend, step("each", foreach=[1, 2, 3], max_parallel=1), step("after", "each"))
    await play.harness.store.runs.cancel(play.run.run_id, reason="enough", now=NOON)
    assert await play.status() is RunStatus.RUNNING
    play.harness.worker.check_soon()
    await play.harness.run_until_idle()
    await play.harness.run_until_idle()

    assert await play.status() is RunStatus.CANCELLED
    assert set((await play.states()).values()) == {"CANCELLED"}


# ---- in one process --------------------------------------------------------------------------


@at_once
async def test_beside_a_dispatcher_a_step_begins_in_the_commit_that_ends_the_one_before_it() -> None:
    harness = ExecutionHarness()
    harness.share_process()
    steps = (step("first"), step("second", "first", input={"path": "${steps.first.output}"}))
    run = await harness.run(await harness.job(graph(*steps)), first_steps=("first",))
    await harness.run_until_idle()
    harness.runner.end_all(output=b'"here"')

    await harness.worker.step()
    await harness.worker.step()

    [assignment] = harness.runner.started.values()
    assert (assignment.step.name, assignment.input) == ("second", {"path": "here"})
    assert await harness.store.executions.payload(assignment.task.task_id, "input") == b'{"path":"here"}'
    assert not (await harness.now(run)).over


async def test_successors_do_not_start_in_a_run_that_is_being_cancelled() -> None:
    harness = ExecutionHarness()
    harness.share_process()
    run = await harness.run(await harness.job(graph(step("first"), step("second", "first"))), first_steps=("first",))
    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.store.runs.cancel(run.run_id, reason="enough", now=harness.clock.now())

    await harness.worker.step()
    await harness.worker.step()

    assert harness.runner.started == {}
    assert (await harness.now(run)).over
