"""Responses about replays of the history by a policy file."""

from typing import Any

from gnomon.core.responses.base import Response


class ReplayDecision(Response, frozen=True, kw_only=True):
    """A decision about tasks of the history."""

    decision: str
    #: The rule that made it; None if there was no policy.
    rule: str | None
    constraints: dict[str, Any] | None


class ReplayChange(Response, frozen=True, kw_only=True):
    """Tasks of one job that a policy file would decide about otherwise, in the same way."""

    tenant: str
    job: str
    before: ReplayDecision
    after: ReplayDecision
    tasks: int
    #: The execution and the step of the first of them.
    execution_id: str
    step: str


class ReplayedRule(Response, frozen=True, kw_only=True):
    """How many tasks of the history a rule would decide about."""

    rule: str
    tasks: int


class ReplayUnknown(Response, frozen=True, kw_only=True):
    """Tasks of one job for which nobody knows what a policy file would have decided."""

    tenant: str
    job: str
    #: The fact that is no longer known: `definition`, `input`, `actor` or `time`.
    fact: str
    tasks: int


class PolicyReplayed(Response, frozen=True, kw_only=True):
    """The decisions of a policy file about a part of the history."""

    #: The tasks that somebody was asked about: unchanged, changed or not known.
    tasks: int
    unchanged: int
    changed: int
    not_known: int
    #: Tasks that nobody was ever asked about: they were skipped or cancelled, or still wait for others.
    not_asked: int
    changes: list[ReplayChange]
    #: Changed tasks that are in none of `changes`, because there are too many different ones.
    left_out: int
    rules: list[ReplayedRule]
    unknown: list[ReplayUnknown]
    #: The place of the next part; None if this is the last.
    after: str | None
