"""Events for those who collect logs: a JSON object on each line, and never in the way of the scheduler."""

import io
import json
import os
from contextlib import closing

import pytest

from gnomon.adapters.event_sinks import JsonEvents


def said(name: str, **facts: object) -> dict[str, object]:
    """The one line about an event."""
    stream = io.StringIO()
    events = JsonEvents(stream)
    events.emit(name, **facts)
    assert events.flush()
    [line] = stream.getvalue().splitlines()
    found: dict[str, object] = json.loads(line)
    return found


@pytest.mark.req("C-13")
def test_an_event_is_an_object_with_its_facts() -> None:
    reported = said("job.skipped", job="report", reason="overlap", planned_at=5)

    assert str(reported.pop("time")).endswith("Z")
    assert reported == {"level": "info", "event": "job.skipped", "job": "report", "reason": "overlap", "planned_at": 5}


def test_events_that_need_an_operator_are_warnings() -> None:
    assert said("store_unavailable", error="away")["level"] == "warning"


@pytest.mark.parametrize(
    "odd", [object(), {1, 2}, b"\xff", ValueError("no"), 2**70, float("nan"), "\ud800", 'a\n{"event": "forged"}']
)
def test_every_fact_fits_into_one_line(odd: object) -> None:
    assert said("odd", fact=odd)["event"] == "odd"


def test_unread_lines_are_counted_and_block_no_emitter() -> None:
    reader, writer = os.pipe()
    with closing(os.fdopen(reader)) as read, os.fdopen(writer, "w") as stream:
        events = JsonEvents(stream, most=3)
        for number in range(2000):
            events.emit("task_succeeded", number=number, text="x" * 1000)
        reported = [json.loads(read.readline())]
        while reported[-1]["event"] != "lines_lost":
            events.emit("task_succeeded", number=0)
            reported.append(json.loads(read.readline()))

    assert reported[-1]["count"] > 0
