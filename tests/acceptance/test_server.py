"""The API as its users meet it: beside a scheduler that executes, and on replicas that do not."""

import itertools
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import gnomon
from gnomon import errors
from gnomon.app.auth import new_token, read_local_token
from gnomon.config.settings import load
from gnomon.ports.auth import Role
from support.command_line import run_command
from support.effort import thorough
from support.gnomon_processes import TESTS, GnomonProcess, up
from support.postgres_server import postgres
from support.witness import read_witness

OPEN = {"GNOMON_AUTH__VERIFY_TOKENS": "false", "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true"}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


def address_of(running: GnomonProcess) -> str:
    return running.line_with("answering on ").split()[-1]


@contextmanager
def server(database: Path | str, *arguments: str) -> Iterator[GnomonProcess]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gnomon", "server", "--database", str(database), "--port", "0", *arguments],
        cwd=TESTS,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **OPEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield GnomonProcess(process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.req("H-05", "H-12")
def test_a_job_registered_and_triggered_over_http_runs(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNOMON_WITNESS", str(tmp_path / "witness"))
    with up(database, "--port", "0", environment=OPEN) as running, gnomon.Client(address_of(running)) as client:
        assert "may do everything" in running.line_with("! ")
        client.register({"name": "greet", "function": "witness/coroutine"})
        ended = client.finished(client.trigger("greet", key="once").execution_id, timeout=20)
        task = client.finished(client.submit("witness/coroutine").execution_id, timeout=20)

        assert (ended.status, task.status) == ("completed", "completed")
        parts = {one.component: one.status for one in client.health().components}
        assert parts.items() >= {"store": "ok", "ledger": "ok", "ticker": "ok", "worker": "ok"}.items()
        assert running.terminate() == 0
    assert [what for what, *_ in read_witness(tmp_path / "witness")] == ["start", "end"] * 2


def test_without_a_token_nobody_is_let_in(database: Path) -> None:
    with up(database, "--port", "0") as running, gnomon.Client(address_of(running)) as client:
        assert client.health().status == "ok"
        with pytest.raises(errors.Unauthenticated):
            list(client.jobs())
        assert "127.0.0.1" in running.line_with("was not let in")


def test_an_issued_token_permits_what_its_role_permits(database: Path) -> None:
    settings = load(flags={"database.url": f"sqlite:///{database}"})
    with up(database, "--port", "0") as running:
        address = address_of(running)
        assert f"{database}.token" in running.line_with("a token for the API")
        viewers = new_token(settings, Role.VIEWER, subject="ci", tenant="default", lasts_ms=60_000).token
        with (
            gnomon.Client(address, token=read_local_token(settings)) as owner,
            gnomon.Client(address, token=viewers) as viewer,
        ):
            owner.register({"name": "report", "function": "f"})
            assert [job.job for job in viewer.jobs()] == ["report"]
            with pytest.raises(errors.Forbidden):
                viewer.pause("report")


@pytest.mark.parametrize("way", ["one", thorough("all")])
def test_a_revoked_token_is_refused_soon_after_by_a_running_server(database: Path, way: str) -> None:
    settings = load(flags={"database.url": f"sqlite:///{database}"})
    with up(database, "--port", "0") as running:
        address = address_of(running)
        made = new_token(settings, Role.VIEWER, subject="ci", tenant="default", lasts_ms=60_000)
        with gnomon.Client(address, token=made.token) as client:
            list(client.jobs())
            revoked = run_on(database, "token", "revoke", "--all" if way == "all" else made.record.token_id)
            assert revoked.returncode == 0
            assert refused_within(5, client)
        with gnomon.Client(address, token=read_local_token(settings)) as owner:
            assert next(iter(owner.audit(kind="token"))).action == "revoke"


@pytest.mark.req("H-23")
def test_a_running_server_signs_the_audit_trail_and_a_cut_end_is_found(database: Path) -> None:
    checkpoint = Path(f"{database}.checkpoint")
    with up(database, "--port", "0"):
        until = time.monotonic() + 20
        while not checkpoint.exists() and time.monotonic() < until:
            time.sleep(0.02)
    assert run_on(database, "audit", "verify").returncode == 0
    with sqlite3.connect(database) as conn:
        conn.execute("DELETE FROM audit")
    conn.close()

    broken = run_on(database, "audit", "verify")

    assert (broken.returncode, "the end was cut off" in broken.stdout) == (1, True)


def refused_within(seconds: float, client: gnomon.Client) -> bool:
    """Ask until the token is refused as revoked, or the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            list(client.jobs())
        except errors.Unauthenticated as error:
            return "was revoked" in str(error)
    return False


def run_on(database: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_command(*words, "--database", str(database), folder=database.parent)


def test_letting_everybody_in_has_to_be_meant(database: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "gnomon", "up", "--database", str(database), "--port", "0"],
        env={**os.environ, "GNOMON_AUTH__VERIFY_TOKENS": "false"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (refused.returncode, "accept_unverified" in refused.stderr) == (2, True)
    assert not database.exists()


@pytest.mark.req("H-12")
def test_the_caller_is_audited_as_the_actor(database: Path) -> None:
    settings = load(flags={"database.url": f"sqlite:///{database}"})
    with up(database, "--port", "0") as running:
        token = new_token(settings, Role.ADMIN, subject="grace", tenant="default", lasts_ms=60_000).token
        with gnomon.Client(address_of(running), token=token) as client:
            client.register({"name": "report", "function": "f"})
            client.pause("report")

    listed = run_on(database, "audit", "list", "-o", "json")

    done = [(one["actor"], one["action"]) for one in json.loads(listed.stdout)]
    assert {("grace", "register"), ("grace", "pause")} <= set(done)


@pytest.mark.parametrize("command", ["up", thorough("server")])
def test_a_port_that_is_taken_is_said_and_nothing_is_started(database: Path, command: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        refused = subprocess.run(
            [sys.executable, "-m", "gnomon", command, "--database", str(database), "--port", port],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: cannot listen on 127.0.0.1:{port}: another process listens on that port")
    assert not database.exists()


def test_a_server_schedules_and_leaves_the_executing_to_others(database: Path) -> None:
    with server(database) as running, gnomon.Client(address_of(running)) as client:
        client.register({"name": "ticker", "function": "elsewhere", "schedule": "* * * * * *", "overlap": "allow"})
        while not (ticks := list(client.ticks("ticker"))):
            pass
        parts = {one.component: one.status for one in client.health().components}

        assert ticks[-1].kind == "fired"
        assert (parts["dispatcher"], "worker" in parts) == ("ok", False)
        running.signal(signal.SIGTERM)
        assert running.ended() == 0


def test_a_second_server_on_a_file_stands_by_and_answers_all_the_same(database: Path) -> None:
    with server(database) as first, server(database) as second:
        with gnomon.Client(address_of(first)) as one:
            one.register({"name": "report", "function": "f"})
        with gnomon.Client(address_of(second)) as other:
            assert [job.job for job in other.jobs()] == ["report"]
            assert other.trigger("report").became == "started"


@pytest.mark.req("H-16")
async def test_replicas_on_postgresql_answer_alike_and_a_worker_beside_them_executes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNOMON_WITNESS", str(tmp_path / "witness"))
    async with postgres(18).database() as url:
        with (
            server(url) as first,
            server(url) as second,
            up(url),
            gnomon.Client(address_of(first)) as one,
            gnomon.Client(address_of(second)) as other,
        ):
            one.register({"name": "greet", "function": "witness/coroutine"})
            started = other.trigger("greet")

            assert one.finished(started.execution_id, timeout=30).status == "completed"
            assert [worker.slots for worker in other.workers()] == [500]


@pytest.mark.req("H-12")
def test_the_stream_shows_every_state_of_an_execution(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNOMON_WITNESS", str(tmp_path / "witness"))
    steps = [
        {"step": "one", "function": "witness/coroutine"},
        {"step": "two", "function": "witness/coroutine", "depends_on": ["one"]},
    ]
    with (
        up(database, "--port", "0", environment=OPEN) as running,
        gnomon.Client(address_of(running)) as client,
    ):
        client.register({"name": "greet", "dag": steps})
        with client.changes() as changes:
            started = client.trigger("greet")
            reported = list(itertools.takewhile(lambda one: one.facts.get("status") != "completed", changes))

    assert {(one.job, one.execution_id) for one in reported} == {("greet", started.execution_id)}
    assert [one.facts["status"] for one in reported if one.kind == "execution"] == ["pending", "running"]


async def test_the_async_client_reads_the_same_stream(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNOMON_WITNESS", str(tmp_path / "witness"))
    with up(database, "--port", "0", environment=OPEN) as running:
        async with gnomon.AsyncClient(address_of(running)) as client:
            await client.register({"name": "greet", "function": "witness/coroutine"})
            async with client.changes() as changes:
                started = await client.trigger("greet")
                async for change in changes:
                    if change.facts.get("status") == "completed":
                        break

    assert (change.kind, change.job, change.execution_id) == ("execution", "greet", started.execution_id)


def test_the_stream_refuses_callers_without_permission(database: Path) -> None:
    with (
        up(database, "--port", "0") as running,
        gnomon.Client(address_of(running), token="") as client,
        pytest.raises(errors.Unauthenticated),
        client.changes(),
    ):
        pass


def test_a_stop_ends_streams_and_finishes_requests(database: Path) -> None:
    with server(database) as running:
        host, _, port = address_of(running).removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=20) as stream:
            stream.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            heard = b""
            while b": listening" not in heard:
                heard += stream.recv(4096)
            running.signal(signal.SIGTERM)
            while more := stream.recv(4096):
                heard += more
        assert running.ended() == 0
    assert heard.endswith(b"0\r\n\r\n")
