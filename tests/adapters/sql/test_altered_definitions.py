"""A definition that was changed in the database is found by its digest, and denied under a policy."""

import sqlite3
from pathlib import Path

import pytest

from contracts.store import NOON
from gnomon.adapters.policy_file import parse_policy
from gnomon.core.model import Run, RunId, RunSource, RunStatus, Task, TaskId
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import AlteredWorkflow, Step, Workflow
from gnomon.ports.schedules import JobChangeset
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.testing.clock import Recorder, VirtualClock
from support.sqlite_files import open_new_sqlite

DEFINITION = Workflow(workflow_id="tidy", version=1, steps=(Step(name="main", function="tidy"),))


def request_of(workflow: Workflow) -> AdmissionRequest:
    run = Run(
        run_id=RunId("run_1"),
        tenant="default",
        schedule_uid=None,
        schedule_id=None,
        workflow_id="tidy",
        workflow_version=1,
        user_id="ada",
        source=RunSource.API,
        status=RunStatus.PENDING,
        queued=False,
        planned_at=NOON,
        fire_at=NOON,
        created_at=NOON,
    )
    task = Task(
        task_id=TaskId("task_1"),
        tenant="default",
        run_id=run.run_id,
        step="main",
        state=TaskState.PENDING,
        wait_reason=WaitReason.READY,
        available_at=NOON,
        created_at=NOON,
    )
    return AdmissionRequest(waiting=ReadyTask(task=task, run=run), workflow=workflow, step=workflow.steps[0], input={})


@pytest.mark.req("R-02")
async def test_a_definition_that_was_changed_in_the_database_is_denied(tmp_path: Path) -> None:
    clock = VirtualClock(NOON)
    store = await open_new_sqlite(tmp_path / "gnomon.db", now=clock.now)
    try:
        await store.jobs.apply(JobChangeset(workflows=[DEFINITION]), now=NOON, actor="ada", tzdata="")
        await store.policies.add(
            "rules: [{id: tidying, match: {functions: [tidy]}, decision: allow}]", author="a", now=1
        )

        def compiled(version: PolicyVersion) -> CompiledPolicy:
            return CompiledPolicy(parse_policy(version.body), version.version, throttle_ms=0)

        stored = StoredPolicy(store.policies, Recorder(), compile_version=compiled, refresh_seconds=1)
        await stored.refresh()
        gate = PolicyGate(stored, clock)
        intact = await store.jobs.workflow("default", "tidy", 1)
        with sqlite3.connect(tmp_path / "gnomon.db") as conn:
            conn.execute("UPDATE workflow SET definition = replace(definition, 'tidy', 'drop')")
        altered = await store.jobs.workflow("default", "tidy", 1)
        newest = await store.jobs.newest_workflows("default", ["tidy"])
        assert intact is not None
        assert altered is not None
        allowed, denied = gate.rule_now(request_of(intact)), gate.rule_now(request_of(altered))
    finally:
        await store.close()

    assert (type(intact), type(altered), [type(one) for one in newest]) == (
        Workflow,
        AlteredWorkflow,
        [AlteredWorkflow],
    )
    assert allowed is not None
    assert denied is not None
    assert (allowed.decision, allowed.rule) == ("allow", "tidying")
    assert (denied.decision, denied.rule, denied.code) == ("deny", "altered_definition", "safety_unknown")
    assert "is not the one that was registered" in denied.reason


def test_no_rule_may_have_the_name_of_these_denials() -> None:
    from gnomon.errors import FileError

    with pytest.raises(FileError, match="altered definitions"):
        parse_policy("rules: [{id: altered_definition, decision: allow}]")
