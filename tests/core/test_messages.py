"""What servers and workers write to each other survives the way, and what is wrong with it is said."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.ids import idempotency_key
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
from gnomon.core.model import LogLine, Result, TaskId
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import Delivery, Isolation, Step, Workflow
from gnomon.errors import FieldError
from gnomon.runners.context import attempt_info
from support.dispatched_assignments import dispatched_assignment

JSON = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=5)


@pytest.mark.req("H-13")
@given(given_=st.dictionaries(st.text(min_size=1), JSON, max_size=4), timeout=st.none() | st.integers(1, 10**9))
def test_a_worker_knows_of_an_order_what_its_functions_may_know(given_: dict[str, object], timeout: int | None) -> None:
    sent = dispatched_assignment(given=given_, timeout_ms=timeout)
    body = encode_task_message(task_message_of(sent, deadline=99), source="s", now=1_772_452_800_123)
    found = assignment_of(decode_task_message(body))

    assert attempt_info(found, deadline_at=None) == attempt_info(sent, deadline_at=None)
    assert (found.input, found.step.timeout_ms) == (given_, timeout)
    assert idempotency_key(found.run) == idempotency_key(sent.run)


def test_a_command_in_a_graph_keeps_what_decides_how_it_runs() -> None:
    step = Step(name="load", function="gnomon.shell", command="make", input={"env": {}}, isolation=Isolation.PROCESS)
    definition = Workflow(workflow_id="w", version=7, steps=(Step(name="first"), step), delivery=Delivery.AT_MOST_ONCE)
    body = encode_task_message(
        task_message_of(dispatched_assignment(workflow=definition, step=step), deadline=99), source="s", now=0
    )
    found = assignment_of(decode_task_message(body))

    assert (found.step.command, found.step.isolation, tuple(found.step.input)) == ("make", Isolation.PROCESS, ("env",))
    assert (len(found.workflow.steps), found.workflow.delivery) == (2, Delivery.AT_MOST_ONCE)


@pytest.mark.parametrize("output", [None, b"null", b'{"a":[1,2.5,"\\u00fc"]}', b'"' + b"x" * 70_000 + b'"'])
def test_an_outcome_arrives_as_it_was_told(output: bytes | None) -> None:
    told = AttemptOutcome(
        result=Result.FAILED, error="broken \x01", output=output, snooze_ms=5, logs=(LogLine(1, "info", "hi"),)
    )
    reports = WorkerReport(
        worker="w", started=(StartedReport(TaskId("t"), 3),), ended=(ended_report_of(dispatched_assignment(), told),)
    )
    found = decode_worker_report(encode_worker_report(reports, message_id="w:1", now=0)).data

    assert found.started == reports.started
    assert found.ended[0].outcome() == told


def test_nobody_sleeps_for_more_than_a_year() -> None:
    told = ended_report_of(dispatched_assignment(), AttemptOutcome(result=Result.SNOOZED, snooze_ms=10**15))

    assert told.outcome().snooze_ms == 366 * 24 * 60 * 60_000


def test_a_worker_cannot_say_what_follows_from_an_outcome() -> None:
    body = encode_worker_report(
        WorkerReport(
            worker="w", ended=(ended_report_of(dispatched_assignment(), AttemptOutcome(result=Result.FAILED)),)
        ),
        message_id="w:1",
        now=0,
    )
    wicked = body.replace(
        b'"result":"failed"', b'"result":"failed","state":"SUCCEEDED","lease_until":1,"quarantine":"x"'
    )
    outcome = decode_worker_report(wicked).data.ended[0].outcome()

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
def test_what_is_wrong_with_a_message_is_named(change: dict[str, object], field: str) -> None:
    written = msgspec.json.decode(
        encode_task_message(task_message_of(dispatched_assignment(), deadline=0), source="s", now=0)
    )
    with pytest.raises(FieldError) as refused:
        decode_task_message(msgspec.json.encode(written | change))

    assert refused.value.field == field
