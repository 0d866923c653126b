"""The approvals of tasks, as the gate looks them up.

A step with items is asked about once, with all of its items, before they exist. Its approval has the digest of the
request of each item. An item passes under it if that is the digest of its own request, and is denied if it is not.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gnomon.core.approvals.decide import item_ruling_with_approvals, rule_content, ruling_with_approvals
from gnomon.core.approvals.model import Approval, ApprovalStatus
from gnomon.core.ids import item_id
from gnomon.core.model import TaskId
from gnomon.core.policy.gate_decision import ruled_decision
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.admission import AdmissionRequest, FanOut, GateDecision, GateVerdict, ReadyTask
from gnomon.ports.approvals import Approvals
from gnomon.ports.policy import TaskPolicy

if TYPE_CHECKING:
    from gnomon.core.policy.constraints import Constraints
    from gnomon.core.policy.facts import StepDigest

#: After how many items, and how many bytes of their inputs, other coroutines run.
_SLICE_ITEMS, _SLICE_BYTES = 50, 64 << 10
#: The steps whose approvals are remembered; of more, the oldest are forgotten.
_MOST_STEPS = 16


class TaskApprovals:
    """Finds out whether tasks that need an approval have it."""

    def __init__(self, policy: TaskPolicy, approvals: Approvals) -> None:
        self._policy, self._approvals = policy, approvals
        #: The approvals of steps with all of their items: they never change, and each of many items needs them.
        self._of_steps: OrderedDict[TaskId, Sequence[Approval]] = OrderedDict()
        self._reading = asyncio.Lock()

    def known_ruling(self, request: AdmissionRequest, ruling: Ruling) -> Ruling | None:
        """The ruling about an item, if it follows from approvals that are known here; None if they have to be read."""
        task = request.waiting.task
        if task.parent is None or task.item is None:
            return None
        made = item_ruling_with_approvals(ruling, self._of_steps.get(task.parent, ()), task.item)
        return None if made is ruling else made

    async def ruling(self, request: AdmissionRequest, ruling: Ruling) -> Ruling:
        """The ruling about a task that needs an approval, with the approvals of the task and of its step."""
        task = request.waiting.task
        if task.parent is not None and task.item is not None:
            made = item_ruling_with_approvals(ruling, await self._approvals_of_step(task.parent), task.item)
            if made is not ruling:
                return made
        return ruling_with_approvals(ruling, await self._approvals.of_task(task.task_id))

    async def _approvals_of_step(self, task_id: TaskId) -> Sequence[Approval]:
        # One reads, for all items that are asked about at the same time. A step has no new approval once it has items.
        async with self._reading:
            known = self._of_steps.get(task_id)
            if known is None:
                found = await self._approvals.of_task(task_id)
                known = [one for one in found if one.status is ApprovalStatus.APPROVED]
                self._of_steps[task_id] = known
                if len(self._of_steps) > _MOST_STEPS:
                    self._of_steps.popitem(last=False)
            return known

    async def decide_about_items(self, request: AdmissionRequest, fan_out: FanOut) -> GateDecision:
        """Whether the step may have its items; if a rule asks for an approval of one, it is asked for with all items.

        A kernel is asked about the first item only: each question takes time, and comes again for the item itself.
        """
        from gnomon.core.policy.facts import StepDigest

        task = request.waiting.task
        digest = StepDigest(request.waiting.run.tenant, request.workflow, request.step)
        approvals = await self._approvals.of_task(task.task_id)
        permission: Ruling | None = None
        approved = set[str]()
        looked_at = fan_out.items[:1] if self._policy.rules_alike(request) else fan_out.items
        async for item in _item_requests(request, looked_at):
            ruling = await self._policy.rule(item)
            if ruling is None or ruling.decision is not PolicyDecision.REQUIRE_APPROVAL:
                continue
            if rule_content(ruling) in approved:
                continue
            digests = await _item_digests(request, fan_out, digest, ruling.constraints)
            about_all = replace(ruling, digest=digest.of_items(request, digests, ruling.constraints), budgets=())
            permission = ruling_with_approvals(about_all, approvals)
            if not permission.allows:
                asks = permission.decision is PolicyDecision.REQUIRE_APPROVAL
                return replace(ruled_decision(permission), item_digests=digests if asks else b"")
            approved.add(rule_content(ruling))
        return GateDecision(GateVerdict.ALLOW, ruling=permission)


async def _item_digests(
    request: AdmissionRequest, fan_out: FanOut, digest: "StepDigest", constraints: "Constraints | None"
) -> bytes:
    return b"".join([digest.of(item, constraints) async for item in _item_requests(request, fan_out.items)])


async def _item_requests(request: AdmissionRequest, items: Sequence[bytes]) -> AsyncIterator[AdmissionRequest]:
    """The requests that the items will make; between them other coroutines run."""
    waiting, size = request.waiting, 0
    for number, body in enumerate(items):
        size += len(body)
        if size >= _SLICE_BYTES or number % _SLICE_ITEMS == _SLICE_ITEMS - 1:
            size = 0
            await asyncio.sleep(0)
        task = replace(
            waiting.task, task_id=item_id(waiting.task.task_id, number), parent=waiting.task.task_id, item=number
        )
        yield AdmissionRequest(
            waiting=ReadyTask(task=task, run=waiting.run, own_input=body),
            workflow=request.workflow,
            step=request.step,
            input=msgspec.json.decode(body),
        )
