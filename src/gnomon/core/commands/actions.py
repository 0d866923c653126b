"""The actions that count towards the hourly budget of a tenant, and the texts of refusals."""

from gnomon.core.commands.policy import ANY_NUMBER, DEFAULT_ACTIONS_PER_HOUR, PolicySettings, is_guarded
from gnomon.core.model import MINUTE_MS
from gnomon.errors import CommandRefused

#: An action counts for so long.
ACTION_WINDOW_MS = 60 * MINUTE_MS
#: The rules that refuse an action: the hour was full before, or would be exceeded by this admission.
RATE_RULE, BUDGET_RULE = "rate", "budget"
#: Stands for the rules of workers, which report a refusal as a text.
WORKER_RULE = "worker"


def actions_per_hour(settings: PolicySettings, origin: str) -> int | None:
    """How many actions of its tenant may count with one of a definition with this origin; None if it does not count."""
    if settings.max_actions_per_hour is not None:
        return None if settings.max_actions_per_hour == ANY_NUMBER else settings.max_actions_per_hour
    return DEFAULT_ACTIONS_PER_HOUR if is_guarded(settings.profile, origin) else None


def refusal_text(reason: str) -> str:
    """The error of a command that the policy refuses."""
    return str(CommandRefused(reason))


def refusal_after(refusal: str, earlier: str | None) -> str:
    """The error of a refused task, which keeps the error of the attempt that failed before, if there was one."""
    return refusal if earlier is None else f"{refusal}; the attempt before had failed: {earlier}"
