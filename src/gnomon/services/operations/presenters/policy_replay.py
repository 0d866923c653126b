"""Presents replays of the history by a policy file."""

from gnomon.core.policy.past_tasks import PastDecision
from gnomon.core.responses.policy_replay import (
    PolicyReplayed,
    ReplayChange,
    ReplayDecision,
    ReplayedRule,
    ReplayUnknown,
)
from gnomon.services.operations.policy_replay import ReplayPart


def policy_replayed(part: ReplayPart) -> PolicyReplayed:
    """The decisions of a policy file about a part of the history."""
    tally = part.tally
    return PolicyReplayed(
        tasks=tally.tasks,
        unchanged=tally.unchanged,
        changed=tally.changed,
        not_known=tally.unknown.total(),
        not_asked=tally.not_asked,
        changes=[
            ReplayChange(
                tenant=one.tenant,
                job=one.job,
                before=_replay_decision(one.before),
                after=_replay_decision(one.after),
                tasks=one.tasks,
                execution_id=one.run_id,
                step=one.step,
            )
            for one in tally.changes.values()
        ],
        left_out=tally.left_out,
        rules=[ReplayedRule(rule=rule, tasks=tasks) for rule, tasks in tally.rules.items()],
        unknown=[
            ReplayUnknown(tenant=tenant, job=job, fact=fact, tasks=tasks)
            for (tenant, job, fact), tasks in tally.unknown.items()
        ],
        after=part.after,
    )


def _replay_decision(one: PastDecision) -> ReplayDecision:
    return ReplayDecision(
        decision=one.decision,
        rule=one.rule or None,
        constraints=None if one.constraints is None else one.constraints.as_data(),
    )
