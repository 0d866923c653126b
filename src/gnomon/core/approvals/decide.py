"""Decisions about approvals of tasks: what a vote does, and what an approval lets a task do."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gnomon.core.approvals.model import (
    ITEM_DIGEST_BYTES,
    Approval,
    ApprovalKind,
    ApprovalRequest,
    ApprovalStatus,
    Vote,
    VoteKind,
    approval_digest,
    approval_id,
)
from gnomon.core.approvals.terms import DEFAULT_TERMS, terms_text
from gnomon.core.model import Run, Task
from gnomon.core.model_names import job_of
from gnomon.core.policy.ruling import (
    BY_APPROVAL,
    BY_OVERRIDE,
    SAFETY_DENIED,
    PolicyDecision,
    Ruling,
)
from gnomon.errors import ApprovalChanged, ApprovalClosed, VotedAlready

#: The parts of the scheduler that end approvals.
BY_EXPIRY, BY_POLICY_CHANGE, BY_TASK_END = "expiry", "policy", "task"
#: Why an approval is void whose task was cancelled or has missed its deadline.
ENDED_NOTE = "its task does not wait any more"
#: Why an approval is void for which the gate does not ask any more.
UNASKED_NOTE = "the policy in force does not ask for it"
_CANONICAL = msgspec.json.Encoder(order="deterministic")
_STANDS = (ApprovalStatus.WAITING, ApprovalStatus.APPROVED)


def asked_approval(task: Task, run: Run, ruling: Ruling, *, now: int, item_digests: bytes = b"") -> Approval:
    """The approval for which a ruling asks."""
    terms = ruling.approval or DEFAULT_TERMS
    digest = approval_digest(ruling.digest, rule_content(ruling))
    return Approval(
        approval_id=approval_id(task.task_id, digest, now),
        tenant=run.tenant,
        kind=ApprovalKind.TASK,
        subject=run.schedule_id or run.workflow_id,
        digest=digest,
        reason=ruling.reason,
        request=ApprovalRequest(
            task_id=task.task_id,
            run_id=run.run_id,
            step=task.step,
            item=task.item,
            rule=ruling.rule,
            version=ruling.version,
            rule_digest=rule_content(ruling),
            request_digest=ruling.digest,
            constraints=ruling.constraints,
            terms=terms,
            asked_at=now,
            expires_at=now + terms.expires_ms,
            items=len(item_digests) // ITEM_DIGEST_BYTES,
            item_digests=item_digests,
        ),
    )


def with_authors_of_agents(names: Iterable[str], authors_of: Callable[[str], Iterable[str]]) -> frozenset[str]:
    """The names, and for each agent among them the authors of its job: they have written what it is to do."""
    found = set(names)
    ahead = list(found)
    while ahead:
        job = job_of(ahead.pop())
        new = set() if job is None else set(authors_of(job)) - found
        found |= new
        ahead += new
    return frozenset(found)


class AskOutcome(NamedTuple):
    """The consequences of a question that a task raises, given the approvals that it has."""

    #: The approval to add; None if one about the same stands.
    added: Approval | None = None
    #: The approval that stands, under the version of the policy that asks now; None if there is none.
    kept: Approval | None = None
    #: The approvals that do not count any more.
    void: tuple[Approval, ...] = ()


def rule_content(ruling: Ruling) -> str:
    """The digest of the content of the rule; without one, that of everything that the ruling says about its rule."""
    if ruling.rule_digest:
        return ruling.rule_digest
    said = ruling.rule, ruling.constraints, ruling.approval
    return sha256(_CANONICAL.encode(said)).hexdigest()


def ask_about_task(earlier: Sequence[Approval], asked: Approval, *, now: int) -> AskOutcome:
    """Add the approval to the earlier ones of its task. Votes stay if they are about exactly the same."""
    standing = next((one for one in earlier if one.digest == asked.digest and one.status in _STANDS), None)
    version = 0 if asked.request is None else asked.request.version
    others = tuple(
        voided(one, f"policy {version} asks by another rule, or for something else", by=BY_POLICY_CHANGE, now=now)
        for one in earlier
        if one.status is ApprovalStatus.WAITING and one.digest != asked.digest
    )
    if standing is None:
        return AskOutcome(added=asked, void=others)
    if standing.request is None or standing.request.version == version:
        return AskOutcome(kept=standing, void=others)
    return AskOutcome(kept=replace(standing, request=replace(standing.request, version=version)), void=others)


def counted(approval: Approval, vote: Vote, *, digest: str) -> Approval:
    """The approval after a vote. The voter quotes the digest of what they saw.

    ApprovalChanged if that is not the digest of the approval, ApprovalClosed if it waits for no vote, VotedAlready if
    the same person has voted. A vote after the time of the approval comes too late, even if its expiry is not written.
    """
    request = approval.request
    if approval.status is not ApprovalStatus.WAITING:
        raise ApprovalClosed(approval.approval_id, approval.status)
    if digest != approval.digest:
        raise ApprovalChanged(approval.approval_id)
    if request is not None and vote.at >= request.expires_at:
        raise ApprovalClosed(approval.approval_id, ApprovalStatus.EXPIRED)
    if vote.kind is not VoteKind.OVERRIDE and any(one.voter == vote.voter for one in approval.votes):
        raise VotedAlready(approval.approval_id, vote.voter)
    votes = (*(one for one in approval.votes if one.voter != vote.voter), vote)
    status = _status_after(votes, approval.terms.quorum)
    if status is ApprovalStatus.WAITING:
        return replace(approval, votes=votes)
    after = replace(approval, votes=votes, status=status, decided_by=vote.voter, decided_at=vote.at)
    if request is None and status is ApprovalStatus.REJECTED:
        # The same commands may be asked about again.
        return replace(after, revoked_at=vote.at, revoked_by=vote.voter)
    return after


def _status_after(votes: Sequence[Vote], quorum: int) -> ApprovalStatus:
    kinds = [vote.kind for vote in votes]
    if VoteKind.REJECT in kinds[-1:]:
        return ApprovalStatus.REJECTED
    if VoteKind.OVERRIDE in kinds or kinds.count(VoteKind.APPROVE) >= quorum:
        return ApprovalStatus.APPROVED
    return ApprovalStatus.WAITING


def expired(approval: Approval, *, now: int) -> Approval | None:
    """The approval after its time; None if it was decided before, or has time left."""
    request = approval.request
    if approval.status is not ApprovalStatus.WAITING or request is None or now < request.expires_at:
        return None
    return replace(approval, status=ApprovalStatus.EXPIRED, decided_by=BY_EXPIRY, decided_at=request.expires_at)


def voided(approval: Approval, why: str, *, by: str, now: int) -> Approval:
    """The approval after its question has become void."""
    return replace(approval, status=ApprovalStatus.VOID, revoked_at=now, revoked_by=by, note=why)


def refusal_note(approval: Approval) -> str:
    """The note of a task whose approval was refused or came too late."""
    request = approval.request
    if approval.status is ApprovalStatus.EXPIRED and request is not None:
        return f"nobody approved it in time: it needed {terms_text(request.terms)}"
    last = approval.votes[-1]
    return f"rejected by {last.voter}" + (f": {last.reason}" if last.reason else "")


def refused_ruling(request: ApprovalRequest, reason: str, code: str) -> Ruling:
    """The ruling about a task that was rejected, or that nobody approved in time."""
    return Ruling(
        decision=PolicyDecision.DENY,
        rule=request.rule,
        version=request.version,
        digest=request.request_digest,
        reason=reason,
        code=code,
        ruled_by=BY_APPROVAL,
        rule_digest=request.rule_digest,
    )


def ruling_with_approvals(ruling: Ruling, approvals: Sequence[Approval]) -> Ruling:
    """The ruling about a task that needs an approval, given the approvals of the task.

    With the votes for exactly this request under exactly this rule, it is a permission. A request that differs from
    the approved one although the rule is the same was changed behind the back of those who voted: it is denied.
    """
    wanted = approval_digest(ruling.digest, rule_content(ruling))
    approved = [one for one in approvals if one.status is ApprovalStatus.APPROVED and one.request is not None]
    for one in approved:
        if one.digest == wanted:
            return _permission(ruling, one)
    for one in approved:
        if _asked_alike(one, ruling):
            return _altered(ruling, one)
    return ruling


def item_ruling_with_approvals(ruling: Ruling, approvals: Sequence[Approval], item: int) -> Ruling:
    """The ruling about an item that needs an approval, given the approvals of its step with all of its items."""
    for one in approvals:
        if one.status is ApprovalStatus.APPROVED and one.request is not None and one.request.items:
            if not _asked_alike(one, ruling):
                continue
            return _permission(ruling, one) if one.request.covers_item(item, ruling.digest) else _altered(ruling, one)
    return ruling


def _asked_alike(approval: Approval, ruling: Ruling) -> bool:
    """Whether the approval is by the same rule under the same constraints."""
    asked = approval.request
    return asked is not None and (asked.rule_digest, asked.constraints) == (rule_content(ruling), ruling.constraints)


def _altered(ruling: Ruling, approval: Approval) -> Ruling:
    """The denial of a task that is about to do something else than its approval says."""
    return replace(
        ruling,
        decision=PolicyDecision.DENY,
        code=SAFETY_DENIED,
        reason=f"its definition or input is not what {_names(approval.approvers)} approved",
        constraints=None,
        approval=None,
    )


def _permission(ruling: Ruling, approval: Approval) -> Ruling:
    decision = PolicyDecision.ALLOW if ruling.constraints is None else PolicyDecision.ALLOW_WITH_CONSTRAINTS
    last = approval.votes[-1]
    if approval.overridden:
        by, reason = BY_OVERRIDE, f"overridden by {last.voter}: {last.reason}"
    else:
        by, reason = BY_APPROVAL, f"approved by {_names(approval.approvers)}"
    return replace(ruling, decision=decision, ruled_by=by, reason=reason, approval=None)


def exceeding_budget(ruling: Ruling, approval: Approval, budget: str) -> Ruling:
    """The permission of a task that people let exceed a budget."""
    granted = _permission(ruling, approval).reason
    reason = "; ".join(part for part in (ruling.reason, f"{granted}, beyond budget {budget}") if part)
    return replace(ruling, reason=reason, beyond_budget=True)


def _names(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
