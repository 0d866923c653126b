"""The decision of the gate that follows from a ruling of the policy and the decision about commands."""

from gnomon.core.policy.ruling import PolicyDecision, Ruling, refused_by_commands, ruling_text
from gnomon.core.runs.admission import GateDecision, GateVerdict

_VERDICTS = {
    PolicyDecision.ALLOW: GateVerdict.ALLOW,
    PolicyDecision.ALLOW_WITH_CONSTRAINTS: GateVerdict.ALLOW,
    PolicyDecision.DENY: GateVerdict.DENY,
    PolicyDecision.REQUIRE_APPROVAL: GateVerdict.ASK,
    PolicyDecision.THROTTLE: GateVerdict.LATER,
}


def ruled_decision(ruling: Ruling, *, action_limit: int | None = None) -> GateDecision:
    """The decision that follows from a ruling alone."""
    return GateDecision(
        _VERDICTS[ruling.decision],
        "" if ruling.allows else ruling_text(ruling),
        after_ms=ruling.retry_after_ms if ruling.decision is PolicyDecision.THROTTLE else 0,
        rule=ruling.rule,
        action_limit=action_limit if ruling.allows else None,
        ruling=ruling,
    )


def combined_decision(ruling: Ruling, commands: GateDecision) -> GateDecision:
    """The stricter of a ruling and the decision about the command of the same task."""
    if commands.verdict is GateVerdict.ALLOW or ruling.decision is PolicyDecision.DENY:
        return ruled_decision(ruling, action_limit=commands.action_limit)
    if commands.verdict is not GateVerdict.DENY:
        # Nobody has to wait for a free session or slot before people are asked.
        return ruled_decision(ruling) if ruling.decision is PolicyDecision.REQUIRE_APPROVAL else commands
    refused = refused_by_commands(ruling, commands.rule, commands.reason)
    return GateDecision(GateVerdict.DENY, commands.reason, rule=commands.rule, ruling=refused)
