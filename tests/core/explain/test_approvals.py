"""The sentence about each approval."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.approvals.decide import asked_approval, counted, expired, item_ruling_with_approvals, voided
from gnomon.core.approvals.model import Approval, ApprovalStatus, Vote, VoteKind
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.explain.approvals import APPROVAL_SENTENCES
from gnomon.core.explain.evidence import RunEvidence
from gnomon.core.explain.phrases import TimeFormatter
from gnomon.core.explain.rulings import explain_rulings
from gnomon.core.model import Run, RunId, RunSource
from gnomon.core.policy.ruling import PolicyDecision, Ruling, StoredRuling, stored_ruling
from gnomon.core.runs.launch import first_tasks, new_requested_run

CLOCKS = TimeFormatter("UTC", NOON)
RUN = new_requested_run(RunId("run_1"), minutely(), source=RunSource.API, now=NOON)
[TASK] = first_tasks(RUN, ("main",), now=NOON)
ASKED = Ruling(
    decision=PolicyDecision.REQUIRE_APPROVAL,
    rule="payments",
    version=3,
    digest=b"\x01" * 32,
    reason="money moves",
    rule_digest="r1",
    approval=ApprovalTerms(groups=("finance",), quorum=2, expires_ms=HOUR),
)
WAITING = asked_approval(TASK, RUN, ASKED, now=NOON)
NAME = WAITING.approval_id
ASKS = "Rule payments of policy 3 has asked for an approval of it since 12:01: money moves."


def voted(*casts: tuple[str, VoteKind, str]) -> Approval:
    found = WAITING
    for voter, kind, reason in casts:
        cast = Vote(voter=voter, kind=kind, at=NOON + 5 * MINUTE, reason=reason)
        found = counted(found, cast, digest=WAITING.digest)
    return found


def sentences(approval: Approval, *rulings: Ruling, run: Run = RUN, tries: int = 1) -> list[str]:
    rows: list[StoredRuling] = []
    for ruling in rulings:
        row = stored_ruling(ruling, TASK.task_id, run.run_id, rows[-1] if rows else None, now=NOON + MINUTE)
        rows.append(replace(row, count=tries, last_at=NOON + tries * MINUTE))
    evidence = RunEvidence(tasks=(TASK,), rulings=tuple(rows), approvals=(approval,))
    return list(explain_rulings(run, evidence, CLOCKS))


def expired_approval() -> Approval:
    found = expired(WAITING, now=NOON + HOUR)
    assert found is not None
    return found


CARL = ("carl", VoteKind.APPROVE, "")
DORA = ("dora", VoteKind.APPROVE, "invoice checked")
VOID = voided(voted(CARL), "policy 4 asks by another rule, or for something else", by="policy", now=NOON + MINUTE)


def test_every_status_has_a_sentence() -> None:
    assert set(APPROVAL_SENTENCES) == set(ApprovalStatus)


@pytest.mark.req("R-03")
@pytest.mark.parametrize(
    ("approval", "sentence"),
    [
        (WAITING, "has 0 of 2 votes: it needs 2 persons in finance, until 13:00."),
        (voted(CARL), "has 1 of 2 votes (by carl): it needs 2 persons in finance, until 13:00."),
        (voted(CARL, DORA), "was given by carl and dora at 12:05: invoice checked."),
        (voted(CARL, ("eve", VoteKind.REJECT, "wrong account")), "was rejected by eve at 12:05: wrong account."),
        (voted(("olga", VoteKind.OVERRIDE, "the bank closes")), "was overridden by olga at 12:05: the bank closes."),
        (expired_approval(), "expired at 13:00: it had 0 of 2 votes."),
        (
            VOID,
            "is void since 12:01: policy 4 asks by another rule, or for something else; it had 1 of 2 votes (by carl).",
        ),
    ],
    ids=["waiting", "one vote", "approved", "rejected", "overridden", "expired", "void"],
)
def test_an_approval_is_explained_in_a_sentence(approval: Approval, sentence: str) -> None:
    assert sentences(approval, ASKED) == [ASKS, f"Approval {NAME} of it {sentence}"]


def test_the_approval_of_a_step_with_items_says_how_many() -> None:
    asked = asked_approval(TASK, RUN, ASKED, now=NOON, item_digests=bytes(96))

    [_, found] = sentences(asked, ASKED)

    assert f"Approval {asked.approval_id} of it with all of its 3 items has 0 of 2 votes" in found


@pytest.mark.req("R-03")
def test_a_replay_says_that_it_is_asked_about_again() -> None:
    [_, found] = sentences(WAITING, ASKED, run=replace(RUN, replay_of="dl_1"))

    assert found.endswith("until 13:00; the run is a replay, which is asked about again.")


@pytest.mark.req("R-08")
def test_a_retry_says_that_nobody_was_asked_again() -> None:
    allowed = replace(ASKED, decision=PolicyDecision.ALLOW, ruled_by="approval", reason="approved by carl and dora")

    assert sentences(voted(CARL, DORA), allowed, tries=3) == [
        "Rule payments of policy 3 allowed it at 12:01: approved by carl and dora, which counted again at 12:03."
    ]


@pytest.mark.req("R-03")
def test_a_task_that_was_changed_after_its_votes_says_so() -> None:
    approval = voted(CARL, DORA)
    asked = approval.request
    assert asked is not None
    of_items = replace(approval, request=replace(asked, items=1, item_digests=ASKED.digest))
    denied = item_ruling_with_approvals(replace(ASKED, digest=b"\x02" * 32), [of_items], 0)

    [ruled, given] = sentences(approval, denied)

    assert ruled == (
        "Rule payments of policy 3 denied it at 12:01: its definition or input is not what carl and dora approved."
    )
    assert given.startswith(f"Approval {NAME} of it was given by carl and dora")


@pytest.mark.parametrize("ruled_by", ["approval", "override"])
def test_a_decision_that_the_ruling_says_already_is_not_said_twice(ruled_by: str) -> None:
    allowed: dict[str, Any] = {"decision": PolicyDecision.ALLOW, "ruled_by": ruled_by, "reason": "approved by carl"}

    assert len(sentences(voted(CARL, DORA), replace(ASKED, **allowed))) == 1
