"""Approvals and votes in their tables.

A transaction that decides about a task locks the task before its approvals, as the one that admits it does.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.dialects import postgresql, sqlite

from gnomon.adapters.sql import audit, bulk, schema
from gnomon.adapters.sql.after_commit import notify_runs
from gnomon.adapters.sql.rows import constraints_of, constraints_text
from gnomon.core.approvals.commands import ask_about_commands
from gnomon.core.approvals.decide import (
    BY_POLICY_CHANGE,
    BY_TASK_END,
    ENDED_NOTE,
    UNASKED_NOTE,
    AskOutcome,
    ask_about_task,
    voided,
    with_authors_of_agents,
)
from gnomon.core.approvals.model import (
    ITEM_DIGEST_BYTES,
    Approval,
    ApprovalKind,
    ApprovalRequest,
    ApprovalStatus,
    Vote,
    VoteKind,
)
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.audit import approval_asked_entry, approval_revoked_entry
from gnomon.core.model import RunId, TaskId
from gnomon.errors import ApprovalClosed, NotFound
from gnomon.ports.approvals import ApprovalFilter

_approval = schema.approval.c
_vote = schema.approval_vote.c
#: As literal text: a database uses a partial index only if the query repeats its condition word for word.
_STANDS = sa.text(schema.STANDING)
#: Without the digests of items, which may be megabytes.
_COLUMNS = [column for column in schema.approval.c if column is not _approval.item_digests]
_ROWS: sa.Select[Any] = sa.select(*_COLUMNS, sa.func.length(_approval.item_digests).label("digests_size"))
_STANDING = _ROWS.where(
    _STANDS,
    _approval.tenant == sa.bindparam("tenant"),
    _approval.kind == sa.bindparam("kind"),
    _approval.subject.in_(sa.bindparam("subjects", expanding=True)),
).order_by(_approval.approval_id)
_OF_TASKS = _ROWS.where(sa.text(schema.OF_TASK), _approval.task_id.in_(sa.bindparam("tasks", expanding=True))).order_by(
    _approval.approval_id
)
_DIGESTS = sa.select(_approval.approval_id, _approval.item_digests).where(
    sa.text(schema.OF_TASK), _approval.task_id == sa.bindparam("task"), _approval.item_digests.is_not(None)
)
_VOTES = (
    sa.select(schema.approval_vote)
    .where(_vote.approval_id.in_(sa.bindparam("approvals", expanding=True)))
    .order_by(_vote.approval_id, _vote.number)
)
_TERMS = msgspec.json.Decoder(ApprovalTerms)
_DECIDED = ("status", "granted_by", "granted_at", "revoked_at", "revoked_by", "note", "version")
_UPDATE = bulk.update_statement(schema.approval, _DECIDED, by=("approval_id",))
#: The run, the runs that wait for it as a sub-run, and those whose dead letters these replay: their callers and authors
#: have chosen its input.
_ASKING = """
WITH RECURSIVE asking (run_id, parent_task, replay_of) AS (
    SELECT run_id, parent_task, replay_of FROM run WHERE run_id = ?
    UNION SELECT run.run_id, run.parent_task, run.replay_of FROM asking JOIN run ON run.run_id IN (
        (SELECT task.run_id FROM task WHERE task.task_id = asking.parent_task),
        (SELECT letter.run_id FROM dead_letter AS letter WHERE letter.dead_letter_id = asking.replay_of)))
"""
#: Of each of them: the caller who requested it; the authors of its version of the workflow and of the newest one, and
#: the author of the newest revision of its schedule.
_AUTHORS = bulk.statement(
    f"{_ASKING} SELECT run.actor FROM asking JOIN run ON run.run_id = asking.run_id"  # noqa: S608 - our own names
    " UNION SELECT workflow.actor FROM asking JOIN run ON run.run_id = asking.run_id"
    " JOIN workflow ON workflow.tenant = run.tenant AND workflow.workflow_id = run.workflow_id"
    " AND workflow.version IN (run.workflow_version, (SELECT max(newest.version) FROM workflow AS newest"
    " WHERE newest.tenant = run.tenant AND newest.workflow_id = run.workflow_id))"
    " UNION SELECT made.actor FROM asking JOIN run ON run.run_id = asking.run_id"
    " JOIN schedule_revision AS made ON made.uid = run.schedule_uid AND made.revision ="
    " (SELECT max(newest.revision) FROM schedule_revision AS newest WHERE newest.uid = run.schedule_uid)"
    # A run of events from several callers has no actor. Its entries have no index by run, and votes on it are rare.
    " UNION SELECT event.actor FROM asking JOIN run ON run.run_id = asking.run_id"
    " JOIN event_entry ON event_entry.run_id = run.run_id JOIN event ON event.event_id = event_entry.event_id"
    " WHERE run.source = 'event' AND run.actor = ''"
)
#: The last authors of a job.
_AUTHORS_OF_JOB = bulk.statement(
    "SELECT workflow.actor FROM workflow WHERE workflow.tenant = ? AND workflow.workflow_id = ? AND workflow.version ="
    " (SELECT max(newest.version) FROM workflow AS newest"
    " WHERE newest.tenant = workflow.tenant AND newest.workflow_id = workflow.workflow_id)"
    " UNION SELECT made.actor FROM schedule JOIN schedule_revision AS made ON made.uid = schedule.uid"
    " WHERE schedule.tenant = ? AND schedule.schedule_id = ? AND schedule.deleted_at IS NULL AND made.revision ="
    " (SELECT max(newest.revision) FROM schedule_revision AS newest WHERE newest.uid = schedule.uid)"
)


# ---- definitions -----------------------------------------------------------------------------------


def ask(conn: sa.Connection, asked: Approval, actor: str, now: int) -> Approval:
    """See Approvals.ask."""
    outcome = ask_about_commands(_of_commands(conn, asked.tenant, [asked.subject]), asked, now=now)
    if outcome.added is not None and not _add(conn, asked):
        # Another transaction has asked about the same commands.
        outcome = ask_about_commands(_of_commands(conn, asked.tenant, [asked.subject]), asked, now=now)
    update(conn, outcome.void)
    if outcome.added is not None:
        audit.write(conn, [approval_asked_entry(asked, actor, now)])
    changed = [*outcome.void, *filter(None, [outcome.added])]
    notify_runs(conn, lambda observer: observer.approvals_changed(changed))
    [found] = _with_votes(conn, _rows_of(conn, (outcome.kept or asked).approval_id, asked.tenant))
    return found


def revoke(conn: sa.Connection, tenant: str, approval_id: str, actor: str, now: int) -> Approval:
    """See Approvals.revoke."""
    found = find(conn, tenant, approval_id, lock=True)
    if found is None:
        raise NotFound("approval", approval_id)
    if found.kind is not ApprovalKind.COMMAND or found.status is not ApprovalStatus.APPROVED:
        raise ApprovalClosed(approval_id, found.status)
    after = replace(found, status=ApprovalStatus.REVOKED, revoked_at=now, revoked_by=actor)
    update(conn, [after])
    audit.write(conn, [approval_revoked_entry(after)])
    notify_runs(conn, lambda observer: observer.approvals_changed([after]))
    return after


def standing(conn: sa.Connection, tenant: str, subjects: Collection[str]) -> Sequence[Approval]:
    """See Approvals.standing."""
    return [one for one in _of_commands(conn, tenant, subjects) if one.status is ApprovalStatus.APPROVED]


def _of_commands(conn: sa.Connection, tenant: str, subjects: Collection[str]) -> list[Approval]:
    """The approvals of the commands of these definitions that wait or count, without their votes."""
    wanted = {"tenant": tenant, "kind": ApprovalKind.COMMAND.value, "subjects": sorted(subjects)}
    return [_approval_of(row) for row in conn.execute(_STANDING, wanted)]


# ---- reading ---------------------------------------------------------------------------------------


def of_tasks(conn: sa.Connection, tasks: Collection[str], *, lock: bool = False) -> Mapping[str, list[Approval]]:
    """The approvals of these tasks with their votes, each in the order in which they were asked for."""
    found: dict[str, list[Approval]] = {name: [] for name in tasks}
    query = _OF_TASKS.with_for_update() if lock else _OF_TASKS
    for one in _with_votes(conn, conn.execute(query, {"tasks": sorted(tasks)})):
        if one.request is not None:
            found[one.request.task_id].append(one)
    return found


def of_task(conn: sa.Connection, task: str) -> Sequence[Approval]:
    """See Approvals.of_task."""
    found = of_tasks(conn, [task])[task]
    if not any(one.request is not None and one.request.items for one in found):
        return found
    digests = {row.approval_id: bytes(row.item_digests) for row in conn.execute(_DIGESTS, {"task": task})}
    return [
        replace(one, request=replace(one.request, item_digests=digests[one.approval_id]))
        if one.request is not None and one.approval_id in digests
        else one
        for one in found
    ]


def find(conn: sa.Connection, tenant: str, approval_id: str, *, lock: bool = False) -> Approval | None:
    """See Approvals.find."""
    return next(iter(_with_votes(conn, _rows_of(conn, approval_id, tenant, lock=lock))), None)


def _rows_of(
    conn: sa.Connection, approval_id: str, tenant: str, *, lock: bool = False
) -> sa.CursorResult[tuple[Any, ...]]:
    query = _ROWS.where(_approval.approval_id == approval_id, _approval.tenant == tenant)
    return conn.execute(query.with_for_update() if lock else query)


def page(conn: sa.Connection, wanted: ApprovalFilter, before: str | None, limit: int) -> Sequence[Approval]:
    """See Approvals.page."""
    query = _ROWS.where(_approval.tenant == wanted.tenant)
    if wanted.status is ApprovalStatus.WAITING:
        query = query.where(sa.text(schema.AWAITED))
    elif wanted.status is not None:
        query = query.where(_approval.status == wanted.status.value)
    if wanted.kind is not None:
        query = query.where(_approval.kind == wanted.kind.value)
    if wanted.subject is not None:
        query = query.where(_approval.subject == wanted.subject)
    if before is not None:
        query = query.where(_approval.approval_id < before)
    return _with_votes(conn, conn.execute(query.order_by(_approval.approval_id.desc()).limit(limit)))


def _with_votes(conn: sa.Connection, rows: Iterable[sa.Row[Any]]) -> list[Approval]:
    found = [_approval_of(row) for row in rows]
    votes: dict[str, list[Vote]] = {one.approval_id: [] for one in found}
    for row in conn.execute(_VOTES, {"approvals": list(votes)}) if found else ():
        votes[row.approval_id].append(Vote(voter=row.voter, kind=VoteKind(row.kind), at=row.at, reason=row.reason))
    return [replace(one, votes=tuple(votes[one.approval_id])) for one in found]


def authors(conn: sa.Connection, approval: Approval) -> frozenset[str]:
    """See Approvals.authors."""
    if approval.request is None:
        return frozenset()
    found = {name for (name,) in bulk.fetch_rows(conn, _AUTHORS, approval.request.run_id) if name}

    def authors_of(job: str) -> set[str]:
        rows = bulk.fetch_rows(conn, _AUTHORS_OF_JOB, approval.tenant, job, approval.tenant, job)
        return {name for (name,) in rows if name}

    return with_authors_of_agents(found, authors_of)


# ---- writing ---------------------------------------------------------------------------------------


class AskedTasks(NamedTuple):
    """The consequences of questions for the tasks that have raised them."""

    #: The tasks that are approved already, and so need not wait.
    approved: frozenset[TaskId]
    #: The tasks about which people have not been asked before.
    new: frozenset[TaskId]


def ask_for(conn: sa.Connection, asked: Sequence[Approval], now: int) -> AskedTasks:
    """Add approvals for which tasks ask. The caller has locked the tasks."""
    names = [one.request.task_id for one in asked if one.request is not None]
    earlier = of_tasks(conn, names, lock=True)
    approved, new = set[TaskId](), set[TaskId]()
    changed: list[Approval] = []
    for one in asked:
        if one.request is None:
            continue
        outcome = ask_about_task(earlier[one.request.task_id], one, now=now)
        _write_asked(conn, outcome)
        changed += [*outcome.void, *filter(None, [outcome.added])]
        if outcome.kept is not None and outcome.kept.status is ApprovalStatus.APPROVED:
            approved.add(one.request.task_id)
        if outcome.added is not None:
            new.add(one.request.task_id)
    notify_runs(conn, lambda observer: observer.approvals_changed(changed))
    return AskedTasks(frozenset(approved), frozenset(new))


def _write_asked(conn: sa.Connection, outcome: AskOutcome) -> None:
    update(conn, [*outcome.void, *(() if outcome.kept is None else (outcome.kept,))])
    if outcome.added is not None:
        _add(conn, outcome.added)


def update(conn: sa.Connection, changed: Sequence[Approval]) -> None:
    """Write what has become of approvals."""
    bulk.execute_many(conn, _UPDATE, [_decided_row(one) for one in changed])


def add_vote(conn: sa.Connection, approval: Approval, vote: Vote) -> None:
    """Write the vote. The earlier vote of a person who overrides is replaced."""
    of_voter = sa.delete(schema.approval_vote).where(
        _vote.approval_id == approval.approval_id, _vote.voter == vote.voter
    )
    conn.execute(of_voter)
    number = 1 + max((at for at, one in enumerate(approval.votes, 1) if one.voter != vote.voter), default=0)
    row = {
        "approval_id": approval.approval_id,
        "voter": vote.voter,
        "kind": vote.kind.value,
        "at": vote.at,
        "reason": vote.reason,
        "number": number,
    }
    conn.execute(sa.insert(schema.approval_vote).values(row))


def void_of_ended(conn: sa.Connection, tasks: Sequence[str], now: int) -> None:
    """Make the waiting approvals of tasks void that have ended in another way. The caller has locked the tasks."""
    _void(conn, tasks, lambda one: as_ended(one, now))


def void_unasked(conn: sa.Connection, tasks: Sequence[str], now: int) -> None:
    """Make the waiting approvals of tasks void for which the gate does not ask any more. The tasks are locked."""
    _void(conn, tasks, lambda one: voided(one, UNASKED_NOTE, by=BY_POLICY_CHANGE, now=now))


def _void(conn: sa.Connection, tasks: Sequence[str], become: Callable[[Approval], Approval]) -> None:
    if not tasks:
        return
    found = [one for some in of_tasks(conn, tasks, lock=True).values() for one in some]
    ended = [become(one) for one in found if one.status is ApprovalStatus.WAITING]
    update(conn, ended)
    notify_runs(conn, lambda observer: observer.approvals_changed(ended))


def as_ended(approval: Approval, now: int) -> Approval:
    """The approval of a task that has ended in another way."""
    return voided(approval, ENDED_NOTE, by=BY_TASK_END, now=now)


# ---- rows ------------------------------------------------------------------------------------------


def _add(conn: sa.Connection, approval: Approval) -> bool:
    dialect = postgresql if conn.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(schema.approval).values(_row_of(approval))
    return conn.execute(insert.on_conflict_do_nothing()).rowcount == 1


def _decided_row(one: Approval) -> tuple[object, ...]:
    return (
        one.status.value,
        one.decided_by or "",
        one.decided_at or 0,
        one.revoked_at,
        one.revoked_by,
        one.note or None,
        None if one.request is None else one.request.version,
        one.approval_id,
    )


def _row_of(one: Approval) -> dict[str, Any]:
    row: dict[str, Any] = {
        "approval_id": one.approval_id,
        "tenant": one.tenant,
        "kind": one.kind.value,
        "subject": one.subject,
        "digest": one.digest,
        "granted_by": one.decided_by or "",
        "granted_at": one.decided_at or 0,
        "reason": one.reason,
        "revoked_at": one.revoked_at,
        "revoked_by": one.revoked_by,
        "status": one.status.value,
        "note": one.note or None,
    }
    asked = one.request
    if asked is not None:
        row |= {
            "task_id": asked.task_id,
            "run_id": asked.run_id,
            "step": asked.step,
            "item": asked.item,
            "rule": asked.rule,
            "version": asked.version,
            "rule_digest": asked.rule_digest,
            "request_digest": asked.request_digest,
            "constraints": constraints_text(asked.constraints),
            "terms": msgspec.json.encode(asked.terms).decode(),
            "asked_at": asked.asked_at,
            "expires_at": asked.expires_at,
            "item_digests": asked.item_digests or None,
        }
    return row


def _approval_of(row: sa.Row[Any]) -> Approval:
    return Approval(
        approval_id=row.approval_id,
        tenant=row.tenant,
        kind=ApprovalKind(row.kind),
        subject=row.subject,
        digest=row.digest,
        status=ApprovalStatus(row.status),
        decided_by=row.granted_by or None,
        decided_at=row.granted_at or None,
        reason=row.reason,
        revoked_at=row.revoked_at,
        revoked_by=row.revoked_by,
        note=row.note or "",
        request=None if row.task_id is None else _request_of(row),
    )


def _request_of(row: sa.Row[Any]) -> ApprovalRequest:
    return ApprovalRequest(
        task_id=TaskId(row.task_id),
        run_id=RunId(row.run_id),
        step=row.step,
        item=row.item,
        rule=row.rule,
        version=row.version,
        rule_digest=row.rule_digest,
        request_digest=bytes(row.request_digest),
        constraints=None if row.constraints is None else constraints_of(row.constraints),
        terms=_TERMS.decode(row.terms),
        asked_at=row.asked_at,
        expires_at=row.expires_at,
        items=(row.digests_size or 0) // ITEM_DIGEST_BYTES,
    )
