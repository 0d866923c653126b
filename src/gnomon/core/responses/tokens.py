"""Responses about tokens."""

from datetime import datetime

from gnomon.core.responses.base import Response


class TokenDetail(Response, frozen=True, kw_only=True):
    """A token that was issued or revoked here, without the token itself."""

    token_id: str
    #: Subject, role and issue; empty if another issuer made it.
    subject: str
    role: str
    issued_at: datetime | None
    issued_by: str
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str


class TokensRevoked(Response, frozen=True, kw_only=True):
    """The result of a revocation."""

    #: False if the token was revoked before.
    revoked: bool
