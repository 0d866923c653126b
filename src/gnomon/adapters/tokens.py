"""Tokens without an issuer: everybody may do everything, or nobody anything."""

from gnomon.errors import Unauthenticated
from gnomon.ports.identity import Caller, Role


class OpenTokens:
    """Whoever asks is an administrator. For a machine of one's own, and only if the settings say so."""

    async def caller(self, token: str) -> Caller:
        """See Tokens.caller."""
        del token
        return Caller("anonymous", frozenset(Role))


class NoTokens:
    """No token is good, because there is nobody who issues any."""

    async def caller(self, token: str) -> Caller:
        """See Tokens.caller."""
        del token
        raise Unauthenticated("no token is accepted: auth names nobody who issues them")
