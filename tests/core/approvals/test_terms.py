"""The terms of approvals: voters, in every combination that matters, and words."""

import pytest

from gnomon.core.approvals.terms import ApprovalTerms, Voter, terms_text, voter_refusal

ADA = Voter(name="ada", roles=frozenset({"operator"}), groups=frozenset({"finance"}))
ROOT = Voter(name="root", roles=frozenset({"admin"}))


@pytest.mark.req("R-03")
@pytest.mark.parametrize(
    ("terms", "voter", "refusal"),
    [
        (ApprovalTerms(), ROOT, None),
        (ApprovalTerms(), ADA, "only callers with the role admin may vote on it"),
        (ApprovalTerms(roles=("operator",)), ADA, None),
        (ApprovalTerms(roles=("operator",)), ROOT, "only callers with the role operator may vote on it"),
        (ApprovalTerms(groups=("finance",)), ADA, None),
        (ApprovalTerms(groups=("finance", "ops")), ROOT, "only members of finance or ops may vote on it"),
        (ApprovalTerms(groups=("finance",), roles=("admin",)), ADA, "only callers with the role admin may vote on it"),
        (ApprovalTerms(voters=("ada",)), ADA, None),
        (ApprovalTerms(voters=("bob", "carl")), ADA, "only bob or carl may vote on it"),
    ],
)
def test_a_voter_meets_every_condition_of_the_terms(terms: ApprovalTerms, voter: Voter, refusal: str | None) -> None:
    assert voter_refusal(terms, voter, ()) == refusal


@pytest.mark.req("R-03")
def test_a_caller_who_asked_for_a_task_may_not_vote_on_it_unless_the_terms_say_so() -> None:
    asked = voter_refusal(ApprovalTerms(groups=("finance",)), ADA, {"ada"})

    assert asked == "ada has requested the run or written its definition, and so may not vote on it"
    assert voter_refusal(ApprovalTerms(groups=("finance",), self_approval=True), ADA, {"ada"}) is None


def test_terms_are_said_in_words() -> None:
    assert terms_text(ApprovalTerms()) == "1 person with the role admin within 1d"
    full = ApprovalTerms(voters=("ada", "bob"), roles=("admin",), groups=("finance", "ops"), quorum=2)
    assert terms_text(full) == "2 persons of ada or bob with the role admin in finance or ops within 1d"
