"""The judge of outputs in another process, behind the rules of this one."""

import asyncio

from msgspec.structs import replace

from gnomon.core.output_policy.kernel import judged_ruling, output_request
from gnomon.core.output_policy.ruling import RELEASED_RULE, OutputDecision, OutputRuling
from gnomon.core.policy.facts import step_facts
from gnomon.errors import KernelUnavailable
from gnomon.ports.output_policy import OutputJudge, OutputKernel, StoredOutput
from gnomon.services.execution.output_check import StoredOutputPolicy
from gnomon.services.execution.shared_breaker import SharedBreaker

_REFUSAL = "the output policy service has failed too often and is not asked now (its circuit is open)"


class RemoteOutputJudge(OutputJudge):
    """Asks a service about each stored output that the own rules do not hold back: the stricter of both wins."""

    def __init__(self, own: StoredOutputPolicy, kernel: OutputKernel, breaker: SharedBreaker, *, parallel: int) -> None:
        """`breaker` is that of the service; the kernel that rules on tasks has another one."""
        self._own, self._kernel, self._breaker = own, kernel, breaker
        self._free = asyncio.Semaphore(parallel)

    async def judge(self, stored: StoredOutput) -> OutputRuling:
        """See OutputJudge.judge."""
        own = await self._own.judge(stored)
        if own.decision is OutputDecision.QUARANTINE or own.rule == RELEASED_RULE:
            return own
        seen = stored.output if own.redacted is None else own.redacted
        try:
            ruling = await self._asked(stored, seen)
        except KernelUnavailable:
            if own.redacted is not None and not self._own.holds_unchecked:
                return own
            raise
        if ruling.decision is OutputDecision.ALLOW:
            return own
        ruling = replace(ruling, content_digest=self._own.digest_of(stored.output), size=len(stored.output))
        if await self._own.is_exempt(stored.run.tenant, ruling):
            return replace(ruling, decision=OutputDecision.ALLOW, rule=RELEASED_RULE, redacted=None)
        return ruling

    async def _asked(self, stored: StoredOutput, seen: bytes) -> OutputRuling:
        run = stored.run
        facts = step_facts(run.tenant, run.schedule_id or run.workflow_id, stored.workflow, stored.step)
        request = output_request(stored.task_id, run, facts, seen)
        try:
            async with self._free:
                answer = await self._breaker.guarded(
                    stored.task_id, lambda: self._kernel.check_output(request), refusal=_REFUSAL
                )
            return judged_ruling(answer, seen)
        except ValueError as error:
            raise KernelUnavailable(f"the output policy service has given no valid answer: {error}") from None
