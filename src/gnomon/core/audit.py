"""The audit trail: who changed what, in a chain of hashes that shows later tampering.

Every change by an operator writes an entry in the same transaction. The sealer chains the entries afterwards: the hash
of each covers the entry, its number and the hash before it, so that no sealed entry can be changed, removed, added or
moved without breaking the chain. A signed checkpoint states the last hash, so that the end cannot be cut off, nor the
whole chain be computed anew, without the key.

The digests are stored. Changing a key, a class name or an order in them would break existing chains.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from gnomon.core.approvals.model import Approval, Vote, VoteKind
from gnomon.core.instants import instant_of
from gnomon.core.model import ENGINE, MINUTE_MS, Run, Schedule, Spec
from gnomon.core.model_names import actor_and_owner, owner_of
from gnomon.core.named_breakers import NamedBreaker
from gnomon.core.output_policy.ruling import HeldDecision, StoredOutputRuling
from gnomon.core.policy.shadow import PolicyShadow
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.backfill import Backfill
from gnomon.core.runs.external_events import ExternalEvent
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest
from gnomon.core.runs.workflow import Workflow
from gnomon.core.tokens import EVERY_TENANT, TokenRecord

#: The hash before the first entry of a chain.
GENESIS = "0" * 64
#: The largest size of an entry's details as JSON.
LONGEST_DETAILS = 1000
#: How much of a refused request is recorded.
LONGEST_REQUEST = 200
_CANONICAL = msgspec.json.Encoder(order="deterministic")
#: How much earlier than the entry before it an entry may be dated: clocks differ, and transactions overtake each other.
LARGEST_STEP_BACK_MS = 5 * MINUTE_MS


class Action(StrEnum):
    """The action of an operator."""

    REGISTER = "register"
    UPDATE = "update"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"
    CANCEL = "cancel"
    ROLLBACK = "rollback"
    REPLAY = "replay"
    RESOLVE = "resolve"
    #: An announcement that was given up is tried again.
    RETRY = "retry"
    DEPLOY = "deploy"
    EMIT = "emit"
    SKIP = "skip"
    BACKFILL = "backfill"
    #: An approval of the commands of a job is wanted.
    ASK = "ask"
    #: The commands of a job may run although their risk needs a person, or a task that waits for an approval may run.
    APPROVE = "approve"
    #: A task that waits for an approval may not run.
    REJECT = "reject"
    #: A task may run without its approval.
    OVERRIDE = "override"
    ISSUE = "issue"
    REVOKE = "revoke"
    #: The mark of a schedule was ahead of the clock.
    SET_BACK_MARK = "set_back_mark"
    #: A breaker was closed.
    RESET = "reset"
    #: The chain was signed as it is, although it lacked what was signed before.
    ACCEPT = "accept"
    #: A request was refused for lack of permission.
    REFUSE = "refuse"
    #: The policy of outputs holds back an output.
    HOLD_BACK = "hold_back"
    #: An operator has looked at an output that is held back, has released it, or has deleted it.
    LOOK = "look"
    RELEASE = "release"
    DISCARD = "discard"
    #: A server was started that does not verify tokens.
    START_UNVERIFIED = "start_unverified"


class AuditEntry(Struct, frozen=True, kw_only=True):
    """The record of one action."""

    at: int
    actor: str
    tenant: str
    action: str
    #: The kind of the changed object: job, workflow, approval, policy, execution, dead_letter, event, backfill, token,
    #: breaker; a refused request; or a server.
    kind: str
    name: str
    #: Digests of the object before and after; None where it did not exist.
    before: str | None = None
    after: str | None = None
    #: As JSON.
    details: str = "{}"


def as_recorded(entry: AuditEntry) -> AuditEntry:
    """The entry as it is stored: the actor of a model alone, and its owner among the details."""
    actor, owner = actor_and_owner(entry.actor)
    if owner is None:
        return entry
    details = canonical({**msgspec.json.decode(entry.details), "owner": owner}).decode()
    if len(details) > LONGEST_DETAILS:
        quarter = LONGEST_DETAILS // 4
        details = canonical({"owner": owner[:quarter], "cut": entry.details[:quarter]}).decode()
    return replace(entry, actor=actor, details=details)


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
    data = asdict(spec) | {"trigger": {"kind": type(trigger).__name__, **values}}
    # Fields of later versions are left out unless they are set: the digest of an older row stays as it was recorded.
    return {name: value for name, value in data.items() if value or name not in ("origin", "orphaned")}


def _details(**facts: object) -> str:
    text = canonical({name: fact for name, fact in facts.items() if fact is not None}).decode()
    return text if len(text) <= LONGEST_DETAILS else canonical({"cut": text[: LONGEST_DETAILS // 2]}).decode()


# ---- entries -------------------------------------------------------------------------------------


def registered_entry(schedule: Schedule, actor: str) -> AuditEntry:
    """The entry of a new job."""
    return _of_job(Action.REGISTER, schedule, actor, schedule.created_at, after=schedule_digest(schedule))


def changed_entry(before: Schedule, after: Schedule, actor: str, now: int) -> AuditEntry | None:
    """The entry of a job that was changed, paused or resumed, or had a tick skipped, moved or restored.

    None without an actor: the scheduler has decided ticks before an edit.
    """
    if not actor:
        return None
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


def mark_set_back_entry(after: Schedule) -> AuditEntry | None:
    """The entry of a schedule whose mark was set back; None if it was not."""
    correction = after.mark_correction
    if correction is None:
        return None
    entry = _of_job(Action.SET_BACK_MARK, after, ENGINE, correction.corrected_at)
    moved = {"from": _iso(correction.from_at), "to": _iso(after.mark_at)}
    details = _details(**moved, withdrawn=correction.withdrawn, decided=len(correction.decided))
    return replace(entry, details=details)


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
        actor=run.actor,
        tenant=run.tenant,
        action=(Action.TRIGGER if run.replay_of is None else Action.REPLAY).value,
        kind="job" if of_job else "workflow",
        name=run.schedule_id if run.schedule_id is not None else run.workflow_id,
        after=digest([run.run_id, run.workflow_id, run.workflow_version, input_hash]),
        details=_details(
            execution=run.run_id,
            became=outcome,
            forced=request.force or None,
            dead_letter=run.replay_of,
            user_id=run.user_id if run.user_id != owner_of(run.actor) else None,
        ),
    )


def cancelled_entry(before: Run, after: Run, actor: str, now: int) -> AuditEntry:
    """The entry of a request to cancel a run."""
    return _changed_run_entry(Action.CANCEL, before, after, actor, now)


def rolled_back_entry(before: Run, after: Run, actor: str, now: int) -> AuditEntry:
    """The entry of a request to roll a run back."""
    return _changed_run_entry(Action.ROLLBACK, before, after, actor, now)


def _changed_run_entry(action: Action, before: Run, after: Run, actor: str, now: int) -> AuditEntry:
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=before.tenant,
        action=action.value,
        kind="execution",
        name=before.run_id,
        before=digest(_run_data(before)),
        after=digest(_run_data(after)),
        details=_details(job=before.schedule_id or before.workflow_id),
    )


def _run_data(run: Run) -> dict[str, object]:
    return {"status": run.status, "cancel_requested_at": run.cancel_requested_at, "error": run.error}


def resolved_entry(dead_letter_id: str, tenant: str, by: str, actor: str, now: int) -> AuditEntry:
    """The entry of a resolved dead letter; `by` says more than the actor if another letter replaces it."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=tenant,
        action=Action.RESOLVE.value,
        kind="dead_letter",
        name=dead_letter_id,
        before=digest({"resolved": False}),
        after=digest({"resolved": True}),
        details=_details(by=by if by != actor else None),
    )


def output_held_entry(ruling: StoredOutputRuling) -> AuditEntry:
    """The entry of an output that is held back."""
    return AuditEntry(
        at=ruling.ruled_at,
        actor=ENGINE,
        tenant=ruling.tenant,
        action=Action.HOLD_BACK.value,
        kind="output",
        name=ruling.task_id,
        after=ruling.content_digest,
        details=_details(
            job=ruling.job,
            execution=ruling.run_id,
            step=ruling.step,
            rule=ruling.rule,
            version=ruling.version,
            phase=ruling.phase.value,
            reason=ruling.reason or None,
            readers=list(ruling.readers) or None,
        ),
    )


def held_output_entry(action: Action, held: StoredOutputRuling, decided: HeldDecision) -> AuditEntry:
    """The entry of a look at an output that is held back, of its release, or of its deletion."""
    changes = action is not Action.LOOK
    return AuditEntry(
        at=decided.at,
        actor=decided.actor,
        tenant=held.tenant,
        action=action.value,
        kind="output",
        name=held.task_id,
        before=digest({"status": "held"}) if changes else None,
        after=digest({"status": action.value}) if changes else None,
        details=_details(
            job=held.job, execution=held.run_id, content=held.content_digest, reason=decided.reason or None
        ),
    )


def retried_entry(announcement_id: str, tenant: str, actor: str, now: int) -> AuditEntry:
    """The entry of an announcement that is tried again."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=tenant,
        action=Action.RETRY.value,
        kind="announcement",
        name=announcement_id,
        before=digest({"state": "given_up"}),
        after=digest({"state": "pending"}),
        details=_details(),
    )


def breaker_reset_entry(before: NamedBreaker, after: NamedBreaker, actor: str, now: int) -> AuditEntry:
    """The entry of a breaker that an operator has closed."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=before.tenant,
        action=Action.RESET.value,
        kind="breaker",
        name=before.name,
        before=digest(before.breaker),
        after=digest(after.breaker),
        details=_details(was=before.state(now), opened_by=before.opened_by or None),
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


def approval_asked_entry(approval: Approval, actor: str, now: int) -> AuditEntry:
    """The entry of an approval of commands that somebody has asked for."""
    return _of_approval(Action.ASK, approval, actor, now, after=digest({"asked": approval.digest}))


def approval_revoked_entry(approval: Approval) -> AuditEntry:
    """The entry of a revoked approval."""
    revoked_by, revoked_at = approval.revoked_by or "", approval.revoked_at or 0
    return _of_approval(Action.REVOKE, approval, revoked_by, revoked_at, before=digest({"approved": approval.digest}))


_VOTES = {
    VoteKind.APPROVE: Action.APPROVE,
    VoteKind.REJECT: Action.REJECT,
    VoteKind.OVERRIDE: Action.OVERRIDE,
}


def voted_entry(after: Approval, vote: Vote) -> AuditEntry:
    """The entry of a vote."""
    request = after.request
    return AuditEntry(
        at=vote.at,
        actor=vote.voter,
        tenant=after.tenant,
        action=_VOTES[vote.kind].value,
        kind="approval",
        name=after.approval_id,
        before=digest({"status": "waiting", "votes": len(after.votes) - 1}),
        after=digest({"status": after.status.value, "votes": len(after.votes)}),
        details=_details(
            of=after.kind,
            job=after.subject,
            execution=None if request is None else request.run_id,
            task=None if request is None else request.task_id,
            rule=None if request is None else request.rule,
            request=after.digest,
            status=after.status.value,
            reason=vote.reason or None,
        ),
    )


def _of_approval(action: Action, approval: Approval, actor: str, at: int, **digests: str) -> AuditEntry:
    return AuditEntry(
        at=at,
        actor=actor,
        tenant=approval.tenant,
        action=action.value,
        kind="approval",
        name=approval.approval_id,
        details=_details(
            of=approval.kind, job=approval.subject, definition=approval.digest, reason=approval.reason or None
        ),
        **digests,
    )


def policy_applied_entry(before: PolicyVersion | None, after: PolicyVersion) -> AuditEntry:
    """The entry of a policy that was put in force."""
    return AuditEntry(
        at=after.created_at,
        actor=after.author,
        tenant="default",
        action=(Action.REGISTER if before is None else Action.UPDATE).value,
        kind="policy",
        name=f"version-{after.version}",
        before=None if before is None else before.digest,
        after=after.digest,
        details=_details(),
    )


def shadow_entry(before: PolicyShadow | None, after: PolicyShadow, *, actor: str, now: int) -> AuditEntry:
    """The entry of a shadow of the policy that was started or stopped."""
    started = after.ended_at is None
    running = before is not None and before.ended_at is None
    return AuditEntry(
        at=now,
        actor=actor,
        tenant="default",
        action=(Action.REGISTER if started else Action.DELETE).value,
        kind="policy",
        name=f"shadow-{after.number}",
        before=before.digest if before is not None and running else None,
        after=after.digest if started else None,
        details=_details(),
    )


def session_cleared_entry(tenant: str, session: str, *, turns: int, actor: str, now: int) -> AuditEntry:
    """The entry of a session of agents whose history was forgotten."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=tenant,
        action=Action.DELETE.value,
        kind="session",
        name=session,
        before=digest({"turns": turns}),
        details=_details(turns=turns),
    )


def issued_entry(token: TokenRecord, now: int) -> AuditEntry:
    """The entry of an issued token."""
    return AuditEntry(
        at=now,
        actor=token.issued_by,
        tenant=token.tenant,
        action=Action.ISSUE.value,
        kind="token",
        name=token.token_id,
        after=digest([token.subject, token.role, token.expires_at]),
        details=_details(subject=token.subject, role=token.role, expires=_iso(token.expires_at)),
    )


def sign_in_code_entry(tenant: str, subject: str, expires_at: int, actor: str, now: int) -> AuditEntry:
    """The entry of an issued code that signs a browser in."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=tenant,
        action=Action.ISSUE.value,
        kind="sign_in_code",
        name=subject,
        after=digest([subject, expires_at]),
        details=_details(expires=_iso(expires_at)),
    )


def revoked_entry(token: TokenRecord, now: int) -> AuditEntry:
    """The entry of a revoked token."""
    return AuditEntry(
        at=now,
        actor=token.revoked_by,
        tenant=_audited_tenant(token.tenant),
        action=Action.REVOKE.value,
        kind="token",
        name=token.token_id,
        before=digest({"revoked": False}),
        after=digest({"revoked": True}),
        details=_details(subject=token.subject or None, tenants="all" if token.tenant == EVERY_TENANT else None),
    )


def all_revoked_entry(tenant: str, issued_before: int, actor: str, now: int) -> AuditEntry:
    """The entry of a revocation of all tokens that were issued before an instant."""
    return AuditEntry(
        at=now,
        actor=actor,
        tenant=_audited_tenant(tenant),
        action=Action.REVOKE.value,
        kind="token",
        name="all",
        after=digest({"issued_before": issued_before}),
        details=_details(issued_before=_iso(issued_before), tenants="all" if tenant == EVERY_TENANT else None),
    )


def _audited_tenant(tenant: str) -> str:
    """The tenant in whose trail an action of the owner of the installation is listed."""
    return "default" if tenant == EVERY_TENANT else tenant


def accepted_entry(*, actor: str, now: int) -> AuditEntry:
    """The entry of a chain that was signed as it is."""
    return AuditEntry(at=now, actor=actor, tenant="default", action=Action.ACCEPT.value, kind="audit", name="chain")


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


def unverified_entry(address: str, *, actor: str, now: int) -> AuditEntry:
    """The entry of the start of a server that does not verify tokens, so that everybody is an admin."""
    return AuditEntry(
        at=now, actor=actor, tenant="default", action=Action.START_UNVERIFIED.value, kind="server", name=address
    )


# ---- the chain -----------------------------------------------------------------------------------


def unnumbered_hash(prev_hash: str, entry: AuditEntry) -> str:
    """The hash of an entry in chains of older programs, which left out its number."""
    return sha256(canonical([prev_hash, *asdict(entry).values()])).hexdigest()


def chain_hash(prev_hash: str, number: int, entry: AuditEntry, *, signed: bool) -> str:
    """The hash of an entry, given the hash of the entry before it. `signed` says that a checkpoint covers it."""
    form = "signed" if signed else "unsigned"
    return sha256(canonical([prev_hash, number, form, *asdict(entry).values()])).hexdigest()


def seal_entries(
    head: ChainHead, unsealed: Sequence[StoredAuditEntry], *, signed: bool = False
) -> list[StoredAuditEntry]:
    """The entries with their places in the chain after `head`."""
    done = []
    for stored in unsealed:
        own = chain_hash(head.hash, stored.number, stored.entry, signed=signed)
        done.append(replace(stored, seq=head.seq + 1, prev_hash=head.hash, hash=own))
        head = ChainHead(head.seq + 1, own)
    return done


class ChainBreak(Struct, frozen=True):
    """A broken place in the chain, and the reason."""

    seq: int
    reason: str


class ChainProgress(Struct, frozen=True):
    """How far a chain has been verified."""

    head: ChainHead = ChainHead()
    #: The latest time of an entry so far.
    latest_at: int = 0
    #: The place of the last entry that a signed checkpoint must cover.
    signed_seq: int = 0


def verify_chain(
    progress: ChainProgress, entries: Iterable[StoredAuditEntry]
) -> tuple[ChainProgress, list[ChainBreak]]:
    """The progress after the entries, and every break among them; the entries come in order."""
    found: list[ChainBreak] = []
    head, latest_at, signed_seq = progress.head, progress.latest_at, progress.signed_seq
    for stored in entries:
        seq, own, at = stored.seq or 0, stored.hash or "", stored.entry.at
        if seq != head.seq + 1:
            found.append(ChainBreak(head.seq + 1, _missing(head.seq + 1, seq - 1)))
        elif stored.prev_hash != head.hash:
            found.append(
                ChainBreak(seq, f"entry {seq} does not follow the one before it: one was added, removed or moved")
            )
        form = _form(stored)
        if form is None:
            found.append(ChainBreak(seq, f"entry {seq} was changed"))
        elif at < latest_at - LARGEST_STEP_BACK_MS:
            found.append(ChainBreak(seq, _out_of_time(seq, at, latest_at)))
        # After a step back the clock counts that entries have now: it is reported once.
        stepped_back = at < latest_at - LARGEST_STEP_BACK_MS
        latest_at = at if stepped_back else max(latest_at, at)
        signed_seq = seq if form == _SIGNED else signed_seq
        head = ChainHead(seq, own)
    return ChainProgress(head, latest_at, signed_seq), found


_SIGNED, _UNSIGNED, _UNNUMBERED = "signed", "unsigned", "unnumbered"


def _form(stored: StoredAuditEntry) -> str | None:
    """How the entry was sealed; None if its hash is not that of its content."""
    prev_hash, number, entry = stored.prev_hash or "", stored.number, stored.entry
    hashes = {
        chain_hash(prev_hash, number, entry, signed=True): _SIGNED,
        chain_hash(prev_hash, number, entry, signed=False): _UNSIGNED,
        unnumbered_hash(prev_hash, entry): _UNNUMBERED,
    }
    return hashes.get(stored.hash or "")


def _missing(first: int, last: int) -> str:
    return f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"


def _out_of_time(seq: int, at: int, latest_at: int) -> str:
    return (
        f"entry {seq} is dated {_iso(at)}, but follows one of {_iso(latest_at)}: it was added later, or a clock was set"
        " back"
    )


# ---- checkpoints ---------------------------------------------------------------------------------


class SignedCheckpoint(Struct, frozen=True, kw_only=True):
    """The last entry of the chain at a time, signed with the key of the installation."""

    seq: int
    hash: str
    at: int
    #: The key, and its signature in hexadecimal digits.
    kid: str
    signature: str


def checkpoint_text(seq: int, chain_head: str, at: int) -> bytes:
    """The signed text of a checkpoint."""
    return canonical(["gnomon audit checkpoint", 1, seq, chain_head, at])


def signing_obstacle(
    own: SignedCheckpoint | None,
    anchored: SignedCheckpoint | None,
    hashes: Mapping[int, str],
    *,
    last: int,
    begin: bool,
) -> str:
    """The reason not to sign the chain of `last` entries; empty if there is none.

    The checkpoints are valid ones; `hashes` has the hashes of the chain at their places. A chain that lacks what was
    signed before is not signed again: the older checkpoint is the evidence.
    """
    if own is None and not begin:
        return "the signed checkpoint of the audit trail is gone from the store"
    for checkpoint in (own, anchored):
        broken = checkpoint and checkpoint_break(checkpoint, last=last, found=hashes.get(checkpoint.seq))
        if broken:
            return broken.reason
    return ""


def checkpoint_break(checkpoint: SignedCheckpoint, *, last: int, found: str | None) -> ChainBreak | None:
    """The break that a valid checkpoint proves: the chain has `last` entries, and `found` is the hash at its place."""
    if found == checkpoint.hash:
        return None
    if last < checkpoint.seq:
        reason = f"the end was cut off: {checkpoint.seq} entries were signed at {_iso(checkpoint.at)}, {last} are left"
        return ChainBreak(last, reason)
    return ChainBreak(
        checkpoint.seq,
        f"entry {checkpoint.seq} is not the one that was signed at {_iso(checkpoint.at)}: the chain was made anew",
    )
