"""Judges runs that have not started by the policy in force: for plans, simulations and explanations."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gnomon.core.runs.workflow import Workflow
from gnomon.errors import UsageError
from gnomon.ports.policy import Policies
from gnomon.services.loop import ComputeQueue

if TYPE_CHECKING:
    from gnomon.core.policy.compiled import CompiledPolicy
    from gnomon.core.policy.document import PolicyDocument
    from gnomon.core.policy.explanation import StepExplanation


class ExpectedRun(Struct, frozen=True, kw_only=True):
    """A run that has not started: of this job, by its schedule, at this time."""

    tenant: str
    job: str
    workflow: Workflow
    at: int


class RunOutlook(Struct, frozen=True, kw_only=True):
    """The steps of a run that the policy would not simply let run."""

    #: The version of the policy.
    version: int = 0
    steps: "tuple[StepExplanation, ...]" = ()


class PolicyOutlook:
    """Judges runs that have not started by the policy in force."""

    def __init__(
        self,
        policies: Policies,
        *,
        parse: "Callable[[str], PolicyDocument]",
        compute: ComputeQueue | None = None,
        by_kernel: bool = False,
    ) -> None:
        """With `by_kernel` another process rules on tasks: nobody knows what it would decide."""
        self._policies, self._parse, self._by_kernel = policies, parse, by_kernel
        self._compute = compute or ComputeQueue()
        self._known: CompiledPolicy | None = None

    async def of(self, runs: Sequence[ExpectedRun]) -> list[RunOutlook]:
        """The outlook of each run; there is nothing to say without a policy, or by one that cannot be read."""
        policy = await self._current()
        if policy is None:
            return [RunOutlook()] * len(runs)
        # In a thread: the rules of many jobs take too long to select on the event loop, which the ticker shares.
        return await self._compute.run_in_thread(lambda: [outlook_by(policy, one) for one in runs])

    async def _current(self) -> "CompiledPolicy | None":
        number = 0 if self._by_kernel else await self._policies.newest_number()
        if number == 0:
            return None
        if self._known is None or self._known.version != number:
            newest = await self._policies.newest()
            try:
                body = "" if newest is None else newest.body
                self._known = await self._compute.run_in_thread(lambda: _compiled(self._parse, body, number))
            except UsageError:
                return None
        return self._known


def _compiled(parse: "Callable[[str], PolicyDocument]", body: str, number: int) -> "CompiledPolicy":
    from gnomon.core.policy.compiled import CompiledPolicy

    return CompiledPolicy(parse(body), number, throttle_ms=0)


def outlook_by(policy: "CompiledPolicy", one: ExpectedRun) -> RunOutlook:
    """The outlook of a run by this policy."""
    from gnomon.core.policy.explanation import AssumedRun, held_steps

    run = AssumedRun(tenant=one.tenant, job=one.job, at=one.at)
    return RunOutlook(version=policy.version, steps=tuple(held_steps(policy, one.workflow, run)))
