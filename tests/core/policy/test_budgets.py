"""Budgets of the policy: windows, reservations and their fields."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.agents.spec import AgentBudget, AgentSpec
from gnomon.core.approvals.terms import DEFAULT_TERMS, ApprovalTerms
from gnomon.core.instants import ms_of
from gnomon.core.policy.budgets import (
    BudgetKey,
    BudgetUse,
    BudgetWindow,
    OverBudget,
    Reservation,
    reserve,
    scope_text,
    settle,
    spent_of,
    window_start,
)
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.document import Budget, RuleMatch
from gnomon.core.policy.facts import RequestFacts, StepFacts
from gnomon.core.policy.reader import read_policy
from gnomon.core.runs.workflow import AGENT, Step
from gnomon.errors import FieldError

HOUR, DAY = 3_600_000, 86_400_000
USE = BudgetUse(budget="b", scope="", meter="tasks", limit=3, per_ms=HOUR, amount=1)


def at(text: str) -> int:
    return ms_of(datetime.fromisoformat(text).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("per", "begins"),
    [
        (HOUR, "2026-03-04T14:00"),
        (DAY, "2026-03-04T00:00"),
        # A Monday.
        (7 * DAY, "2026-03-02T00:00"),
        (60_000, "2026-03-04T14:59"),
    ],
)
def test_windows_begin_with_the_hour_the_day_and_the_week_in_utc(per: int, begins: str) -> None:
    assert window_start(at("2026-03-04T14:59:59"), per) == at(begins)


@given(st.integers(-(10**15), 10**15), st.integers(1, 10**11))
def test_every_moment_is_in_exactly_one_window(now: int, per: int) -> None:
    begins = window_start(now, per)
    assert begins <= now < begins + per
    assert window_start(begins + per, per) == begins + per


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 4)), max_size=40))
def test_expenses_and_reservations_never_exceed_the_limit(acts: list[tuple[int, bool, int]]) -> None:
    windows: dict[str, BudgetWindow] = {}
    held: list[Reservation] = []
    for amount, ends, spent in acts:
        if ends and held:
            one = held.pop()
            windows[one.window_id] = settle(windows[one.window_id], one, spent=min(spent, one.amount))
        else:
            use = BudgetUse(budget="b", scope="", meter="m", limit=7, per_ms=HOUR, amount=amount)
            answer = reserve([use], windows, now=0)
            before = sum(one.spent + one.reserved for one in windows.values())
            assert (answer.shortage is not None) is (before + amount > 7)
            windows, held = answer.windows, [*held, *answer.reservations]
        assert all(one.spent + one.reserved <= 7 for one in windows.values())
        assert sum(one.amount for one in held) == sum(one.reserved for one in windows.values())


TEXTS = st.text(st.sampled_from('ab",\\ é'), max_size=4)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_other_values_are_another_scope(topic: str, actor: str, other_topic: str, other_actor: str) -> None:
    one = scope_text([(BudgetKey.TOPIC, topic), (BudgetKey.ACTOR, actor)])
    other = scope_text([(BudgetKey.TOPIC, other_topic), (BudgetKey.ACTOR, other_actor)])

    assert (one == other) is ((topic, actor) == (other_topic, other_actor))


def test_a_scope_is_short_enough_for_a_key_and_still_another_one_for_each_value() -> None:
    scopes = {scope_text([(BudgetKey.ACTOR, "é" * 5_000 + str(number))]) for number in range(50)}

    assert len(scopes) == 50
    assert max(len(one.encode()) for one in scopes) < 1_000


def test_without_a_report_everything_counts_as_spent() -> None:
    mails = Reservation("w", "mails", 6)
    assert [spent_of(mails, reported) for reported in (None, {}, {"mails": 4}, {"mails": 9})] == [6, 0, 4, 6]
    assert spent_of(Reservation("w", "tasks", 1), {}) == 1


def read(**fields: Any) -> Budget:  # noqa: ANN401
    [budget] = read_policy({"budgets": [{"id": "pay", "limit": 20, "per": "1h", **fields}]}).budgets
    return budget


def test_the_fields_of_a_budget_are_read() -> None:
    assert read() == Budget(budget_id="pay", limit=20, per_ms=HOUR)
    assert read(by=["tenant", "job"], over="deny", match={"jobs": ["pay-*"]}, meter="actions") == Budget(
        budget_id="pay",
        limit=20,
        per_ms=HOUR,
        by=(BudgetKey.TENANT, BudgetKey.JOB),
        over=OverBudget.DENY,
        match=RuleMatch(jobs=("pay-*",)),
        meter="actions",
    )
    assert read(meter="mails", reserve=3).reserve == 3
    assert read(over="require_approval").approval == DEFAULT_TERMS
    assert read(over="require_approval", approval={"quorum": 2}).approval == ApprovalTerms(quorum=2)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": True}, "limit"),
        ({"per": "1ms"}, "per"),
        ({"per": "400d"}, "per"),
        ({"by": ["tenant", "tenant"]}, "by[1]"),
        ({"by": ["planet"]}, "by[0]"),
        ({"over": "ask"}, "over"),
        ({"approval": {"quorum": 2}}, "approval"),
        ({"over": "require_approval", "approval": {"voters": ["bob"], "quorum": 2}}, "approval.quorum"),
        ({"over": "require_approval", "approval": {"votes": 2}}, "approval.votes"),
        ({"meter": "Mails"}, "meter"),
        ({"reserve": 1}, "reserve"),
        ({"meter": "mails", "reserve": 21}, "reserve"),
        ({"match": {"job": ["x"]}}, "match.job"),
        ({"until": "2026"}, "until"),
        ({"id": "A B"}, "id"),
    ],
)
def test_a_bad_budget_is_refused_by_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        read(**fields)

    assert refused.value.field == f"budgets[0].{field}"


@pytest.mark.parametrize("missing", ["id", "limit", "per"])
def test_a_budget_without_a_required_field_is_refused(missing: str) -> None:
    fields = {"id": "pay", "limit": 20, "per": "1h"}
    del fields[missing]
    with pytest.raises(FieldError) as refused:
        read_policy({"budgets": [fields]})

    assert refused.value.field == f"budgets[0].{missing}"


def test_two_budgets_of_one_id_are_refused() -> None:
    with pytest.raises(FieldError) as refused:
        read_policy({"budgets": [{"id": "pay", "limit": 1, "per": "1h"}] * 2})

    assert refused.value.field == "budgets[1].id"


@pytest.mark.req("R-02")
@pytest.mark.parametrize(
    ("meter", "reserve", "budget", "amount"),
    [
        ("tokens", None, AgentBudget(), 900),
        ("tokens", 400, AgentBudget(), 400),
        ("tokens", 400, AgentBudget(tokens=300), 300),
        ("tokens", 400, AgentBudget(tokens=700), 400),
        ("cost_micros", None, AgentBudget(cost_micros=50, tokens=1), 50),
        ("mails", None, AgentBudget(tokens=1), 900),
    ],
)
def test_an_agent_reserves_no_more_than_its_own_budget(
    meter: str, reserve: int | None, budget: AgentBudget, amount: int
) -> None:
    fields = {"id": "b", "limit": 900, "per": "1d", "meter": meter} | ({} if reserve is None else {"reserve": reserve})
    policy = CompiledPolicy(read_policy({"budgets": [fields]}), 1, throttle_ms=5000)
    facts = StepFacts(tenant="acme", job="x", workflow="x", step="main", topic="", function=AGENT, kind="agent")
    step = Step(name="main", function=AGENT, agent=AgentSpec(budget=budget))

    found = policy.budgets_for_step(facts, step)

    assert found is not None
    assert [use.amount for use in found.uses(RequestFacts(step=facts), 0)] == [amount]
