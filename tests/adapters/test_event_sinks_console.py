"""Lines for a person: in order, about jobs, and never in the way of the scheduler."""

import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest

from gnomon.adapters.event_sinks import EVENT_FORMATS, ConsoleEvents, LineWriter
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.core.runs.states import TaskState


def said(name: str, **facts: object) -> str:
    """The one line about an event, without its time."""
    stream = io.StringIO()
    events = ConsoleEvents(stream)
    events.emit(name, **facts)
    assert events.flush()
    return stream.getvalue().rstrip("\n")[len("00:00:00  ") :]


class Pipe:
    """A pipe that nobody reads."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream: TextIO = os.fdopen(writer, "w")


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    with suppress(OSError):
        made.stream.close()
    with suppress(OSError):
        os.close(made.reader)


# ---- what is said --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "mark"), [(TaskState.PENDING, "~"), (TaskState.FAILED, "!"), (TaskState.TIMEOUT, "!")]
)
def test_tasks_that_the_reconciler_ended_are_marked_as_ended(state: TaskState, mark: str) -> None:
    line = said("attempt_ended_by_reconciler", job="report", run="run_1", result="lost", state=state, error="gone")

    assert line == f"{mark} report: lost: gone"


@pytest.mark.parametrize(("skew", "reported"), [(2500, "2.5 s ahead of"), (-800, "800 ms behind")])
def test_a_clock_skew_is_reported(skew: int, reported: str) -> None:
    line = said("clock_skew", holder="node_1", skew_ms=skew)

    assert line == f"! the clock of this machine is {reported} that of the store"


def test_simultaneous_errors_are_printed_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0] * 3 + [2.0] * 2)
    monkeypatch.setattr("gnomon.adapters.event_sinks.time.monotonic", lambda: next(seconds))
    stream = io.StringIO()
    events = ConsoleEvents(stream)
    for _ in range(5):
        events.emit("step_failed", step="ticker", error="no such table")
    assert events.flush()

    said = [line[len("00:00:00  ") :] for line in stream.getvalue().splitlines()]
    assert said == ["! ticker: no such table", "… and 2 more", "! ticker: no such table"]


def test_a_persisting_error_is_printed_again_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gnomon.adapters.event_sinks.time.monotonic", lambda: now)
    stream = io.StringIO()
    events = ConsoleEvents(stream)
    for number in range(3000):
        now += 0.01
        events.emit("store_unavailable", error=f"no answer to {number}")
    assert events.flush()

    said = [line[len("00:00:00  ") :] for line in stream.getvalue().splitlines()]
    assert len(said) == 3
    assert all(line.startswith("! the store is unavailable: no answer") for line in said)


def test_that_the_database_is_gone_is_said_however_much_else_is() -> None:
    stream = io.StringIO()
    events = ConsoleEvents(stream)
    for number in range(1000):
        events.emit("step_failed", step=f"step {number}", error="no such table")
    events.emit("database_gone", path="gnomon.db")
    assert events.flush()

    assert stream.getvalue().splitlines()[-1].endswith("gnomon.db was moved or deleted: stop and put it back")


def test_a_fallback_of_coordination_is_reported() -> None:
    line = said("degraded", what="turns", error="NATS is away")

    assert line == "! turns: continuing without the shared service: NATS is away"
    assert said("degraded_no_more", what="turns") == "* turns: the shared service is back"


def test_the_end_of_a_step_is_not_taken_for_the_end_of_its_job() -> None:
    times = {"started_at": 1000, "ended_at": 6200}

    assert said("task_succeeded", job="flow", step="main", **times) == "+ flow in 5.2 s"
    assert said("task_succeeded", job="flow", step="load", **times) == "+ flow, step load after 5.2 s"
    assert said("task_failed", job="flow", step="load", result="failed", error="no disk", **times) == (
        "! flow, step load: failed after 5.2 s: no disk"
    )


def test_a_task_that_cannot_be_scheduled_is_called_by_its_job() -> None:
    assert said("task_not_scheduled", job="report", run="run_1", reason="no_workers") == "~ report: no_workers"


def test_without_a_job_the_run_is_named() -> None:
    assert said("task_not_scheduled", run="run_1", reason="no_workers") == "~ run_1: no_workers"


def test_a_failure_says_why() -> None:
    line = said("task_failed", job="report", result="cancelled", error="superseded by a newer run")

    assert line == "! report: cancelled: superseded by a newer run"


def test_a_failure_without_a_reason_ends_where_it_ends() -> None:
    assert said("task_failed", job="report", result="cancelled", error=None) == "! report: cancelled"


def test_a_database_that_is_gone_is_named() -> None:
    assert said("database_gone", path="/data/g.db").startswith("! the database file /data/g.db was moved or deleted")


@pytest.mark.parametrize(("wrong_ms", "how"), [(3_600_000, "3600.0 s ahead of"), (-700, "700 ms behind")])
def test_a_clock_that_is_wrong_is_said_to_be(wrong_ms: int, how: str) -> None:
    line = said("clock_corrected", worker="worker_1", wrong_ms=wrong_ms)

    assert line == f"! the clock here was {how} that of the store, and is corrected"


def test_lines_stay_in_order() -> None:
    stream = io.StringIO()
    events = ConsoleEvents(stream)
    names = [f"job-{number}" for number in range(10)]
    for name in names:
        events.emit("task_succeeded", job=name)
    events.emit("stopped")
    events.flush()

    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == [*names, "stopped"]


def test_bursts_of_events_are_counted_and_their_end_is_printed() -> None:
    stream = io.StringIO()
    events = ConsoleEvents(stream)
    for number in range(1000):
        events.emit("task_succeeded", job=f"job-{number}")
    events.emit("stopped")
    events.flush()

    lines = [line[len("00:00:00  ") :] for line in stream.getvalue().splitlines()]
    counted = sum(int(line.split()[2].replace(",", "")) for line in lines if line.startswith("…"))
    assert lines[-1] == "stopped"
    assert counted + sum(line.startswith("+") for line in lines) == 1000


# ---- what cannot be said -------------------------------------------------------------------------


class Full(io.StringIO):
    """A stream on a disk that is full."""

    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def test_lines_that_cannot_be_written_are_counted() -> None:
    lines = LineWriter(Full())

    assert lines.add("one\n")
    assert lines.add("two\n")
    assert lines.flush(10)
    assert lines.lost == 2


def test_a_reader_that_has_left_is_no_failure(pipe: Pipe) -> None:
    os.close(pipe.reader)
    events = ConsoleEvents(pipe.stream)

    events.emit("stopped")

    assert events.flush()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_nothing_is_left_behind_in_the_buffer_of_a_stream() -> None:
    with Path("/dev/full").open("w") as full:
        events = ConsoleEvents(full)
        events.emit("stopped")
        assert events.flush()
        full.flush()


def test_a_reader_that_stands_still_keeps_nobody_waiting(pipe: Pipe) -> None:
    lines = LineWriter(pipe.stream, most=10)
    line = "x" * 10_000 + "\n"

    taken = sum(lines.add(line) for _ in range(100))

    assert taken < 100
    assert not lines.flush(0.01)


@pytest.mark.parametrize("name", sorted(EVENT_FORMATS))
def test_an_event_without_the_facts_of_its_line_is_printed_all_the_same(name: str) -> None:
    assert said(name)


def test_a_log_that_cannot_be_written_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    events = LoggedEvents()

    class Broken:
        def info(self, name: str, **facts: object) -> None:
            raise OSError(28, f"No space left on device for {name} {facts}")

    monkeypatch.setattr(events, "_log", Broken())
    events.emit("stopped")

    assert events.lost == 1
