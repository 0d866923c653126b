"""Identifies callers by their tokens, for the API and for the pages of the dashboard."""

from gnomon.api.route import ApiServices
from gnomon.core.model_names import owner_of
from gnomon.errors import Unauthenticated
from gnomon.ports.auth import Caller


async def caller_of_token(services: ApiServices, token: str) -> Caller:
    """The caller that the token identifies; Unauthenticated if the token is not valid here, or too long to look at."""
    if len(token) > services.max_token_length:
        raise Unauthenticated(f"the token is longer than {services.max_token_length} characters")
    caller = await services.tokens.caller(token)
    refuse_actor_of_model(caller)
    return caller


def refuse_actor_of_model(caller: Caller) -> None:
    """Raise Unauthenticated if the audit trail would show the caller as a model that acts for somebody else."""
    if owner_of(caller.subject) != caller.subject:
        raise Unauthenticated("the subject of the token is the actor of a model")
