"""The policy: its versions, the rulings that were made, and the port that rules on tasks."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from gnomon.core.model import RunId
from gnomon.core.policy.past_tasks import PastTask
from gnomon.core.policy.ruling import Ruling, TaskRulings
from gnomon.core.policy.shadow import PolicyShadow, ShadowCounts, ShadowDifference
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.admission import AdmissionRequest

if TYPE_CHECKING:
    from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse


class Policies(Protocol):
    """The versions of the policy. Every method that changes them is one transaction, which also writes the audit."""

    async def add(self, body: str, *, author: str, now: int, expected: int | None = None) -> PolicyVersion:
        """Put a file in force as the next version; if the newest one has the same content, that is returned instead.

        Stale, and nothing is written, if the newest version is not `expected`; None: any.
        """
        ...

    async def newest(self) -> PolicyVersion | None:
        """The version that is in force; None if there is no policy."""
        ...

    async def newest_number(self) -> int:
        """The number of the version that is in force; 0 if there is no policy."""
        ...

    async def find(self, version: int) -> PolicyVersion | None:
        """The version of that number."""
        ...

    async def page(self, *, before: int | None, limit: int) -> Sequence[PolicyVersion]:
        """The versions before that one, newest first."""
        ...


class PolicyShadows(Protocol):
    """The shadow of the policy. Every method that starts or ends it is one transaction, which also writes the audit."""

    async def start(self, body: str, *, author: str, now: int) -> PolicyShadow:
        """Judge by this file from now on; a shadow that runs and has the same content goes on."""
        ...

    async def stop(self, *, actor: str, now: int) -> PolicyShadow:
        """End the shadow, and keep what was counted until another starts; NotFound if none runs."""
        ...

    async def promote(self, *, actor: str, now: int, expected: int | None = None) -> PolicyVersion:
        """End the shadow and put its file in force; NotFound if none runs, Stale as Policies.add."""
        ...

    async def newest(self) -> PolicyShadow | None:
        """The shadow that was started last."""
        ...

    async def running_number(self) -> int:
        """The number of the shadow that runs; 0 if none does."""
        ...

    async def count(self, number: int, counts: ShadowCounts) -> bool:
        """Add rulings of the shadow of that number; False, and nothing is written, if it does not run any more."""
        ...

    async def differences(self, *, limit: int) -> Sequence[ShadowDifference]:
        """The differences of the newest shadow, the most frequent first."""
        ...


class Rulings(Protocol):
    """The rulings that were made, as they are read. The transactions that act on rulings write them."""

    async def of_tasks(self, run_id: RunId, *, after: str = "", limit: int) -> Sequence[TaskRulings]:
        """The tasks of a run about which there are rulings, by their ids, with these; plain permissions included."""
        ...

    async def ruled_runs(self, runs: Sequence[RunId]) -> Collection[RunId]:
        """Those of these runs about whose tasks there are rulings."""
        ...

    async def past_tasks(self, *, after: str = "", limit: int) -> Sequence[PastTask]:
        """The tasks of all tenants by their ids, with what was decided about them, and without their inputs."""
        ...


class TaskPolicy(Protocol):
    """Rules on tasks.

    The methods may be called several times about the same task, also by several processes at once.
    """

    @property
    def active(self) -> bool:
        """Whether there is a policy, or may be one: without one every task is allowed, and nothing is ruled."""
        ...

    def may_ask(self, request: AdmissionRequest) -> bool:
        """Whether tasks of the step may need an approval."""
        del request
        return True

    def rules_alike(self, request: AdmissionRequest) -> bool:
        """Whether to rule on one item of a step only, before the items exist."""
        del request
        return True

    def rule_now(self, request: AdmissionRequest) -> Ruling | None:
        """The ruling about the task, if it can be made at once, without any I/O."""
        ...

    async def rule(self, request: AdmissionRequest) -> Ruling | None:
        """The ruling about the task, None if there is no policy; its error or delay delays only this task.

        RulingUnavailable if nobody can rule on the task now: it waits, and is asked about again.
        """
        ...


class PolicyKernel(Protocol):
    """A service in another process that rules on tasks."""

    async def check(self, request: "PolicyCheckRequest") -> "PolicyCheckResponse":
        """Its answer. KernelUnavailable if it does not answer in time, ValueError if it sends what is no answer."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
