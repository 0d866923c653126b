"""Runs with the runs that their steps waited for: they stay and go together."""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, tables
from gnomon.adapters.sql.run_rows import DEAD_LETTER, RUN, dead_letter_of, named, run_of
from gnomon.core.model import ENGINE, DeadLetter, Run
from gnomon.core.retention import rested_on
from gnomon.core.runs.launch import keyed_run_id
from gnomon.core.runs.outcomes import dead_letter_id

_SIZES = bulk.statement("SELECT run_id, count(*) FROM task WHERE run_id IN KEYS GROUP BY run_id")
_TASKS = bulk.statement("SELECT task_id FROM task WHERE task_id IN KEYS")
#: Every attempt of a step that waited for a run had one of its own.
_WAITED = bulk.statement(
    "SELECT task.run_id, task.tenant, attempt.task_id, attempt.number FROM task"  # noqa: S608 - our own names, here and below
    f" JOIN attempt ON attempt.task_id = task.task_id WHERE task.run_id IN KEYS AND attempt.worker = '{ENGINE}'"
)
_RUNS = bulk.statement(f"SELECT {named(RUN)} FROM run WHERE run_id IN KEYS")  # noqa: S608
_UNDER_WAY = bulk.statement(f"SELECT run_id FROM run WHERE run_id IN KEYS AND {tables.NOT_OVER}")  # noqa: S608
_FAILED = bulk.statement("SELECT run_id, task_id FROM task WHERE run_id IN KEYS AND state <> 'SUCCEEDED'")
_UNRESOLVED = bulk.statement(
    f"SELECT {named(DEAD_LETTER)} FROM dead_letter WHERE dead_letter_id IN KEYS AND resolved_at IS NULL"  # noqa: S608
)


class Family(NamedTuple):
    """A run, then all below it."""

    runs: Sequence[Run]


def families(conn: sa.Connection, aged: Sequence[Run], limit: int) -> tuple[list[Family], Run | None]:
    """Those of the aged runs that may go, up to about so many tasks; and the last one looked at, if not all were."""
    if not aged:
        return [], None
    free = _without_parents(conn, aged)
    few = _few(conn, free, limit)
    going = [family for family in _with_below(conn, few) if all(run.over for run in family.runs)]
    needed = _rested_on(conn, [family.runs[0] for family in going])
    seen = few[-1] if len(few) < len(free) else None
    return [family for family in going if family.runs[0].run_id not in needed], seen


def _without_parents(conn: sa.Connection, runs: Sequence[Run]) -> list[Run]:
    """Those that no step of a run waited for that is still there."""
    parents: list[str] = [run.parent_task for run in runs if run.parent_task is not None]
    there = {name for (name,) in bulk.rows(conn, _TASKS, parents)} if parents else set()
    return [run for run in runs if run.parent_task not in there]


def _few(conn: sa.Connection, runs: Sequence[Run], limit: int) -> list[Run]:
    sizes = {name: count for name, count in bulk.rows(conn, _SIZES, [run.run_id for run in runs])}  # noqa: C416 - rows are no tuples to a type checker
    few: list[Run] = []
    tasks = 0
    for run in runs:
        if tasks >= limit:
            break
        tasks += sizes.get(run.run_id, 0)
        few.append(run)
    return few


def _with_below(conn: sa.Connection, runs: Sequence[Run]) -> list[Family]:
    members: dict[str, list[Run]] = {run.run_id: [run] for run in runs}
    first_of: dict[str, str] = {name: name for name in members}
    level = list(members)
    while level:
        names = {
            keyed_run_id(tenant, task_id, str(number)): first_of[run_id]
            for run_id, tenant, task_id, number in bulk.rows(conn, _WAITED, level)
        }
        found = [run_of(row) for row in bulk.rows(conn, _RUNS, list(names))] if names else []
        for run in found:
            first_of[run.run_id] = names[run.run_id]
            members[names[run.run_id]].append(run)
        level = [run.run_id for run in found]
    return [Family(family) for family in members.values()]


def _rested_on(conn: sa.Connection, runs: Sequence[Run]) -> set[str]:
    """The runs that a dead letter still needs."""
    names: list[str] = [run.run_id for run in runs]
    failed = {dead_letter_id(task): run_id for run_id, task in bulk.rows(conn, _FAILED, names)} if names else {}
    letters: dict[str, list[DeadLetter]] = {}
    for row in bulk.rows(conn, _UNRESOLVED, list(failed)) if failed else ():
        letter = dead_letter_of(row)
        letters.setdefault(failed[letter.dead_letter_id], []).append(letter)
    again: list[str] = [one.replayed_by for some in letters.values() for one in some if one.replayed_by is not None]
    under_way = {name for (name,) in bulk.rows(conn, _UNDER_WAY, again)} if again else set()
    return {run.run_id for run in runs if rested_on(run, letters.get(run.run_id, ()), under_way)}
