"""The sessions of agents in their tables: who holds each of them, and the turns of their histories."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import audit, bulk, schema
from gnomon.adapters.sql.payloads import sealed_rows, unsealed
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.agents.sessions import ADMISSION_MS, MOST_TURNS, SessionSummary, StoredTurn
from gnomon.core.audit import session_cleared_entry
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.states import TaskState

_KIND = "session"
_OPEN = bulk.insert_statement(
    schema.agent_session, ("tenant", "session", "task_id", "held_at"), "ON CONFLICT (tenant, session) DO NOTHING"
)
_HOLDER = bulk.statement("SELECT task_id, held_at FROM agent_session WHERE tenant = ? AND session = ? FOR UPDATE")
_HOLD = bulk.statement("UPDATE agent_session SET task_id = ?, held_at = ? WHERE tenant = ? AND session = ?")
_STATE = bulk.statement("SELECT state FROM task WHERE task_id = ?")
_LAST = bulk.statement("SELECT max(number) FROM agent_turn WHERE tenant = ? AND session = ?")
_APPEND = bulk.insert_statement(
    schema.agent_turn,
    ("tenant", "session", "number", "task_id", "run_id", "job", "at", "tokens", "body"),
    "ON CONFLICT (tenant, session, task_id) DO NOTHING",
)
_FORGET = bulk.statement("DELETE FROM agent_turn WHERE tenant = ? AND session = ? AND number <= ?")
_TURNS = bulk.statement(
    "SELECT number, job, run_id, at, tokens, body, task_id FROM agent_turn WHERE tenant = ? AND session = ?"
    " ORDER BY number DESC LIMIT ?"
)
_SESSIONS = bulk.statement(
    "SELECT session, count(*), sum(tokens), max(at) FROM agent_turn WHERE tenant = ?"
    " GROUP BY session ORDER BY session LIMIT ?"
)
_CLEAR = bulk.statement("DELETE FROM agent_turn WHERE tenant = ? AND session = ?")
#: The states of a task that a worker has, or is about to get.
_IN_FLIGHT = frozenset((TaskState.SCHEDULED.value, TaskState.DISPATCHED.value, TaskState.RUNNING.value))


def append_turns(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    """Append the turns of the attempts that succeeded. A second report of the same attempt adds nothing."""
    for one in endings:
        if one.turn is None or one.state is not TaskState.SUCCEEDED:
            continue
        tenant, session = one.run.tenant, one.turn.session
        # The row of the session is locked, so that turns are numbered one after the other.
        bulk.execute_many(conn, _OPEN, [(tenant, session, one.task_id, one.ended_at)])
        bulk.fetch_rows(conn, _HOLDER, tenant, session)
        [(last,)] = bulk.fetch_rows(conn, _LAST, tenant, session)
        number = (last or 0) + 1
        [(_, _, body)] = sealed_rows(conn, [(one.task_id, _KIND, one.turn.messages)])
        job = one.run.schedule_id or one.run.workflow_id
        row = (tenant, session, number, one.task_id, one.run_id, job, one.ended_at, one.turn.tokens, body)
        bulk.execute_many(conn, _APPEND, [row])
        bulk.execute_statement(conn, _FORGET, tenant, session, number - MOST_TURNS)


def acquire(conn: sa.Connection, tenant: str, session: str, task_id: str, now: int) -> bool:
    """See AgentSessions.acquire."""
    bulk.execute_many(conn, _OPEN, [(tenant, session, task_id, now)])
    [(holder, held_at)] = bulk.fetch_rows(conn, _HOLDER, tenant, session)
    if holder != task_id:
        states = [state for (state,) in bulk.fetch_rows(conn, _STATE, holder)]
        admitting = states == [TaskState.PENDING.value] and held_at > now - ADMISSION_MS
        if admitting or not _IN_FLIGHT.isdisjoint(states):
            return False
    bulk.execute_statement(conn, _HOLD, task_id, now, tenant, session)
    return True


def clear(conn: sa.Connection, tenant: str, session: str, actor: str, now: int) -> int:
    """See AgentSessions.clear."""
    count = len(bulk.fetch_rows(conn, _TURNS, tenant, session, MOST_TURNS + 1))
    if count:
        bulk.execute_statement(conn, _CLEAR, tenant, session)
        audit.write(conn, [session_cleared_entry(tenant, session, turns=count, actor=actor, now=now)])
    return count


def turns(conn: sa.Connection, tenant: str, session: str, limit: int) -> Sequence[StoredTurn]:
    """See AgentSessions.turns."""
    return [
        StoredTurn(
            number=number,
            job=job,
            run_id=run_id,
            at=at,
            tokens=tokens,
            messages=unsealed(conn, task_id, _KIND, bytes(body)) or b"[]",
        )
        for number, job, run_id, at, tokens, body, task_id in bulk.fetch_rows(conn, _TURNS, tenant, session, limit)
    ]


def list_sessions(conn: sa.Connection, tenant: str, limit: int) -> Sequence[SessionSummary]:
    """See AgentSessions.list_sessions."""
    return [
        SessionSummary(session=session, turns=count, tokens=int(tokens), updated_at=at)
        for session, count, tokens, at in bulk.fetch_rows(conn, _SESSIONS, tenant, limit)
    ]


class SqlAgentSessions:
    """Implements AgentSessions."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def acquire(self, tenant: str, session: str, task_id: str, *, now: int) -> bool:
        """See AgentSessions.acquire."""
        return await self._transactions.write(lambda conn: acquire(conn, tenant, session, task_id, now))

    async def turns(self, tenant: str, session: str, *, limit: int) -> Sequence[StoredTurn]:
        """See AgentSessions.turns."""
        return await self._transactions.read(lambda conn: turns(conn, tenant, session, limit))

    async def list_sessions(self, tenant: str, *, limit: int) -> Sequence[SessionSummary]:
        """See AgentSessions.list_sessions."""
        return await self._transactions.read(lambda conn: list_sessions(conn, tenant, limit))

    async def clear(self, tenant: str, session: str, *, actor: str, now: int) -> int:
        """See AgentSessions.clear."""
        return await self._transactions.write(lambda conn: clear(conn, tenant, session, actor, now))
