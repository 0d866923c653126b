"""Executions, dead letters and tasks over HTTP."""

import hashlib
from typing import Any

import pytest

from gnomon.core.model import Result
from support.api_fixture import JOB, ApiCaller, ApiFixture


@pytest.fixture
async def history(api_setup: ApiFixture, admin: ApiCaller) -> dict[str, str]:
    """Four executions of two jobs, newest last."""
    await admin.registered(overlap="allow")
    await admin.registered(name="cleanup", overlap="allow", tags=[])
    found = {}
    for name, job in (("failed", "report"), ("done", "report"), ("other", "cleanup"), ("waiting", "report")):
        found[name] = await admin.triggered(job)
        api_setup.clock.advance(1000)
    await api_setup.finish_execution(found["failed"], Result.FAILED, error="disk full")
    await api_setup.finish_execution(found["done"])
    return found


async def listed(somebody: ApiCaller, asked: str) -> list[str]:
    answer = await somebody.get(f"/v1/executions?{asked}")
    assert answer.status_code == 200, answer.text
    return [one["execution_id"] for one in answer.json()["items"]]


@pytest.mark.req("H-12")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("", ["waiting", "other", "done", "failed"]),
        ("job=cleanup", ["other"]),
        ("status=failed", ["failed"]),
        ("status=pending&job=report", ["waiting"]),
        ("trigger=api&limit=2", ["waiting", "other"]),
        ("trigger=cron", []),
        ("tag=numbers", ["waiting", "done", "failed"]),
        ("since=2026-03-02T12:00:02Z", ["waiting", "other"]),
        ("until=2026-03-02T12:00:01Z", ["failed"]),
        ("since=1772452801000&until=1772452802000", ["done"]),
    ],
)
async def test_executions_are_listed_newest_first_by_whatever_is_asked_for(
    admin: ApiCaller, history: dict[str, str], asked: str, expected: list[str]
) -> None:
    assert await listed(admin, asked) == [history[name] for name in expected]


@pytest.mark.parametrize("asked", ["", "&job=report", "&tag=numbers", "&status=pending", "&trigger=api"])
async def test_pages_follow_each_other_without_gaps(admin: ApiCaller, history: dict[str, str], asked: str) -> None:
    del history
    whole = await listed(admin, f"limit=100{asked}")
    found, link = [], f"/v1/executions?limit=1{asked}"
    while link:
        answer = (await admin.get(link)).json()
        found += [one["execution_id"] for one in answer["items"]]
        link = answer["next"]

    assert found == whole


@pytest.mark.req("H-09", "H-12")
async def test_a_dead_letter_is_listed_shown_and_replayed(
    api_setup: ApiFixture, admin: ApiCaller, history: dict[str, str]
) -> None:
    [letter] = (await admin.get("/v1/dead-letters")).json()["items"]
    shown = (await admin.get(f"/v1/dead-letters/{letter['dead_letter_id']}")).json()

    replayed = await admin.post(f"/v1/dead-letters/{letter['dead_letter_id']}/replay")

    assert (letter["execution_id"], letter["last_error"]) == (history["failed"], "disk full")
    assert [one["result"] for one in shown["attempt_history"]] == ["failed"]
    assert replayed.status_code == 202
    await api_setup.finish_execution(replayed.json()["execution_id"])
    assert (await admin.get("/v1/dead-letters")).json()["items"] == []


@pytest.mark.req("H-09")
async def test_all_dead_letters_are_replayed_at_once(admin: ApiCaller, history: dict[str, str]) -> None:
    del history
    [done] = (await admin.post("/v1/dead-letters/replay-all")).json()["items"]

    assert (done["became"], done["refused"]) == ("started", None)


@pytest.fixture
async def letters(api_setup: ApiFixture, admin: ApiCaller) -> list[str]:
    """The dead letters of three executions, of which the first and the last left the same first line."""
    await admin.registered(overlap="allow")
    for error in ("disk full\nat 1", "no route", "disk full\nat 2"):
        await api_setup.finish_execution(await admin.triggered(), Result.FAILED, error=error)
        api_setup.clock.advance(60_000)
    items = (await admin.get("/v1/dead-letters")).json()["items"]
    return [one["dead_letter_id"] for one in reversed(items)]


@pytest.mark.req("H-09")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("error=disk", [2, 0]),
        ("error_line=disk%20full", [2, 0]),
        ("error_line=disk", []),
        ("step=main&reason=attempts_exhausted&limit=1000", [2, 1, 0]),
        ("step=other", []),
        ("since=2026-03-02T12:01:00Z&until=2026-03-02T12:02:00Z", [1]),
    ],
)
async def test_dead_letters_are_listed_by_what_they_have_in_common(
    admin: ApiCaller, letters: list[str], asked: str, found: list[int]
) -> None:
    listed = (await admin.get(f"/v1/dead-letters?{asked}")).json()

    assert [letters.index(one["dead_letter_id"]) for one in listed["items"]] == found
    assert listed["next"] is None


@pytest.mark.req("H-09")
async def test_dead_letters_are_counted_by_their_first_line(admin: ApiCaller, letters: list[str]) -> None:
    assert len(letters) == 3
    counted = (await admin.get("/v1/dead-letters/groups")).json()

    assert counted == {
        "items": [
            {
                "job": "report",
                "step": "main",
                "error_line": "disk full",
                "count": 2,
                "oldest_at": "2026-03-02T12:00:00Z",
                "newest_at": "2026-03-02T12:02:00Z",
            },
            {
                "job": "report",
                "step": "main",
                "error_line": "no route",
                "count": 1,
                "oldest_at": "2026-03-02T12:01:00Z",
                "newest_at": "2026-03-02T12:01:00Z",
            },
        ],
        "next": None,
    }


@pytest.mark.req("H-09", "H-12")
@pytest.mark.guarantee("S14")
async def test_a_group_is_replayed_page_by_page_and_by_a_doubled_click_only_once(
    api_setup: ApiFixture, admin: ApiCaller, letters: list[str]
) -> None:
    async def clicked() -> list[dict[str, Any]]:
        path, done = "/v1/dead-letters/replay-all?error_line=disk%20full&limit=1", list[dict[str, Any]]()
        while path:
            page = (await admin.post(path, **{"Idempotency-Key": "click-1"})).json()
            done += page["items"]
            path = page["next"]
        return done

    first = await clicked()
    for one in first:
        await api_setup.finish_execution(one["execution_id"], Result.FAILED, error="disk full")
    second = await clicked()

    assert [(one["dead_letter_id"], one["became"]) for one in first] == [
        (letters[0], "started"),
        (letters[2], "started"),
    ]
    assert [(one["execution_id"], one["became"]) for one in second] == [
        (one["execution_id"], "already") for one in first
    ]
    assert len((await admin.get("/v1/executions")).json()["items"]) == 5


@pytest.mark.req("H-09", "H-12")
async def test_named_dead_letters_are_replayed_and_resolved(admin: ApiCaller, letters: list[str]) -> None:
    replayed = (await admin.post("/v1/dead-letters/replay-all", {"ids": letters[:1]})).json()["items"]
    resolved = (await admin.post("/v1/dead-letters/resolve-all", {"ids": letters[1:2]})).json()["items"]
    rest = (await admin.post("/v1/dead-letters/resolve-all?error=disk")).json()["items"]

    assert [one["dead_letter_id"] for one in replayed] == letters[:1]
    assert resolved == [{"dead_letter_id": letters[1], "job": "report"}]
    assert [one["dead_letter_id"] for one in rest] == [letters[0], letters[2]]
    assert (await admin.get("/v1/dead-letters")).json()["items"] == []


@pytest.mark.parametrize("action", ["replay-all", "resolve-all"])
@pytest.mark.parametrize(
    ("query", "body", "status"),
    [
        ("", {"ids": []}, 422),
        ("", {"ids": ["x"] * 501}, 422),
        ("", {"ids": [5]}, 422),
        ("", {"names": []}, 422),
        ("?job=report", {"ids": ["dl_1"]}, 422),
        ("", {"ids": ["dl_none"]}, 404),
        ("?eror=x", None, 422),
        ("?since=soon", None, 422),
    ],
)
async def test_a_selection_that_cannot_be_meant_changes_no_dead_letter(
    admin: ApiCaller, letters: list[str], action: str, query: str, body: object, status: int
) -> None:
    refused = await admin.post(f"/v1/dead-letters/{action}{query}", body)

    assert refused.status_code == status
    listed = (await admin.get("/v1/dead-letters")).json()["items"]
    assert [(one["dead_letter_id"], one["replayed_by"]) for one in listed] == [
        (name, None) for name in reversed(letters)
    ]


@pytest.mark.req("H-09", "H-12")
async def test_a_dead_letter_is_put_away(admin: ApiCaller, history: dict[str, str]) -> None:
    del history
    [letter] = (await admin.get("/v1/dead-letters")).json()["items"]
    path = f"/v1/dead-letters/{letter['dead_letter_id']}"

    undone = await admin.ask("PATCH", path, {"resolved": False})
    done = (await admin.ask("PATCH", path, {"resolved": True})).json()

    assert undone.status_code == 422
    assert (done["resolved"], done["resolved_by"]) == (True, "admin@example.com")
    assert (await admin.get("/v1/dead-letters")).json()["items"] == []
    assert len((await admin.get("/v1/dead-letters?resolved=true")).json()["items"]) == 1


async def test_a_function_is_run_once_without_a_job(api_setup: ApiFixture, admin: ApiCaller) -> None:
    done = await admin.post("/v1/tasks", {"function": "reports.make", "input": {"day": 1}, "timeout": "5m"})

    assert done.status_code == 202
    await api_setup.finish_execution(done.json()["execution_id"], output=b"3")
    shown = (await admin.get(f"/v1/executions/{done.json()['execution_id']}")).json()
    assert (shown["status"], shown["input"], shown["steps"][0]["output"]) == ("completed", {"day": 1}, 3)
    assert (await admin.get("/v1/jobs")).json()["items"] == []


async def test_tasks_on_the_same_terms_share_a_name_and_others_do_not(admin: ApiCaller) -> None:
    said: list[dict[str, object]] = [{"input": {"day": 1}}, {"input": {"day": 2}}, {"timeout": "5m"}]
    for more in said:
        await admin.post("/v1/tasks", {"function": "Reports/Make", **more})

    names = [one["job"] for one in (await admin.get("/v1/executions")).json()["items"]]

    assert len(set(names)) == 2
    assert all(name.startswith("task.reports-make.") for name in names)


async def test_the_same_key_is_the_same_task(admin: ApiCaller) -> None:
    first, second = [
        await admin.post("/v1/tasks", {"function": "f"}, **{"Idempotency-Key": "monday"}) for _ in range(2)
    ]
    other = await admin.post("/v1/tasks", {"function": "f", "input": {"x": 1}}, **{"Idempotency-Key": "monday"})

    assert first.json()["execution_id"] == second.json()["execution_id"]
    assert other.status_code == 409


@pytest.mark.parametrize("field", ["dag", "schedule", "name", "lock", "tenant", "command", "ping"])
async def test_a_task_says_nothing_that_only_a_job_can(admin: ApiCaller, field: str) -> None:
    refused = await admin.post("/v1/tasks", {"function": "f", field: "x"})

    assert refused.json()["errors"][0]["field"] == field


async def test_a_key_stands_for_one_task_whatever_its_function_and_terms(admin: ApiCaller) -> None:
    key = {"Idempotency-Key": "monday"}
    await admin.post("/v1/tasks", {"function": "f"}, **key)
    before = (await admin.get("/v1/audit")).json()["items"]

    others = [
        await admin.post("/v1/tasks", said, **key) for said in ({"function": "g"}, {"function": "f", "timeout": "5m"})
    ]

    assert [one.status_code for one in others] == [409, 409]
    assert len((await admin.get("/v1/executions")).json()["items"]) == 1
    assert (await admin.get("/v1/audit")).json()["items"] == before


# ---- what listings tell --------------------------------------------------------------------------


async def _skip_ticks(api_setup: ApiFixture, admin: ApiCaller, job: str, minutes: int) -> None:
    """Pause the job for some minutes, of which each has a tick."""
    await admin.post(f"/v1/jobs/{job}/pause")
    api_setup.clock.advance(60_000 * minutes)
    await admin.post(f"/v1/jobs/{job}/resume")


@pytest.mark.req("H-10", "H-12")
async def test_skipped_ticks_are_listed_as_executions_of_the_status_skipped(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    for name, tags in (("calm", []), ("report", ["numbers"])):
        await admin.registered(name=name, schedule="* * * * *", tags=tags)
        await _skip_ticks(api_setup, admin, name, 3)
    await admin.triggered()

    async def skipped(asked: str = "") -> list[dict[str, Any]]:
        answer = await admin.get(f"/v1/executions?status=skipped{asked}")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    [of_job] = await skipped("&job=report")
    assert (of_job["job"], of_job["status"], of_job["reason"], of_job["count"]) == ("report", "skipped", "paused", 3)
    assert of_job["planned_at"] == "2026-03-02T12:04:00Z"
    assert (of_job["execution_id"], of_job["trigger"], of_job["attempt"]) == (of_job["tick_key"], "cron", 0)
    assert of_job["tick_key"] == hashlib.sha256(b"report:1772453040").hexdigest()
    assert {one["job"] for one in await skipped()} == {"calm", "report"}
    assert await skipped("&tag=numbers") == await skipped("&tag=numbers&job=report") == [of_job]
    assert await skipped("&tag=numbers&job=calm") == await skipped("&trigger=api") == []
    assert await skipped("&until=2026-03-02T12:00:30Z") == []
    assert "skipped" not in {one["status"] for one in (await admin.get("/v1/executions")).json()["items"]}


@pytest.mark.req("C-02")
async def test_a_tick_has_its_key_and_the_times_of_its_decision_and_of_its_last_change(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    await admin.registered(schedule="* * * * *")
    await _skip_ticks(api_setup, admin, "report", 1)

    [tick] = (await admin.get("/v1/ticks?job=report")).json()["items"]

    assert tick["key"] == hashlib.sha256(b"report:1772452860").hexdigest()
    assert tick["planned_at"] == tick["decided_at"] == tick["created_at"] == tick["updated_at"]


@pytest.mark.req("C-01")
async def test_jobs_and_schedules_say_their_cron_and_when_they_were_changed(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    await admin.registered(schedule="every weekday at 9am")
    api_setup.clock.advance(1000)
    await admin.ask("PUT", "/v1/jobs/report", {**JOB, "schedule": "every weekday at 10am"})

    [listed_job] = (await admin.get("/v1/jobs")).json()["items"]
    job, schedule = [(await admin.get(f"/v1/{kind}/report")).json() for kind in ("jobs", "schedules")]

    assert {one["cron"] for one in (listed_job, job, schedule)} == {"0 10 * * 1-5"}
    assert {one["updated_at"] for one in (listed_job, job, schedule)} == {"2026-03-02T12:00:01Z"}


@pytest.mark.req("H-10")
async def test_a_list_of_executions_has_their_attempt_key_and_times(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    execution = await admin.triggered()
    [waiting] = (await admin.get("/v1/executions")).json()["items"]
    await api_setup.finish_execution(execution)
    [ended] = (await admin.get("/v1/executions")).json()["items"]

    assert (waiting["attempt"], waiting["updated_at"]) == (0, waiting["created_at"])
    assert (ended["attempt"], ended["updated_at"], ended["tick_key"]) == (1, ended["completed_at"], None)
    assert (await admin.get(f"/v1/executions/{execution}")).json()["attempt"] == 1


async def test_executions_and_dead_letters_are_found_by_the_beginning_of_their_ids(
    admin: ApiCaller, history: dict[str, str]
) -> None:
    whole = history["done"]

    assert await listed(admin, f"prefix={whole}") == await listed(admin, f"prefix={whole[:-1]}&limit=1") == [whole]
    assert sorted(await listed(admin, "prefix=run_")) == sorted(history.values())
    assert await listed(admin, "prefix=nothing") == []
    [letter] = (await admin.get("/v1/dead-letters")).json()["items"]
    name = letter["dead_letter_id"]
    assert (await admin.get(f"/v1/dead-letters?prefix={name[:-2]}")).json()["items"] == [letter]
    for path in ("executions?prefix=run_&job=report", "dead-letters?prefix=dl_&resolved=true"):
        assert (await admin.get(f"/v1/{path}")).status_code == 422
