"""Presents tokens."""

from gnomon.core.instants import instant_of
from gnomon.core.responses.tokens import TokenDetail
from gnomon.core.tokens import TokenRecord
from gnomon.services.operations.presenters.common import optional_instant


def token_detail(record: TokenRecord) -> TokenDetail:
    """A token that was issued or revoked here."""
    return TokenDetail(
        token_id=record.token_id,
        subject=record.subject,
        role=record.role,
        issued_at=optional_instant(record.issued_at),
        issued_by=record.issued_by,
        expires_at=instant_of(record.expires_at),
        revoked_at=optional_instant(record.revoked_at),
        revoked_by=record.revoked_by,
    )
