"""Responses about the shadow of the policy."""

from datetime import datetime

from gnomon.core.responses.base import Response


class ShadowChange(Response, frozen=True, kw_only=True):
    """Rulings of the shadow about tasks of one job that differ from those in force in the same way."""

    tenant: str
    job: str
    before: str
    #: The rule in force; None if there is no policy.
    before_rule: str | None
    after: str
    after_rule: str
    count: int
    first_at: datetime
    last_at: datetime
    #: The execution and the step of the last of them.
    execution_id: str
    step: str


class PolicyShadowDetail(Response, frozen=True, kw_only=True):
    """A policy file that is, or was, judged beside the policy in force."""

    number: int
    #: The SHA-256 of the file.
    digest: str
    author: str
    started_at: datetime
    #: None while it runs.
    ended_at: datetime | None
    #: Rulings with the same effect as in force, and with another one.
    same: int
    different: int
    #: Tasks that it was not asked about, because there were too many at once.
    not_judged: int
    #: Different rulings that are in none of `differences`, because there are too many ways.
    left_out: int


class PolicyShadowReport(PolicyShadowDetail, frozen=True, kw_only=True):
    """A shadow of the policy, with the ways in which its rulings differ."""

    body: str
    differences: list[ShadowChange]
