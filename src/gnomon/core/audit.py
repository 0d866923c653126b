"""The audit trail: who changed what, in a chain of hashes that shows later tampering.

Every change by an operator writes an entry in the same transaction. The sealer chains the entries afterwards: the hash
of each covers the entry and the hash before it, so that no sealed entry can be changed, removed, added or moved without
breaking the chain. A hash that was once the last one proves that the end was not cut off.

The digests are stored. Changing a key, a class name or an order in them would break existing chains.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from gnomon.core.instants import instant_of
from gnomon.core.model import Run, Schedule, Spec
from gnomon.core.runs.backfill import Backfill
from gnomon.core.runs.external_events import ExternalEvent
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest
from gnomon.core.runs.workflow import Workflow

#: The hash before the first entry of a chain.
GENESIS = "0" * 64
#: The largest size of an entry's details as JSON.
LONGEST_DETAILS = 1000
#: How much of a refused request is recorded.
LONGEST_REQUEST = 200
_CANONICAL = msgspec.json.Encoder(order="deterministic")


class Action(StrEnum):
    """The action of an operator."""

    REGISTER = "register"
    UPDATE = "update"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"
    CANCEL = "cancel"
    REPLAY = "replay"
    RESOLVE = "resolve"
    DEPLOY = "deploy"
    EMIT = "emit"
    SKIP = "skip"
    BACKFILL = "backfill"
    #: A request was refused for lack of permission.
    REFUSE = "refuse"


class AuditEntry(Struct, frozen=True, kw_only=True):
    """The record of one action."""

    at: int
    actor: str
    tenant: str
    action: str
    #: The kind of the changed object: job, workflow, execution, dead_letter, event, backfill; or a refused request.
    kind: str
    name: str
    #: Digests of the object before and after; None where it did not exist.
    before: str | None = None
    after: str | None = None
    #: As JSON.
    details: str = "{}"


class StoredAuditEntry(Struct, frozen=True, kw_only=True):
    """An entry in the store, and its place in the chain once it is sealed."""

    #: In the order in which entries were written; there may be gaps.
    number: int
    entry: AuditEntry
    #: The first is 1, and there are no gaps.
    seq: int | None = None
    prev_hash: str | None = None
    hash: str | None = None


class ChainHead(Struct, frozen=True):
    """The last sealed entry."""

    seq: int = 0
    hash: str = GENESIS


# ---- digests -------------------------------------------------------------------------------------


def canonical(value: object) -> bytes:
    """The value as canonical JSON: names in order, no white space."""
    return _CANONICAL.encode(value)


def digest(value: object) -> str:
    """The hash of the value's canonical JSON."""
    return sha256(canonical(value)).hexdigest()


def schedule_digest(schedule: Schedule) -> str:
    """The hash of what operators define of a schedule: its spec, and whether it is paused."""
    return digest({**_spec_data(schedule.spec), "paused": schedule.paused_at is not None})


def _spec_data(spec: Spec) -> dict[str, Any]:
    trigger = spec.trigger
    # Only the fields that define the trigger, without derived ones.
    values = {field.name: getattr(trigger, field.name) for field in fields(trigger) if field.compare}
    return asdict(spec) | {"trigger": {"kind": type(trigger).__name__, **values}}


def _details(**facts: object) -> str:
    text = canonical({name: fact for name, fact in facts.items() if fact is not None}).decode()
    return text if len(text) <= LONGEST_DETAILS else canonical({"cut": text[: LONGEST_DETAILS // 2]}).decode()


# ---- entries -------------------------------------------------------------------------------------


def registered_entry(schedule: Schedule, actor: str) -> AuditEntry:
    """The entry of a new job."""
    return _of_job(Action.REGISTER, schedule, actor, schedule.created_at, after=schedule_digest(schedule))


def changed_entry(before: Schedule, after: Schedule, actor: str, now: int) -> AuditEntry:
    """The entry of a job that was changed, paused or resumed, or had a tick skipped, moved or restored."""
    action = Action.UPDATE
    if before.spec != after.spec and replace(before.spec, exceptions=after.spec.exceptions) == after.spec:
        action = Action.SKIP
    if before.spec == after.spec and (before.paused_at is None) != (after.paused_at is None):
        action = Action.RESUME if after.paused_at is None else Action.PAUSE
    digests = {"before": schedule_digest(before), "after": schedule_digest(after)}
    entry = _of_job(action, after, actor, now, **digests)
    if action is not Action.SKIP:
        return entry
    return replace(entry, details=_details(revision=after.revision, **_exceptions(before.spec, after.spec, now)))


def _exceptions(before: Spec, after: Spec, now: int) -> dict[str, object]:
    """The coming ticks that are skipped, moved or restored by a change."""
    old = {exception.planned_at: exception.moved_to for exception in before.exceptions}
    new = {exception.planned_at: exception.moved_to for exception in after.exceptions}
    added = [(at, to) for at, to in sorted(new.items()) if at not in old or old[at] != to]
    found = {
        "skipped": [_iso(at) for at, to in added if to is None],
        "moved": {_iso(at): _iso(to) for at, to in added if to is not None},
        # Exceptions of past ticks are dropped by themselves.
        "put_back": [_iso(at) for at in sorted(old) if at not in new and at > now],
    }
    return {name: ticks for name, ticks in found.items() if ticks}


def _iso(at: int) -> str:
    return instant_of(at).isoformat()


def deleted_entry(before: Schedule, actor: str, now: int) -> AuditEntry:
    """The entry of a deleted job."""
    return _of_job(Action.DELETE, before, actor, now, before=schedule_digest(before))


def _of_job(action: Action, schedule: Schedule, actor: str, now: int, **digests: str) -> AuditEntry:
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=schedule.tenant,
        action=action.value,
        kind="job",
        name=schedule.schedule_id,
        details=_details(revision=schedule.revision),
        **digests,
    )


def deployed_entry(workflow: Workflow, actor: str, now: int) -> AuditEntry:
    """The entry of a new workflow version."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=workflow.tenant,
        action=Action.DEPLOY.value,
        kind="workflow",
        name=workflow.workflow_id,
        after=digest(workflow),
        details=_details(version=workflow.version),
    )


def launched_entry(request: LaunchRequest, outcome: LaunchOutcome, now: int) -> AuditEntry | None:
    """The entry of a requested run that was started or queued; None for any other outcome."""
    if outcome not in (LaunchOutcome.STARTED, LaunchOutcome.QUEUED):
        return None
    run = request.run
    of_job = run.schedule_id is not None
    input_hash = None if request.input is None else sha256(request.input).hexdigest()
    return AuditEntry(
        at=now,
        actor=run.user_id,
        tenant=run.tenant,
        action=(Action.TRIGGER if run.replay_of is None else Action.REPLAY).value,
        kind="job" if of_job else "workflow",
        name=run.schedule_id if run.schedule_id is not None else run.workflow_id,
        after=digest([run.run_id, run.workflow_id, run.workflow_version, input_hash]),
        details=_details(execution=run.run_id, became=outcome, forced=request.force or None, dead_letter=run.replay_of),
    )


def cancelled_entry(before: Run, after: Run, actor: str, now: int) -> AuditEntry:
    """The entry of a request to cancel a run."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=before.tenant,
        action=Action.CANCEL.value,
        kind="execution",
        name=before.run_id,
        before=digest(_run_data(before)),
        after=digest(_run_data(after)),
        details=_details(job=before.schedule_id or before.workflow_id),
    )


def _run_data(run: Run) -> dict[str, object]:
    return {"status": run.status, "cancel_requested_at": run.cancel_requested_at, "error": run.error}


def resolved_entry(dead_letter_id: str, tenant: str, by: str, now: int) -> AuditEntry:
    """The entry of a resolved dead letter."""
    return AuditEntry(
        at=now,
        actor=by,
        tenant=tenant,
        action=Action.RESOLVE.value,
        kind="dead_letter",
        name=dead_letter_id,
        before=digest({"resolved": False}),
        after=digest({"resolved": True}),
    )


def emitted_entry(event: ExternalEvent) -> AuditEntry:
    """The entry of an emitted event."""
    return AuditEntry(
        at=event.emitted_at,
        actor=event.actor,
        tenant=event.tenant,
        action=Action.EMIT.value,
        kind="event",
        name=event.name,
        after=digest([event.event_id, event.key, sha256(event.body).hexdigest()]),
        details=_details(event=event.event_id),
    )


def backfilled_entry(backfill: Backfill) -> AuditEntry:
    """The entry of a new backfill."""
    return AuditEntry(
        at=backfill.created_at,
        actor=backfill.actor,
        tenant=backfill.tenant,
        action=Action.BACKFILL.value,
        kind="job",
        name=backfill.schedule_id,
        after=digest(backfill),
        details=_details(backfill=backfill.backfill_id, planned=backfill.planned, again=backfill.again or None),
    )


def backfill_cancelled_entry(before: Backfill, actor: str, now: int) -> AuditEntry:
    """The entry of a cancelled backfill."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=before.tenant,
        action=Action.CANCEL.value,
        kind="backfill",
        name=before.backfill_id,
        before=digest({"cancelled": False}),
        after=digest({"cancelled": True}),
        details=_details(job=before.schedule_id),
    )


def refused_entry(request: str, reason: str, *, actor: str, tenant: str, now: int) -> AuditEntry:
    """The entry of a request that was refused for lack of permission."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=tenant,
        action=Action.REFUSE.value,
        kind="request",
        name=request if len(request) <= LONGEST_REQUEST else f"{request[: LONGEST_REQUEST - 1]}…",
        details=_details(reason=reason),
    )


# ---- the chain -----------------------------------------------------------------------------------


def chain_hash(prev_hash: str, entry: AuditEntry) -> str:
    """The hash of an entry, given the hash of the entry before it."""
    return sha256(canonical([prev_hash, *asdict(entry).values()])).hexdigest()


def seal_entries(head: ChainHead, unsealed: Sequence[StoredAuditEntry]) -> list[StoredAuditEntry]:
    """The entries with their places in the chain after `head`."""
    done = []
    for stored in unsealed:
        own = chain_hash(head.hash, stored.entry)
        done.append(replace(stored, seq=head.seq + 1, prev_hash=head.hash, hash=own))
        head = ChainHead(head.seq + 1, own)
    return done


class ChainBreak(Struct, frozen=True):
    """A broken place in the chain, and the reason."""

    seq: int
    reason: str


def verify_chain(head: ChainHead, entries: Iterable[StoredAuditEntry]) -> tuple[ChainHead, list[ChainBreak]]:
    """The new head after the entries, and every break among them; the entries come in order."""
    found = []
    for stored in entries:
        seq, own = stored.seq or 0, stored.hash or ""
        if seq != head.seq + 1:
            found.append(ChainBreak(head.seq + 1, _missing(head.seq + 1, seq - 1)))
        elif stored.prev_hash != head.hash:
            found.append(
                ChainBreak(seq, f"entry {seq} does not follow the one before it: one was added, removed or moved")
            )
        if chain_hash(stored.prev_hash or "", stored.entry) != own:
            found.append(ChainBreak(seq, f"entry {seq} was changed"))
        head = ChainHead(seq, own)
    return head, found


def _missing(first: int, last: int) -> str:
    return f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"
