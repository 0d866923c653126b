"""Budgets of the policy: how much of a meter may be spent within a window of time.

A task reserves what it may spend in the transaction that admits it, and settles that in the one that ends its attempt.
An attempt that never ran gives everything back. The sum of all reservations and of everything that was spent never
exceeds the limit of a window, whichever servers admit tasks at the same time.

Windows follow each other without gaps, in UTC. A reservation belongs to the window in which it was made.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.durations import duration_text

#: The meter that counts attempts, and the one that counts actions of commands and agents. Others count what functions
#: say that they have spent.
TASKS, ACTIONS = "tasks", "actions"
#: The meters of tokens and cost, in millionths, that agents spend. Functions that ask models may spend them, too.
TOKENS, COST_MICROS = "tokens", "cost_micros"
_DAY_MS = 86_400_000
_WEEK_MS = 7 * _DAY_MS
#: The first Monday after the beginning of time: windows of weeks begin on Mondays.
_FIRST_MONDAY_MS = 4 * _DAY_MS


class OverBudget(StrEnum):
    """The decision about a task that would exceed a budget."""

    THROTTLE = "throttle"
    DENY = "deny"
    #: People decide whether it may exceed the budget.
    REQUIRE_APPROVAL = "require_approval"


class BudgetKey(StrEnum):
    """A fact about tasks by which a budget is divided: each value has a limit of its own."""

    TENANT = "tenant"
    JOB = "job"
    STEP = "step"
    TOPIC = "topic"
    FUNCTION = "function"
    CAPABILITY = "capability"
    ACTOR = "actor"


#: Longer scopes are shortened: a key in PostgreSQL has at most some 2,700 bytes.
_LONGEST_SCOPE = 300


def scope_text(values: Iterable[tuple[BudgetKey, str]]) -> str:
    """The values by which a budget is divided as one text, another one for each combination of values."""
    text = ", ".join(f"{key} {_quoted(value)}" for key, value in values)
    if len(text) <= _LONGEST_SCOPE:
        return text
    return f"{text[:_LONGEST_SCOPE]}… {sha256(text.encode()).hexdigest()[:32]}"


def _quoted(value: str) -> str:
    return msgspec.json.encode(value).decode() if "," in value or '"' in value else value


class BudgetUse(Struct, frozen=True, kw_only=True, gc=False):
    """The use of a budget by a task."""

    budget: str
    #: The values by which the budget is divided, as text: `tenant default, job pay`.
    scope: str
    meter: str
    limit: int
    per_ms: int
    #: How much the task reserves.
    amount: int
    over: OverBudget = OverBudget.THROTTLE
    #: How long to wait while others hold reservations that they may give back.
    retry_ms: int = 5_000
    #: The digest of the content of the budget, and who may let a task exceed it, if it asks people.
    digest: str = ""
    approval: ApprovalTerms | None = None

    def window_at(self, now: int) -> int:
        """When the window of that moment has begun."""
        return window_start(now, self.per_ms)

    def window_id(self, now: int) -> str:
        """The name of the window of that moment."""
        return f"{self.budget}/{self.window_at(now)}/{self.scope}"


class BudgetWindow(Struct, frozen=True):
    """How much of a budget is spent and reserved within a window."""

    spent: int = 0
    reserved: int = 0


class NamedWindow(Struct, frozen=True):
    """A window with its budget, and the values by which that is divided."""

    budget: str
    starts_at: int
    scope: str
    ends_at: int
    window: BudgetWindow

    @property
    def window_id(self) -> str:
        """Its name, as `BudgetUse.window_id` makes it."""
        return f"{self.budget}/{self.starts_at}/{self.scope}"


def named_window(window_id: str, ends_at: int, window: BudgetWindow) -> NamedWindow:
    """The window of that name. No budget has a slash in its id."""
    budget, starts_at, scope = window_id.split("/", 2)
    return NamedWindow(budget, int(starts_at), scope, ends_at, window)


#: A window in which nothing has happened.
UNUSED_WINDOW = BudgetWindow()


class Reservation(Struct, frozen=True):
    """The part of a budget that an attempt may spend."""

    window_id: str
    meter: str
    amount: int


class BudgetShortage(Struct, frozen=True):
    """The budget that has not enough left for a task, and when it may have."""

    use: BudgetUse
    ask_again_at: int

    @property
    def reason(self) -> str:
        """Why the task does not start. It does not depend on the moment, so that equal rulings count as one."""
        use = self.use
        budget = f"{use.limit} {use.meter} per {duration_text(use.per_ms)}"
        return f"{budget} are spent or reserved ({use.scope or 'all tasks'})"


class BudgetAnswer(Struct, frozen=True):
    """The answer to a task."""

    windows: dict[str, BudgetWindow]
    reservations: tuple[Reservation, ...] = ()
    shortage: BudgetShortage | None = None


def window_start(now: int, per_ms: int) -> int:
    """When the window of that moment has begun."""
    offset = _FIRST_MONDAY_MS if per_ms % _WEEK_MS == 0 else 0
    return now - (now - offset) % per_ms


def reserve(
    uses: Sequence[BudgetUse], known: Mapping[str, BudgetWindow], *, now: int, beyond: Collection[str] = ()
) -> BudgetAnswer:
    """Reserve what a task uses of all of its budgets, or nothing if one of them has not enough left.

    The task may exceed the budgets named in `beyond`.
    """
    windows, made = dict(known), []
    for use in uses:
        name = use.window_id(now)
        window = windows.get(name, UNUSED_WINDOW)
        if use.budget not in beyond and window.spent + window.reserved + use.amount > use.limit:
            return BudgetAnswer(dict(known), shortage=_shortage(use, window, now))
        windows[name] = replace(window, reserved=window.reserved + use.amount)
        made.append(Reservation(name, use.meter, use.amount))
    return BudgetAnswer(windows, tuple(made))


def _shortage(use: BudgetUse, window: BudgetWindow, now: int) -> BudgetShortage:
    next_at = use.window_at(now) + use.per_ms
    # Attempts at tasks spend what they reserve; only of other meters something may come back.
    may_come_back = use.meter != TASKS and window.spent + use.amount <= use.limit
    return BudgetShortage(use, min(now + use.retry_ms, next_at) if may_come_back else next_at)


def settle(window: BudgetWindow, one: Reservation, *, spent: int) -> BudgetWindow:
    """The window after the end of an attempt that has spent so much of its reservation."""
    return BudgetWindow(window.spent + spent, max(0, window.reserved - one.amount))


def spent_of(one: Reservation, reported: Mapping[str, int] | None) -> int:
    """How much of its reservation an attempt has spent, by its report; all of it if nobody knows."""
    if one.meter == TASKS or reported is None or (one.meter == ACTIONS and ACTIONS not in reported):
        return one.amount
    return min(reported.get(one.meter, 0), one.amount)


def allowances(uses: Iterable[BudgetUse]) -> tuple[tuple[str, int], ...]:
    """How much of each meter the attempt may spend: of several budgets of one meter, the least counts."""
    found: dict[str, int] = {}
    for use in uses:
        found[use.meter] = min(use.amount, found.get(use.meter, use.amount))
    return tuple(sorted(found.items()))
