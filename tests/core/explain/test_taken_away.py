"""The sentences about outputs that were taken away after they were stored."""

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.explain.evidence import RunEvidence
from gnomon.core.explain.phrases import TimeFormatter
from gnomon.core.explain.runs import explain_run
from gnomon.core.model import RunId, RunSource, RunStatus
from gnomon.core.output_policy.late import late_note
from gnomon.core.output_policy.ruling import OutputDecision, OutputRuling, held_text
from gnomon.core.runs.launch import first_tasks, new_requested_run
from gnomon.core.runs.states import TaskState

pytestmark = pytest.mark.req("R-06")
RULING = OutputRuling(
    decision=OutputDecision.QUARANTINE, rule="keys", version=3, content_digest="", size=1, reason="no keys"
)


def sentence(note: str, state: TaskState = TaskState.OUTPUT_QUARANTINED, *, steps: int = 1) -> str:
    run = new_requested_run(RunId("run_1"), minutely(), source=RunSource.API, now=NOON)
    names = tuple(f"step{number}" for number in range(steps))
    tasks = tuple(replace(one, state=state, note=note) for one in first_tasks(run, names, now=NOON))
    over = replace(run, status=RunStatus.COMPLETED, started_at=NOON, completed_at=NOON)
    return explain_run(over, RunEvidence(tasks=tasks), TimeFormatter("UTC", NOON), now=NOON)


def test_a_finished_run_says_whose_output_was_taken_away_and_why() -> None:
    found = sentence(late_note(RULING))
    assert "completed" in found
    assert found.endswith(" The output of step0 was taken away after it was stored: no keys (rule keys of policy 3).")


def test_an_output_that_was_held_back_at_once_or_released_has_no_such_sentence() -> None:
    assert "taken away" not in sentence(held_text(RULING))
    assert "taken away" not in sentence(late_note(RULING), TaskState.SUCCEEDED)


def test_only_some_of_many_steps_are_named() -> None:
    assert sentence(late_note(RULING), steps=13).endswith(" So were 3 more.")
