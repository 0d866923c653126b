"""The forecast of a job: its fields and its odd days."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gnomon.core.instants import ms_of
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.ledger.forecast import (
    FieldChange,
    FireChangeKind,
    Forecast,
    changed_fields,
    forecast,
    is_on_clock_change_day,
)
from gnomon.core.model import DAY_MS

NOON = ms_of(datetime(2027, 3, 20, 12, tzinfo=UTC))
BACKUP: dict[str, Any] = {
    "name": "backup", "schedule": "30 2 * * *", "timezone": "Europe/Berlin", "function": "storage.backup",
}  # fmt: skip


def job(*, now: int = NOON, **said: Any) -> Job:  # noqa: ANN401 - any field of a job
    return read_job(BACKUP | said, Defaults(), now=now)


def reported(before: Job | None, after: Job | None) -> Forecast:
    return forecast(before, after, now=NOON, until=NOON + 14 * DAY_MS)


def test_a_changed_field_is_shown_with_its_old_and_new_value() -> None:
    found = changed_fields(job(), job(schedule="30 3 * * *", overlap="queue"))

    assert found == (
        FieldChange("schedule", "30 2 * * *", "30 3 * * *"),
        FieldChange("overlap", "skip", "queue"),
    )


def test_a_field_that_is_new_said_nothing_before() -> None:
    assert FieldChange("retry.max_attempts", None, 5) in changed_fields(job(), job(retry={"max_attempts": 5}))


def test_a_field_of_a_step_is_named_by_the_step() -> None:
    steps: list[dict[str, Any]] = [
        {"step": "extract", "function": "f"},
        {"step": "load", "function": "g", "depends_on": ["extract"]},
    ]
    quicker = [steps[0] | {"timeout": "5m"}, steps[1]]
    before, after = (
        read_job({"name": "etl", "schedule": "@daily", "dag": dag}, Defaults(), now=NOON) for dag in (steps, quicker)
    )

    assert changed_fields(before, after) == (FieldChange("dag.extract.timeout", None, "5m"),)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (
            "https://a.example/1",
            "https://b.example/2",
            FieldChange("ping", "https://a.example/…", "https://b.example/…"),
        ),
        (
            "https://a.example/1",
            "https://a.example/2",
            FieldChange("ping", "https://a.example/…", "https://a.example/…"),
        ),
        (None, "https://a.example/1?key=2", FieldChange("ping", None, "https://a.example/…")),
        ("https://a.example/1", "${secret:PING}", FieldChange("ping", "https://a.example/…", "${secret:PING}")),
        (
            {"url": "https://a.example/1", "on": "start"},
            {"url": "https://a.example/2", "on": "start"},
            FieldChange("ping.url", "https://a.example/…", "https://a.example/…"),
        ),
    ],
)
def test_the_address_of_a_ping_is_shown_without_its_secret_part(
    before: object, after: object, change: FieldChange
) -> None:
    said: dict[str, Any] = {} if before is None else {"ping": before}

    assert changed_fields(job(**said), job(ping=after)) == (change,)


def test_a_setting_that_changes_a_job_is_shown_as_a_setting() -> None:
    after = read_job(BACKUP, Defaults(lookahead_ms=120_000), now=NOON)

    assert changed_fields(job(), after) == (FieldChange("settings.lookahead", "1m", "2m"),)


def test_saying_an_interval_again_moves_no_fire() -> None:
    said = {"schedule": None, "timezone": None}
    plain = {field: value for field, value in BACKUP.items() if field not in said}
    before, after = (read_job(plain | {"every": "7m"}, Defaults(), now=now) for now in (NOON, NOON + 60_000))

    found = reported(before, after)

    assert (found.fields, found.fires.changes) == ((), ())


def test_a_paused_job_stays_paused_and_has_no_fires() -> None:
    found = reported(job(enabled=False), job(schedule="30 4 * * *"))

    assert found.stays_paused
    assert [one.field for one in found.fields] == ["schedule"]
    assert (found.fires.before, found.fires.after) == (0, 0)


def test_a_file_that_pauses_a_job_takes_its_fires_away() -> None:
    found = reported(job(), job(enabled=False))

    assert found.fields == (FieldChange("enabled", True, False),)
    assert (found.stays_paused, found.fires.count(FireChangeKind.REMOVED)) == (False, 14)


def test_the_day_on_which_clocks_are_changed_is_marked() -> None:
    found = reported(job(), job(schedule="15 2 * * *"))

    [day] = found.odd_days
    assert day.what == "clocks go forward from 02:00 to 03:00: skipped times fire once, at 03:00"
    # Both fire at three on that day, so that nothing moves on it.
    assert not [one for one in found.fires.changes if is_on_clock_change_day(one, day)]
    assert (found.fires.same, found.fires.count(FireChangeKind.MOVED)) == (1, 13)


def test_a_fire_of_that_day_is_known_as_one() -> None:
    found = reported(None, job())

    [day] = found.odd_days
    [odd] = [one for one in found.fires.changes if is_on_clock_change_day(one, day)]
    assert odd.after_at == ms_of(datetime(2027, 3, 28, 1, tzinfo=UTC))
