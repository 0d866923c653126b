"""Standing approvals: a person with the role admin lets a definition do what needs an approval, until it changes.

An approval is bound to the digest of the definition. A definition that changes has another digest, and so no approval.
It is asked for, and waits for the vote of an admin like that of a task, but does not expire.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from gnomon.core.approvals.decide import AskOutcome, voided
from gnomon.core.approvals.model import Approval, ApprovalKind, ApprovalStatus
from gnomon.core.runs.expressions import references
from gnomon.core.runs.workflow import Step, When, Workflow

#: The part of the scheduler that ends approvals of commands that have changed.
_BY_CHANGE = "change"
_CHANGED_NOTE = "its commands have changed"
_CANONICAL = msgspec.json.Encoder(order="deterministic")


def command_digest(workflow: Workflow) -> str:
    """The digest of everything that decides which commands a workflow runs: an approval of it approves nothing else.

    It holds all steps, since the output of any of them may become a word of a command. When a step runs, how often it
    is tried, and on which worker, is no part of it.
    """
    steps = {step.name: _without_terms(step) for step in workflow.steps}
    bound = {"tenant": workflow.tenant, "input": workflow.input, "steps": steps}
    return sha256(_CANONICAL.encode(bound)).hexdigest()


def _without_terms(step: Step) -> Step:
    """The step without the fields that say when, how often and where it runs."""
    return replace(
        step,
        depends_on=(),
        when=When.ALL_SUCCESS,
        condition=None,
        max_parallel=None,
        delay_ms=None,
        delay_until=None,
        timeout_ms=None,
        retry=None,
        route=None,
    )


def covers_input(workflow: Workflow, step: Step, given: bytes | None) -> bool:
    """Whether an approval of the workflow covers this step in a run with this input, as JSON; None for its own.

    A run may be started with any input by callers who may not approve. So an approval of a command that gets data
    covers only the input that the definition has, which is part of the digest.
    """
    if given is None or not any(references(step.input)):
        return True
    return bool(msgspec.json.decode(given) == workflow.input)


def approval_of(workflow: Workflow, approvals: Iterable[Approval]) -> Approval | None:
    """The approval of the commands of this workflow among those that count."""
    subject = workflow.tenant, workflow.workflow_id
    of_job = [one for one in approvals if (one.tenant, one.subject) == subject and one.kind is ApprovalKind.COMMAND]
    if not of_job:
        return None
    wanted = command_digest(workflow)
    return next((one for one in of_job if one.digest == wanted), None)


def ask_about_commands(standing: Sequence[Approval], asked: Approval, *, now: int) -> AskOutcome:
    """Add the approval to those of the definition that wait or count. One that waits for other commands is void."""
    kept = next((one for one in standing if one.digest == asked.digest), None)
    void = tuple(
        voided(one, _CHANGED_NOTE, by=_BY_CHANGE, now=now)
        for one in standing
        if one.status is ApprovalStatus.WAITING and one.digest != asked.digest
    )
    return AskOutcome(added=asked if kept is None else None, kept=kept, void=void)
