"""Authenticators without verification: one accepts everybody, the other nobody."""

from gnomon.errors import Unauthenticated
from gnomon.ports.auth import Caller, Role, TokenAuthenticator


class AnonymousAdminAuthenticator:
    """Treats a request without a token as the administrator; delegates the others. Only for a private machine."""

    def __init__(self, for_tokens: TokenAuthenticator) -> None:
        self._for_tokens = for_tokens

    async def caller(self, token: str) -> Caller:
        """See TokenAuthenticator.caller."""
        return await self._for_tokens.caller(token) if token else Caller("anonymous", frozenset(Role))

    async def close(self) -> None:
        """Nothing to close."""


class RejectingAuthenticator:
    """Refuses every request, because no issuer is configured."""

    async def caller(self, token: str) -> Caller:
        """See TokenAuthenticator.caller."""
        del token
        raise Unauthenticated("no token is accepted: auth names no issuer of tokens")

    async def close(self) -> None:
        """Nothing to close."""
