"""Jobs that wait for events: what `on` may say, and what is refused by which field."""

from pathlib import Path
from typing import Any

import pytest

from gnomon.adapters.files import read_jobs
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job, read_job, read_job_timing, warnings
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.runs.external_events import matches
from gnomon.core.triggers import OnEvent
from gnomon.errors import FieldError

NOW = 1_772_000_000_000


def listening(on: Any, **said: Any) -> Job:  # noqa: ANN401 - whatever a job may say
    return read_job({"name": "retrain", "function": "f", "on": on, **said}, Defaults(), now=NOW)


@pytest.mark.req("H-24")
@pytest.mark.parametrize(
    ("said", "trigger"),
    [
        ({"event": "model.drift"}, OnEvent("model.drift")),
        ({"event": "drift", "each": True}, OnEvent("drift")),
        ({"event": "drift", "where": {"b": [1], "a.x": 0.5}}, OnEvent("drift", '{"a.x":0.5,"b":[1]}')),
        ({"event": "drift", "debounce": "30s"}, OnEvent("drift", debounce_ms=30_000)),
        ({"event": "drift", "batch": {"max": 100, "wait": "10s"}}, OnEvent("drift", most=100, batch_ms=10_000)),
        ({"event": "drift", "batch": {"wait": "10s"}}, OnEvent("drift", batch_ms=10_000)),
    ],
)
def test_an_event_may_trigger_a_job(said: dict[str, Any], trigger: OnEvent) -> None:
    found = listening(said)

    assert found.spec.trigger == trigger
    assert read_job(job_as_data(found), Defaults(), now=NOW) == found


def test_the_order_in_which_a_condition_is_written_means_nothing() -> None:
    one, other = ({"event": "drift", "where": where} for where in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))

    assert listening(one) == listening(other)


@pytest.mark.parametrize(
    ("said", "field", "reason"),
    [
        ("model.drift", "on", "did you mean on: {event: model.drift}?"),
        ("every 10 seconds", "on", 'did you mean schedule: "every 10 seconds"?'),
        ("every 10 secnds", "on", 'did you mean schedule: "every 10 seconds"?'),
        ("*/5 * * * *", "on", 'did you mean schedule: "*/5 * * * *"?'),
        ("2026-12-01T09:00:00Z", "on", 'did you mean at: "2026-12-01T09:00:00Z"?'),
        ({"schedule": "@daily"}, "on.schedule", "stands outside on"),
        ("\0" * 3, "on", "must be a mapping"),
        ("x" * 5000, "on", "must be a mapping"),
        (5, "on", "must be a mapping"),
        ({}, "on.event", "is missing"),
        ({"event": "Model Drift"}, "on.event", "must be 1 to 128"),
        ({"event": "a", "were": {}}, "on.were", "did you mean where?"),
        ({"event": "a", "where": [1]}, "on.where", "must be a mapping"),
        ({"event": "a", "where": {"x..y": 1}}, "on.where.x..y", "under no path"),
        ({"event": "a", "each": False}, "on.each", "must be true"),
        ({"event": "a", "each": True, "debounce": "5s"}, "on.debounce", "beside each"),
        ({"event": "a", "debounce": "5s", "batch": {"wait": "5s"}}, "on.batch", "beside debounce"),
        ({"event": "a", "debounce": 0}, "on.debounce", "must be from"),
        ({"event": "a", "batch": 5}, "on.batch", "must be a mapping"),
        ({"event": "a", "batch": {"max": 5}}, "on.batch.wait", "is missing"),
        ({"event": "a", "batch": {"max": 0, "wait": "5s"}}, "on.batch.max", "from 1"),
    ],
)
def test_an_error_names_its_field(said: Any, field: str, reason: str) -> None:  # noqa: ANN401 - hostile
    with pytest.raises(FieldError) as refused:
        listening(said)

    assert refused.value.field == field
    assert reason in refused.value.reason


@pytest.mark.parametrize(("field", "value"), [("schedule", "@daily"), ("every", "5m"), ("at", "2026-12-01T09:00:00Z")])
def test_a_job_has_either_a_time_or_an_event(field: str, value: str) -> None:
    with pytest.raises(FieldError) as refused:
        listening({"event": "a"}, **{field: value})

    assert (refused.value.field, refused.value.reason) == ("on", f"cannot be beside {field}: a job has one trigger")


def test_a_job_that_is_not_complete_says_what_it_waits_for() -> None:
    found = read_job_timing({"name": "retrain", "on": {"event": "model.drift"}}, Defaults(), now=NOW)

    assert found.spec.trigger == OnEvent("model.drift")


@pytest.mark.parametrize(("overlap", "count"), [("skip", 1), ("queue", 0)])
def test_events_that_may_be_skipped_are_warned_about(overlap: str, count: int) -> None:
    assert len(warnings(listening({"event": "a"}, overlap=overlap))) == count


def test_in_a_file_the_word_needs_no_quotes(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n- name: a\n  function: f\n  on: {event: model.drift}\n")

    [found] = read_jobs(file, Defaults(), now=NOW)

    assert found.spec.trigger == OnEvent("model.drift")


@pytest.mark.parametrize(
    ("wanted", "body", "matched"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        (True, True, True),
        ([1, {"a": True}], [1, {"a": True}], True),
        ([1, {"a": True}], [1, {"a": 1}], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (None, None, True),
    ],
)
def test_values_are_compared_as_json_has_them(wanted: object, body: object, matched: bool) -> None:  # noqa: FBT001
    assert matches({"value": wanted}, {"value": body}) is matched


def test_a_missing_field_equals_nothing() -> None:
    assert not matches({"a.b": None}, {"a": {}})
