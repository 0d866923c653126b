"""Lists the audit trail, verifies its hash chain, and records refused requests."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gnomon.core.audit import (
    GENESIS,
    Action,
    ChainBreak,
    ChainHead,
    ChainProgress,
    SignedCheckpoint,
    StoredAuditEntry,
    accepted_entry,
    checkpoint_break,
    refused_entry,
    verify_chain,
)
from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.errors import FieldError, UsageError
from gnomon.ports.audit import AuditQuery, AuditTrail, CheckpointAnchor, CheckpointKey

_PAGE = 1000
_HASH = re.compile("[0-9a-f]{64}")
#: The number of breaks that are reported; more add nothing new.
_MOST_BREAKS = 20
_KINDS = (
    *("job", "workflow", "approval", "policy", "execution", "dead_letter", "event", "backfill", "breaker", "output"),
    *("token", "request", "server", "audit"),
)
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
    #: The newest valid checkpoint in the store.
    checkpoint: SignedCheckpoint | None = None
    #: Whether there is a key to verify checkpoints with.
    has_key: bool = False

    @property
    def intact(self) -> bool:
        """Whether no entry was changed, removed, added or moved."""
        return not self.breaks


class AuditService:
    """Lists and verifies audit entries, and records refused requests."""

    def __init__(
        self, trail: AuditTrail, *, key: CheckpointKey | None = None, anchor: CheckpointAnchor | None = None
    ) -> None:
        """`key` verifies the checkpoints in the store and in `anchor`; without it none are expected."""
        self._trail = trail
        self._key, self._anchor = key, anchor
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
        """Verify the chain, and that it has what was signed and the entry with the expected hash, an earlier head."""
        if expect is not None and not _HASH.fullmatch(expect):
            raise FieldError("expect", expect, "is not a hash: 64 characters of 0-9 and a-f")
        checkpoints, found = await self._valid_checkpoints()
        wanted = {one.seq: "" for one in checkpoints}
        progress, seen = ChainProgress(), expect in (None, GENESIS)
        while page := await self._trail.sealed(after=progress.head.seq, limit=_PAGE):
            progress, more = verify_chain(progress, page)
            found += more
            seen = seen or any(kept.hash == expect for kept in page)
            wanted |= {kept.seq: kept.hash or "" for kept in page if kept.seq in wanted}
        found += _unsigned_breaks(checkpoints, wanted, progress.head.seq)
        signed = await self._signed_by(progress)
        if progress.signed_seq > (0 if signed is None else signed.seq):
            found.append(ChainBreak(progress.signed_seq, self._uncovered(progress.signed_seq)))
        if not seen:
            reason = "the expected entry is not there: the end was cut off, or all was made anew"
            found.append(ChainBreak(progress.head.seq, reason))
        _, unsealed = await self._trail.head()
        return ChainVerification(
            head=progress.head,
            unsealed=unsealed,
            breaks=tuple(found[:_MOST_BREAKS]),
            checkpoint=signed,
            has_key=self._key is not None,
        )

    async def accept(self, *, actor: str, now: int) -> SignedCheckpoint | None:
        """Sign the chain as it is, after its breaks were looked into; None if it is empty."""
        if self._key is None:
            raise UsageError("there is no key to sign the audit trail with: name one with audit.key_file")
        made = await self._trail.accept(self._key, accepted_entry(actor=printable("actor", actor), now=now))
        if made is not None and self._anchor is not None:
            self._anchor.write(made)
        return made

    async def _valid_checkpoints(self) -> tuple[list[SignedCheckpoint], list[ChainBreak]]:
        """The checkpoints in the store and outside that the key has signed, and a break for each that was changed."""
        if self._key is None:
            return [], []
        kept = [await self._trail.checkpoint(self._key.kid), None if self._anchor is None else self._anchor.read()]
        ours = [one for one in kept if one is not None and one.kid == self._key.kid]
        valid = [one for one in ours if self._key.is_valid(one)]
        changed = [ChainBreak(one.seq, "a signed checkpoint was changed") for one in ours if one not in valid]
        return valid, changed

    def _uncovered(self, seq: int) -> str:
        if self._key is None:
            return f"entry {seq} was signed, and the key that verifies this is missing"
        return f"the signed checkpoint of entry {seq} is missing: it was removed, or the key was replaced"

    async def _signed_by(self, progress: ChainProgress) -> SignedCheckpoint | None:
        """The newest valid checkpoint, read after the chain: it covers what was sealed meanwhile."""
        if self._key is None or not progress.head.seq:
            return None
        found = await self._trail.checkpoint(self._key.kid)
        return found if found is not None and self._key.is_valid(found) else None


def _unsigned_breaks(checkpoints: Sequence[SignedCheckpoint], hashes: Mapping[int, str], last: int) -> list[ChainBreak]:
    """The breaks that the checkpoints prove; equal ones once."""
    found = [checkpoint_break(one, last=last, found=hashes[one.seq] or None) for one in checkpoints]
    return list(dict.fromkeys(one for one in found if one is not None))
