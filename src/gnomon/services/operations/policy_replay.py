"""Replays the history by another policy, a bounded number of tasks at a time. Nothing is written."""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.policy.past_tasks import PastTask
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.policy import Rulings
from gnomon.ports.runs import PayloadReader
from gnomon.ports.schedules import Jobs
from gnomon.services.execution.workflow_cache import WorkflowCache, WorkflowKey
from gnomon.services.loop import ComputeQueue

if TYPE_CHECKING:
    from gnomon.core.policy.replay import PolicyReplay, ReplayTally

#: How many tasks are read at once, and how many definitions and inputs, which may be large: PostgreSQL's rows are read
#: on the event loop.
_READ_TASKS, _READ_WORKFLOWS, _READ_INPUTS = 100, 10, 10
#: How many definitions are remembered.
_MOST_WORKFLOWS = 2_000


class ReplayPart(Struct, frozen=True, kw_only=True):
    """The counts of one part of the history."""

    tally: "ReplayTally"
    #: The last task that was looked at, if more follow.
    after: str | None


class HistoryReplay:
    """Reads the tasks of the history in the order of their ids, and judges them."""

    def __init__(self, rulings: Rulings, payloads: PayloadReader, jobs: Jobs, compute: ComputeQueue) -> None:
        self._rulings, self._payloads, self._compute = rulings, payloads, compute
        self._workflows = WorkflowCache(jobs, most=_MOST_WORKFLOWS, read_at_once=_READ_WORKFLOWS)

    async def part(self, policy: "PolicyReplay", *, since: int, after: str, limit: int) -> ReplayPart:
        """Judge the tasks created from `since` on, among the next `limit` tasks after that one."""
        from gnomon.core.policy.replay import ReplayTally

        tally = ReplayTally()
        while limit > 0:
            size = min(limit, _READ_TASKS)
            tasks = await self._rulings.past_tasks(after=after, limit=size)
            await self._judge(policy, tally, [one for one in tasks if one.ready.task.created_at >= since])
            if len(tasks) < size:
                return ReplayPart(tally=tally, after=None)
            after, limit = tasks[-1].ready.task.task_id, limit - size
        return ReplayPart(tally=tally, after=after)

    async def _judge(self, policy: "PolicyReplay", tally: "ReplayTally", tasks: Sequence[PastTask]) -> None:
        workflows = await self._workflows.get_many({_workflow_key(one) for one in tasks})
        pairs = [(one, workflows.get(_workflow_key(one))) for one in tasks]
        # The rules of a step are selected here when its first task comes.
        needs_input = await self._compute.map(lambda pair: policy.needs_input(*pair), pairs)
        to_read = [pair for pair, needed in zip(pairs, needs_input, strict=True) if needed]
        judged = [pair for pair, needed in zip(pairs, needs_input, strict=True) if not needed]
        await self._compute.run(_judged(policy, tally, judged))
        for start in range(0, len(to_read), _READ_INPUTS):
            chunk = to_read[start : start + _READ_INPUTS]
            with_inputs = await self._with_inputs([one for one, _ in chunk])
            complete = list(zip(with_inputs, (workflow for _, workflow in chunk), strict=True))
            await self._compute.run(_judged(policy, tally, complete))

    async def _with_inputs(self, tasks: Sequence[PastTask]) -> list[PastTask]:
        owners = {_owner(one) for one in tasks}
        found = await self._payloads.payloads(sorted(owners), "input")
        return [_with_input(one, found.get(_owner(one))) for one in tasks]


def _judged(
    policy: "PolicyReplay", tally: "ReplayTally", tasks: Sequence[tuple[PastTask, Workflow | None]]
) -> Generator[None, None, int]:
    for one, workflow in tasks:
        policy.judge(tally, one, workflow)
        yield
    return len(tasks)


def _workflow_key(one: PastTask) -> WorkflowKey:
    run = one.ready.run
    return run.tenant, run.workflow_id, run.workflow_version


def _owner(one: PastTask) -> str:
    """The task if it has an input of its own, else its run."""
    return one.ready.task.task_id if one.has_input else one.ready.run.run_id


def _with_input(one: PastTask, body: bytes | None) -> PastTask:
    ready = replace(one.ready, own_input=body) if one.has_input else replace(one.ready, input=body)
    return replace(one, ready=ready)
