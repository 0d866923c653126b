"""The policy of outputs: the port that rules on them, and what is kept of those that are held back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from gnomon.core.model import LogLine, Run, TaskId
from gnomon.core.output_policy.late import LateCheck, LateResult
from gnomon.core.output_policy.ruling import HeldDecision, HeldOutput, HeldStatus, OutputRuling, StoredOutputRuling
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.ports.execution import Finished

if TYPE_CHECKING:
    from gnomon.core.output_policy.kernel_messages import OutputCheckRequest, OutputCheckResponse


class OutputPolicy(Protocol):
    """Rules on the outputs of attempts before they are stored, and cleans their log lines and errors.

    The methods may be called several times about the same attempt, also by several processes at once.
    """

    def check_now(self, finished: Finished) -> AttemptOutcome | None:
        """The outcome to store, if the attempt can be checked at once, without any I/O."""
        ...

    async def check(self, finished: Finished) -> AttemptOutcome:
        """The outcome to store."""
        ...

    def unchecked(self, finished: Finished, reason: str) -> AttemptOutcome:
        """The outcome to store of an attempt that could not be checked in time."""
        ...

    async def clean_lines(self, lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
        """Lines of an attempt that runs, without the texts that no output may have; Unavailable: nobody knows them."""
        ...


class StoredOutput(Struct, frozen=True, kw_only=True):
    """An output that is stored, with its step."""

    task_id: TaskId
    run: Run
    workflow: Workflow
    step: Step
    output: bytes


class OutputJudge(Protocol):
    """Rules on outputs that are stored already."""

    async def judge(self, stored: StoredOutput) -> OutputRuling:
        """The ruling. Unavailable if nothing can rule on it now; the caller limits the time."""
        ...


class OutputKernel(Protocol):
    """A service in another process that judges outputs."""

    async def check_output(self, request: "OutputCheckRequest") -> "OutputCheckResponse":
        """Its answer. KernelUnavailable if it does not answer in time, ValueError if it sends what is no answer."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class LateChecks(Protocol):
    """The outputs that have to be checked after they were stored. The transactions that store them add them."""

    async def oldest(self, limit: int) -> Sequence[LateCheck]:
        """Those that have waited longest."""
        ...

    async def settle(self, check: LateCheck, result: LateResult, *, now: int) -> bool:
        """Remove the check, and carry out its ruling with all that follows, in one transaction.

        A task that is still SUCCEEDED loses its output by a quarantine, or gets the redacted one; a run under way goes
        on as if it had failed. Return whether the check was still there.
        """
        ...


class HeldOutputQuery(Struct, frozen=True, kw_only=True):
    """The arguments of HeldOutputs.page."""

    tenant: str
    status: HeldStatus | None
    #: The time and the task of the last one of the page before.
    after: tuple[int, str] | None
    limit: int


class HeldOutputReader(Protocol):
    """Reads outputs that are held back."""

    async def find(self, tenant: str, task_id: TaskId) -> HeldOutput | None:
        """The output of the task that is or was held back."""
        ...


class HeldOutputs(HeldOutputReader, Protocol):
    """Outputs that are held back. Every method that changes them is one transaction, which also writes the audit."""

    async def page(self, query: HeldOutputQuery) -> Sequence[HeldOutput]:
        """Those of a tenant, newest first, without their contents."""
        ...

    async def look(self, tenant: str, task_id: TaskId, looked: HeldDecision) -> HeldOutput:
        """The same, and an entry in the audit trail; NotFound if there is none."""
        ...

    async def release(self, tenant: str, task_id: TaskId, output: bytes, decided: HeldDecision) -> bool:
        """Store the output, exempt its content from now on, and let its run go on; return whether it does.

        NotFound if there is none; HeldOutputDecided if it was released or discarded before.
        """
        ...

    async def discard(self, tenant: str, task_id: TaskId, decided: HeldDecision) -> None:
        """Delete the content; the errors are those of `release`."""
        ...


class OutputRulings(Protocol):
    """The rulings on outputs. The transactions that end attempts write them, with the outputs that are held back."""

    async def of_task(self, tenant: str, task_id: TaskId) -> StoredOutputRuling | None:
        """The last ruling that redacted or held back an output of the task; None if there is none."""
        ...

    async def is_exempt(self, tenant: str, content_digest: str) -> bool:
        """Whether an operator has released this content before."""
        ...
