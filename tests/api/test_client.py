"""Both clients against a real server: the same methods, responses and errors."""

import asyncio
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

import gnomon
from gnomon import errors
from gnomon.api.routes import ROUTES
from gnomon.client import requests
from gnomon.client.methods import ClientMethods, ListMethod, PagedMethod, SingleMethod
from gnomon.client.transport import ApiRequest
from gnomon.core.model import Result
from support.api_fixture import JOB, ApiFixture
from support.api_server import serve_api_fixture


@pytest.fixture
def address(api_setup: ApiFixture) -> Iterator[str]:
    with serve_api_fixture(api_setup) as found:
        yield found
    assert api_setup.unhandled_errors == []


@pytest.fixture
def client(address: str) -> Iterator[gnomon.Client]:
    with gnomon.Client(address, token="admin") as found:  # noqa: S106 - a role
        yield found


def test_a_job_is_registered_and_looked_at(client: gnomon.Client) -> None:
    done = client.register(JOB)
    shown = client.job("report")

    assert (done.change, shown.functions) == ("created", ["reports.make"])
    assert shown.next_run_at == datetime(2026, 3, 3, 9, tzinfo=UTC)


def test_listings_are_read_page_by_page(client: gnomon.Client) -> None:
    for name in ("a", "b", "c"):
        client.register({**JOB, "name": name})

    assert [one.job for one in client.jobs(page=1)] == ["a", "b", "c"]
    assert [one.job for one in client.jobs(tag="none", page=1)] == []


def test_an_execution_is_started_and_followed_to_its_end(api_setup: ApiFixture, client: gnomon.Client) -> None:
    client.register(JOB)
    started = client.trigger("report", {"day": 1}, key="monday")
    asyncio.run(api_setup.finish_execution(started.execution_id, output=b'{"rows":3}'))

    ended = client.finished(started.execution_id, timeout=60)

    assert (ended.status, ended.input, ended.steps[0].output) == ("completed", {"day": 1}, {"rows": 3})
    assert [one.execution_id for one in client.executions(job="report", status="completed")] == [started.execution_id]


def test_an_execution_that_does_not_end_is_not_waited_for_forever(client: gnomon.Client) -> None:
    client.register(JOB)
    started = client.trigger("report")

    with pytest.raises(TimeoutError, match="pending"):
        client.finished(started.execution_id, timeout=0.01)


def test_a_dead_letter_is_replayed_and_put_away(api_setup: ApiFixture, client: gnomon.Client) -> None:
    client.register({**JOB, "overlap": "allow"})
    asyncio.run(api_setup.finish_execution(client.trigger("report").execution_id, Result.FAILED, error="disk full"))
    [letter] = client.dead_letters()

    replayed = client.replay(letter.dead_letter_id)

    assert replayed.became == "started"
    assert client.resolve(letter.dead_letter_id).resolved
    assert list(client.dead_letters()) == []


def test_why_is_answered(client: gnomon.Client) -> None:
    client.register(JOB)

    assert client.why("report").coming is not None
    assert client.why("report", at="09:00").explanations[0].sentence


def test_a_change_of_what_has_changed_is_refused(client: gnomon.Client) -> None:
    client.register(JOB)
    seen = client.job("report").etag
    client.update("report", {**JOB, "schedule": "0 10 * * *"}, etag=seen)

    with pytest.raises(errors.Stale):
        client.update("report", {**JOB, "schedule": "0 11 * * *"}, etag=seen)


def test_errors_are_those_of_the_scheduler(client: gnomon.Client) -> None:
    with pytest.raises(errors.NotFound, match="there is no job 'none'"):
        client.job("none")
    with pytest.raises(errors.FieldError) as refused:
        client.register({**JOB, "shedule": "* * * * *"})

    assert (refused.value.field, refused.value.value) == ("shedule", "* * * * *")


@pytest.mark.parametrize(("token", "error"), [("stolen", errors.Unauthenticated), ("viewer", errors.Forbidden)])
def test_a_missing_permission_is_an_error(address: str, token: str, error: type[Exception]) -> None:
    with gnomon.Client(address, token=token) as somebody, pytest.raises(error):
        somebody.register(JOB)


def test_the_token_may_come_from_the_environment(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_TOKEN", "viewer")

    with gnomon.Client(address) as viewer:
        assert list(viewer.jobs()) == []


def test_names_are_sent_as_they_are(client: gnomon.Client) -> None:
    with pytest.raises(errors.GnomonError):
        client.job("a/b?c#d")
    assert client.health().status == "ok"


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with gnomon.Client(f"http://127.0.0.1:{port}", timeout=5) as somebody, pytest.raises(errors.Unavailable):
        somebody.health()


@pytest.mark.parametrize("address", ["localhost:8062", "ftp://x", "http://", "http://x?y"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(errors.UsageError, match="is not an address"):
        gnomon.Client(address)


def test_one_client_serves_many_threads(client: gnomon.Client) -> None:
    client.register({**JOB, "overlap": "allow"})
    threads = [threading.Thread(target=client.trigger, args=("report",)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(list(client.executions())) == 20


async def test_the_other_client_is_awaited(address: str) -> None:
    async with gnomon.AsyncClient(address, token="admin") as client:  # noqa: S106 - a role
        await client.register({**JOB, "overlap": "allow"})
        started = await asyncio.gather(*(client.trigger("report", key=str(number % 5)) for number in range(20)))
        listed = [one.execution_id async for one in client.executions(page=2, trigger="api")]
        with pytest.raises(errors.NotFound):
            await client.job("none")

    assert len({one.execution_id for one in started}) == len(listed) == 5


def test_both_clients_offer_everything_that_can_be_asked_for() -> None:
    made = {
        name
        for name, one in inspect.getmembers(requests, inspect.isfunction)
        if one.__module__ == requests.__name__ and not name.startswith("_")
    }

    assert {
        name for name, one in vars(ClientMethods).items() if isinstance(one, SingleMethod | ListMethod | PagedMethod)
    } == made
    for kind in (gnomon.Client, gnomon.AsyncClient):
        assert "Start an execution" in str(kind.trigger.__doc__)
        assert list(inspect.signature(kind("http://x").trigger).parameters) == [
            "name",
            "input",
            "key",
            "force",
            "deadline",
        ]


#: Routes without a client method: probes, the endless stream, and the protocol of models.
_NOT_FOR_CLIENTS = {"show_readiness", "show_liveness", "follow_changes", "answer_model"}


#: Values for required parameters of request builders that are not names.
_REQUIRED_VALUES: dict[str, object] = {
    "first": datetime(2026, 3, 1, tzinfo=UTC),
    "last": datetime(2026, 3, 2, tzinfo=UTC),
    "at": datetime(2026, 3, 1, tzinfo=UTC),
    "scheduled_for": datetime(2026, 3, 1, tzinfo=UTC),
    "version": 1,
    "jobs": [],
}


def asked_for(make: Callable[..., ApiRequest[Any]]) -> tuple[str, int, str]:
    """The method of a request, the number of parts of its path, and the path without its parameters."""
    needed = [one for one in inspect.signature(make).parameters.values() if one.default is one.empty]
    given = {
        # A definition is a mapping; the same parameter of another request may be a name.
        one.name: {} if "Mapping" in str(one.annotation) else _REQUIRED_VALUES.get(one.name, "NAME")
        for one in needed
        if one.kind is not one.VAR_KEYWORD
    }
    ask = make(**given)
    return ask.method, ask.path.count("/"), "/".join(part for part in ask.path.split("/") if part != "NAME")


def test_every_route_can_be_asked_for() -> None:
    made = {
        asked_for(one.make)
        for one in vars(ClientMethods).values()
        if isinstance(one, SingleMethod | ListMethod | PagedMethod)
    }

    wanted = {
        (route.method, route.path.count("/"), "/".join(part for part in route.path.split("/") if part[:1] != "{"))
        for route in ROUTES
        if route.name not in _NOT_FOR_CLIENTS
    }
    assert made == wanted


@pytest.mark.req("C-03")
def test_a_schedule_of_a_workflow_is_kept_looked_at_and_started(client: gnomon.Client) -> None:
    client.deploy({"workflow_id": "etl", "steps": [{"step": "a", "function": "f"}]})

    made = client.upsert_schedule({"schedule_id": "nightly", "workflow_id": "etl", "schedule": "@daily"})
    paused = client.pause_schedule("nightly")
    shown = client.schedule("nightly", coming=3)
    then = datetime(2026, 3, 2, 2, tzinfo=UTC)
    started = [client.start("etl", version, then, "monday").started for version in (1, 1, 7)]
    client.delete_schedule("nightly")

    assert (made.schedule_id, paused.paused, len(shown.next_runs)) == ("nightly", True, 3)
    assert started == [True, True, False]
    with pytest.raises(errors.NotFound):
        client.schedule("nightly")


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_a_server_that_never_answers_is_an_error_that_names_it(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"

        async def ask_async() -> None:
            async with gnomon.AsyncClient(address, timeout=0.3) as somebody:
                await somebody.health()

        def ask() -> None:
            asyncio.run(ask_async()) if kind == "async" else gnomon.Client(address, timeout=0.3).health()

        with pytest.raises(errors.Unavailable, match=rf"{address} did not answer within 0\.3 s"):
            ask()


def test_a_connection_that_the_server_has_closed_meanwhile_is_opened_again() -> None:
    body = b'{"type": "urn:gnomon:problem:not_found", "title": "x", "status": 404, "detail": "there is no job x"}'
    closed = threading.Event()

    def answer_once_each(listening: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            closed.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=answer_once_each, args=(listening,), daemon=True)
        server.start()
        with gnomon.Client(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            for _ in range(2):
                with pytest.raises(errors.NotFound):
                    client.trigger("x")
                assert closed.wait(10)
        server.join()


def test_many_jobs_at_once_may_take_longer_unless_the_client_has_a_limit() -> None:
    assert requests.jobs().timeout < requests.apply([]).timeout == requests.plan([]).timeout
