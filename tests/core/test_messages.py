"""Messages between servers and workers survive a round trip, and errors in them are named."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.spec import AgentSpec
from gnomon.core.ids import call_key, compensation_key, idempotency_key
from gnomon.core.messages import (
    StartedReport,
    WorkerReport,
    assignment_of,
    decode_task_message,
    decode_worker_report,
    encode_task_message,
    encode_worker_report,
    ended_report_of,
    task_message_of,
)
from gnomon.core.model import LogLine, Result, RunId, TaskId
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.progress import AttemptProgress
from gnomon.core.runs.workflow import AGENT, SHELL, Delivery, Isolation, RetryPolicy, Step, Workflow
from gnomon.errors import FieldError
from gnomon.runners.context import attempt_info
from support.dispatched_assignments import dispatched_assignment

JSON = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=5)


@pytest.mark.req("H-13")
@given(given_=st.dictionaries(st.text(min_size=1), JSON, max_size=4), timeout=st.none() | st.integers(1, 10**9))
def test_a_worker_knows_of_an_order_what_its_functions_may_know(given_: dict[str, object], timeout: int | None) -> None:
    sent = dispatched_assignment(given=given_, timeout_ms=timeout)
    body = encode_task_message(task_message_of(sent, deadline=99), now=1_772_452_800_123)
    found = assignment_of(decode_task_message(body))

    assert attempt_info(found, deadline_at=None) == attempt_info(sent, deadline_at=None)
    assert (found.input, found.step.timeout_ms) == (given_, timeout)
    assert idempotency_key(found.run) == idempotency_key(sent.run)


@pytest.mark.req("R-09")
@pytest.mark.parametrize("item", [None, 3])
def test_a_compensation_has_the_same_key_in_every_process_and_in_every_rollback(item: int | None) -> None:
    step = Step(name="compensate:hotel", function="cancel", capability="travel")
    sent = dispatched_assignment(step=step)
    sent = structs.replace(sent, task=structs.replace(sent.task, item=item))
    found = assignment_of(decode_task_message(encode_task_message(task_message_of(sent, deadline=99), now=0)))
    again = structs.replace(sent, task=structs.replace(sent.task, step="compensate:hotel#2", task_id=TaskId("comp-2")))

    key = attempt_info(sent, deadline_at=None).idempotency_key
    assert len(key) == 64
    assert key != idempotency_key(sent.run)
    assert {attempt_info(one, deadline_at=None).idempotency_key for one in (found, again)} == {key}
    assert call_key(sent.run, sent.task, sent.step) == key


@pytest.mark.req("R-09")
def test_compensations_of_other_steps_items_topics_and_capabilities_have_other_keys() -> None:
    step = Step(name="compensate:hotel", function="cancel", capability="travel")
    base = structs.replace(dispatched_assignment(step=step).task, item=1)
    run = dispatched_assignment().run
    others = [
        (run, base, step),
        (structs.replace(run, workflow_id="other"), base, step),
        (run, structs.replace(base, item=2), step),
        (run, structs.replace(base, run_id=RunId("run_2")), step),
        (run, structs.replace(base, step="compensate:car"), structs.replace(step, name="compensate:car")),
        (run, base, structs.replace(step, function="refund")),
        (run, base, structs.replace(step, capability="money")),
    ]
    assert len({compensation_key(*one) for one in others}) == len(others)


@pytest.mark.req("H-13")
@pytest.mark.parametrize(
    ("function", "own_ms", "seconds"),
    [("report", None, 300), ("report", 5_000, 5), (SHELL, None, None), (SHELL, 5_000, 5)],
)
def test_a_message_has_the_timeout_that_holds_unless_only_the_worker_knows_it(
    function: str, own_ms: int | None, seconds: int | None
) -> None:
    sent = dispatched_assignment(timeout_ms=own_ms)
    sent = structs.replace(sent, step=structs.replace(sent.step, function=function))

    assert task_message_of(sent, deadline=99, default_timeout_ms=300_000).timeout == seconds


@pytest.mark.req("Z-12")
@pytest.mark.parametrize("retry", [None, RetryPolicy(max_attempts=2)])
def test_a_worker_knows_what_its_agent_may_spend_and_repeat(retry: RetryPolicy | None) -> None:
    step = Step(name="main", function=AGENT, agent=AgentSpec(tools=("shell",)), retry=retry)
    sent = structs.replace(dispatched_assignment(step=step), day_cost_left=7)
    found = assignment_of(decode_task_message(encode_task_message(task_message_of(sent, deadline=99), now=0)))

    assert (found.step.agent, found.step.retry, found.day_cost_left) == (step.agent, retry, 7)


#: Every field of the message of the seed, as the envelope and its data have them.
SEED_ENVELOPE = {"schema", "id", "type", "source", "timestamp", "data"}
SEED_DATA = {"job_name", "execution_id", "function", "input", "attempt", "timeout"}


@pytest.mark.req("H-13")
def test_a_first_attempt_without_input_and_timeout_has_every_field_of_the_seed() -> None:
    sent = dispatched_assignment(given={}, timeout_ms=None)
    first = structs.replace(sent, task=structs.replace(sent.task, attempts=0, fence=1))
    written = msgspec.json.decode(encode_task_message(task_message_of(first, deadline=99), now=1_772_452_800_123))

    assert written.keys() == SEED_ENVELOPE
    assert written["source"] == "scheduler"
    assert written["timestamp"] == "2026-03-02T12:00:00.123Z"
    assert written["data"].keys() >= SEED_DATA
    assert (written["data"]["input"], written["data"]["attempt"], written["data"]["timeout"]) == ({}, 1, None)


@pytest.mark.req("H-13")
def test_a_message_of_an_older_server_leaves_out_what_has_its_default() -> None:
    sent = dispatched_assignment(given={}, timeout_ms=None)
    message = structs.replace(task_message_of(sent, deadline=99), attempt=1, tenant="default")
    written = msgspec.json.decode(encode_task_message(message, now=0))
    needed = {"job_name", "execution_id", "function", "task_id", "fence", "deadline", "to"}
    defaults = {"input": {}, "attempt": 1, "timeout": None, "tenant": "default", "step": "main"}
    assert {name: written["data"][name] for name in defaults} == defaults
    written["data"] = {name: value for name, value in written["data"].items() if name in needed}
    written["source"] = "courier_01"

    older = decode_task_message(msgspec.json.encode(written))

    assert (older.name, older.input, older.attempt, older.timeout) == (message.name, {}, 1, None)
    assert assignment_of(older).task.attempts == 0


def test_a_command_in_a_graph_keeps_what_decides_how_it_runs() -> None:
    step = Step(name="load", function="gnomon.shell", command="make", input={"env": {}}, isolation=Isolation.PROCESS)
    definition = Workflow(
        workflow_id="w",
        version=7,
        steps=(Step(name="first"), step),
        delivery=Delivery.AT_MOST_ONCE,
        origin="file:/etc/jobs.yaml",
    )
    held = structs.replace(dispatched_assignment(workflow=definition, step=step), approved=True)
    body = encode_task_message(task_message_of(held, deadline=99), now=0)
    found = assignment_of(decode_task_message(body))

    assert (found.step.command, found.step.isolation, tuple(found.step.input)) == ("make", Isolation.PROCESS, ("env",))
    assert (len(found.workflow.steps), found.workflow.delivery) == (2, Delivery.AT_MOST_ONCE)
    assert (found.workflow.origin, found.approved) == ("file:/etc/jobs.yaml", True)


@pytest.mark.parametrize("output", [None, b"null", b'{"a":[1,2.5,"\\u00fc"]}', b'"' + b"x" * 70_000 + b'"'])
def test_an_outcome_arrives_as_it_was_sent(output: bytes | None) -> None:
    reported = AttemptOutcome(
        result=Result.FAILED,
        error="broken \x01",
        output=output,
        snooze_ms=5,
        retry_after_ms=7,
        logs=(LogLine(1, "info", "hi"),),
    )
    reports = WorkerReport(
        worker="field_w",
        started=(StartedReport(TaskId("t"), 3),),
        ended=(ended_report_of(dispatched_assignment(), reported),),
    )
    found = decode_worker_report(encode_worker_report(reports, message_id="field_w:1", now=0), sender="field_w").data

    assert found.started == reports.started
    assert found.ended[0].outcome() == reported


def test_the_progress_of_attempts_arrives_apart_from_that_of_agents() -> None:
    """An older server can read no progress without usage, and ignores fields that it does not know."""
    said = AttemptProgress(task_id=TaskId("t"), fence=3, first=7, known=1, lines=(LogLine(1, "info", "hi"),))
    spent = structs.replace(said, spent=AgentSpending(requests=1))
    reports = WorkerReport(worker="field_w", progress=(spent,), log_progress=(said,))
    body = encode_worker_report(reports, message_id="field_w:1", now=0)

    assert decode_worker_report(body, sender="field_w").data == reports
    assert all("spent" in one for one in msgspec.json.decode(body)["data"]["progress"])


def test_a_log_that_is_too_large_leaves_a_remark_and_the_lines_that_were_kept() -> None:
    lines = tuple(LogLine(number, "info", "x" * 2_000) for number in range(1_000))
    ended = ended_report_of(dispatched_assignment(), AttemptOutcome(result=Result.SUCCEEDED, logs=lines, log_kept=True))
    short = ended_report_of(dispatched_assignment(), AttemptOutcome(result=Result.SUCCEEDED))
    body = encode_worker_report(WorkerReport(worker="field_w", ended=(ended, short)), message_id="field_w:1", now=0)
    found = [one.outcome() for one in decode_worker_report(body, sender="field_w").data.ended]

    remark = LogLine(999, "warning", "[the log of 1000 lines is too large for a message]")
    assert [(one.logs, one.log_kept, one.log_left_out) for one in found] == [
        ((remark,), True, True),
        ((), False, False),
    ]


def test_nobody_sleeps_for_more_than_a_year() -> None:
    reported = ended_report_of(dispatched_assignment(), AttemptOutcome(result=Result.SNOOZED, snooze_ms=10**15))

    assert reported.outcome().snooze_ms == 366 * 24 * 60 * 60_000


def test_an_error_is_stored_in_part_if_it_is_long() -> None:
    reported = ended_report_of(dispatched_assignment(), AttemptOutcome(result=Result.FAILED, error="x" * 900_000))

    assert reported.outcome().error == "x" * 10_000


def test_a_worker_cannot_say_what_follows_from_an_outcome() -> None:
    body = encode_worker_report(
        WorkerReport(
            worker="field_w", ended=(ended_report_of(dispatched_assignment(), AttemptOutcome(result=Result.FAILED)),)
        ),
        message_id="field_w:1",
        now=0,
    )
    wicked = body.replace(
        b'"result":"failed"', b'"result":"failed","state":"SUCCEEDED","lease_until":1,"quarantine":"x"'
    )
    outcome = decode_worker_report(wicked, sender="field_w").data.ended[0].outcome()

    assert (outcome.quarantine, outcome.lease_until, outcome.result) == (None, None, Result.FAILED)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema": "hanzo.mq.v2"}, "schema"),
        ({"type": "scheduler.report"}, "type"),
        ({"data": []}, "message"),
        ({"data": {}}, "message"),
        ({"data": {"job_name": "a", "fence": "1"}}, "message"),
    ],
)
def test_an_error_names_the_fault_of_a_message(change: dict[str, object], field: str) -> None:
    written = msgspec.json.decode(encode_task_message(task_message_of(dispatched_assignment(), deadline=0), now=0))
    with pytest.raises(FieldError) as refused:
        decode_task_message(msgspec.json.encode(written | change))

    assert refused.value.field == field
