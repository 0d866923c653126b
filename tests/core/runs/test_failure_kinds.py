"""The kinds of failure: the table says what the code does, and the page shows the table."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.approvals.model import APPROVAL_EXPIRED, APPROVAL_REJECTED
from gnomon.core.metrics import METRICS
from gnomon.core.model import Result, RunId, RunSource
from gnomon.core.output_policy.ruling import OUTPUT_QUARANTINED
from gnomon.core.policy.ruling import SAFETY_DENIED, SAFETY_UNKNOWN
from gnomon.core.runs.admission import ReadyTask, bad_input_admission, launch_failed_admission, overdue_admission
from gnomon.core.runs.deadlines import DEADLINE_EXCEEDED
from gnomon.core.runs.failure_kinds import FAILURE_KINDS, FailureKind, FailureReason, letter_of
from gnomon.core.runs.launch import first_tasks, new_requested_run
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, GiveUpLimits, TaskCompletion, complete_attempt
from gnomon.core.runs.rollback import COMPENSATION_FAILED, COMPENSATION_UNREADABLE, RollbackCause
from gnomon.core.runs.routing import ReasonCode
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import Delivery, RetryPolicy
from gnomon.errors import CommandRefused
from support.task_steps import assignment_of, workflow

pytestmark = pytest.mark.req("R-09", "R-11", "R-19")
PAGE = Path(__file__).parents[3] / "docs" / "dead-letters.md"
RUN = new_requested_run(RunId("run_1"), minutely(), source=RunSource.API, now=NOON)
[TASK] = first_tasks(RUN, ("main",), now=NOON)
WAITING = ReadyTask(task=TASK, run=RUN)
ONCE = RetryPolicy(max_attempts=1)


def held(*, asked: bool, **changes: Any) -> Assignment:  # noqa: ANN401 - any field of the workflow
    return assignment_of(WAITING, workflow(dead_letter=asked, **changes))


def ended(outcome: AttemptOutcome, of: Assignment) -> TaskCompletion:
    return complete_attempt(of, outcome, now=NOON, limits=GiveUpLimits(losses=1, routings=1))


ENDS = {
    "failed": (FailureReason.ATTEMPTS_EXHAUSTED, Result.FAILED, {}),
    "timed out": (FailureReason.ATTEMPTS_EXHAUSTED, Result.TIMED_OUT, {}),
    "gave up": (FailureReason.GAVE_UP, Result.GAVE_UP, {}),
    "lost": (FailureReason.WORKER_LOST, Result.LOST, {"delivery": Delivery.AT_MOST_ONCE}),
    "interrupted": (FailureReason.INTERRUPTED, Result.INTERRUPTED, {"delivery": Delivery.AT_MOST_ONCE}),
    "never started": (FailureReason.DISPATCH_FAILED, Result.NEVER_STARTED, {}),
    "denied": (FailureReason.SAFETY_DENIED, Result.DENIED, {}),
}


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("name", ENDS)
def test_an_attempt_ends_as_the_table_says(name: str, asked: bool) -> None:  # noqa: FBT001 - a case
    reason, result, changes = ENDS[name]

    end = ended(AttemptOutcome(result=result), held(asked=asked, **changes))

    assert end.state in FAILURE_KINDS[reason].states
    assert end.dead_letter == letter_of(reason, asked=asked)


def test_a_task_that_its_workers_do_not_survive_leaves_a_letter_in_any_case() -> None:
    assert ended(AttemptOutcome(result=Result.LOST), held(asked=False)).dead_letter == FailureReason.WORKER_LOST


def test_an_output_that_is_held_back_and_a_deadline_leave_a_letter_in_any_case() -> None:
    quarantined = ended(AttemptOutcome(result=Result.SUCCEEDED, quarantine="no"), held(asked=False))
    overdue = AttemptOutcome(result=Result.TIMED_OUT, past_deadline=True)
    limited = held(asked=False)
    late = ended(overdue, replace(limited, task=replace(limited.task, deadline_at=NOON)))
    before = overdue_admission(WAITING, workflow(), now=NOON)

    assert (quarantined.state, quarantined.dead_letter) == (
        TaskState.OUTPUT_QUARANTINED,
        FailureReason.OUTPUT_QUARANTINED,
    )
    assert {(one.state, one.dead_letter) for one in (late, before)} == {
        (TaskState.TIMEOUT, FailureReason.DEADLINE_EXCEEDED)
    }


@pytest.mark.parametrize("asked", [True, False])
def test_a_task_that_cannot_begin_ends_as_the_table_says(asked: bool) -> None:  # noqa: FBT001 - a case
    definition = workflow(dead_letter=asked)
    bad = bad_input_admission(WAITING, definition, "no", now=NOON)
    gone = launch_failed_admission(WAITING, "gone", now=NOON, limits=GiveUpLimits(launches=1), workflow=definition)

    for admission, reason in ((bad, FailureReason.BAD_INPUT), (gone, FailureReason.LAUNCH_FAILED)):
        assert admission.state in FAILURE_KINDS[reason].states
        assert admission.dead_letter == letter_of(reason, asked=asked)


def test_a_failure_that_may_pass_is_retried() -> None:
    patient = {"retry": RetryPolicy(max_attempts=2)}
    for result in (Result.FAILED, Result.TIMED_OUT):
        assert ended(AttemptOutcome(result=result), held(asked=True, **patient)).state is TaskState.PENDING
    for result in (Result.GAVE_UP, Result.DENIED):
        assert ended(AttemptOutcome(result=result), held(asked=True, **patient)).over


def test_every_reason_that_the_code_gives_is_in_the_table() -> None:
    given = {
        DEADLINE_EXCEEDED, SAFETY_DENIED, SAFETY_UNKNOWN, APPROVAL_REJECTED, APPROVAL_EXPIRED, OUTPUT_QUARANTINED,
        COMPENSATION_FAILED, COMPENSATION_UNREADABLE, CommandRefused.code, *ReasonCode,
    }  # fmt: skip
    # A task over the limit of its tenant waits; it never fails.
    assert given - {ReasonCode.TENANT_LIMIT} <= set(FailureReason)
    assert set(FAILURE_KINDS) == set(FailureReason)


def test_every_kind_ends_its_task_and_names_metrics_that_exist() -> None:
    for kind in FAILURE_KINDS.values():
        assert TERMINAL.issuperset(kind.states)
        for name in re.findall(r"[a-z_]+(?=_total)", kind.metric):
            assert name in METRICS, kind.reason


def test_only_a_step_that_gives_up_rolls_back_without_being_named() -> None:
    assert [kind.reason for kind in FAILURE_KINDS.values() if kind.rolls_back] == [FailureReason.GAVE_UP]
    assert FAILURE_KINDS[FailureReason.SAFETY_UNKNOWN].rollback_causes == (RollbackCause.DENIED,)


def test_the_page_shows_the_table() -> None:
    head = "| reason | meaning | ends as | retried before | dead letter | rolls back | counted by |"
    lines = [head, "| --- | --- | --- | --- | --- | --- | --- |", *map(_row, FAILURE_KINDS.values())]
    table = "\n".join(lines) + "\n"
    text = PAGE.read_text()
    if os.environ.get("GNOMON_REDRAW"):
        start = text.index("| reason |")
        PAGE.write_text(text[:start] + table + text[text.index("\n\n", start) + 1 :])
    assert table in PAGE.read_text()


def _row(kind: FailureKind) -> str:
    is_compensation = kind.reason in (FailureReason.SAGA_COMPENSATION_FAILED, FailureReason.SAGA_UNMARSHAL_FAILED)
    causes = ", ".join(f"`{cause}`" for cause in kind.rollback_causes)
    rolls_back = "always" if kind.rolls_back else f"with {causes} in `rollback_on`"
    letter = "always" if kind.always else "with `dead_letter: true`"
    if kind.reason is FailureReason.WORKER_LOST:
        letter = "always after `execution.max_losses`, else with `dead_letter: true`"
    states = ", ".join(f"`{state}`" for state in kind.states)
    shown = "no: it is part of one" if is_compensation else rolls_back
    metric = f"`{kind.metric}`" if kind.metric else ""
    return f"| `{kind.reason}` | {kind.meaning} | {states} | {kind.retried} | {letter} | {shown} | {metric} |"
