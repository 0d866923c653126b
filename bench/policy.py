"""The cost of the policy of tasks: one ruling, the throughput under a policy, and a replay of the history."""

import asyncio
import gc
import sqlite3
from collections.abc import Callable
from time import process_time, process_time_ns

import msgspec

from gnomon.adapters.policy_file import parse_policy
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Run, RunId, RunSource, Task
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.outcomes import GiveUpLimits
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.services.operations.policy import PolicyService
from gnomon.testing.clock import VirtualClock
from node_setup import NullEvents, job_service_of, node_on

NOW = 1_772_452_800_000
ROUNDS = 15
LIMITS = GiveUpLimits(losses=3, routings=50, launches=3)
WORKFLOW = Workflow(workflow_id="note", version=1, steps=(Step(name="main", function="note"),))
#: The last rule of each policy, which allows the task; the rules before it are about other topics.
LAST_RULES = {
    "about the step": "{id: last, match: {topics: ['no*']}, decision: allow}",
    "and the source": "{id: last, match: {topics: ['no*'], sources: [cron, api]}, decision: allow}",
    "and the input": "{id: last, match: {topics: ['no*']}, when: input.amount > 3, decision: allow}",
}


def policy_text(rules: int, last: str, *, condition: str = "") -> str:
    """A policy of so many rules, of which only the last one matches."""
    others = "\n".join(
        f"- {{id: rule-{number}, match: {{topics: ['team-{number}.*'], capabilities: [pay], risk_tags: [prod]}}, "
        f"{condition}decision: deny}}"
        for number in range(rules - 1)
    )
    return f"rules:\n{others}\n- {last}\n"


def compiled(body: str) -> CompiledPolicy:
    """The policy in the text, ready to rule."""
    return CompiledPolicy(parse_policy(body), 1, throttle_ms=5000)


class _Versions:
    """A store with one version."""

    def __init__(self, body: str) -> None:
        self._version = PolicyVersion(version=1, digest="", body=body, author="bench", created_at=0)

    async def newest_number(self) -> int:
        return 1

    async def newest(self) -> PolicyVersion:
        return self._version


async def gate_by(body: str) -> PolicyGate:
    """The gate that rules by this policy."""
    stored = StoredPolicy(
        _Versions(body),  # type: ignore[arg-type]  # the two methods that it calls
        NullEvents(),
        compile_version=lambda version: compiled(version.body),
        refresh_seconds=1,
    )
    await stored.refresh()
    return PolicyGate(stored, VirtualClock(NOW))


def request_of(number: int) -> AdmissionRequest:
    """A task that asks to run."""
    run = Run(
        run_id=RunId(f"run_{number:08}"),
        tenant="default",
        schedule_uid=None,
        schedule_id="note",
        workflow_id="note",
        workflow_version=1,
        user_id="bench",
        source=RunSource.API,
        status="PENDING",  # type: ignore[arg-type]  # nobody reads it
        queued=False,
        planned_at=NOW,
        fire_at=NOW,
        created_at=NOW,
        actor="bench",
    )
    task = Task(
        task_id=f"task_{number:08}",  # type: ignore[arg-type]
        tenant="default",
        run_id=run.run_id,
        step="main",
        state=TaskState.PENDING,
        wait_reason=WaitReason.READY,
        available_at=NOW,
        created_at=NOW,
    )
    given = {"amount": 5 + number, "account": "DE89 3704 0044", "text": "rent"}
    return AdmissionRequest(
        waiting=ReadyTask(task=task, run=run), workflow=WORKFLOW, step=WORKFLOW.steps[0], input=given
    )


def microseconds(work: Callable[[AdmissionRequest], object], requests: list[AdmissionRequest]) -> float:
    """The processor time of one call: the best of some rounds, which other programs disturbed least."""
    times = []
    gc.disable()
    for _ in range(ROUNDS):
        began = process_time_ns()
        for one in requests:
            work(one)
        times.append((process_time_ns() - began) / len(requests) / 1000)
    gc.enable()
    return min(times)


async def rulings() -> list[list[str]]:
    """The processor time of one ruling, its digest included."""
    requests, rows = [request_of(number) for number in range(5_000)], []
    for name, last in LAST_RULES.items():
        for count in (10, 1000):
            gate = await gate_by(policy_text(count, last))
            assert all(found is not None and found.rule == "last" for found in map(gate.rule_now, requests[:10]))
            rows.append(
                [
                    f"{count} rules, the last one looks at the step {name}",
                    f"{microseconds(gate.rule_now, requests):.1f} µs",
                ]
            )
    return rows


HISTORY = (
    "UPDATE task SET state = 'SUCCEEDED', policy_rule = '1/last', request_digest = x'00'",
    (
        "INSERT INTO attempt (task_id, number, worker, lease_until, dispatched_at, started_at, ended_at, result)"
        " SELECT task_id, 1, 'w1', 0, created_at + 1, created_at + 2, created_at + 9, 'succeeded' FROM task"
    ),
    "UPDATE run SET status = 'completed', completed_at = created_at + 9",
)


async def replay(count: int) -> list[list[str]]:
    """The processor time of a replay of so many tasks with an input each, in parts as the API answers them."""
    rows = []
    async with node_on("SQLite") as node:
        store = node.store
        said = {"name": "note", "function": "note", "overlap": "allow"}
        await job_service_of(node).apply([read_job(said, Defaults(), now=NOW)], actor="bench")
        schedule = await store.schedules.find("default", "note")
        assert schedule is not None
        for first in range(0, count, 1000):
            made = [
                new_requested_run(RunId(f"run_{number:08}"), schedule, source=RunSource.API, now=NOW)
                for number in range(first, first + 1000)
            ]
            given = [msgspec.json.encode({"amount": number, "text": "rent"}) for number in range(first, first + 1000)]
            await store.runs.launch(
                [
                    LaunchRequest(run=run, first_steps=("main",), input=one)
                    for run, one in zip(made, given, strict=True)
                ],
                now=NOW,
            )
        with sqlite3.connect(node.settings.database.url.removeprefix("sqlite:///")) as conn:
            for text in HISTORY:
                conn.execute(text)
        for name, last in LAST_RULES.items():
            service = PolicyService(
                store.policies,
                store.rulings,
                store.executions,
                store.jobs,
                store.schedules,
                node.clock,
                shadows=store.policy_shadows,
                parse=parse_policy,
            )
            began, after, tasks = process_time(), "", 0
            while True:
                part = await service.replay(policy_text(10, last), since=0, after=after, limit=5000)
                tasks += part.tally.tasks
                if part.after is None:
                    break
                after = part.after
            assert tasks == count
            rows.append([f"{count} tasks, rules about the step {name}", f"{process_time() - began:.1f} s"])
    return rows


async def main() -> None:
    for row in [*await rulings(), *await replay(100_000)]:
        print(row)


if __name__ == "__main__":
    asyncio.run(main())
