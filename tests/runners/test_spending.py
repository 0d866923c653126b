"""Functions say what they spend of the meters of budgets, on every executor, and the outcome has it."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gnomon.core.messages import EndedReport, ended_report_of
from gnomon.core.model import Result
from gnomon.core.policy.constraints import Constraints
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import Isolation
from gnomon.errors import BudgetExceeded, FieldError
from gnomon.runners.spending import AttemptSpending
from runners.process_functions import FUNCTIONS
from runners.runner_harness import assignment, open_runner


def test_an_attempt_spends_what_it_has_reserved_and_no_more() -> None:
    spending = AttemptSpending({"mails": 5})
    spending.spend("mails", 2)
    with pytest.raises(BudgetExceeded, match="4 mails are more than the 3 that the attempt may still spend"):
        spending.spend("mails", 4)
    spending.spend("mails", 3)

    assert spending.amounts == {"mails": 5}


def test_a_meter_without_a_budget_has_no_limit_and_is_not_counted() -> None:
    spending = AttemptSpending({"mails": 5})
    spending.spend("calls", 10**9)

    assert spending.amounts == {}


@pytest.mark.parametrize(("meter", "amount"), [("", 1), (3, 1), ("mails", -1), ("mails", 1.5), ("mails", True)])
def test_nonsense_is_refused_and_not_counted(meter: Any, amount: Any) -> None:  # noqa: ANN401
    spending = AttemptSpending({"mails": 5})
    with pytest.raises(FieldError):
        spending.spend(meter, amount)

    assert spending.amounts == {}


def spending(function: str, isolation: Isolation, amounts: list[int] | None = None) -> Assignment:
    held = assignment(function, {} if amounts is None else {"amounts": amounts}, isolation=isolation)
    return replace(held, task=replace(held.task, constraints=Constraints(spend=(("mails", 5), ("tasks", 1)))))


async def ended(held: Assignment) -> AttemptOutcome:
    async with open_runner(FUNCTIONS) as harness:
        harness.runner.start([held])
        return await harness.outcome(held)


@pytest.mark.parametrize("isolation", Isolation)
async def test_the_outcome_of_a_function_says_what_it_has_spent(isolation: Isolation) -> None:
    outcome = await ended(spending("spends", isolation, [2, 4, 1]))

    assert (outcome.result, outcome.output, outcome.spent) == (Result.SUCCEEDED, b"4", {"mails": 3})


@pytest.mark.parametrize("isolation", Isolation)
async def test_a_function_that_spends_too_much_fails_and_has_spent_what_it_had(isolation: Isolation) -> None:
    outcome = await ended(spending("spends-too-much", isolation))

    assert (outcome.result, outcome.spent) == (Result.FAILED, {"mails": 2})
    assert (outcome.error or "").startswith(
        "BudgetExceeded: 1000000 mails are more than the 3 that the attempt may still spend"
    )


async def test_without_a_budget_nothing_is_reported() -> None:
    outcome = await ended(assignment("spends", {"amounts": [3]}))

    assert (outcome.output, outcome.spent) == (b"0", None)


def test_a_worker_over_nats_reports_it_too() -> None:
    held = assignment("spends", {"amounts": [3]})
    sent = ended_report_of(held, AttemptOutcome(result=Result.SUCCEEDED, spent={"mails": 3}))
    old = ended_report_of(held, AttemptOutcome(result=Result.SUCCEEDED))

    assert msgspec.json.decode(msgspec.json.encode(sent), type=EndedReport).outcome().spent == {"mails": 3}
    assert msgspec.json.decode(msgspec.json.encode(old), type=EndedReport).outcome().spent is None
    forged = replace(sent, spent={"mails": -3})
    assert forged.outcome().spent == {"mails": 0}
