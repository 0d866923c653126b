"""The contract of rulings on outputs, and of outputs that are held back, for any store."""

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.model import Result, Run, RunId, RunSource, RunStatus, TaskId
from gnomon.core.output_policy.ruling import (
    HeldDecision,
    HeldStatus,
    OutputCheck,
    OutputDecision,
    OutputPhase,
    OutputRuling,
    ScanFinding,
    ScanSeverity,
)
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, When, Workflow
from gnomon.errors import HeldOutputDecided, NotFound
from gnomon.ports.audit import AuditQuery
from gnomon.ports.output_policy import HeldOutputQuery
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from support.task_steps import LEASE, admission, completion_of, take_task, workflow

HELD = b'"the content that is held back"'
FINDING = ScanFinding(scanner="secret", pattern="aws_key_id", severity=ScanSeverity.CRITICAL, offset=1, length=20)
RULING = OutputRuling(
    decision=OutputDecision.QUARANTINE,
    rule="keys",
    version=3,
    content_digest="5f" * 32,
    size=31,
    reason="no keys",
    findings=(FINDING,),
)


async def taken_task(store: Store, name: str = "ruled") -> tuple[Run, ReadyTask]:
    schedule = minutely(name, workflow_id=name)
    changes = JobChangeset(workflows=[workflow(name)], added=[schedule])
    assert await store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
    run = new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.API, now=NOON)
    await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
    return run, await take_task(store, "worker", run, now=NOON)


async def hold_back(store: Store, name: str = "ruled", *, held: bytes = HELD) -> tuple[Run, ReadyTask]:
    """End the only task of a new run with an output that is held back."""
    run, task = await taken_task(store, name)
    check = OutputCheck(topic="reports.make", ruling=RULING, held=held)
    ended = completion_of(task, Result.SUCCEEDED, now=NOON + 1, quarantine="output_quarantined: no keys", check=check)
    assert await store.attempts.report([ended])
    return run, task


DECIDED = HeldDecision(actor="ada", reason="an example", at=NOON + 5)
GRAPH = Workflow(
    workflow_id="report",
    version=1,
    steps=(
        Step(name="read", function="f"),
        Step(name="send", function="f", depends_on=("read",)),
        Step(name="clean", function="f", depends_on=("read",), when=When.ALL_DONE),
    ),
)


async def hold_back_in_graph(store: Store) -> tuple[Run, TaskId]:
    """End the first step of a new run of several with an output that is held back, and the step that runs anyway."""
    schedule = minutely("graph")
    await store.jobs.apply(JobChangeset(workflows=[GRAPH], added=[schedule]), now=NOON, actor="ada", tzdata="")
    run = new_requested_run(RunId("run_graph"), schedule, source=RunSource.API, now=NOON)
    await store.runs.launch([LaunchRequest(run=run, first_steps=("read",))], now=NOON)
    task = await take_task(store, "worker", run, now=NOON)
    check = OutputCheck(topic="f", ruling=RULING, held=HELD)
    end = completion_of(task, Result.SUCCEEDED, now=NOON + 1, definition=GRAPH, quarantine="held back", check=check)
    assert await store.attempts.report([end])
    [clean] = [one for one in await store.history.tasks([run]) if one.step == "clean"]
    await store.tasks.admit([admission(clean, schedule_uid=run.schedule_uid, graph=GRAPH)], now=NOON + 2)
    [taken] = await store.attempts.take("worker", limit=10, lease_ms=LEASE, now=NOON + 2, begin=True)
    await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 3, definition=GRAPH)])
    return run, task.task.task_id


class HeldOutputContract:
    """Tests for any store. `store` is a fresh one."""

    async def test_outputs_that_are_held_back_are_listed_without_their_contents(self, store: Store) -> None:
        tasks = [(await hold_back(store, name))[1].task.task_id for name in ("a", "b", "c")]
        query = HeldOutputQuery(tenant="default", status=None, after=None, limit=2)
        first = await store.held_outputs.page(query)
        last = first[-1].ruling
        rest = await store.held_outputs.page(replace(query, after=(last.ruled_at, last.task_id)))
        found = [*first, *rest]
        assert [one.ruling.task_id for one in found] == sorted(tasks, reverse=True)
        assert {one.body for one in found} == {None}
        assert await store.held_outputs.page(replace(query, tenant="other")) == []
        assert await store.held_outputs.page(replace(query, status=HeldStatus.RELEASED)) == []

    async def test_a_look_at_the_content_is_audited(self, store: Store) -> None:
        _, taken = await hold_back(store)
        held = await store.held_outputs.look("default", taken.task.task_id, DECIDED)
        [entry, _] = await store.audit.page(AuditQuery(tenant="default", kind="output"))
        assert held.body == HELD
        assert (entry.entry.action, entry.entry.actor, entry.entry.at) == ("look", "ada", NOON + 5)
        with pytest.raises(NotFound):
            await store.held_outputs.look("other", taken.task.task_id, DECIDED)

    @pytest.mark.req("R-05")
    async def test_a_released_output_is_that_of_its_task_and_exempts_its_content(self, store: Store) -> None:
        run, taken = await hold_back(store)
        assert await store.held_outputs.release("default", taken.task.task_id, HELD, DECIDED)
        [task] = await store.history.tasks([run])
        ended = await store.executions.find_run(run.run_id)
        held = await store.held_outputs.find("default", task.task_id)
        assert (task.state, task.note, task.attempts) == (TaskState.SUCCEEDED, None, 0)
        assert await store.executions.payload(task.task_id, "output") == HELD
        assert ended is not None
        assert ended.status is RunStatus.COMPLETED
        assert (ended.error, ended.completed_at) == (None, NOON + 5)
        assert held is not None
        assert (held.body, held.ruling.status, held.ruling.decided_by) == (None, HeldStatus.RELEASED, "ada")
        assert (held.ruling.decided_at, held.ruling.decided_why) == (NOON + 5, "an example")
        assert await store.output_rulings.is_exempt("default", RULING.content_digest)
        assert not await store.output_rulings.is_exempt("other", RULING.content_digest)
        [letter] = await store.dead_letters.page(
            "default", job=None, unresolved=False, oldest_first=False, after=None, limit=10
        )
        assert (letter.resolved_by, letter.resolved_at) == ("output released", NOON + 5)
        with pytest.raises(HeldOutputDecided):
            await store.held_outputs.release("default", task.task_id, HELD, DECIDED)
        with pytest.raises(HeldOutputDecided):
            await store.held_outputs.discard("default", task.task_id, DECIDED)
        entries = await store.audit.page(AuditQuery(tenant="default", kind="output"))
        assert [one.entry.action for one in entries] == ["release", "hold_back"]

    @pytest.mark.req("R-05")
    async def test_the_steps_that_waited_for_a_released_output_start(self, store: Store) -> None:
        run, task_id = await hold_back_in_graph(store)
        failed = await store.executions.find_run(run.run_id)
        assert failed is not None
        assert failed.status is RunStatus.FAILED
        assert await store.held_outputs.release("default", task_id, HELD, DECIDED)
        tasks = {one.step: one for one in await store.history.tasks([run])}
        going = await store.executions.find_run(run.run_id)
        assert going is not None
        assert (going.status, going.completed_at, going.error) == (RunStatus.RUNNING, None, None)
        assert {name: one.state for name, one in tasks.items()} == {
            "read": TaskState.SUCCEEDED,
            "send": TaskState.PENDING,
            "clean": TaskState.SUCCEEDED,
        }
        await store.tasks.admit([admission(tasks["send"], schedule_uid=run.schedule_uid, graph=GRAPH)], now=NOON + 6)
        [taken] = await store.attempts.take("worker", limit=10, lease_ms=LEASE, now=NOON + 6, begin=True)
        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 7, definition=GRAPH)])
        ended = await store.executions.find_run(run.run_id)
        assert ended is not None
        assert (ended.status, ended.completed_at) == (RunStatus.COMPLETED, NOON + 7)
        schedule = await store.schedules.find("default", "graph")
        assert schedule is not None
        assert schedule.active_runs == 0

    async def test_a_discarded_output_is_gone_and_its_run_stays_as_it_ended(self, store: Store) -> None:
        run, taken = await hold_back(store)
        await store.held_outputs.discard("default", taken.task.task_id, DECIDED)
        [task] = await store.history.tasks([run])
        held = await store.held_outputs.find("default", task.task_id)
        assert task.state is TaskState.OUTPUT_QUARANTINED
        assert held is not None
        assert (held.body, held.ruling.status) == (None, HeldStatus.DISCARDED)
        assert await store.executions.payload(task.task_id, "output") is None
        assert not await store.output_rulings.is_exempt("default", RULING.content_digest)
        with pytest.raises(NotFound):
            await store.held_outputs.discard("other", task.task_id, DECIDED)


class OutputRulingContract:
    """Tests for any store. `store` is a fresh one."""

    @pytest.mark.req("R-05")
    async def test_an_output_that_is_held_back_is_written_with_the_end_of_its_task(self, store: Store) -> None:
        run, taken = await hold_back(store)
        [task] = await store.history.tasks([run])
        ended = await store.executions.find_run(run.run_id)
        assert task.state is TaskState.OUTPUT_QUARANTINED
        assert ended is not None
        assert (ended.status, ended.error) == (RunStatus.FAILED, "output_quarantined: no keys")
        assert await store.executions.payload(task.task_id, "output") is None
        found = await store.output_rulings.of_task("default", task.task_id)
        assert found is not None
        assert (found.task_id, found.number, found.run_id, found.step) == (
            task.task_id,
            taken.task.fence,
            run.run_id,
            "main",
        )
        assert (found.decision, found.rule, found.version, found.reason) == (
            OutputDecision.QUARANTINE,
            "keys",
            3,
            "no keys",
        )
        assert (found.phase, found.status, found.findings) == (OutputPhase.INLINE, HeldStatus.HELD, (FINDING,))
        assert (found.content_digest, found.size, found.ruled_at) == ("5f" * 32, 31, NOON + 1)
        assert await store.output_rulings.of_task("other", task.task_id) is None

    @pytest.mark.req("R-05")
    async def test_it_leaves_a_dead_letter_and_an_audit_entry_that_do_not_have_it(self, store: Store) -> None:
        _, taken = await hold_back(store)
        [letter] = await store.dead_letters.page(
            "default", job=None, unresolved=True, oldest_first=False, after=None, limit=10
        )
        [entry] = await store.audit.page(AuditQuery(tenant="default", kind="output"))
        assert (letter.reason, letter.task_id) == ("output_quarantined", taken.task.task_id)
        assert (entry.entry.action, entry.entry.name, entry.entry.after) == ("hold_back", taken.task.task_id, "5f" * 32)
        assert HELD.decode() not in f"{letter}{entry}"

    async def test_a_redacted_output_is_stored_with_the_record_of_its_ruling(self, store: Store) -> None:
        run, taken = await taken_task(store)
        ruling = OutputRuling(decision=OutputDecision.REDACT, rule="mask", version=3, content_digest="5f" * 32, size=31)
        check = OutputCheck(topic="reports.make", ruling=ruling)
        ended = completion_of(taken, Result.SUCCEEDED, now=NOON + 1, output=b'"[REDACTED]"', check=check)
        assert await store.attempts.report([ended])
        [task] = await store.history.tasks([run])
        found = await store.output_rulings.of_task("default", task.task_id)
        assert task.state is TaskState.SUCCEEDED
        assert await store.executions.payload(task.task_id, "output") == b'"[REDACTED]"'
        assert found is not None
        assert (found.decision, found.rule, found.status) == (OutputDecision.REDACT, "mask", None)

    async def test_an_output_that_was_let_pass_leaves_no_record(self, store: Store) -> None:
        _, taken = await taken_task(store)
        ruling = OutputRuling(decision=OutputDecision.ALLOW, rule="default", version=3, content_digest="", size=1)
        check = OutputCheck(topic="reports.make", ruling=ruling)
        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 1, output=b"1", check=check)])
        assert await store.output_rulings.of_task("default", taken.task.task_id) is None
        assert not await store.output_rulings.is_exempt("default", "5f" * 32)
