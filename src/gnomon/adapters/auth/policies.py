"""Who is let in where tokens prove nothing: everybody, or nobody."""

from gnomon.errors import Unauthenticated
from gnomon.ports.auth import Caller, Role, TokenAuthenticator


class AnonymousAdminAuthenticator:
    """Whoever shows no token is an administrator; who shows one is believed. For a machine of one's own."""

    def __init__(self, believed: TokenAuthenticator) -> None:
        self._believed = believed

    async def caller(self, token: str) -> Caller:
        """See TokenAuthenticator.caller."""
        return await self._believed.caller(token) if token else Caller("anonymous", frozenset(Role))

    async def close(self) -> None:
        """Let go of nothing."""


class RejectingAuthenticator:
    """No token is good, because there is nobody who issues any."""

    async def caller(self, token: str) -> Caller:
        """See TokenAuthenticator.caller."""
        del token
        raise Unauthenticated("no token is accepted: auth names nobody who issues them")

    async def close(self) -> None:
        """Let go of nothing."""
