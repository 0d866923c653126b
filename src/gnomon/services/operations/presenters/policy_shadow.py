"""Presents the shadow of the policy."""

from typing import Any

from gnomon.core.instants import instant_of
from gnomon.core.policy.shadow import PolicyShadow
from gnomon.core.responses.policy_shadow import PolicyShadowDetail, PolicyShadowReport, ShadowChange
from gnomon.services.operations.policy import ShadowReport
from gnomon.services.operations.presenters.common import optional_instant


def policy_shadow_detail(one: PolicyShadow) -> PolicyShadowDetail:
    """A shadow of the policy."""
    return PolicyShadowDetail(**_policy_shadow(one))


def policy_shadow_report(report: ShadowReport) -> PolicyShadowReport:
    """A shadow of the policy, with the ways in which its rulings differ."""
    return PolicyShadowReport(
        **_policy_shadow(report.shadow),
        body=report.shadow.body,
        differences=[
            ShadowChange(
                tenant=one.tenant,
                job=one.job,
                before=one.before,
                before_rule=one.before_rule or None,
                after=one.after,
                after_rule=one.after_rule,
                count=one.count,
                first_at=instant_of(one.first_at),
                last_at=instant_of(one.last_at),
                execution_id=one.run_id,
                step=one.step,
            )
            for one in report.differences
        ],
    )


def _policy_shadow(one: PolicyShadow) -> dict[str, Any]:
    return {
        "number": one.number,
        "digest": one.digest,
        "author": one.author,
        "started_at": instant_of(one.started_at),
        "ended_at": optional_instant(one.ended_at),
        "same": one.same,
        "different": one.different,
        "not_judged": one.not_judged,
        "left_out": one.left_out,
    }
