"""Inputs and outputs are encrypted with a key that neither the database nor the message bus has."""

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from nats import connect
from nats.aio.msg import Msg

import gnomon
from contracts.store import NOON
from gnomon.adapters.payload_cipher import AesGcmCipher, LockedCipher, build_cipher
from gnomon.adapters.sql import schema
from gnomon.adapters.sql.connect import PayloadAccess, open_postgres, open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.app.payloads import decrypted_lines
from gnomon.config.settings import load
from gnomon.core.model import RunId, RunSource, RunStatus
from gnomon.core.payloads import is_sealed, stored_context
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.launch import LaunchRequest, first_tasks, new_requested_run
from gnomon.core.runs.prepare import reference_scope
from gnomon.errors import FieldError, UsageError
from support.execution import ExecutionHarness
from support.fleet_processes import remote_worker, server
from support.gnomon_processes import TESTS, GnomonProcess, up
from support.nats_redis_servers import Nats
from support.nats_users import nats_with_users
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file
from support.task_steps import workflow

#: A text that is in every input, output and event of these tests.
CANARY = "canary-7f3a91c2"
KEY = base64.b64encode(bytes(range(32))).decode()
ENCRYPTED = {"GNOMON_PAYLOAD__KEYS": KEY, "GNOMON_METRICS__ENABLED": "false"}
OPEN = {"GNOMON_AUTH__VERIFY_TOKENS": "false", "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true"}
GRAPH = {
    "name": "graph",
    "dag": [
        {"step": "first", "function": "witness/step", "input": {"name": "${input.word}"}},
        {
            "step": "second",
            "function": "witness/step",
            "depends_on": ["first"],
            "if": "input.word == steps.first.output and input.word != ''",
            "input": {"name": "${steps.first.output}"},
        },
        {"step": "each", "function": "witness/step", "foreach": "${input.words}", "input": {"name": "${item}"}},
    ],
}


# ---- the cipher ----------------------------------------------------------------------------------


def fresh_key() -> bytes:
    return os.urandom(32)


def test_an_envelope_opens_only_under_its_own_context_and_key() -> None:
    cipher, context = AesGcmCipher([fresh_key()]), stored_context("run_1", "input")
    sealed = cipher.seal(context, b'{"a": 1}')

    assert is_sealed(sealed)
    assert msgspec.json.decode(sealed).keys() == {"$gnomon_encrypted"}
    assert cipher.unseal(context, sealed) == b'{"a": 1}'
    for other in (stored_context("run_2", "input"), stored_context("run_1", "output")):
        assert cipher.unseal(other, sealed) == sealed
    assert AesGcmCipher([fresh_key()]).unseal(context, sealed) == sealed
    assert LockedCipher().unseal(context, sealed) == sealed


def test_an_envelope_that_was_altered_or_cut_does_not_open() -> None:
    cipher = AesGcmCipher([fresh_key()])
    sealed = cipher.seal("x", b"{}")
    for at in range(len(sealed)):
        altered = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        assert cipher.unseal("x", altered) == altered
        assert cipher.unseal("x", sealed[:at]) == sealed[:at]


def test_payloads_from_before_the_first_key_are_read_and_equal_ones_differ_when_encrypted() -> None:
    cipher = AesGcmCipher([fresh_key()])

    assert cipher.unseal("x", b'{"a": 1}') == b'{"a": 1}'
    assert cipher.seal("x", b"{}") != cipher.seal("x", b"{}")
    assert cipher.fingerprint(b"yes") == cipher.fingerprint(b"yes") != AesGcmCipher([fresh_key()]).fingerprint(b"yes")


def test_keys_are_rotated_by_putting_the_new_one_first() -> None:
    old, new = fresh_key(), fresh_key()
    before = AesGcmCipher([old]).seal("x", b"{}")
    both = AesGcmCipher([new, old])

    assert both.unseal("x", before) == b"{}"
    assert AesGcmCipher([new]).unseal("x", both.seal("x", b"{}")) == b"{}"


def test_a_key_is_text_or_a_guarded_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "payload.key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o640)
    assert build_cipher(()) is None
    by_file, by_text = build_cipher((f"file:{file}",)), build_cipher((KEY,))
    assert by_file is not None
    assert by_text is not None
    assert by_text.unseal("x", by_file.seal("x", b"{}")) == b"{}"
    exposed, readable = tmp_path / "exposed.key", tmp_path / "readable.key"
    for path, mode in ((exposed, 0o622), (readable, 0o644)):
        path.write_text(KEY)
        path.chmod(mode)
    for wrong in (f"file:{exposed}", f"file:{readable}", f"file:{tmp_path}/none", "short", KEY[:-4], KEY + "!"):
        with pytest.raises(FieldError, match=r"payload.keys\[0\]") as refused:
            build_cipher((wrong,))
        assert KEY[:20] not in str(refused.value)
    assert KEY not in repr(load(flags={"payload.keys": [KEY]}))


# ---- one file ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_WITNESS", str(tmp_path / "witness"))


def client_of(running: GnomonProcess) -> gnomon.Client:
    return gnomon.Client(running.line_with("answering on ").split()[-1])


def run_all(client: gnomon.Client) -> str:
    """Run a graph and a listener of events on the canary, and check that both have seen it; return the run."""
    for job in (GRAPH, {"name": "listener", "function": "witness/step", "on": {"event": "word"}}):
        client.register(job)
    words = {"word": CANARY, "words": [f"{CANARY}-{number}" for number in range(3)]}
    run = client.trigger("graph", words).execution_id
    client.emit("word", {"name": CANARY})
    done = client.finished(run, timeout=60)
    outputs = {step.step: step.output for step in done.steps}

    assert (done.status, done.input) == ("completed", words)
    assert outputs == {"first": CANARY, "second": CANARY, "each": words["words"]}
    assert [event.body for event in client.events()] == [{"name": CANARY}]
    return run


def command(database: str, *words: str) -> "subprocess.CompletedProcess[str]":
    ran = [sys.executable, "-m", "gnomon", *words, "--database", database]
    return subprocess.run(ran, capture_output=True, text=True, check=False, cwd=TESTS)


def files_with_the_canary(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "witness"]
    return [path.name for path in files if CANARY.encode() in path.read_bytes()]


def test_the_files_of_a_database_do_not_hold_the_plain_text(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"
    with up(database, "--port", "0", environment={**ENCRYPTED, **OPEN}) as running, client_of(running) as client:
        run = run_all(client)
        found = files_with_the_canary(tmp_path)
        running.kill()

    assert found == files_with_the_canary(tmp_path) == []
    # Without the key nothing is shown or executed.
    shown = command(str(database), "executions", "show", run, "-o", "json")
    assert "$gnomon_encrypted" in shown.stdout
    assert CANARY not in shown.stdout
    refused = command(str(database), "up", "--no-api")
    assert (refused.returncode, "set payload.keys" in refused.stderr) == (2, True)


async def test_an_envelope_that_was_moved_to_another_run_is_not_executed(tmp_path: Path) -> None:
    payloads = PayloadAccess(cipher=AesGcmCipher([fresh_key()]))
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=lambda: NOON, payloads=payloads)
    harness = ExecutionHarness(store=store)
    job = await harness.job(workflow())
    runs = [new_requested_run(RunId(f"run_{n}"), job, source=RunSource.API, now=NOON) for n in (1, 2)]
    requests = [LaunchRequest(run=run, first_steps=("main",), input=b'{"a": 1}', force=True) for run in runs]
    await store.runs.launch(requests, now=NOON)
    await store.transactions.write(move_the_input)
    await harness.run_until_idle()
    moved, honest = [await harness.now(run) for run in runs]
    await store.close()

    assert (moved.status, honest.status) == (RunStatus.FAILED, RunStatus.RUNNING)
    assert "payload.keys lacks, or was altered" in str(moved.error)


def move_the_input(conn: sa.Connection) -> None:
    conn.exec_driver_sql(
        "UPDATE payload SET body = (SELECT body FROM payload WHERE owner_id = 'run_2') WHERE owner_id = 'run_1'"
    )


async def test_a_condition_is_not_decided_on_an_output_that_cannot_be_decrypted() -> None:
    harness = ExecutionHarness()
    run = await harness.run(await harness.job())
    waiting = ReadyTask(task=first_tasks(run, ("main",), now=NOON)[0], run=run)
    with pytest.raises(FieldError, match=r"steps.first.output: .* is encrypted"):
        reference_scope(workflow(), waiting, {"first": AesGcmCipher([fresh_key()]).seal("x", b"1")})


def test_an_archive_is_decrypted_by_a_pipe() -> None:
    cipher = AesGcmCipher([base64.b64decode(KEY)])
    archived = [
        ("payload", {"owner_id": "run_1", "kind": "input"}, "body", "payload run_1 input"),
        ("dead_letter", {"dead_letter_id": "dlq_1"}, "input", "dead_letter dlq_1"),
        ("event", {"event_id": "evt_1"}, "body", "event evt_1"),
    ]
    lines = [b'{"archive":1}\n', b'{"table":"run","run_id":"run_1"}\n']
    for table, keys, column, context in archived:
        sealed = cipher.seal(context, f'{{"word":"{CANARY}"}}'.encode())
        lines.append(msgspec.json.encode({"table": table, **keys, column: sealed.decode()}) + b"\n")

    assert CANARY.encode() not in b"".join(lines)
    done = list(decrypted_lines(load(flags={"payload.keys": [KEY]}), lines))
    assert [(CANARY.encode() in line, whole) for line, whole in done] == [(False, True)] * 2 + [(True, True)] * 3
    assert [line for line, _ in done[:2]] == lines[:2]
    # An envelope that stands in another row stays an envelope.
    moved = decrypt(b"".join(lines).replace(b"run_1", b"run_2"))
    assert (moved.returncode, moved.stdout.count(CANARY.encode())) == (1, 2)
    assert b"1 payloads cannot be decrypted" in moved.stderr


def decrypt(archive: bytes) -> "subprocess.CompletedProcess[bytes]":
    ran = [sys.executable, "-m", "gnomon", "db", "decrypt"]
    environment = {**os.environ, **ENCRYPTED}
    return subprocess.run(ran, input=archive, capture_output=True, check=False, env=environment)


async def test_a_store_that_was_encrypted_needs_the_key_from_then_on(tmp_path: Path) -> None:
    file = str(tmp_path / "gnomon.db")
    await (await open_sqlite(file, payloads=PayloadAccess(cipher=AesGcmCipher([fresh_key()])))).close()

    with pytest.raises(UsageError, match=r"set payload.keys"):
        await open_sqlite(file, payloads=PayloadAccess(required=True))
    store = await open_sqlite(file, payloads=PayloadAccess(without_key=LockedCipher()))
    harness = ExecutionHarness(store=store)
    run = new_requested_run(RunId("run_1"), await harness.job(), source=RunSource.API, now=NOON)
    with pytest.raises(UsageError, match=r"set payload.keys to write one"):
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",), input=b"{}")], now=NOON)
    await store.close()


# ---- a fleet -------------------------------------------------------------------------------------


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with postgres(18).database() as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    store = await open_postgres(url, pool_size=2)
    yield store
    await store.close()


@pytest.fixture
def nats() -> Iterator[Nats]:
    with nats_with_users() as running:
        yield running


def all_rows(conn: sa.Connection, table: sa.Table) -> object:
    return conn.execute(table.select()).all()


async def test_neither_postgresql_nor_the_bus_holds_the_plain_text(url: str, store: SqlStore) -> None:
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    with Nats() as bus:
        listening = await connect(bus.url)
        await listening.subscribe(">", cb=hear)
        with server(url, bus, **ENCRYPTED) as running, client_of(running) as client, remote_worker(bus, **ENCRYPTED):
            await asyncio.to_thread(run_all, client)
        await listening.drain()

    assert [body for body in heard if CANARY.encode() in body] == []
    sealed = [body for body in heard if b"$gnomon_encrypted" in body]
    assert any(b'"scheduler.execute"' in body for body in sealed)
    assert any(b'"ended":' in body for body in sealed)
    for table in schema.metadata.sorted_tables:
        rows = await store.transactions.read(partial(all_rows, table=table))
        assert CANARY not in repr(rows), table.name


@pytest.mark.thorough
async def test_a_worker_without_the_key_leaves_the_task_to_one_that_has_it(url: str, nats: Nats) -> None:
    with server(url, nats, **ENCRYPTED) as running, client_of(running) as client:
        client.register({"name": "one", "function": "witness/step"})
        with remote_worker(nats):
            run = client.trigger("one", {"name": CANARY}).execution_id
            while not client.execution(run).steps[0].attempts:
                pass
        with remote_worker(nats, **ENCRYPTED):
            assert client.finished(run, timeout=60).steps[0].output == CANARY
