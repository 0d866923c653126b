"""Reading policy files. The reader and its parser are imported when a policy is read: most processes have none."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.app.operations import Operations
    from gnomon.core.jobs.job import Job
    from gnomon.core.policy.cases import CaseResult
    from gnomon.core.policy.document import PolicyDocument
    from gnomon.core.responses.policy import JobPolicy

#: The version of a file that has not been applied.
_UNAPPLIED = 0


def parse_policy_text(text: str, *, name: str = "policy") -> "PolicyDocument":
    """The policy in the text; FileError names the line and the field of the first mistake."""
    from gnomon.adapters.policy_file import parse_policy

    return parse_policy(text, name=name)


def read_policy_text(path: Path, *, guarded: bool) -> str:
    """The text of a policy file without mistakes; FileError names the file, and the line and field of the first one.

    With `guarded`, a file that others may write to is refused: it is about to be put in force.
    """
    from gnomon.adapters.files import read_text

    text = read_text(path, guarded=guarded)
    parse_policy_text(text, name=str(path))
    return text


def run_policy_cases(policy: Path, cases: Path) -> "list[CaseResult]":
    """The rulings of a policy file about the test cases in another file; FileError for the first mistake in either."""
    from gnomon.adapters.files import read_text
    from gnomon.adapters.policy_file import parse_cases
    from gnomon.core.policy.cases import judge_cases
    from gnomon.core.policy.compiled import CompiledPolicy

    document = parse_policy_text(read_text(policy), name=str(policy))
    found = parse_cases(read_text(cases), name=str(cases))
    return judge_cases(CompiledPolicy(document, _UNAPPLIED, throttle_ms=0), found)


def jobs_held_by_file(policy: Path, jobs: "Sequence[Job]", *, now: int) -> "list[JobPolicy]":
    """The jobs of which a policy file would hold back a step of the next run; FileError for its first mistake."""
    from gnomon.adapters.files import read_text
    from gnomon.core.policy.compiled import CompiledPolicy
    from gnomon.services.operations.job_plan import next_run_at
    from gnomon.services.operations.policy_outlook import ExpectedRun, outlook_by
    from gnomon.services.operations.presenters.policy import job_policy

    document = parse_policy_text(read_text(policy), name=str(policy))
    compiled = CompiledPolicy(document, _UNAPPLIED, throttle_ms=0)
    runs = [
        ExpectedRun(tenant="default", job=one.name, workflow=one.workflow, at=next_run_at(one, now)) for one in jobs
    ]
    outlooks = ((one.job, outlook_by(compiled, one)) for one in runs)
    return [job_policy(name, found) for name, found in outlooks if found.steps]


async def jobs_held_by_policy(operations: "Operations", jobs: "Sequence[Job]") -> "list[JobPolicy]":
    """The jobs of which the policy in force would hold back a step of the next run."""
    from gnomon.services.operations.presenters.policy import job_policy

    return [job_policy(name, found) for name, found in await operations.planner.outlooks(jobs)]
