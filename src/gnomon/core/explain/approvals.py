"""The sentences about approvals of tasks: who has voted, who may, and what came of it."""

from collections.abc import Iterator, Mapping, Sequence

from gnomon.core.approvals.model import Approval, ApprovalStatus, VoteKind
from gnomon.core.approvals.terms import terms_text
from gnomon.core.explain.phrases import TimeFormatter, join_names, one_line
from gnomon.core.model import Run
from gnomon.core.policy.ruling import BY_APPROVAL, BY_OVERRIDE, StoredRuling

#: The sentence about an approval, by its status.
APPROVAL_SENTENCES: Mapping[ApprovalStatus, str] = {
    ApprovalStatus.WAITING: (
        "Approval {it.name} of {it.whom} has {it.votes}: it needs {it.needs}, until {it.until}{it.again}."
    ),
    ApprovalStatus.APPROVED: "Approval {it.name} of {it.whom} was given by {it.voters} at {it.decided}{it.because}.",
    ApprovalStatus.REJECTED: "Approval {it.name} of {it.whom} was rejected by {it.voters} at {it.decided}{it.because}.",
    ApprovalStatus.EXPIRED: "Approval {it.name} of {it.whom} expired at {it.until}: it had {it.votes}.",
    ApprovalStatus.VOID: "Approval {it.name} of {it.whom} is void since {it.ended}: {it.note}; it had {it.votes}.",
    ApprovalStatus.REVOKED: "Approval {it.name} was revoked by {it.approval.revoked_by} at {it.ended}.",
}
#: The sentence about one that was approved without its votes.
OVERRIDDEN_SENTENCE = "Approval {it.name} of {it.whom} was overridden by {it.voters} at {it.decided}{it.because}."


class ApprovalFacts:
    """The facts that the sentence about an approval may use."""

    def __init__(self, approval: Approval, run: Run, clocks: TimeFormatter, *, whom: str) -> None:
        """`whom` names the task that asks for it."""
        self.approval, self._run, self._clocks = approval, run, clocks
        self._whom = whom

    @property
    def name(self) -> str:
        """Its id, to be typed."""
        return self.approval.approval_id

    @property
    def whom(self) -> str:
        """The task, and how many items it is to have."""
        asked = self.approval.request
        return f"{self._whom} with all of its {asked.items} items" if asked is not None and asked.items else self._whom

    @property
    def votes(self) -> str:
        """The number of votes that it has, and the voters."""
        names = [one.voter for one in self.approval.votes if one.kind is VoteKind.APPROVE]
        by = f" (by {join_names(names)})" if names else ""
        return f"{len(names)} of {self.approval.terms.quorum} votes{by}"

    @property
    def needs(self) -> str:
        """The persons who may vote, and how many have to."""
        return terms_text(self.approval.terms, expires=False)

    @property
    def until(self) -> str:
        """When it expires."""
        asked = self.approval.request
        return "it is revoked" if asked is None else self._clocks(asked.expires_at)

    @property
    def again(self) -> str:
        """The remark that a replay is asked about again."""
        return "; the run is a replay, which is asked about again" if self._run.replay_of is not None else ""

    @property
    def voters(self) -> str:
        """The persons who have decided."""
        last = self.approval.votes[-1]
        return last.voter if last.kind is VoteKind.REJECT else join_names(list(self.approval.approvers))

    @property
    def decided(self) -> str:
        """When it was decided."""
        return self._clocks(self.approval.decided_at or 0)

    @property
    def because(self) -> str:
        """The reason of the last vote."""
        reason = self.approval.votes[-1].reason
        return f": {one_line(reason)}" if reason else ""

    @property
    def ended(self) -> str:
        """When it was withdrawn or became void."""
        return self._clocks(self.approval.revoked_at or 0)

    @property
    def note(self) -> str:
        """Why it is void."""
        return one_line(self.approval.note)


def explain_approval(approval: Approval, run: Run, clocks: TimeFormatter, *, whom: str) -> str:
    """The sentence about an approval."""
    text = OVERRIDDEN_SENTENCE if approval.overridden else APPROVAL_SENTENCES[approval.status]
    return text.format(it=ApprovalFacts(approval, run, clocks, whom=whom))


def explain_approvals(
    run: Run,
    approvals: Sequence[Approval],
    rulings: Sequence[StoredRuling],
    names: Mapping[str, str],
    clocks: TimeFormatter,
) -> Iterator[str]:
    """A sentence about each approval of the tasks of a run, unless the last ruling about its task says the same.

    `names` are those of the tasks; empty for the only one of a run.
    """
    last = {one.task_id: one for one in rulings}
    for one in approvals:
        asked = one.request
        if asked is None or asked.task_id not in names:
            continue
        ruled = last.get(asked.task_id)
        decided = one.status not in (ApprovalStatus.WAITING, ApprovalStatus.VOID)
        if decided and ruled is not None and ruled.ruled_by in (BY_APPROVAL, BY_OVERRIDE):
            continue
        yield explain_approval(one, run, clocks, whom=names[asked.task_id] or "it")
