"""Hostile requests: refused at once with a problem document, before anything is changed."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.store import NOON
from gnomon.config.sections import ServerSettings
from gnomon.errors import StoreUnavailable
from support.api_fixture import JOB, ApiCaller, ApiFixture


async def nothing_stands(somebody: ApiCaller) -> bool:
    return bool((await somebody.get("/v1/jobs")).json()["items"] == [])


BAD_BODIES = {
    "no JSON": b"{",
    "nothing": b"",
    "no object": b"[]",
    "a text": b'"x"',
    "depth": b"[" * 100_000,
    "depth of objects": b'{"a":' * 50_000,
    "a long number": b'{"name":"a","function":"f","timeout":' + b"9" * 5000 + b"}",
    "NaN": b'{"name":"a","function":"f","timeout":NaN}',
    "Infinity": b'{"name":"a","function":"f","timeout":-Infinity}',
    "a number without end": b'{"name":"a","function":"f","timeout":1e999}',
    "a name twice": b'{"name":"a","name":"b","function":"f"}',
    "an inner name twice": b'{"name":"a","function":"f","input":{"x":1,"x":2}}',
    "half a character": b'{"name":"a","function":"f","description":"\\ud800"}',
    "half a character in the input": b'{"name":"a","function":"f","input":{"x":"\\ud800"}}',
    "a zero character": b'{"name":"a","function":"f","input":{"x":"a\\u0000b"}}',
    "a zero character in a key": b'{"name":"a","function":"f","input":{"a\\u0000b":1}}',
    "no UTF-8": b'{"name":"a","function":"\xff"}',
    "UTF-16": '{"name":"a","function":"f"}'.encode("utf-16"),
}


@pytest.mark.parametrize("raw", BAD_BODIES.values(), ids=BAD_BODIES)
async def test_a_body_that_cannot_be_meant_is_refused(shared_admin: ApiCaller, raw: bytes) -> None:
    refused = await shared_admin.ask("POST", "/v1/jobs", raw=raw)

    assert refused.status_code in (400, 422)
    assert refused.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in refused.text
    assert await nothing_stands(shared_admin)


BAD_FIELDS: dict[str, dict[str, Any]] = {
    "empty name": {"name": ""},
    "space": {"name": " "},
    "dot": {"name": "."},
    "dots": {"name": ".."},
    "slash": {"name": "a/b"},
    "escaped slash": {"name": "a%2Fb"},
    "climbing name": {"name": "../x"},
    "long name": {"name": "a" * 256},
    "line feed": {"name": "a\nb"},
    "option": {"name": "-rf"},
    "right to left": {"name": "a\u202eb"},
    "fullwidth": {"name": "\uff41"},
    "wildcard": {"name": "a.b.>"},
    "star": {"name": "*"},
    "no text": {"name": 7},
    "zone of the host": {"timezone": "localtime"},
    "zone posixrules": {"timezone": "posixrules"},
    "zone Factory": {"timezone": "Factory"},
    "zone right": {"timezone": "right/UTC"},
    "climbing zone": {"timezone": "../../etc/passwd"},
    "absolute zone": {"timezone": "/etc/passwd"},
    "no zone": {"timezone": ""},
    "long zone": {"timezone": "A" * 5000},
    "lower case zone": {"timezone": "utc"},
    "step zero": {"schedule": "*/0 * * * *"},
    "minute 60": {"schedule": "60 * * * *"},
    "empty entry": {"schedule": "1,,2 * * * *"},
    "four fields": {"schedule": "* * * *"},
    "eight fields": {"schedule": "* * * * * * * *"},
    "long cron": {"schedule": "1," * 5000 + "1 * * * *"},
    "Arabic digits": {"schedule": "\u0663 * * * *"},
    "never": {"schedule": "0 0 30 2 *"},
    "never in two months": {"schedule": "0 0 31 4,6 *"},
    "attempts": {"retry": {"max_attempts": 2**31}},
    "multiplier": {"retry": {"multiplier": 1e308}},
    "jitter": {"retry": {"jitter": 1.5}},
    "negative delay": {"retry": {"initial_delay": -5}},
    "tenant": {"tenant": "other"},
    "created_by": {"created_by": "root"},
    "fence": {"fence": 1},
    "approval": {"approval_granted": True},
    "next_run_at": {"next_run_at": 0},
    "text for a list": {"function": None, "dag": [{"step": "a", "function": "f", "depends_on": "extract"}]},
    "large input": {"input": {"x": "y" * 65_536}},
}


@pytest.mark.req("H-22")
@pytest.mark.parametrize("said", BAD_FIELDS.values(), ids=BAD_FIELDS)
async def test_a_field_that_cannot_be_meant_is_named(shared_admin: ApiCaller, said: dict[str, Any]) -> None:
    refused = await shared_admin.post(
        "/v1/jobs", {key: value for key, value in {**JOB, **said}.items() if value is not None}
    )

    [fault] = refused.json()["errors"]
    assert refused.status_code == 422
    assert fault["field"].partition(".")[0].partition("[")[0] in (*said, "schedule")
    assert fault["reason"]
    assert len(refused.content) < 2000
    assert await nothing_stands(shared_admin)


async def test_an_input_of_64_kib_is_taken_and_one_byte_more_is_not(admin: ApiCaller) -> None:
    frame = len(json.dumps({"x": ""}, separators=(",", ":")))
    fits = await admin.post("/v1/jobs", {**JOB, "input": {"x": "y" * (65_536 - frame)}})
    more = await admin.post("/v1/jobs", {**JOB, "name": "more", "input": {"x": "y" * (65_537 - frame)}})

    assert (fits.status_code, more.status_code) == (201, 422)


async def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    api_setup = ApiFixture(server=ServerSettings(max_body=1024))
    async with api_setup.caller("admin") as admin:
        refused = await admin.ask("POST", "/v1/jobs", raw=b"[" * 1025)

    assert (refused.status_code, refused.json()["type"]) == (413, "urn:gnomon:problem:too_large")


async def test_a_body_without_end_is_cut_off() -> None:
    api_setup = ApiFixture(server=ServerSettings(max_body=1024))
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 512
            yield b" " * 512

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(cast("Any", api_setup.app)),
        base_url="http://gnomon",
        headers={"Authorization": "Bearer admin", "Content-Type": "application/json"},
    ) as client:
        refused = await client.post("/v1/jobs", content=endless())

    assert refused.status_code == 413
    assert sent < 10_000


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": ""},
        {"Content-Encoding": "gzip"},
    ],
    ids=str,
)
async def test_a_body_in_another_format_is_refused(shared_admin: ApiCaller, headers: dict[str, str]) -> None:
    refused = await shared_admin.ask("POST", "/v1/jobs", JOB, headers=headers)

    assert refused.status_code == 415
    assert await nothing_stands(shared_admin)


@pytest.mark.parametrize(
    "asked",
    [
        "limit=0",
        "limit=-1",
        "limit=1000000000",
        "limit=ten",
        "limit=1&limit=2",
        "cursor=nonsense",
        "cursor=WyJhIiwiYiJd",
        "cursor=%FF",
        "cursor=",
        "sort=name;DROP TABLE run",
        "status=completed' OR '1'='1",
        "statsu=failed",
        "since=yesterday",
        "since=2026-03-02T12:00:00",
        "since=999999999999999999999999",
        "job=" + "x" * 300,
        "job=a/b",
    ],
)
async def test_a_question_that_cannot_be_meant_is_refused(shared_admin: ApiCaller, asked: str) -> None:
    refused = await shared_admin.get(f"/v1/executions?{asked}")

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == asked.partition("=")[0]


async def test_an_unknown_question_is_answered_with_what_may_have_been_meant(admin: ApiCaller) -> None:
    refused = await admin.get("/v1/executions?statsu=failed")

    assert "did you mean status?" in refused.json()["detail"]


async def test_a_cursor_is_good_for_the_question_it_was_given_out_for(api_setup: ApiFixture, admin: ApiCaller) -> None:
    for name in ("a", "b"):
        await admin.registered(name=name)
    cursor = (await admin.get("/v1/jobs?limit=1")).json()["next"].partition("cursor=")[2]

    other = await admin.get(f"/v1/jobs?limit=1&tag=x&cursor={cursor}")
    changed = await admin.get(f"/v1/jobs?limit=1&cursor=X{cursor[1:]}")
    async with api_setup.caller("admin/other") as stranger:
        foreign = await stranger.get(f"/v1/jobs?limit=1&cursor={cursor}")

    assert [one.status_code for one in (other, changed, foreign)] == [422, 422, 422]


def forged(place: object, *, key: bytes | None, url: str = "/v1/schedule", tenant: str = "default") -> str:
    """A cursor that anybody can make who knows how cursors are made, and perhaps the key of another store."""
    text = json.dumps([tenant, url, [], place], separators=(",", ":")).encode()
    digest = hashlib.sha256(text) if key is None else hmac.new(key, text, "sha256")
    seals = (digest.hexdigest()[:16], digest.hexdigest()[:32])
    return base64.urlsafe_b64encode(
        json.dumps([place, seals[key is not None]], separators=(",", ":")).encode()
    ).decode()


@pytest.mark.parametrize("seen", [-5, 0, 4_000_000, 2**70])
async def test_a_cursor_that_the_store_has_not_sealed_is_refused(admin: ApiCaller, seen: int) -> None:
    await admin.registered()
    for key in (None, b"the key of another store"):
        for place in ([NOON, seen, NOON + 2**50], [NOON, "report", NOON + seen]):
            answer = await admin.get(f"/v1/schedule?cursor={forged(place, key=key)}")

            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "cursor")


async def test_a_cursor_that_is_nested_deeply_is_refused_as_any_other(admin: ApiCaller) -> None:
    answer = await admin.get(f"/v1/jobs?cursor={base64.urlsafe_b64encode(b'[' * 1400).decode()}")

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "cursor")


async def test_a_cursor_with_the_seal_of_the_store_is_taken_and_still_bounded(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    await admin.registered()
    key = await api_setup.store.cursor_key()
    good = await admin.get(f"/v1/schedule?cursor={forged([NOON, 'a', NOON + 1], key=key)}")
    wild = await admin.get(f"/v1/schedule?cursor={forged([NOON, 'a', 2**70], key=key)}")

    assert (good.status_code, wild.status_code) == (200, 422)


async def test_pages_of_fires_at_one_instant_lose_none_and_repeat_none(admin: ApiCaller) -> None:
    names = [await admin.registered(name=f"job{number}") for number in range(7)]
    found, path = [], "/v1/schedule?hours=30&limit=3"
    while path:
        page = (await admin.get(path)).json()
        found += [(one["utc"], one["job"]) for one in page["items"]]
        path = page["next"]

    assert found == sorted((at, name) for at in ("2026-03-03T09:00:00Z",) for name in names)


@pytest.mark.parametrize("path", ["//v1/health", "/v1//jobs", "/v1/jobs/../health", "/v1/jobs/..%2f..%2fmetrics"])
async def test_an_address_that_two_could_read_differently_is_refused(shared_setup: ApiFixture, path: str) -> None:
    seen: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        seen.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path.replace("%2f", "/"),
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }
    await shared_setup.app(scope, receive, send)

    assert seen[0]["status"] == 400


@pytest.mark.parametrize("key", ["", "x" * 10_000, "a\u0007b"])
async def test_a_key_that_cannot_be_kept_is_refused(admin: ApiCaller, key: str) -> None:
    await admin.registered()

    refused = await admin.ask("POST", "/v1/jobs/report/trigger", headers={"Idempotency-Key": key})

    assert refused.status_code == 422


async def test_a_hundred_at_once_with_one_key_are_one(admin: ApiCaller) -> None:
    await admin.registered()

    found = await asyncio.gather(*(admin.triggered(**{"Idempotency-Key": "monday"}) for _ in range(100)))

    assert len(set(found)) == 1


async def test_the_same_key_of_another_tenant_is_another(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    ours = await admin.triggered(**{"Idempotency-Key": "monday"})
    async with api_setup.caller("admin/other") as other:
        await other.registered()
        theirs = await other.triggered(**{"Idempotency-Key": "monday"})

    assert ours != theirs


async def test_a_store_that_is_away_is_said_and_when_to_come_back(api_setup: ApiFixture) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("it is away")

    api_setup.store.schedules.find = away  # type: ignore[method-assign]
    async with api_setup.caller("viewer") as viewer:
        failed = await viewer.get("/v1/jobs/report")

    assert (failed.status_code, failed.headers["retry-after"]) == (503, "1")
    assert failed.json()["type"] == "urn:gnomon:problem:store_unavailable"


async def test_an_unexpected_error_is_logged_and_not_shown_to_the_caller(api_setup: ApiFixture) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is hunter2")

    api_setup.store.workers.alive = broken  # type: ignore[method-assign, assignment]
    async with api_setup.caller("viewer") as viewer:
        failed = await viewer.get("/v1/workers")

    assert failed.status_code == 500
    assert "hunter2" not in failed.text
    assert [str(one) for one in api_setup.unhandled_errors] == ["the password is hunter2"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
FIELDS = st.sampled_from(["name", "function", "schedule", "retry", "dag", "input", "on", "tags", "timeout", "overlap"])
BODIES = st.dictionaries(FIELDS, JSON, max_size=6) | JSON


class HostileClient:
    """Sends bodies to an API fixture, which is replaced whenever a body has left something behind."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._face = ApiFixture()

    def throw(self, raw: bytes) -> None:
        self._runner.run(self._thrown(raw))

    async def _thrown(self, raw: bytes) -> None:
        api_setup = self._face
        async with api_setup.caller("admin") as admin:
            for path in ("/v1/jobs", "/v1/workflows", "/v1/schedules/upsert", "/v1/tasks", "/v1/events"):
                done = await admin.ask("POST", path, raw=raw)
                assert done.status_code in (200, 201, 202, 400, 422), done.text
                if path == "/v1/jobs" and done.status_code != 201:
                    assert await nothing_stands(admin)
                if done.is_success:
                    self._face = ApiFixture()
        assert api_setup.unhandled_errors == []


@pytest.fixture(scope="module")
def hostile_client() -> Iterator[HostileClient]:
    with asyncio.Runner() as runner:
        yield HostileClient(runner)


@given(said=BODIES, broken=st.binary(max_size=3), at=st.integers(0, 200))
@settings(max_examples=300, deadline=1000, suppress_health_check=[HealthCheck.too_slow])
def test_no_body_fails_hangs_or_changes_anything_unless_it_is_a_job(
    hostile_client: HostileClient, said: object, broken: bytes, at: int
) -> None:
    raw = json.dumps(said).encode()

    hostile_client.throw(raw[:at] + broken + raw[at:])


@pytest.mark.parametrize(
    ("asked", "field", "reason"),
    [
        ("/v1/events?name=A%20B", "name", "must be 1 to 128"),
        ("/v1/executions?status=done", "status", "must be one of pending, running"),
        ("/v1/ticks?kind=done", "kind", "must be one of fired"),
    ],
)
async def test_an_invalid_query_is_refused_in_its_own_words(
    shared_admin: ApiCaller, asked: str, field: str, reason: str
) -> None:
    [fault] = (await shared_admin.get(asked)).json()["errors"]

    assert fault["field"] == field
    assert reason in fault["reason"]
