"""The answers of a policy kernel that is made of the rules of one policy file."""

from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.kernel_messages import (
    PolicyCheckRequest,
    PolicyCheckResponse,
    asked_step,
    check_response,
    request_facts,
)
from gnomon.core.policy.ruling import SAFETY_UNKNOWN, PolicyDecision
from gnomon.errors import FieldError


def answer_check(policy: CompiledPolicy, snapshot: str, check: PolicyCheckRequest, *, now: int) -> PolicyCheckResponse:
    """The answer to a question. `snapshot` says which policy it is."""
    try:
        facts = request_facts(check)
    except FieldError as error:
        return PolicyCheckResponse(
            decision=PolicyDecision.DENY.value,
            reason=str(error),
            policy_snapshot=snapshot,
            code=SAFETY_UNKNOWN,
            varies=True,
        )
    rules = policy.for_step(facts.step, asked_step(facts.step))
    return check_response(rules.fixed or rules.ruling(facts, now), snapshot, varies=rules.vary)
