"""Routes for operators: whole files, single ticks, backfills and the audit trail."""

from typing import Any

import pytest

from contracts.store import NOON
from gnomon.core.model import DAY_MS, LogLine
from support.api_fixture import JOB, ApiCaller, ApiFixture

OTHER = {"name": "cleanup", "schedule": "0 3 * * *", "function": "disk.clean"}


# ---- whole files ---------------------------------------------------------------------------------


@pytest.mark.req("H-12")
async def test_a_file_of_jobs_is_applied_whole(admin: ApiCaller) -> None:
    first = await admin.post("/v1/apply", {"jobs": [JOB, OTHER]})
    again = await admin.post("/v1/apply", {"jobs": [JOB, OTHER]})

    assert [one["change"] for one in first.json()["items"]] == ["created", "created"]
    assert [one["change"] for one in again.json()["items"]] == ["unchanged", "unchanged"]


@pytest.mark.parametrize(
    ("jobs", "field"),
    [
        ([JOB, {**OTHER, "timeout": "soon"}], "jobs[1].timeout"),
        ([JOB, {**OTHER, "schedule": "61 * * * *"}], "jobs[1].schedule"),
        ([JOB, {**OTHER, "shedule": "x"}], "jobs[1].shedule"),
        ([JOB, 5], "jobs[1]"),
        ([JOB, JOB], "name"),
        ("all", "jobs"),
    ],
)
async def test_of_a_file_with_something_wrong_nothing_is_applied(admin: ApiCaller, jobs: object, field: str) -> None:
    for route in ("/v1/apply", "/v1/plan"):
        refused = await admin.post(route, {"jobs": jobs})
        if route == "/v1/apply" or field != "name":
            assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)

    assert (await admin.get("/v1/jobs")).json()["items"] == []


async def test_jobs_that_are_not_in_the_file_are_removed_if_that_is_wanted(admin: ApiCaller) -> None:
    await admin.post("/v1/apply", {"jobs": [JOB, OTHER]})

    of_tag = await admin.post("/v1/apply", {"jobs": [], "prune_tag": "numbers"})
    rest = await admin.post("/v1/apply", {"jobs": [], "prune": True})

    assert [(one["job"], one["change"]) for one in of_tag.json()["items"]] == [("report", "removed")]
    assert [one["job"] for one in rest.json()["items"]] == ["cleanup"]


async def test_a_file_larger_than_other_bodies_is_taken(admin: ApiCaller) -> None:
    jobs = [{**OTHER, "name": f"job-{number}", "description": "x" * 900} for number in range(1200)]

    done = await admin.post("/v1/apply", {"jobs": jobs})

    assert (done.status_code, len(done.json()["items"])) == (200, 1200)


async def test_a_plan_shows_the_changes_of_jobs_and_makes_none(admin: ApiCaller) -> None:
    await admin.registered()

    planned = (await admin.post("/v1/plan", {"jobs": [{**JOB, "schedule": "0 10 * * *"}, OTHER], "days": 2})).json()

    assert planned["jobs"] == {"created": 1, "changed": 1, "unchanged": 0, "removed": 0, "finished": 0}
    assert planned["fires"] == {"added": 2, "removed": 0, "moved": 2, "same": 0}
    assert planned["plan"][0]["fields"] == [{"field": "schedule", "before": "0 9 * * *", "after": "0 10 * * *"}]
    assert (await admin.get("/v1/jobs/report")).json()["definition"]["schedule"] == "0 9 * * *"
    assert (await admin.get("/v1/jobs/cleanup")).status_code == 404


async def planned(admin: ApiCaller, *jobs: dict[str, Any], **options: Any) -> str:  # noqa: ANN401 - fields of a plan
    """The digest of the plan of these jobs."""
    return str((await admin.post("/v1/plan", {"jobs": list(jobs), **options})).json()["digest"])


@pytest.mark.req("H-12")
async def test_a_plan_that_still_holds_is_carried_out(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    await admin.registered(name="cleanup")
    later = {**JOB, "schedule": "every 10 minutes"}
    digest = await planned(admin, later, prune=True, days=3)
    # Neither time nor decisions on ticks change a plan.
    api_setup.clock.advance(2 * DAY_MS)

    done = await admin.post("/v1/apply", {"jobs": [later], "prune": True, "plan": digest})

    assert [(one["job"], one["change"]) for one in done.json()["items"]] == [
        ("report", "changed"),
        ("cleanup", "removed"),
    ]


@pytest.mark.req("H-12")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("PUT", "/v1/jobs/report", {**JOB, "timeout": "7m"}), "report"),
        (("POST", "/v1/jobs/report/pause", None), "report"),
        (("DELETE", "/v1/jobs/report", None), "report"),
        (("POST", "/v1/jobs", {**OTHER, "name": "new"}), "new"),
        (("DELETE", "/v1/jobs/pruned", None), "1 of its jobs exist no longer"),
        (("POST", "/v1/jobs", OTHER), "cleanup"),
    ],
    ids=["changed", "paused", "deleted", "added", "gone", "created"],
)
async def test_a_plan_is_refused_with_the_jobs_that_have_changed_since(
    admin: ApiCaller, change: tuple[str, str, object], named: str
) -> None:
    await admin.registered()
    await admin.registered(name="pruned")
    later = {**JOB, "schedule": "0 10 * * *"}
    digest = await planned(admin, later, OTHER, prune=True)
    await admin.ask(*change)
    before = (await admin.get("/v1/jobs")).json()

    refused = await admin.post("/v1/apply", {"jobs": [later, OTHER], "prune": True, "plan": digest})

    assert (refused.status_code, refused.json()["type"]) == (412, "urn:gnomon:problem:plan_changed")
    assert refused.json()["detail"] == f"the plan does not hold any more: {named}: plan again"
    assert (await admin.get("/v1/jobs")).json() == before


@pytest.mark.parametrize(
    ("jobs", "options"),
    [([{**JOB, "schedule": "0 11 * * *"}], {}), ([JOB], {"prune_tag": "x"}), ([JOB], {"prune": True})],
    ids=["jobs", "tag", "prune"],
)
async def test_a_plan_of_another_request_is_refused(
    admin: ApiCaller, jobs: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    await admin.registered(schedule="0 8 * * *")
    digest = await planned(admin, JOB)

    refused = await admin.post("/v1/apply", {"jobs": jobs, **options, "plan": digest})

    assert refused.status_code == 412
    assert (await admin.get("/v1/jobs/report")).json()["definition"]["schedule"] == "0 8 * * *"


@pytest.mark.parametrize("digest", ["", "today", "0" * 64, "0" * 64 + ".xyz", 5])
async def test_an_apply_with_something_else_than_a_digest_is_refused(admin: ApiCaller, digest: object) -> None:
    refused = await admin.post("/v1/apply", {"jobs": [JOB], "plan": digest})

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "plan")
    assert (await admin.get("/v1/jobs")).json()["items"] == []


# ---- single ticks --------------------------------------------------------------------------------


@pytest.mark.req("H-26")
async def test_a_coming_tick_is_skipped_moved_and_put_back(admin: ApiCaller) -> None:
    await admin.registered()
    at = "2026-03-03T09:00:00Z"

    skipped = (await admin.post("/v1/jobs/report/skip", {"at": at})).json()
    await admin.post("/v1/jobs/report/unskip", {"at": at})
    moved = (await admin.post("/v1/jobs/report/skip", {"at": at, "move_to": "2026-03-03T11:00:00Z"})).json()
    back = (await admin.post("/v1/jobs/report/unskip", {"at": at})).json()

    assert skipped["exceptions"] == [{"planned_at": at, "moved_to": None}]
    assert moved["exceptions"] == [{"planned_at": at, "moved_to": "2026-03-03T11:00:00Z"}]
    assert (back["exceptions"], back["next_runs"][0]) == ([], at)


@pytest.mark.parametrize(
    "said",
    [{}, {"at": None}, {"at": "soon"}, {"at": "2026-03-03T09:00:00"}, {"at": 2**63}, {"at": "2026-03-03T10:00Z"}],
)
async def test_a_tick_that_cannot_be_meant_is_not_skipped(admin: ApiCaller, said: dict[str, Any]) -> None:
    await admin.registered()

    assert (await admin.post("/v1/jobs/report/skip", said)).status_code == 422


@pytest.mark.req("H-26")
async def test_resuming_a_job_takes_a_choice_for_its_missed_ticks(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(overlap="queue")
    await admin.post("/v1/jobs/report/pause")
    api_setup.clock.advance(3 * DAY_MS)

    resumed = (await admin.post("/v1/jobs/report/resume", {"missed": "since", "since": "2026-03-04T00:00Z"})).json()

    assert resumed["swallowed"]["count"] == 3
    assert (resumed["runs"], resumed["paused"]) == (2, False)


@pytest.mark.parametrize(
    "said",
    [
        {"missed": "often"},
        {"missed": "since"},
        {"missed": "spread"},
        {"missed": "latest", "since": "2026-03-04T00:00Z"},
        {"over": "10m"},
        {"missed": "spread", "over": "soon"},
        {"missed": "since", "since": None},
    ],
)
async def test_a_choice_that_cannot_be_meant_leaves_the_job_paused(admin: ApiCaller, said: dict[str, Any]) -> None:
    await admin.registered()
    await admin.post("/v1/jobs/report/pause")

    refused = await admin.post("/v1/jobs/report/resume", said)

    assert refused.status_code == 422
    assert (await admin.get("/v1/jobs/report")).json()["paused"]


# ---- backfills -----------------------------------------------------------------------------------


async def lived(api_setup: ApiFixture, admin: ApiCaller) -> dict[str, str]:
    """A job that was paused for three days, and the bounds of the pause."""
    await admin.registered()
    await admin.post("/v1/jobs/report/pause")
    api_setup.clock.advance(3 * DAY_MS)
    await admin.post("/v1/jobs/report/resume")
    return {"from": "2026-03-03T00:00:00Z", "to": "2026-03-05T12:00:00Z"}


async def test_a_backfill_is_previewed_started_looked_at_and_cancelled(api_setup: ApiFixture, admin: ApiCaller) -> None:
    stretch = await lived(api_setup, admin)

    preview = (await admin.post("/v1/jobs/report/backfill/preview", stretch)).json()
    started = await admin.post("/v1/jobs/report/backfill", {**stretch, "max_parallel": 2})
    name = started.json()["backfill_id"]
    listed = (await admin.get("/v1/backfills?job=report")).json()["items"]
    cancelled = (await admin.post(f"/v1/backfills/{name}/cancel")).json()

    assert (len(preview["to_run"]), preview["had_a_run"]) == (3, 0)
    assert (started.status_code, started.json()["planned"], started.json()["state"]) == (202, 3, "under way")
    assert [one["backfill_id"] for one in listed] == [name]
    assert cancelled["state"] == "cancelled"
    assert (await admin.get(f"/v1/backfills/{name}")).json() == cancelled


@pytest.mark.req("H-23")
async def test_backfills_and_skips_leave_entries_in_the_audit_trail(api_setup: ApiFixture, admin: ApiCaller) -> None:
    stretch = await lived(api_setup, admin)
    await admin.post("/v1/jobs/report/skip", {"at": "2026-03-06T09:00:00Z"})
    name = (await admin.post("/v1/jobs/report/backfill", stretch)).json()["backfill_id"]
    await admin.post(f"/v1/backfills/{name}/cancel")
    await admin.post(f"/v1/backfills/{name}/cancel")

    entries = (await admin.get("/v1/audit?limit=3")).json()["items"]

    assert [(one["action"], one["kind"], one["name"]) for one in entries] == [
        ("cancel", "backfill", name),
        ("backfill", "job", "report"),
        ("skip", "job", "report"),
    ]
    assert {one["actor"] for one in entries} == {"admin@example.com"}


# ---- the audit trail -----------------------------------------------------------------------------


@pytest.mark.req("H-23")
async def test_the_audit_trail_is_read_page_by_page(admin: ApiCaller) -> None:
    await admin.registered()
    for word in ("pause", "resume", "pause"):
        await admin.post(f"/v1/jobs/report/{word}")

    first = (await admin.get("/v1/audit?kind=job&limit=2")).json()
    rest = (await admin.get(first["next"])).json()
    pauses = (await admin.get("/v1/audit?action=pause&actor=admin@example.com")).json()["items"]

    assert [one["action"] for one in first["items"]] == ["pause", "resume"]
    assert [one["action"] for one in rest["items"]] == ["pause", "register"]
    assert [one["name"] for one in pauses] == ["report", "report"]
    assert (await admin.get("/v1/audit?action=nonsense")).status_code == 422


# ---- ledgers, logs, items ------------------------------------------------------------------------


async def test_ledgers_of_all_jobs_are_read_one_after_the_other(api_setup: ApiFixture, admin: ApiCaller) -> None:
    for name in ("a", "b", "c"):
        await admin.registered(name=name)
        await admin.post(f"/v1/jobs/{name}/pause")
    api_setup.clock.advance(3 * DAY_MS)
    for name in ("a", "c"):
        await admin.post(f"/v1/jobs/{name}/resume")
        await admin.post(f"/v1/jobs/{name}/pause")
    api_setup.clock.advance(DAY_MS)
    for name in ("a", "c"):
        await admin.post(f"/v1/jobs/{name}/resume")

    found, path = list[str](), "/v1/ticks?limit=1"
    while path:
        page = (await admin.get(path)).json()
        found += [f"{one['job']} {one['planned_at'][:10]}" for one in page["items"]]
        path = page["next"]

    assert [one[2:] for one in found] == ["2026-03-06", "2026-03-06", "2026-03-03", "2026-03-03"]
    assert sorted(found) == ["a 2026-03-03", "a 2026-03-06", "c 2026-03-03", "c 2026-03-06"]
    assert len((await admin.get("/v1/ticks?kind=skipped&since=2026-03-06T00:00Z")).json()["items"]) == 2


async def test_logs_are_read_page_by_page(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    execution = await admin.triggered()
    await api_setup.finish_execution(
        execution, logs=tuple(LogLine(NOON + number, "info", str(number)) for number in range(5))
    )

    found, path = list[str](), f"/v1/executions/{execution}/logs?limit=2"
    while path:
        page = (await admin.get(path)).json()
        found += [one["text"] for one in page["items"]]
        path = page["next"]

    async def texts(query: str) -> list[str]:
        return [one["text"] for one in (await admin.get(f"/v1/executions/{execution}/logs?{query}")).json()["items"]]

    assert found == ["0", "1", "2", "3", "4"]
    assert await texts(f"since={NOON + 3}") == ["3", "4"]
    assert await texts("order=desc&limit=2") == ["4", "3"]
    assert await texts("step=main&after=3") == ["3", "4"]
    assert await texts("find=2") == ["2"]
    older = (await admin.get(f"/v1/executions/{execution}/logs?order=desc&limit=2")).json()["next"]
    assert [one["text"] for one in (await admin.get(older)).json()["items"]] == ["2", "1"]


@pytest.mark.parametrize("query", ["order=newest", "after=-1", "after=x", "find=", "find=%00"])
async def test_a_bad_filter_of_a_log_is_named(admin: ApiCaller, query: str) -> None:
    await admin.registered()
    refused = await admin.get(f"/v1/executions/{await admin.triggered()}/logs?{query}")

    assert refused.status_code == 422
    assert [one["field"] for one in refused.json()["errors"]] == [query.partition("=")[0]]


@pytest.fixture
async def past(api_setup: ApiFixture, admin: ApiCaller) -> dict[str, str]:
    """A range of planned times without runs."""
    await admin.registered()
    await admin.post("/v1/jobs/report/pause")
    api_setup.clock.advance(3 * DAY_MS)
    await admin.post("/v1/jobs/report/resume")
    return {"from": "2026-03-03T00:00:00Z", "to": "2026-03-05T12:00:00Z"}


@pytest.mark.req("H-12")
async def test_the_same_key_starts_one_backfill(api_setup: ApiFixture, admin: ApiCaller, past: dict[str, str]) -> None:
    key = {"Idempotency-Key": "monday"}

    first = await admin.post("/v1/jobs/report/backfill", past, **key)
    api_setup.clock.advance(DAY_MS)
    again = await admin.post("/v1/jobs/report/backfill", past, **key)

    assert (again.status_code, again.json()) == (202, first.json())
    assert len((await admin.get("/v1/backfills")).json()["items"]) == 1
    assert len((await admin.get("/v1/audit?action=backfill")).json()["items"]) == 1


@pytest.mark.req("H-12")
@pytest.mark.parametrize("other", [{"again": True}, {"max_parallel": 2}, {"to": "2026-03-04T12:00:00Z"}])
async def test_a_key_with_another_backfill_is_refused(
    admin: ApiCaller, past: dict[str, str], other: dict[str, object]
) -> None:
    key = {"Idempotency-Key": "monday"}
    await admin.post("/v1/jobs/report/backfill", past, **key)

    refused = await admin.post("/v1/jobs/report/backfill", {**past, **other}, **key)

    assert refused.status_code == 409
    assert len((await admin.get("/v1/backfills")).json()["items"]) == 1


async def test_backfills_are_read_page_by_page(admin: ApiCaller, past: dict[str, str]) -> None:
    made = [(await admin.post("/v1/jobs/report/backfill", past)).json()["backfill_id"] for _ in range(3)]

    seen, path = [], "/v1/backfills?limit=2"
    while path:
        page = (await admin.get(path)).json()
        seen += [one["backfill_id"] for one in page["items"]]
        path = page["next"]

    assert sorted(seen) == sorted(made)


@pytest.mark.req("H-23")
async def test_the_audit_trail_says_which_tick_was_skipped_moved_or_put_back(admin: ApiCaller) -> None:
    await admin.registered()
    tick, instead = "2026-03-03T09:00:00+00:00", "2026-03-03T10:30:00+00:00"
    await admin.post("/v1/jobs/report/skip", {"at": tick})
    await admin.post("/v1/jobs/report/unskip", {"at": tick})
    await admin.post("/v1/jobs/report/skip", {"at": tick, "move_to": instead})

    entries = (await admin.get("/v1/audit?action=skip")).json()["items"]

    reported = [{what: said for what, said in one["details"].items() if what != "revision"} for one in entries]
    assert reported == [{"moved": {tick: instead}}, {"put_back": [tick]}, {"skipped": [tick]}]
