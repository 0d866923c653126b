"""Codes that sign a browser in: each counts once, and for a minute.

The store keeps a digest, so that nobody who reads it can use a code. The session has the id and the end of the token
that the code was issued with: it is revoked with it, and ends no later.
"""

from collections.abc import Callable
from hashlib import sha256
from secrets import token_urlsafe

from msgspec import Struct

from gnomon.core.model import MINUTE_MS
from gnomon.errors import Unauthenticated
from gnomon.ports.auth import Caller
from gnomon.ports.runtime import Clock
from gnomon.ports.sign_in_codes import SignInCode, SignInCodes

_LASTS_MS = MINUTE_MS
_CODE_BYTES = 32
#: A longer text is no code.
_LONGEST = 100


class IssuedCode(Struct, frozen=True):
    """A code, and when it ends."""

    text: str
    expires_at: int


def _random_code() -> str:
    return token_urlsafe(_CODE_BYTES)


class SignInCodeService:
    """Issues codes, and redeems them."""

    def __init__(self, codes: SignInCodes, clock: Clock, *, new_code: Callable[[], str] = _random_code) -> None:
        self._codes = codes
        self._clock = clock
        self._new_code = new_code

    async def issue(self, caller: Caller, *, actor: str) -> IssuedCode:
        """A new code of the caller; one that the caller had before counts no longer."""
        now, text = self._clock.now(), self._new_code()
        code = SignInCode(digest=_digest(text), caller=caller, expires_at=now + _LASTS_MS)
        await self._codes.issue(code, actor=actor, now=now)
        return IssuedCode(text, code.expires_at)

    async def redeem(self, text: str) -> Caller:
        """The caller of a code, which counts no longer; Unauthenticated if it does not count."""
        now = self._clock.now()
        found = await self._codes.take(_digest(text), now=now) if 0 < len(text) <= _LONGEST else None
        if found is None or (found.expires_at is not None and found.expires_at <= now):
            raise Unauthenticated("the code has been used or has expired: gnomon dashboard makes another one")
        return found


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
