"""Lists the audit trail, verifies its hash chain, and records refused requests."""

import re
from collections.abc import Sequence

from msgspec import Struct

from gnomon.core.audit import Action, ChainBreak, ChainHead, StoredAuditEntry, refused_entry, verify_chain
from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.errors import FieldError
from gnomon.ports.audit import AuditQuery, AuditTrail

_PAGE = 1000
_HASH = re.compile("[0-9a-f]{64}")
#: The number of breaks that are reported; more tell nothing new.
_MOST_BREAKS = 20
_KINDS = ("job", "workflow", "execution", "dead_letter", "event", "backfill", "request")
#: Repeated refusals of the same kind are recorded once per this interval, so that no caller can fill the trail.
_AGAIN_MS = 60_000
_MOST_KNOWN = 1000


class ChainVerification(Struct, frozen=True, kw_only=True):
    """The result of verifying the whole chain."""

    #: The last entry; an operator keeps its hash outside the database.
    head: ChainHead
    #: The number of entries that are not sealed yet: nothing can be proven about them.
    unsealed: int
    breaks: tuple[ChainBreak, ...]

    @property
    def intact(self) -> bool:
        """Whether no entry was changed, removed, added or moved."""
        return not self.breaks


class AuditService:
    """Lists and verifies audit entries, and records refused requests."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail
        #: The time of the last recorded refusal, by tenant, actor and kind.
        self._known: dict[tuple[str, str, str], int] = {}

    async def refused(self, kind: str, request: str, reason: str, *, actor: str, tenant: str, now: int) -> None:
        """Record a refused request; repeated ones of the same actor and kind at most once a minute."""
        key = (tenant, actor, kind)
        if key in self._known and 0 <= now - self._known[key] < _AGAIN_MS:
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = now
        await self._trail.add(refused_entry(request, reason, actor=actor, tenant=tenant, now=now))

    async def page(self, query: AuditQuery) -> Sequence[StoredAuditEntry]:
        """Entries, newest first; FieldError for a filter that cannot match any."""
        schedule_name("tenant", query.tenant)
        page_limit(query.limit)
        for field, known in (("action", tuple(Action)), ("kind", _KINDS)):
            value = getattr(query, field)
            if value is not None and value not in known:
                raise FieldError(field, value, f"must be one of {', '.join(known)}")
        for field in ("actor", "name"):
            if getattr(query, field) is not None:
                printable(field, getattr(query, field))
        return await self._trail.page(query)

    async def verify(self, *, expect: str | None = None) -> ChainVerification:
        """Verify the chain, and that it still contains the entry with the expected hash, an earlier head."""
        if expect is not None and not _HASH.fullmatch(expect):
            raise FieldError("expect", expect, "is not a hash: 64 characters of 0-9 and a-f")
        last, found, seen = ChainHead(), list[ChainBreak](), expect in (None, ChainHead().hash)
        while page := await self._trail.sealed(after=last.seq, limit=_PAGE):
            last, more = verify_chain(last, page)
            found += more
            seen = seen or any(kept.hash == expect for kept in page)
        if not seen:
            found.append(
                ChainBreak(last.seq, "the expected entry is not there: the end was cut off, or all was made anew")
            )
        head, unsealed = await self._trail.head()
        del head  # entries sealed since the last page are not verified
        return ChainVerification(head=last, unsealed=unsealed, breaks=tuple(found[:_MOST_BREAKS]))
