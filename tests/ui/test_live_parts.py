"""Live parts: a page answers one part of itself alone, and a stream tells which topics have changed."""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.api import event_stream
from gnomon.core.instants import instant_of
from gnomon.errors import Unauthenticated
from gnomon.ports.auth import Caller
from gnomon.ports.change_log import Change
from gnomon.services.observability.change_stream import StreamedChange
from gnomon.testing.clock import VirtualClock
from gnomon.ui.pages import PAGES
from gnomon.ui.rendering import environment
from gnomon.ui.stale_topics import StaleTopics
from support.api_fixture import RoleTokens
from support.dashboard import DashboardFixture
from support.dashboard_pages import places

_PARTS = re.compile(r'data-part="([^"]*)"')


async def test_every_part_of_a_page_is_answered_alone_as_the_page_shows_it(dashboard: DashboardFixture) -> None:
    addresses, seen = await places(dashboard), 0

    async with dashboard.visitor("admin") as visitor:
        for page in PAGES:
            whole = (await visitor.get(addresses[page.path])).text
            for name in _PARTS.findall(whole):
                part = await visitor.get(f"{addresses[page.path]}?part={name}")
                assert part.status_code == 200, (page.path, name)
                assert part.text in whole, (page.path, name)
                assert len(part.text) < len(whole)
                seen += 1
    assert seen


def test_a_field_of_an_answer_is_found_before_the_method_of_that_name() -> None:
    template = environment().from_string(
        "{{ one.items }} {% for name, value in none_such.items() %}{{ name }}{% endfor %}"
    )

    assert template.render(one={"items": 3}, none_such={"a": 1}) == "3 a"


async def test_a_part_that_a_page_does_not_have_is_named(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as visitor:
        answer = await visitor.get("/ui/health?part=nothing")

    assert answer.status_code == 404
    assert "part of the page" in answer.text


async def test_a_part_is_closed_to_those_who_may_not_read_the_page(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer, dashboard.visitor() as stranger:
        assert (await viewer.get("/ui/audit?part=entries")).status_code == 403
        assert (await stranger.get("/ui/health?part=components")).status_code == 303


# ---- the stream ----------------------------------------------------------------------------------


@asynccontextmanager
async def following(dashboard: DashboardFixture, token: str) -> AsyncIterator["asyncio.Queue[str]"]:
    """The messages that the stream of pages sends to the session of a caller."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        heard.put_nowait(str(message.get("status") or message.get("body", b"").decode()))

    scope = {
        "type": "http", "method": "GET", "path": "/ui/stream", "raw_path": b"/ui/stream", "query_string": b"",
        "headers": [(b"cookie", f"gnomon-80={token}".encode())], "http_version": "1.1", "scheme": "http",
        "server": ("gnomon", 80), "client": ("somebody", 1), "root_path": "",
    }  # fmt: skip
    task = asyncio.ensure_future(dashboard.app(scope, receive, send))
    yield heard
    left.set()
    await asyncio.wait_for(task, 30)


async def listening(heard: "asyncio.Queue[str]") -> str:
    """Wait until the stream has begun; return the number of the last change before it."""
    assert await heard.get() == "200"
    return number_of(await heard.get(), "event: listening\ndata: {}\n\n")


def number_of(message: str, expected: str) -> str:
    first, _, rest = message.partition("\n")
    assert first.startswith("id: ")
    assert rest == expected
    return first.removeprefix("id: ")


def changed(kind: str, tenant: str = "default", **facts: Any) -> Change:  # noqa: ANN401
    return Change(kind, tenant, instant_of(0), facts)


def topics_of(message: str) -> Sequence[str]:
    _, kind, data = message.strip().split("\n")
    assert kind == "event: stale"
    topics: list[str] = json.loads(data.removeprefix("data: "))
    return topics


async def test_the_stream_names_what_has_changed_for_the_own_tenant(dashboard: DashboardFixture) -> None:
    async with following(dashboard, "viewer") as heard:
        await listening(heard)
        dashboard.change_stream.publish([changed("tick", "other", job="theirs"), changed("tick", job="a b")])

        assert topics_of(await heard.get()) == ["tick", "job:a%20b"]


_SEEN = re.compile(r'<body data-seen="([0-9a-f]*\.\d+)">')


async def test_a_browser_knows_whether_anything_changed_between_the_page_and_its_stream(
    dashboard: DashboardFixture,
) -> None:
    async with dashboard.visitor("viewer") as visitor:
        [before] = _SEEN.findall((await visitor.get("/ui/health")).text)
        async with following(dashboard, "viewer") as heard:
            # Nothing has changed.
            assert await listening(heard) == before

        dashboard.change_stream.publish([changed("tick", job="a"), changed("tick", "other", job="theirs")])
        async with following(dashboard, "viewer") as heard:
            after = await listening(heard)
            assert after == f"{before.partition('.')[0]}.1"
            dashboard.change_stream.publish([changed("breaker")])
            assert number_of(await heard.get(), 'event: stale\ndata: ["breaker"]\n\n').endswith(".2")

        [now] = _SEEN.findall((await visitor.get("/ui/health")).text)
        assert now.endswith(".2")


async def test_the_stream_is_closed_to_strangers(dashboard: DashboardFixture) -> None:
    async with following(dashboard, "") as heard:
        assert await heard.get() == "401"


async def test_the_stream_of_a_caller_has_a_place_like_any_other(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer~a") as late:
        for one in "bcd":
            dashboard.change_stream.subscribe(await dashboard.services.tokens.caller(f"viewer~{one}/{one}"))
        assert (await late.get("/ui/stream")).status_code == 503


class RevokedTokens(RoleTokens):
    """Refuses every token once it is told to."""

    refused = False

    async def caller(self, token: str) -> Caller:
        if self.refused:
            raise Unauthenticated("the token is revoked")
        return await super().caller(token)


async def test_the_stream_ends_with_the_session(dashboard: DashboardFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_KEEPALIVE_SECONDS", 0.02)
    tokens = RevokedTokens()
    dashboard.put(replace(dashboard.services, tokens=tokens))

    async with following(dashboard, "viewer") as heard:
        await listening(heard)
        tokens.refused = True
        dashboard.clock.advance(1_000)
        while (message := await heard.get()) == ": still here\n\n":
            pass

    assert message.startswith("event: end\n")


# ---- which topics are told, and when ------------------------------------------------------------


def told(topics: StaleTopics, *changes: Change) -> Sequence[Sequence[str]]:
    """The topics of the messages that are sent at once after these changes."""
    chunks = [topics.chunk(StreamedChange(kind=one.kind, number=1, facts=one.facts)) for one in changes]
    return [topics_of(one.decode()) for one in chunks if one]


def test_the_first_change_is_told_at_once_and_further_ones_together_after_a_second() -> None:
    clock = VirtualClock(0)
    topics = StaleTopics(clock)

    assert told(topics, changed("tick", job="a")) == [["tick", "job:a"]]
    assert told(topics, changed("tick", job="b"), changed("execution", job="b", execution_id="run_1")) == []
    assert topics.patience() == 1.0
    clock.advance(400)
    assert topics.patience() == pytest.approx(0.6)
    clock.advance(600)
    assert topics_of(topics.chunk(None).decode()) == ["execution", "tick", "job:b", "execution:run_1"]


def test_lines_of_a_log_make_nothing_but_the_log_stale() -> None:
    topics = StaleTopics(VirtualClock(0))

    assert told(topics, changed("log", job="a", execution_id="run_1", lines=3)) == [["log", "log:run_1"]]


def test_nothing_is_told_while_nothing_changes() -> None:
    topics = StaleTopics(VirtualClock(0))

    assert topics.chunk(None) == b": still here\n\n"
    assert topics.patience() == math.inf


def test_a_change_without_a_job_names_its_kind_alone() -> None:
    assert told(StaleTopics(VirtualClock(0)), changed("breaker", breaker="stripe", job=None)) == [["breaker"]]


def test_of_very_many_jobs_a_message_names_all_at_once() -> None:
    clock = VirtualClock(0)
    topics = StaleTopics(clock)
    told(topics, changed("breaker"))
    told(topics, *(changed("tick", job=f"job-{number}") for number in range(10_000)))
    clock.advance(1_000)

    assert topics_of(topics.chunk(None).decode()) == ["tick", "job:*"]
