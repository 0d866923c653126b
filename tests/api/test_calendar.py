"""The calendar over HTTP."""

from datetime import datetime
from typing import Any

import pytest

from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import MINUTE_MS, Result
from support.api_fixture import ApiCaller, ApiFixture

HOUR_MS = 60 * MINUTE_MS


async def decide(api_setup: ApiFixture) -> None:
    """Decide everything that is due."""
    store, now = api_setup.store, api_setup.clock.now()
    terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
    due = await store.ledger.due(now, shards=frozenset(range(SHARDS)), limit=100)
    await store.ledger.decide([plan(one, now=now) for one in due], now=now, terms=terms)


def cells_of(shown: dict[str, Any], job: str = "report") -> dict[str, dict[str, int]]:
    """The cells of a job by the local time of their columns."""
    [row] = [one for one in shown["items"] if one["job"] == job]
    return {shown["columns"][cell["column"]]["local"]: cell["counts"] for cell in row["cells"]}


@pytest.mark.req("H-25")
async def test_a_calendar_shows_what_was_decided_and_what_is_planned(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(schedule="*/20 * * * *", overlap="allow")
    for _ in range(4):
        api_setup.clock.advance(20 * MINUTE_MS)
        await decide(api_setup)
    failed = (await admin.get("/v1/executions?limit=1")).json()["items"][0]["execution_id"]
    await api_setup.finish_execution(failed, Result.FAILED, error="disk full")
    await admin.post("/v1/jobs/report/skip", {"at": "2026-03-02T14:40:00Z"})

    shown = (await admin.get("/v1/calendar?from=2026-03-02T11:30:00Z&to=2026-03-02T15:00:00Z")).json()

    assert cells_of(shown) == {
        "2026-03-02T12:00:00+00:00": {"fired": 2},
        "2026-03-02T13:00:00+00:00": {"fired": 1, "failed": 1, "coming": 1},
        "2026-03-02T14:00:00+00:00": {"coming": 2, "held": 1},
    }
    assert [one["from_at"] for one in shown["columns"]] == [f"2026-03-02T{hour}:00:00Z" for hour in range(11, 15)]
    assert (shown["by"], shown["timezone"], shown["now"]) == ("hour", "UTC", "2026-03-02T13:20:00Z")
    [row] = shown["items"]
    assert (row["paused"], row["decided_until"], row["next_run_at"]) == (
        False, "2026-03-02T13:20:00Z", "2026-03-02T13:40:00Z",
    )  # fmt: skip


async def test_without_bounds_a_calendar_lies_around_now(admin: ApiCaller) -> None:
    hours, days = [(await admin.get(f"/v1/calendar?by={by}")).json()["columns"] for by in ("hour", "day")]

    assert (len(hours), hours[23]["from_at"]) == (48, "2026-03-02T12:00:00Z")
    assert (len(days), days[13]["local"]) == (28, "2026-03-02T00:00:00+00:00")


async def test_days_of_clock_changes_have_23_and_25_hours(admin: ApiCaller) -> None:
    await admin.registered(schedule="0 * * * *")
    spring, autumn = [
        (await admin.get(f"/v1/calendar?by=day&tz=Europe/Berlin&from={start}&to={end}")).json()
        for start, end in (("2026-03-28T12:00Z", "2026-03-30T12:00Z"), ("2026-10-24T12:00Z", "2026-10-26T12:00Z"))
    ]

    assert [(one["hours"], one["clock_change"]) for one in spring["columns"]] == [(24, 0), (23, 60), (24, 0)]
    assert [(one["hours"], one["clock_change"]) for one in autumn["columns"]] == [(24, 0), (25, -60), (24, 0)]
    assert [cell["coming"] for cell in cells_of(spring).values()] == [24, 23, 24]
    assert [cell["coming"] for cell in cells_of(autumn).values()] == [24, 25, 24]


async def test_the_ticks_of_a_paused_job_are_held(admin: ApiCaller) -> None:
    await admin.registered(schedule="0 * * * *")
    await admin.post("/v1/jobs/report/pause")

    shown = (await admin.get("/v1/calendar?from=2026-03-02T12:00:00Z&to=2026-03-02T14:00:00Z")).json()

    assert cells_of(shown) == {"2026-03-02T13:00:00+00:00": {"held": 1}}
    assert (shown["items"][0]["paused"], shown["items"][0]["next_run_at"]) == (True, None)


async def test_jobs_come_by_name_page_by_page_and_by_tag(admin: ApiCaller) -> None:
    for number in range(5):
        await admin.registered(name=f"job{number}", tags=["even"] if number % 2 == 0 else [])
    names: list[str] = []
    following: str | None = "/v1/calendar?limit=2"
    while following:
        page = (await admin.get(following)).json()
        names += [one["job"] for one in page["items"]]
        following = page["next"]

    tagged = (await admin.get("/v1/calendar?tag=even&limit=2")).json()
    rest = (await admin.get(tagged["next"])).json()
    [one] = (await admin.get("/v1/calendar?job=job3")).json()["items"]

    assert names == [f"job{number}" for number in range(5)]
    assert [one["job"] for one in tagged["items"] + rest["items"]] == ["job0", "job2", "job4"]
    assert one["job"] == "job3"


@pytest.mark.parametrize(
    ("query", "field", "reason"),
    [
        ("tz=Europe/Berlen", "tz", "did you mean Europe/Berlin"),
        ("from=2026-03-02T12:00Z&to=2026-03-02T12:00Z", "to", "not after"),
        ("from=2026-03-02T12:00Z&to=2027-03-02T12:00Z", "to", "more than 200 hours"),
        ("from=0001-01-01T00:00Z&to=0001-01-02T00:00Z", "from", "outside the calendar"),
        ("from=9999-12-30T00:00Z&to=9999-12-31T00:00Z", "to", "outside the calendar"),
        ("from=noon", "from", "noon"),
        ("by=week", "by", "hour, day"),
        ("since=2026-03-02T12:00Z", "since", "no field"),
    ],
)
async def test_a_bad_time_zone_or_span_is_refused(admin: ApiCaller, query: str, field: str, reason: str) -> None:
    refused = await admin.get(f"/v1/calendar?{query}")

    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert (error["field"], reason in refused.text) == (field, True)


async def test_columns_follow_one_another(admin: ApiCaller) -> None:
    shown = (await admin.get("/v1/calendar?by=day&tz=Pacific/Apia&from=2011-12-28T12:00Z&to=2012-01-01T12:00Z")).json()

    starts = [datetime.fromisoformat(one["local"]).date().day for one in shown["columns"]]
    assert starts == [28, 29, 31, 1, 2]
    assert [one["until_at"] for one in shown["columns"]][:-1] == [one["from_at"] for one in shown["columns"]][1:]
