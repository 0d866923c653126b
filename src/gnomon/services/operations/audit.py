"""Looking at the audit trail, proving that nobody has changed it, and writing down what was not allowed."""

import re
from collections.abc import Sequence

from msgspec import Struct

from gnomon.core.audit import Action, ChainBreak, ChainHead, StoredAuditEntry, refused_entry, verify_chain
from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.errors import FieldError
from gnomon.ports.audit import AuditQuery, AuditTrail

_LARGEST_PAGE = 10_000
_PAGE = 1000
_HASH = re.compile("[0-9a-f]{64}")
#: More flaws than these tell nothing more.
_MOST_FLAWS = 20
_KINDS = ("job", "workflow", "execution", "dead_letter", "event", "backfill", "request")
#: Whoever tries the same again and again is written down as often as this, so that nobody can fill the trail.
_AGAIN_MS = 60_000
_MOST_KNOWN = 1000


class ChainVerification(Struct, frozen=True, kw_only=True):
    """What came of looking at the whole chain."""

    #: The last entry, whose hash is to be kept elsewhere.
    head: ChainHead
    #: How many entries are not sealed yet, so that nothing can be proven about them.
    unsealed: int
    flaws: tuple[ChainBreak, ...]

    @property
    def intact(self) -> bool:
        """Whether nothing was changed, removed, added or moved."""
        return not self.flaws


class AuditService:
    """List, verify, write down what was not allowed."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail
        #: When somebody was last written down for something.
        self._known: dict[tuple[str, str, str], int] = {}

    async def refused(self, kind: str, request: str, reason: str, *, actor: str, tenant: str, now: int) -> None:
        """It stands in the trail that somebody asked for what they may not do: of each kind once in a while."""
        key = (tenant, actor, kind)
        if key in self._known and 0 <= now - self._known[key] < _AGAIN_MS:
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = now
        await self._trail.add(refused_entry(request, reason, actor=actor, tenant=tenant, now=now))

    async def page(self, query: AuditQuery) -> Sequence[StoredAuditEntry]:
        """Entries, the newest first; FieldError for what can match none."""
        schedule_name("tenant", query.tenant)
        if not 1 <= query.limit <= _LARGEST_PAGE:
            raise FieldError("limit", query.limit, f"must be from 1 to {_LARGEST_PAGE}")
        for field, known in (("action", tuple(Action)), ("kind", _KINDS)):
            said = getattr(query, field)
            if said is not None and said not in known:
                raise FieldError(field, said, f"must be one of {', '.join(known)}")
        for field in ("actor", "name"):
            if getattr(query, field) is not None:
                printable(field, getattr(query, field))
        return await self._trail.page(query)

    async def verify(self, *, expect: str | None = None) -> ChainVerification:
        """Whether the chain is whole, and has the entry whose hash is expected: one that was once its last."""
        if expect is not None and not _HASH.fullmatch(expect):
            raise FieldError("expect", expect, "is no hash: 64 of 0-9 and a-f")
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
        del head  # there may be more by now, which was not looked at
        return ChainVerification(head=last, unsealed=unsealed, flaws=tuple(found[:_MOST_FLAWS]))
