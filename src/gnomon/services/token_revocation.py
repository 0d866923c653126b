"""Refuses revoked tokens, on the word of a cached list that is at most a few seconds old."""

import asyncio

from gnomon.core.tokens import RevokedTokens
from gnomon.errors import RefusalReason, TokenRefused, Unavailable
from gnomon.ports.auth import Caller, TokenAuthenticator
from gnomon.ports.runtime import Clock
from gnomon.ports.tokens import Tokens

#: How old the list may be before a request reads it again: within this time every server refuses a revoked token.
_FRESH_SECONDS = 2.0
#: How old it may be while the store is unavailable; after that no token is accepted.
_USABLE_SECONDS = 60.0


class RevocationList:
    """The revoked tokens, read from the store when a request needs them and the last reading is too old."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._revoked = RevokedTokens()
        self._stamp: tuple[int, ...] | None = None
        #: When it was last read, and when reading was last tried, on the monotonic clock.
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    async def check(self, caller: Caller) -> None:
        """Raise TokenRefused if the token of the caller is revoked; Unavailable if that cannot be known."""
        if caller.token_id is None:
            return
        await self._refresh()
        if self._revoked.revokes(caller.tenant, caller.token_id, caller.issued_at):
            raise TokenRefused("it was revoked", RefusalReason.REVOKED)

    async def _refresh(self) -> None:
        now = self._clock.elapsed()
        if self._tried_at is None or now - self._tried_at >= _FRESH_SECONDS:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
            # A cancelled request must not cancel the reading that other requests wait for.
            await asyncio.shield(self._reading)
        if self._read_at is None or self._clock.elapsed() - self._read_at >= _USABLE_SECONDS:
            raise Unavailable("the store cannot say which tokens are revoked")

    async def _read(self) -> None:
        began = self._clock.elapsed()
        try:
            stamp = await self._tokens.stamp()
            if stamp != self._stamp:
                self._revoked, self._stamp = await self._tokens.revoked(), stamp
            self._read_at = began
        except Unavailable:
            pass
        finally:
            self._tried_at, self._reading = began, None


class RevocableTokens:
    """Implements TokenAuthenticator: asks another authenticator, then the revocation list."""

    def __init__(self, tokens: TokenAuthenticator, revocations: RevocationList) -> None:
        self._tokens = tokens
        self._revocations = revocations

    async def caller(self, token: str) -> Caller:
        """See TokenAuthenticator.caller."""
        found = await self._tokens.caller(token)
        await self._revocations.check(found)
        return found
