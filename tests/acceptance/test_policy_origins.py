"""The policy rules on every task, whether a tick, a person, a model, an event or another task brought it about."""

from pathlib import Path

import pytest

from gnomon.core.model import RunId, Task
from gnomon.core.policy.ruling import PolicyDecision, StoredRuling
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.ports.runs import RunQuery
from support.fleet_processes import wait_until
from support.rulings import rulings_of
from support.running_node import RunningNode, job, running_node

pytestmark = [pytest.mark.timeout(120), pytest.mark.req("R-02", "R-09")]

RULES = """
default_decision: allow
rules:
  - {id: danger, match: {capabilities: [danger]}, decision: deny}
  - {id: undoing, match: {labels: {is_compensation: "true"}}, decision: deny}
"""
DANGER = {"function": "reports.make", "capability": "danger"}
#: The first step succeeds and can be undone; what follows is denied, so that a step runs because of that, and the first
#: one is undone.
GRAPH = [
    {"step": "first", "function": "reports.make", "compensate": {"function": "reports.make"}},
    {"step": "each", "foreach": [1, 2], "depends_on": ["first"], **DANGER},
    {"step": "sub", "workflow": "denied", "depends_on": ["first"]},
    {"step": "rescue", "depends_on": ["each"], "when": "any_failed", **DANGER},
]
MIDNIGHT, DAY = 1_788_220_800_000, 86_400_000


async def tasks_of(node: RunningNode) -> dict[str, list[Task]]:
    """All tasks, by the source of their run, or by what made them within it."""
    store = node.operations.store
    found: dict[str, list[Task]] = {}
    for run in await store.executions.list_runs(RunQuery(limit=1_000)):
        for task in await store.history.tasks([run]):
            kind = run.source.value
            if run.replay_of is not None:
                kind = "replay"
            elif run.actor.startswith("model:"):
                kind = "model"
            elif run.parent_task is not None:
                kind = "sub-workflow"
            elif is_compensation(task.step):
                kind = "compensation"
            elif run.workflow_id == "graph":
                kind = "item" if task.item is not None else task.step
            found.setdefault(kind, []).append(task)
    return found


async def test_however_a_task_comes_to_be_the_policy_rules_on_it(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        operations, store = node.operations, node.operations.store
        await operations.policy.apply(RULES, actor="ada")
        await node.apply(
            job("denied", capability="danger"),
            job("ticking", schedule="* * * * * *", capability="danger"),
            job("listening", on={"event": "paid"}, capability="danger"),
            job("daily", schedule="0 0 * * *", capability="danger"),
            {"name": "graph", "overlap": "allow", "rollback_on": ["denied", "failed"], "dag": GRAPH},
        )
        for actor in ("ada", "model:claude"):
            await operations.launcher.trigger("denied", actor=actor)
        await operations.launcher.trigger("graph", actor="ada")
        await operations.events.emit("paid", {"amount": 1}, actor="ada")
        await operations.backfills.start("daily", MIDNIGHT, MIDNIGHT + DAY, actor="ada")

        async def all_denied() -> bool:
            kinds = await tasks_of(node)
            over = [all(task.state in TERMINAL for task in tasks) for tasks in kinds.values()]
            wanted = {"cron", "manual", "model", "event", "backfill", "item", "rescue", "sub-workflow", "compensation"}
            return wanted <= kinds.keys() and all(over)

        await wait_until(all_denied)
        letter = next(one for one in await store.dead_letters.page("default") if one.job == "denied")
        await operations.dead_letters.replay(letter.dead_letter_id, actor="ada")

        async def replayed() -> bool:
            again = (await tasks_of(node)).get("replay", [])
            return bool(again) and all(task.state in TERMINAL for task in again)

        await wait_until(replayed)
        kinds = await tasks_of(node)
        first, sub, each = kinds.pop("first"), kinds.pop("sub"), kinds.pop("each")
        rulings = {
            kind: {one.rule for task in tasks for one in await _rulings(node, task)} for kind, tasks in kinds.items()
        }

        assert {task.state for tasks in kinds.values() for task in tasks} == {TaskState.DENIED}
        assert {task.fence for tasks in kinds.values() for task in tasks} == {0}
        assert rulings == {kind: {"danger"} for kind in kinds} | {"compensation": {"undoing"}}
        assert [one.decision for task in first for one in await _rulings(node, task)] == [PolicyDecision.ALLOW]
        # The engine itself holds these: each of their items, and the tasks of the sub-run, are ruled on.
        assert {task.state for task in (*sub, *each)} == {TaskState.FAILED}


async def _rulings(node: RunningNode, task: Task) -> list[StoredRuling]:
    found = await rulings_of(node.operations.store, RunId(task.run_id))
    return [one for one in found if one.task_id == task.task_id]
