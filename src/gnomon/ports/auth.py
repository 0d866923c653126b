"""Callers of the API, and their roles."""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Role(StrEnum):
    """The rights of a caller: read; also run existing jobs; also change them."""

    VIEWER = "scheduler-viewer"
    OPERATOR = "scheduler-operator"
    ADMIN = "scheduler-admin"


#: The tenant of those who operate the installation: only they see what concerns all tenants.
OPERATOR_TENANT = "default"


class Caller(Struct, frozen=True):
    """An authenticated caller."""

    subject: str
    roles: frozenset[Role]
    tenant: str = "default"
    #: When the token stops being accepted; None for a caller without a token.
    expires_at: int | None = None
    #: The id of the token, by which it can be revoked; None for a caller without a token.
    token_id: str | None = None
    #: When the token was issued, if it says so.
    issued_at: int | None = None
    #: The groups of people that the caller belongs to.
    groups: frozenset[str] = frozenset()

    @property
    def is_operator(self) -> bool:
        """Whether the caller may see what concerns all tenants, as far as its roles allow."""
        return self.tenant == OPERATOR_TENANT


class TokenAuthenticator(Protocol):
    """Verifies tokens."""

    async def caller(self, token: str) -> Caller:
        """The caller that the token belongs to; Unauthenticated if it is not valid."""
        ...


class SessionToken(Struct, frozen=True):
    """The token of a session in a browser, and when it ends."""

    text: str
    expires_at: int


class SessionTokens(Protocol):
    """Makes the tokens of sessions from the tokens that people sign in with."""

    def session_token(self, token: str, caller: Caller, *, now: int) -> SessionToken:
        """The token of a session of that caller: revoked with its token, and valid no longer. Refused if too large."""
        ...
