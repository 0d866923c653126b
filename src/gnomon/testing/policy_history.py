"""The policy in a history: its versions, the admissions and the rulings that they follow from, and votes.

Each version is a table of rules by job, and the policy file is made of that table. The checker reads the table, and
shares no code with the rules that the scheduler compiles from the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from gnomon.core.approvals.model import Approval, VoteKind
from gnomon.core.model import TaskId
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.states import TaskState
from gnomon.ports.tasks import AttemptRef


@dataclass(frozen=True, slots=True)
class JobRule:
    """The decision of a policy about all tasks of a job; for one that needs an approval, with its terms."""

    decision: PolicyDecision
    quorum: int = 1
    #: The groups of which a voter must be a member; none: voters need the role admin.
    groups: tuple[str, ...] = ()
    #: Whether the person who asked for the run, and the authors, may vote.
    self_approval: bool = False
    expires_ms: int = 3_600_000

    @property
    def asks(self) -> bool:
        """Whether tasks need an approval."""
        return self.decision is PolicyDecision.REQUIRE_APPROVAL


@dataclass(frozen=True, slots=True)
class JobBudget:
    """How many attempts at tasks of these jobs together may begin in each window."""

    name: str
    jobs: tuple[str, ...]
    limit: int
    per_ms: int
    #: The decision about tasks beyond it; if that needs an approval, with its terms.
    over: JobRule = JobRule(PolicyDecision.THROTTLE)


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """A policy by jobs. Tasks of other jobs are denied."""

    rules: Mapping[str, JobRule]
    budgets: tuple[JobBudget, ...] = ()

    def text(self) -> str:
        """The policy file that says the same."""
        rules = [_rule_entry(job, rule) for job, rule in self.rules.items()]
        return msgspec.json.encode({"rules": rules, "budgets": list(map(_budget_entry, self.budgets))}).decode()


def _rule_entry(job: str, rule: JobRule) -> dict[str, object]:
    entry: dict[str, object] = {"id": f"of-{job}", "match": {"jobs": [job]}, "decision": rule.decision.value}
    return entry | _terms_entry(rule)


def _terms_entry(rule: JobRule) -> dict[str, object]:
    if not rule.asks:
        return {}
    voters: dict[str, object] = {"groups": list(rule.groups)} if rule.groups else {"roles": ["admin"]}
    terms = {"quorum": rule.quorum, "expires": f"{rule.expires_ms}ms", "self": rule.self_approval}
    return {"approval": voters | terms}


def _budget_entry(one: JobBudget) -> dict[str, object]:
    entry: dict[str, object] = {"id": one.name, "match": {"jobs": list(one.jobs)}, "limit": one.limit}
    return entry | {"per": f"{one.per_ms}ms", "over": one.over.decision.value} | _terms_entry(one.over)


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """A version of the policy that was put in force."""

    moment: int
    elapsed_ms: int
    version: int
    table: PolicyTable


@dataclass(frozen=True, slots=True)
class AdmissionRecord:
    """The admission of a task, as the store wrote it."""

    moment: int
    #: The time of the process that asked for it.
    at: int
    elapsed_ms: int
    by: str
    #: The attempt that it is about.
    attempt: AttemptRef
    state: TaskState
    ruling: Ruling | None


@dataclass(frozen=True, slots=True)
class Person:
    """A person who votes."""

    name: str
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class VoteRecord:
    """A vote that the store counted."""

    moment: int
    at: int
    elapsed_ms: int
    voter: str
    kind: VoteKind
    #: The digest that the voter quoted.
    quoted: str
    #: The approval before the vote.
    approval: Approval


@dataclass(frozen=True, slots=True)
class ExpiryRecord:
    """An approval that was seen to have expired."""

    moment: int
    elapsed_ms: int
    approval_id: str
    task_id: TaskId


@dataclass(slots=True)
class PolicyHistory:
    """All records about the policy, approvals and breakers of a simulation."""

    #: The groups whose members may override.
    break_glass: frozenset[str] = frozenset()
    #: How often a process looks for a new version.
    refresh_ms: int = 0
    persons: dict[str, Person] = field(default_factory=dict)
    versions: dict[int, PolicyRecord] = field(default_factory=dict)
    admissions: list[AdmissionRecord] = field(default_factory=list)
    votes: list[VoteRecord] = field(default_factory=list)
    expiries: list[ExpiryRecord] = field(default_factory=list)
    #: Admitted tasks that were recalled because no worker could take them any more, and when.
    recalls: list[tuple[int, TaskId]] = field(default_factory=list)
    #: The approvals of tasks at the end.
    approvals: dict[str, Approval] = field(default_factory=dict)
