"""Many jobs are paused, resumed and triggered, and many executions cancelled, with the outcome of each."""

from typing import Any

import pytest

from gnomon.core.model import DAY_MS
from support.api_fixture import ApiCaller, ApiFixture

PAUSE, RESUME = "/v1/bulk/jobs/pause", "/v1/bulk/jobs/resume"
TRIGGER, CANCEL = "/v1/bulk/jobs/trigger", "/v1/bulk/executions/cancel"


@pytest.fixture
async def jobs(admin: ApiCaller) -> list[str]:
    """Three jobs, of which two have a tag."""
    for name, tags in {"a": ["x"], "b": ["x"], "c": []}.items():
        await admin.registered(name=name, tags=tags)
    return ["a", "b", "c"]


async def became(admin: ApiCaller, path: str, body: object = None, **headers: str) -> dict[str, str | None]:
    """The outcomes of all pages, by job."""
    found, more = dict[str, str | None](), path
    while more:
        done = await admin.post(more, body, **headers)
        assert done.status_code == 200, done.text
        found |= {one["job"]: one["became"] for one in done.json()["items"]}
        more = done.json()["next"]
    return found


async def paused(admin: ApiCaller) -> list[str]:
    return [one["job"] for one in (await admin.get("/v1/jobs?state=paused")).json()["items"]]


async def actions(admin: ApiCaller) -> list[str]:
    entries = (await admin.get("/v1/audit")).json()["items"]
    return [f"{one['action']} {one['name']}" for one in entries if one["action"] != "register"]


@pytest.mark.req("H-26")
async def test_jobs_that_match_are_paused_page_by_page_and_each_is_audited(admin: ApiCaller, jobs: list[str]) -> None:
    del jobs
    first = await became(admin, f"{PAUSE}?tag=x&limit=1")
    again = await became(admin, f"{PAUSE}?tag=x")

    assert first == {"a": "paused", "b": "paused"}
    assert again == {"a": "unchanged", "b": "unchanged"}
    assert await paused(admin) == ["a", "b"]
    assert sorted(one for one in await actions(admin) if one.startswith("pause")) == ["pause a", "pause b"]


@pytest.mark.req("H-26")
async def test_a_preview_shows_what_would_change_and_changes_nothing(
    api_setup: ApiFixture, admin: ApiCaller, jobs: list[str]
) -> None:
    pausing = await became(admin, PAUSE, {"names": jobs, "preview": True})
    before = await paused(admin)
    await became(admin, PAUSE, {"names": ["a"]})
    api_setup.clock.advance(3 * DAY_MS)
    resuming = (await admin.post(f"{RESUME}?state=paused", {"preview": True, "missed": "latest"})).json()["items"]
    starting = await became(admin, TRIGGER, {"all": True, "preview": True})

    assert (pausing, before) == (dict.fromkeys(jobs, "paused"), [])
    assert resuming == [
        {
            "job": "a",
            "became": "resumed",
            "refused": None,
            "execution_id": None,
            "swallowed": {"count": 3, "first_at": "2026-03-03T09:00:00Z", "last_at": "2026-03-05T09:00:00Z"},
            "runs": 1,
        }
    ]
    assert starting == dict.fromkeys(jobs, "started")
    assert await paused(admin) == ["a"]
    assert (await admin.get("/v1/executions")).json()["items"] == []


@pytest.mark.req("H-26")
async def test_all_jobs_are_resumed_with_one_choice_for_the_runs_they_missed(
    api_setup: ApiFixture, admin: ApiCaller, jobs: list[str]
) -> None:
    await became(admin, PAUSE, {"names": ["a", "b"]})
    api_setup.clock.advance(3 * DAY_MS)

    done = (await admin.post(RESUME, {"all": True, "missed": "latest"})).json()["items"]

    assert [(one["job"], one["became"], one["runs"]) for one in done] == [
        ("a", "resumed", 1),
        ("b", "resumed", 1),
        ("c", "unchanged", None),
    ]
    assert await paused(admin) == []
    started = (await admin.get("/v1/executions")).json()["items"]
    assert sorted(one["job"] for one in started) == jobs[:2]


@pytest.mark.req("H-12", "H-26")
async def test_a_doubled_trigger_starts_one_execution_of_each_job(admin: ApiCaller, jobs: list[str]) -> None:
    key = {"Idempotency-Key": "click-1"}
    first = (await admin.post(f"{TRIGGER}?tag=x", {"input": {"day": 1}}, **key)).json()["items"]
    second = (await admin.post(f"{TRIGGER}?tag=x", {"input": {"day": 1}}, **key)).json()["items"]

    assert [(one["job"], one["became"]) for one in first] == [("a", "started"), ("b", "started")]
    assert [(one["execution_id"], one["became"]) for one in second] == [
        (one["execution_id"], "already") for one in first
    ]
    assert len((await admin.get("/v1/executions")).json()["items"]) == len(jobs) - 1


@pytest.mark.req("H-26")
async def test_the_refusal_of_one_job_keeps_no_other_from_being_changed(admin: ApiCaller, jobs: list[str]) -> None:
    await admin.post("/v1/jobs/b/trigger")

    done = (await admin.post(TRIGGER, {"names": jobs})).json()["items"]

    assert [(one["job"], one["became"]) for one in done] == [("a", "started"), ("b", None), ("c", "started")]
    assert "b" in done[1]["refused"]


@pytest.mark.req("H-12", "H-26")
async def test_executions_that_match_and_have_not_ended_are_cancelled(
    api_setup: ApiFixture, admin: ApiCaller, jobs: list[str]
) -> None:
    ended, of_b, of_c = [await admin.triggered(name) for name in jobs]
    await api_setup.finish_execution(ended)

    looked_at = (await admin.post(CANCEL, {"all": True, "preview": True})).json()["items"]
    still = [(await admin.get(f"/v1/executions/{one}")).json()["status"] for one in (of_b, of_c)]
    of_tag = (await admin.post(f"{CANCEL}?tag=x&limit=1")).json()["items"]
    named = (await admin.post(CANCEL, {"ids": [ended, of_b, of_c]})).json()["items"]

    assert {one["execution_id"] for one in looked_at} == {of_b, of_c}
    assert still == ["pending", "pending"]
    assert of_tag == [{"execution_id": of_b, "job": "b", "became": "cancelled", "refused": None}]
    assert [one["became"] for one in named] == ["unchanged", "unchanged", "cancelled"]
    assert (await admin.get(f"/v1/executions/{ended}")).json()["status"] == "completed"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (PAUSE, None, 422),
        (PAUSE, {}, 422),
        (PAUSE, {"all": False}, 422),
        (PAUSE, {"all": "yes"}, 422),
        (PAUSE, {"names": []}, 422),
        (PAUSE, {"names": ["a"] * 501}, 422),
        (PAUSE, {"names": ["a"], "all": True}, 422),
        (PAUSE, {"names": ["a", "No Name"]}, 422),
        (PAUSE, {"names": ["a", "gone"]}, 404),
        (PAUSE, {"name": "a"}, 422),
        (PAUSE, {"names": ["a"], "preview": "yes"}, 422),
        (f"{PAUSE}?tag=x", {"names": ["a"]}, 422),
        (f"{PAUSE}?state=asleep", None, 422),
        (RESUME, {"names": ["a"], "missed": "often"}, 422),
        (RESUME, {"names": ["a"], "missed": "since"}, 422),
        (TRIGGER, {"names": ["a"], "input": 5}, 422),
        (CANCEL, None, 422),
        (f"{CANCEL}?status=completed", None, 422),
        (CANCEL, {"ids": ["run_none"]}, 404),
        (f"{CANCEL}?job=No%20Name", None, 422),
    ],
)
async def test_a_selection_that_cannot_be_meant_changes_nothing(
    admin: ApiCaller, jobs: list[str], path: str, body: object, status: int
) -> None:
    await admin.triggered("a")
    before: list[Any] = [(await admin.get(f"/v1/{name}")).json() for name in ("jobs", "executions")]

    refused = await admin.post(path, body)

    assert refused.status_code == status, refused.text
    assert [(await admin.get(f"/v1/{name}")).json() for name in ("jobs", "executions")] == before
    assert len(before[0]["items"]) == len(jobs)
