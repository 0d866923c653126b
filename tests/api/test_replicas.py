"""Concurrent requests to two servers on one store: once means once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gnomon
from gnomon import errors
from gnomon.client import requests
from gnomon.client.transport import ApiRequest
from gnomon.core.responses.base import Page
from gnomon.core.responses.executions import Execution
from support.api_server import background_scheduler

JOB = {"name": "report", "schedule": "0 9 1 1 *", "function": "reports.make", "overlap": "allow"}


@pytest.fixture
async def clients(tmp_path: Path) -> AsyncIterator[list[gnomon.AsyncClient]]:
    """A client for each of two servers; the second is a standby."""
    first = await asyncio.to_thread(background_scheduler, tmp_path / "gnomon.db")
    second = await asyncio.to_thread(background_scheduler, tmp_path / "gnomon.db")
    token = (tmp_path / "gnomon.db.token").read_text()
    found = [gnomon.AsyncClient(str(one.address), token=token) for one in (first, second)]
    try:
        await found[0].register(JOB)
        yield found
    finally:
        for client in found:
            await client.close()
        for one in (second, first):
            await asyncio.to_thread(one.stop)


async def settled(*asked: object) -> list[object]:
    return list(await asyncio.gather(*asked, return_exceptions=True))  # type: ignore[call-overload]


async def test_of_many_changes_to_what_all_have_seen_one_is_made(clients: list[gnomon.AsyncClient]) -> None:
    seen = (await clients[1].job("report")).etag

    done = await settled(
        *(
            clients[number % 2].update("report", {**JOB, "schedule": f"{number} 9 1 1 *"}, etag=seen)
            for number in range(1, 11)
        )
    )

    made = [one for one in done if not isinstance(one, BaseException)]
    assert len(made) == 1
    assert all(isinstance(one, errors.Stale) for one in done if isinstance(one, BaseException))


async def test_a_key_is_one_execution_whichever_server_is_asked(clients: list[gnomon.AsyncClient]) -> None:
    started = await asyncio.gather(*(clients[number % 2].trigger("report", key="monday") for number in range(20)))

    assert len({one.execution_id for one in started}) == 1
    assert sorted(one.became for one in started) == ["already"] * 19 + ["started"]


async def test_a_key_with_another_input_is_refused_by_both(clients: list[gnomon.AsyncClient]) -> None:
    await clients[0].trigger("report", {"day": 1}, key="monday")

    for client in clients:
        with pytest.raises(errors.KeyTaken):
            await client.trigger("report", {"day": 2}, key="monday")


async def test_a_cursor_of_one_is_good_at_the_other(clients: list[gnomon.AsyncClient]) -> None:
    for number in range(5):
        await clients[0].trigger("report", key=str(number))

    first = await clients[0].send(requests.executions(page=2))
    assert first.next is not None
    rest: Page[Execution] = await clients[1].send(ApiRequest(method="GET", path=first.next, answer=Page[Execution]))

    assert len({one.execution_id for one in (*first.items, *rest.items)}) == 4


async def test_files_applied_at_the_same_time_stand_whole(clients: list[gnomon.AsyncClient]) -> None:
    files = [[{**JOB, "name": f"job-{n}", "description": str(number)} for n in range(30)] for number in range(4)]

    await settled(*(clients[number % 2].apply(jobs, prune=True) for number, jobs in enumerate(files)))

    listed = [one.job async for one in clients[0].jobs()]
    said = {(await clients[1].job(name)).definition["description"] for name in listed}  # type: ignore[index]
    assert len(listed) == 30
    assert len(said) == 1


async def test_a_request_to_a_standby_is_executed_by_the_active_server(
    clients: list[gnomon.AsyncClient],
) -> None:
    await clients[0].register({"name": "greet", "command": "echo hello", "overlap": "allow"})

    started = [await clients[number % 2].trigger("greet") for number in range(4)]
    ended = [await asyncio.wait_for(clients[0].finished(one.execution_id), 30) for one in started]

    assert {one.status for one in ended} == {"completed"}
    assert len({one.steps[0].attempts[0].worker for one in ended}) == 1


@pytest.mark.parametrize("way", ["one", "all"])
async def test_a_token_that_one_has_revoked_is_refused_by_the_other_within_seconds(
    clients: list[gnomon.AsyncClient], way: str
) -> None:
    [issued] = [one async for one in clients[1].tokens()]

    done = await (clients[0].revoke_token(issued.token_id) if way == "one" else clients[0].revoke_all_tokens())

    assert done.revoked
    async with asyncio.timeout(30):
        await refused(clients[1])


async def refused(client: gnomon.AsyncClient) -> None:
    """Ask until the token is refused as revoked."""
    while True:
        try:
            await client.job("report")
        except errors.Unauthenticated as error:
            assert "was revoked" in str(error)  # noqa: PT017 - until then it is accepted
            return
