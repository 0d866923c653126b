"""Presents approvals of tasks."""

from typing import Any

from gnomon.core.approvals.model import Approval
from gnomon.core.approvals.terms import ApprovalTerms, terms_text
from gnomon.core.instants import instant_of
from gnomon.core.responses.approvals import ApprovalDetail, ApprovalNeeds, ApprovalSummary, ApprovalVote
from gnomon.services.operations.approvals import ApprovalView
from gnomon.services.operations.presenters.common import optional_instant


def approval_summary(one: Approval) -> ApprovalSummary:
    """An approval in a list."""
    return ApprovalSummary(**_approval(one))


def approval_detail(found: ApprovalView) -> ApprovalDetail:
    """An approval with everything that voters should look at."""
    asked = found.approval.request
    limits = None if asked is None or asked.constraints is None else asked.constraints.as_data()
    commands = None if found.commands is None else dict(found.commands)
    return ApprovalDetail(**_approval(found.approval), constraints=limits, input=found.input, commands=commands)


def _approval(one: Approval) -> dict[str, Any]:
    asked = one.request
    return {
        "approval_id": one.approval_id,
        "kind": one.kind.value,
        "status": one.status.value,
        "job": one.subject,
        "digest": one.digest,
        "reason": one.reason,
        "execution_id": None if asked is None else asked.run_id,
        "task_id": None if asked is None else asked.task_id,
        "step": None if asked is None else asked.step,
        "item": None if asked is None else asked.item,
        "items": None if asked is None else asked.items or None,
        "rule": None if asked is None else asked.rule,
        "version": None if asked is None else asked.version,
        "needs": _approval_needs(one.terms, terms_text(one.terms, expires=asked is not None)),
        "votes": [
            ApprovalVote(voter=vote.voter, vote=vote.kind.value, at=instant_of(vote.at), reason=vote.reason)
            for vote in one.votes
        ],
        "asked_at": None if asked is None else instant_of(asked.asked_at),
        "expires_at": None if asked is None else instant_of(asked.expires_at),
        "decided_by": one.decided_by,
        "decided_at": optional_instant(one.decided_at),
        "overridden": one.overridden,
        "note": one.note or None,
    }


def _approval_needs(terms: ApprovalTerms, text: str) -> ApprovalNeeds:
    return ApprovalNeeds(
        roles=list(terms.voter_roles),
        groups=list(terms.groups),
        voters=list(terms.voters),
        quorum=terms.quorum,
        self_approval=terms.self_approval,
        text=text,
    )
