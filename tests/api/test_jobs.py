"""Jobs over HTTP: the fields, validation and semantics of a jobs file."""

import pytest

from contracts.store import NOON
from gnomon.core.model import DAY_MS, LogLine, Result
from support.api_fixture import JOB, ApiCaller, ApiFixture


@pytest.mark.req("H-05", "H-12")
async def test_a_job_is_registered_with_the_fields_of_the_registry(admin: ApiCaller) -> None:
    done = await admin.post("/v1/jobs", {**JOB, "schedule": "every day at 9am", "timeout": "5m"})

    assert done.status_code == 201
    assert done.json() == {
        "job": "report",
        "change": "created",
        "revision": 1,
        "version": 1,
        "next_run_at": "2026-03-03T09:00:00Z",
        "schedule": "every day at 09:00",
        "cron": "0 9 * * *",
        "warnings": [],
    }


@pytest.mark.req("H-03")
async def test_registering_a_sentence_answers_with_its_cron_expression(admin: ApiCaller) -> None:
    said = {"function": "f", "timezone": "America/New_York"}
    first = await admin.post("/v1/jobs", {**said, "name": "a", "schedule": "twice daily at 8am and 8pm"})
    changed = await admin.ask("PUT", "/v1/jobs/a", {**said, "schedule": "every first of the month at midnight"})
    odd = await admin.post("/v1/jobs", {"function": "f", "name": "b", "schedule": "every 7 minutes"})

    assert [one.json()["cron"] for one in (first, changed, odd)] == ["0 8,20 * * *", "0 0 1 * *", None]
    assert odd.json()["schedule"] == "every 7 minutes, counted from its start"


async def test_registering_the_same_again_changes_nothing(admin: ApiCaller) -> None:
    await admin.registered()

    again = await admin.post("/v1/jobs", JOB)

    assert (again.status_code, again.json()["change"]) == (200, "unchanged")


async def test_a_job_that_is_registered_over_http_comes_from_there(admin: ApiCaller) -> None:
    await admin.registered()

    shown = (await admin.get("/v1/jobs/report")).json()

    assert (shown["origin"], shown["orphaned"]) == ("api", False)


async def test_another_job_of_the_same_name_is_refused(admin: ApiCaller) -> None:
    await admin.registered()

    other = await admin.post("/v1/jobs", {**JOB, "function": "other"})

    assert (other.status_code, other.json()["type"]) == (409, "urn:gnomon:problem:name_taken")
    assert (await admin.get("/v1/jobs/report")).json()["functions"] == ["reports.make"]


@pytest.mark.req("H-12", "H-25")
async def test_jobs_are_listed_in_pages_with_when_they_run_next(admin: ApiCaller) -> None:
    for name in ("c", "a", "b"):
        await admin.registered(name=name)

    first = (await admin.get("/v1/jobs?limit=2")).json()
    rest = (await admin.get(first["next"])).json()

    assert [one["job"] for one in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["next"] is None
    assert first["items"][0]["next_run_at"] == "2026-03-03T09:00:00Z"


async def test_jobs_are_listed_by_tag(admin: ApiCaller) -> None:
    await admin.registered(name="a", tags=["x"])
    await admin.registered(name="b", tags=["x", "y"])

    assert [one["job"] for one in (await admin.get("/v1/jobs?tag=y")).json()["items"]] == ["b"]


@pytest.mark.req("H-25")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("q=REP", ["report-a"]),
        ("q=daily+SALES", ["b"]),
        ("q=umber", ["b", "c"]),
        ("q=none", []),
        ("q=e&tag=numbers", ["b", "c"]),
        ("q=r&tag=numbers&state=paused", ["c"]),
        ("state=active", ["b", "report-a"]),
        ("state=failing", []),
        ("state=running", []),
    ],
)
async def test_jobs_are_found_by_text_tag_and_state(admin: ApiCaller, asked: str, found: list[str]) -> None:
    await admin.registered(name="report-a", tags=[])
    await admin.registered(name="b", description="Adds up the daily sales", tags=["numbers"])
    await admin.registered(name="c", tags=["numbers"])
    await admin.post("/v1/jobs/c/pause")

    listed = (await admin.get(f"/v1/jobs?{asked}")).json()

    assert ([one["job"] for one in listed["items"]], listed["next"]) == (found, None)


@pytest.mark.req("H-25")
async def test_jobs_are_listed_by_their_next_run_or_by_their_last_decision(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    for name, schedule in {"late": "0 23 * * *", "soon": "5 12 * * *", "mid": "0 20 * * *"}.items():
        await admin.registered(name=name, schedule=schedule)
        api_setup.clock.advance(1000)
    await admin.post("/v1/jobs/late/pause")

    async def listed(order: str) -> list[str]:
        found, path = list[str](), f"/v1/jobs?limit=1&order={order}"
        while path:
            page = (await admin.get(path)).json()
            found += [one["job"] for one in page["items"]]
            path = page["next"]
        return found

    assert await listed("next") == ["soon", "mid", "late"]
    assert await listed("last") == ["late", "mid", "soon"]
    assert (await admin.get("/v1/jobs?order=size")).status_code == 422


@pytest.mark.req("H-25")
async def test_jobs_show_their_last_ticks_if_that_is_wanted(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(overlap="allow")
    await admin.registered(name="other")
    await admin.post("/v1/jobs/report/pause")
    api_setup.clock.advance(3 * DAY_MS)
    await admin.post("/v1/jobs/report/resume", {"missed": "latest"})

    with_ticks = (await admin.get("/v1/jobs?include=ticks")).json()["items"]
    without = (await admin.get("/v1/jobs")).json()["items"]

    assert [one["ticks"] for one in without] == [None, None]
    assert with_ticks[0]["ticks"] == []
    [newest, skipped] = with_ticks[1]["ticks"]
    [started] = (await admin.get("/v1/executions")).json()["items"]
    assert newest == {
        "planned_at": "2026-03-05T09:00:00Z",
        "count": 1,
        "kind": "fired",
        "reason": "caught_up",
        "status": "ENQUEUED",
        "execution_id": started["execution_id"],
    }
    assert (skipped["kind"], skipped["reason"], skipped["count"]) == ("skipped", "paused", 2)


@pytest.mark.req("H-25", "H-26")
async def test_jobs_tell_their_newest_tick_in_the_sentence_of_its_explanation(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    await admin.registered(overlap="allow")
    await admin.registered(name="other")
    await admin.post("/v1/jobs/report/pause")
    api_setup.clock.advance(3 * DAY_MS)
    await admin.post("/v1/jobs/report/resume", {"missed": "latest"})

    [other, report] = (await admin.get("/v1/jobs?include=why")).json()["items"]
    [with_ticks, _] = (await admin.get("/v1/jobs?include=ticks")).json()["items"]
    [why] = (await admin.get("/v1/jobs/report/why?last=1")).json()["explanations"]

    assert report["newest"] == {field: why[field] for field in ("at", "kind", "reason", "sentence")}
    assert len(report["ticks"]) == 2
    assert (other["ticks"], other["newest"]) == ([], None)
    assert with_ticks["newest"] is None


async def test_a_list_tells_why_for_a_hundred_jobs_at_most(admin: ApiCaller) -> None:
    refused = await admin.get("/v1/jobs?include=why&limit=101")

    assert refused.status_code == 422
    assert "larger than 100" in refused.text


@pytest.mark.req("H-25")
async def test_a_job_is_failing_until_an_execution_of_it_succeeds(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(overlap="allow")

    async def failing_after(result: Result) -> list[str]:
        await admin.post("/v1/jobs/report/pause")
        api_setup.clock.advance(DAY_MS)
        await admin.post("/v1/jobs/report/resume", {"missed": "latest"})
        started = (await admin.get("/v1/executions?limit=1")).json()["items"][0]["execution_id"]
        await api_setup.finish_execution(started, result)
        return [one["job"] for one in (await admin.get("/v1/jobs?state=failing")).json()["items"]]

    assert await failing_after(Result.FAILED) == ["report"]
    assert await failing_after(Result.SUCCEEDED) == []


@pytest.mark.req("H-12")
async def test_a_job_shows_its_definition_and_what_is_planned(admin: ApiCaller) -> None:
    await admin.registered()

    shown = (await admin.get("/v1/jobs/report")).json()

    assert shown["definition"]["schedule"] == "0 9 * * *"
    assert shown["next_runs"][:2] == ["2026-03-03T09:00:00Z", "2026-03-04T09:00:00Z"]


@pytest.mark.req("H-12")
async def test_a_job_is_changed(admin: ApiCaller) -> None:
    await admin.registered()

    done = await admin.ask("PUT", "/v1/jobs/report", {**JOB, "schedule": "0 10 * * *"})

    assert (done.status_code, done.json()["revision"]) == (200, 2)
    assert done.headers["etag"] == (await admin.get("/v1/jobs/report")).headers["etag"]


async def test_a_missing_job_is_not_changed(admin: ApiCaller) -> None:
    assert (await admin.ask("PUT", "/v1/jobs/report", JOB)).status_code == 404
    assert (await admin.get("/v1/jobs")).json()["items"] == []


async def test_a_change_names_the_job_of_its_address(admin: ApiCaller) -> None:
    await admin.registered()

    refused = await admin.ask("PUT", "/v1/jobs/report", {**JOB, "name": "other"})

    assert refused.json()["errors"][0]["field"] == "name"


async def test_of_two_changes_to_what_both_saw_one_is_refused(admin: ApiCaller) -> None:
    await admin.registered()
    seen = {"If-Match": (await admin.get("/v1/jobs/report")).headers["etag"]}

    first = await admin.ask("PUT", "/v1/jobs/report", {**JOB, "schedule": "0 10 * * *"}, headers=seen)
    second = await admin.ask("PUT", "/v1/jobs/report", {**JOB, "schedule": "0 11 * * *"}, headers=seen)

    assert [first.status_code, second.status_code] == [200, 412]
    assert (await admin.get("/v1/jobs/report")).json()["definition"]["schedule"] == "0 10 * * *"


async def test_a_job_that_was_made_anew_is_not_the_one_that_was_seen(admin: ApiCaller) -> None:
    await admin.registered()
    seen = {"If-Match": (await admin.get("/v1/jobs/report")).headers["etag"]}
    await admin.ask("DELETE", "/v1/jobs/report")
    await admin.registered()

    assert (await admin.ask("PUT", "/v1/jobs/report", JOB, headers=seen)).status_code == 412


@pytest.mark.req("H-12")
async def test_a_deleted_job_is_gone(admin: ApiCaller) -> None:
    await admin.registered()

    done = await admin.ask("DELETE", "/v1/jobs/report")

    assert (done.status_code, done.content) == (204, b"")
    assert (await admin.get("/v1/jobs/report")).status_code == 404


@pytest.mark.req("H-12", "H-26")
async def test_a_job_is_paused_and_resumed(admin: ApiCaller) -> None:
    await admin.registered()

    paused = (await admin.post("/v1/jobs/report/pause")).json()
    resumed = (await admin.post("/v1/jobs/report/resume")).json()

    assert (paused["state"], paused["next_run_at"]) == ("paused", None)
    assert resumed["state"] == "active"


@pytest.mark.req("H-12", "H-26")
async def test_a_job_is_triggered_with_its_own_input_or_another(admin: ApiCaller) -> None:
    await admin.registered(overlap="allow", input={"day": 1})

    own, other = [
        (await admin.post("/v1/jobs/report/trigger", body)).json()["execution_id"]
        for body in (None, {"input": {"day": 2}})
    ]

    shown = [(await admin.get(f"/v1/executions/{one}")).json() for one in (own, other)]
    assert [one["input"] for one in shown] == [{"day": 1}, {"day": 2}]
    assert {(one["trigger"], one["user_id"]) for one in shown} == {("api", "admin@example.com")}


async def test_the_same_key_starts_one_execution(admin: ApiCaller) -> None:
    await admin.registered()

    first, second = [await admin.triggered(**{"Idempotency-Key": "monday"}) for _ in range(2)]

    assert first == second
    assert len((await admin.get("/v1/executions")).json()["items"]) == 1


async def test_a_key_stands_for_one_input(admin: ApiCaller) -> None:
    await admin.registered()
    await admin.triggered(**{"Idempotency-Key": "monday"})

    other = await admin.post("/v1/jobs/report/trigger", {"input": {"day": 2}}, **{"Idempotency-Key": "monday"})

    assert (other.status_code, other.json()["type"]) == (409, "urn:gnomon:problem:key_taken")


async def test_a_second_execution_is_refused_while_one_is_active_unless_it_is_forced(admin: ApiCaller) -> None:
    await admin.registered(overlap="skip")
    await admin.triggered()

    refused = await admin.post("/v1/jobs/report/trigger")
    forced = await admin.post("/v1/jobs/report/trigger", {"force": True})

    assert (refused.status_code, forced.status_code) == (409, 202)


@pytest.mark.req("H-12", "H-25")
async def test_the_schedule_shows_the_fires_of_the_next_day(admin: ApiCaller) -> None:
    await admin.registered(schedule="0 */6 * * *")

    fires = (await admin.get("/v1/schedule")).json()["items"]

    assert [one["utc"][11:16] for one in fires] == ["18:00", "00:00", "06:00", "12:00"]


async def test_the_ledger_of_a_job_is_paged_and_filtered(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(schedule="* * * * *")
    for _ in range(2):
        await admin.post("/v1/jobs/report/pause")
        api_setup.clock.advance(3 * 60_000)
        await admin.post("/v1/jobs/report/resume")
        api_setup.clock.advance(60_000)

    first = (await admin.get("/v1/ticks?job=report&limit=1")).json()
    skipped = (await admin.get("/v1/ticks?job=report&kind=skipped")).json()["items"]
    early = (await admin.get("/v1/ticks?job=report&kind=skipped&until=2026-03-02T12:03:00Z")).json()["items"]

    assert first["next"] is not None
    assert [(one["reason"], one["count"]) for one in skipped] == [("paused", 3), ("paused", 3)]
    assert len(early) == 1


async def test_why_is_answered_of_a_moment_and_of_the_newest(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(schedule="* * * * *")
    await admin.post("/v1/jobs/report/pause")
    api_setup.clock.advance(60_000)
    await admin.post("/v1/jobs/report/resume")
    api_setup.clock.advance(1000)
    execution = await admin.triggered()

    moment = (await admin.get("/v1/jobs/report/why?at=2026-03-02T12:01Z")).json()
    newest = (await admin.get("/v1/jobs/report/why?last=1")).json()
    both = await admin.get("/v1/jobs/report/why?last=1&at=12:01")

    assert (moment["explanations"][0]["kind"], moment["coming"]) == ("skipped", None)
    assert newest["explanations"][0]["execution"]["execution_id"] == execution
    assert newest["coming"]["kind"] == "coming"
    assert both.status_code == 422


async def test_an_execution_is_cancelled_once(admin: ApiCaller) -> None:
    await admin.registered()
    execution = await admin.triggered()

    first = await admin.post(f"/v1/executions/{execution}/cancel")
    second = await admin.post(f"/v1/executions/{execution}/cancel")

    assert (first.status_code, first.json()["became"], second.status_code) == (202, "cancelled", 409)


async def test_logs_of_steps_are_listed(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    execution = await admin.triggered()
    await api_setup.finish_execution(execution, output=b'{"rows":3}', logs=(LogLine(NOON, "info", "began"),))

    shown = (await admin.get(f"/v1/executions/{execution}")).json()
    logs = await admin.get(f"/v1/executions/{execution}/logs")

    assert (shown["status"], shown["steps"][0]["output"]) == ("completed", {"rows": 3})
    assert logs.json()["items"] == [
        {"at": "2026-03-02T12:00:00Z", "level": "info", "step": "main", "item": None, "line": 1, "text": "began"}
    ]


async def test_a_waiting_request_is_answered_on_a_change(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    await admin.triggered()

    assert api_setup.changes == 2


@pytest.mark.req("H-12")
@pytest.mark.parametrize("seen", ['"nonsense"', 'W/"sch_1.1"', '"a", "b"'])
async def test_a_job_that_is_not_as_it_was_seen_is_not_deleted(admin: ApiCaller, seen: str) -> None:
    await admin.registered()

    refused = await admin.ask("DELETE", "/v1/jobs/report", headers={"If-Match": seen})

    assert refused.status_code == 412
    assert (await admin.get("/v1/jobs/report")).status_code == 200


@pytest.mark.req("H-12")
@pytest.mark.parametrize("seen", ["{etag}", '"another", {etag}', "*"])
async def test_a_job_that_is_as_it_was_seen_is_deleted(admin: ApiCaller, seen: str) -> None:
    await admin.registered()
    etag = (await admin.get("/v1/jobs/report")).headers["etag"]

    done = await admin.ask("DELETE", "/v1/jobs/report", headers={"If-Match": seen.format(etag=etag)})

    assert done.status_code == 204


@pytest.mark.req("H-25")
async def test_the_schedule_is_read_page_by_page_also_where_many_fire_at_once(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    for number in range(5):
        await admin.registered(name=f"job-{number}", schedule="0 9,10 * * *")
    whole = (await admin.get("/v1/schedule")).json()

    found, path = [], "/v1/schedule?limit=2"
    while path:
        shown = (await admin.get(path)).json()
        found += shown["items"]
        path = shown["next"]
        api_setup.clock.advance(1)

    assert (len(found), whole["next"]) == (10, None)
    assert found == whole["items"]
