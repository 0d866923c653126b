"""Budgets of the policy: reserved in the transactions that admit tasks, settled in those that end their attempts.

A budget is locked before any task, and until the end of the transaction: no two servers find the same last unit, and no
two transactions wait for each other. A window that is long over is removed when a new one begins.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import approvals, bulk, schema
from gnomon.adapters.sql.placement import lock_tenant
from gnomon.core.model import DAY_MS, TaskId
from gnomon.core.policy.budgets import (
    BudgetUse,
    BudgetWindow,
    NamedWindow,
    Reservation,
    named_window,
    settle,
    spent_of,
)
from gnomon.core.runs.admission import Admission, asks_over_budget, budget_uses, within_policy_budgets
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.ports.tasks import AttemptRef

#: An attempt may settle its reservation for so long after the end of the window.
_KEPT_MS = DAY_MS
_WINDOWS = bulk.statement(
    "SELECT window_id, spent, reserved FROM budget_window WHERE window_id IN KEYS ORDER BY window_id FOR UPDATE"
)
_WINDOWS_OF_TASKS = bulk.statement("SELECT DISTINCT window_id FROM budget_reservation WHERE task_id IN KEYS")
_OPEN = bulk.insert_statement(
    schema.budget_window,
    ("window_id", "ends_at", "spent", "reserved"),
    "ON CONFLICT (window_id) DO NOTHING",
)
_SET = bulk.update_statement(schema.budget_window, ("spent", "reserved"), by=("window_id",))
_PAGE = bulk.statement(
    "SELECT window_id, ends_at, spent, reserved FROM budget_window WHERE ends_at > ? AND window_id > ?"
    " ORDER BY window_id LIMIT ?"
)
#: Budget and beginning, the first two parts of a name.
_USED = bulk.Statement(
    "SELECT DISTINCT substr(window_id, 1, instr(window_id, '/') - 1"
    " + instr(substr(window_id, instr(window_id, '/') + 1), '/')) FROM budget_window WHERE ends_at > ?",
    "SELECT DISTINCT split_part(window_id, '/', 1) || '/' || split_part(window_id, '/', 2)"
    " FROM budget_window WHERE ends_at > $1",
)
_FORGET = bulk.statement("DELETE FROM budget_window WHERE ends_at < ?")
_FENCE = "(SELECT fence FROM task WHERE task.task_id = budget_reservation.task_id)"
_OF_TASKS = "FROM budget_reservation WHERE task_id IN KEYS AND number"
_FOUND = "SELECT task_id, number, window_id, meter, amount"
#: The reservations of attempts that were admitted, and not taken since; and those of attempts that were.
_UNTAKEN = bulk.statement(f"{_FOUND} {_OF_TASKS} > {_FENCE}")
_FORGET_UNTAKEN = bulk.statement(f"DELETE {_OF_TASKS} > {_FENCE}")
_TAKEN = bulk.statement(f"{_FOUND} {_OF_TASKS} <= {_FENCE}")
_FORGET_TAKEN = bulk.statement(f"DELETE {_OF_TASKS} <= {_FENCE}")


def page(conn: sa.Connection, now: int, after: str, limit: int) -> Sequence[NamedWindow]:
    """See BudgetWindows.page."""
    rows = bulk.fetch_rows(conn, _PAGE, now, after, limit)
    return [named_window(name, ends_at, BudgetWindow(*counts)) for name, ends_at, *counts in rows]


def used(conn: sa.Connection, now: int) -> frozenset[tuple[str, int]]:
    """See BudgetWindows.used."""
    names = (name.split("/") for (name,) in bulk.fetch_rows(conn, _USED, now))
    return frozenset((budget, int(starts_at)) for budget, starts_at in names)


def lock_budgets(conn: sa.Connection, admissions: Sequence[Admission]) -> None:
    """Keep other transactions from reserving and settling the budgets that these admissions use."""
    _lock({f"{use.budget}/{use.scope}" for use in budget_uses(admissions)}, conn)


def lock_settled_budgets(conn: sa.Connection, ended: Sequence[TaskCompletion]) -> None:
    """Keep other transactions from reserving and settling the budgets that these attempts have reserved."""
    tasks: list[str] = sorted({one.task_id for one in ended if one.budgeted})
    if tasks and conn.dialect.name == "postgresql":
        rows = bulk.fetch_rows(conn, _WINDOWS_OF_TASKS, tasks)
        _lock({f"{budget}/{scope}" for budget, _, scope in (name.split("/", 2) for (name,) in rows)}, conn)


def _lock(names: Iterable[str], conn: sa.Connection) -> None:
    for name in sorted(names):
        # No tenant has such a name.
        lock_tenant(conn, f"budget {name}")


def reserve_budgets(
    conn: sa.Connection, admitted: Mapping[TaskId, Admission], fences: Mapping[str, int], now: int
) -> dict[TaskId, Admission]:
    """Reserve what the admitted tasks use; those for which a budget has not enough left wait, ask or are denied."""
    uses = budget_uses(admitted.values())
    if not uses:
        return dict(admitted)
    # A task that was recalled, and is admitted again, reserves once.
    give_back_unspent(conn, [one.task_id for one in admitted.values() if budget_uses([one])])
    known = _locked_windows(conn, uses, now)
    ruled, windows, made = within_policy_budgets(list(admitted.values()), known, now=now)
    asking = asks_over_budget(ruled)
    if asking:
        # Those that were approved need not ask again.
        earlier = approvals.of_tasks(conn, asking)
        ruled, windows, made = within_policy_budgets(list(admitted.values()), known, now=now, approvals=earlier)
    _write_windows(conn, known, windows)
    rows = [
        (task_id, fences[task_id] + 1, one.window_id, one.meter, one.amount)
        for task_id, reservations in made.items()
        for one in reservations
    ]
    bulk.insert_rows(conn, schema.budget_reservation, rows)
    return {one.task_id: one for one in ruled}


def give_back_unspent(conn: sa.Connection, tasks: Sequence[str]) -> None:
    """Give back the reservations of tasks that no worker has taken since their admission."""
    rows = _reservations(conn, _UNTAKEN, tasks)
    if rows:
        _settle(conn, [(one, 0) for _, one in rows])
        bulk.execute_statement(conn, _FORGET_UNTAKEN, list(tasks))


def settle_budgets(
    conn: sa.Connection, ended: Collection[TaskCompletion], unstarted: Collection[TaskCompletion]
) -> None:
    """Settle the reservations of attempts that have ended; those that never ran give back everything."""
    budgeted = {(one.task_id, one.fence): one for one in ended if one.budgeted}
    if not budgeted:
        return
    tasks: list[str] = sorted({task_id for task_id, _ in budgeted})
    free = {(one.task_id, one.fence) for one in unstarted}
    rows = _reservations(conn, _TAKEN, tasks)
    reported = {held: budgeted[held].spent if held in budgeted else None for held, _ in rows}
    _settle(conn, [(one, 0 if held in free else spent_of(one, reported[held])) for held, one in rows])
    bulk.execute_statement(conn, _FORGET_TAKEN, tasks)


def _reservations(
    conn: sa.Connection, query: bulk.Statement, tasks: Sequence[str]
) -> list[tuple[AttemptRef, Reservation]]:
    rows = bulk.fetch_rows(conn, query, list(tasks)) if tasks else ()
    return [((TaskId(task_id), number), Reservation(*one)) for task_id, number, *one in rows]


def _settle(conn: sa.Connection, spent: Sequence[tuple[Reservation, int]]) -> None:
    """Settle reservations, each with what was spent of it. A window that was removed needs no account any more."""
    known = _read_windows(conn, sorted({one.window_id for one, _ in spent}))
    windows = dict(known)
    for one, amount in spent:
        if one.window_id in windows:
            windows[one.window_id] = settle(windows[one.window_id], one, spent=amount)
    _write_windows(conn, known, windows)


def _locked_windows(conn: sa.Connection, uses: Iterable[BudgetUse], now: int) -> dict[str, BudgetWindow]:
    ends = {use.window_id(now): use.window_at(now) + use.per_ms for use in uses}
    known = _read_windows(conn, sorted(ends))
    missing = sorted(ends.keys() - known.keys())
    if not missing:
        return known
    bulk.execute_statement(conn, _FORGET, now - _KEPT_MS)
    bulk.execute_many(conn, _OPEN, [(name, ends[name], 0, 0) for name in missing])
    return _read_windows(conn, sorted(ends))


def _read_windows(conn: sa.Connection, names: list[str]) -> dict[str, BudgetWindow]:
    return {name: BudgetWindow(*counts) for name, *counts in bulk.fetch_rows(conn, _WINDOWS, names)} if names else {}


def _write_windows(conn: sa.Connection, before: Mapping[str, BudgetWindow], after: Mapping[str, BudgetWindow]) -> None:
    changed = [(one.spent, one.reserved, name) for name, one in sorted(after.items()) if one != before.get(name)]
    bulk.execute_many(conn, _SET, changed)
