"""`gnomon mcp` as a process, called by the client library of the protocol and by one that does not keep to it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import Implementation

from gnomon.app.local_user import local_user
from gnomon.app.mcp_stdio import LONGEST_LINE
from gnomon.client import AsyncClient
from gnomon.client.verbs import NOTICE
from gnomon.core.verbs import VERBS
from support.api_server import background_scheduler
from support.cli_prompt import CliPrompt

GNOMON = Path(sys.executable).with_name("gnomon")
READING = [verb.name for verb in VERBS.values() if not verb.changes]
JOBS = """
jobs:
  - name: report
    schedule: "0 9 1 1 *"
    timezone: America/New_York
    command: echo hello
    tags: [numbers]
"""


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    found = CliPrompt(tmp_path, monkeypatch, capsys)
    found.write(JOBS)
    assert found.run("jobs", "apply", "-f", "jobs.yaml").code == 0
    return found


def command(folder: Path, *arguments: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=str(GNOMON), args=["mcp", *arguments], cwd=folder, env={"PATH": os.environ["PATH"]}
    )


async def call(client: Client, name: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any argument
    done = await client.call_tool(name, given)
    [block] = done.content
    found: dict[str, Any] = json.loads(block.text)  # type: ignore[union-attr]
    assert (found["notice"], "error" in found) == (NOTICE, done.is_error)
    return found


async def test_a_model_reads_jobs_on_a_database_without_a_server(prompt: CliPrompt) -> None:
    async with Client(command(prompt.folder)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == READING
        [job] = (await call(client, "list_jobs", tag="numbers"))["result"]["items"]
        why = await call(client, "explain_job", job="report", at="2026-01-01T09:00")
        plan = await call(client, "plan_jobs", jobs=[{"name": "new", "schedule": "@daily", "command": "ls"}])
        missing = await call(client, "show_job", job="reprot")
        refused = await call(client, "pause_job", job="report")
        unknown = await call(client, "drop_tables")

    assert (job["job"], job["schedule"]) == ("report", "on 1 January at 09:00 in America/New_York")
    assert why["result"]["explanations"][0]["sentence"]
    assert plan["result"]["jobs"]["created"] == 1
    assert missing["error"]["message"] == "there is no job 'reprot'"
    assert refused["error"]["code"] == "forbidden"
    assert unknown["error"]["message"] == "there is no verb 'drop_tables'"


@pytest.mark.req("Z-12")
async def test_a_model_changes_jobs_at_a_server_and_on_its_database(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    database = tmp_path / "server" / "gnomon.db"
    job = {"name": "tidy", "schedule": "@yearly", "command": "ls"}
    with background_scheduler(database) as server:
        token = tmp_path / "server" / "gnomon.db.token"
        remote = ("--server", str(server.address), "--token-file", str(token), "--model", "triage")
        async with Client(command(tmp_path, "--allow-changes", *remote)) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == list(VERBS)
            refused = await call(client, "register_job", job={**job, "command": "rm -rf x"})
            registered = await call(client, "register_job", job=job)
        beside = ("--allow-changes", "--database", str(database))
        named = Implementation(name="Some Agent!", version="1")
        async with Client(command(tmp_path, *beside), client_info=named) as client:
            listed = await call(client, "list_jobs")
            triggered = await call(client, "trigger_job", job="tidy")
            paused = await call(client, "pause_job", job="tidy")
        async with AsyncClient(str(server.address), token=token.read_text()) as reader:
            execution = await reader.finished(triggered["result"]["execution_id"])
            audit = [one async for one in reader.audit(kind="job")]

    assert refused["error"]["field"] == "command"
    assert (registered["before"]["jobs"]["created"], registered["result"]["change"]) == (1, "created")
    assert [one["origin"] for one in listed["result"]["items"]] == ["mcp"]
    assert (paused["before"]["paused"], paused["result"]["paused"]) == (False, True)
    assert execution.status == "completed"
    recorded = [(one.actor, one.action, one.details["owner"]) for one in reversed(audit)]
    assert recorded == [
        ("model:triage", "register", audit[-1].details["owner"]),
        ("model:Some-Agent", "trigger", local_user()),
        ("model:Some-Agent", "pause", local_user()),
    ]


# ---- without the client library ------------------------------------------------------------------

_HELLO = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


@contextmanager
def started(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [GNOMON, "mcp"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert ask(process, {"id": 1, **_HELLO})["id"] == 1
            write(process, json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode())
            yield process
        finally:
            process.kill()


def write(process: "subprocess.Popen[bytes]", line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()


def ask(process: "subprocess.Popen[bytes]", message: dict[str, Any]) -> dict[str, Any]:
    """Send the message; return the next answer. Every line of the output is a message of the protocol."""
    assert process.stdout is not None
    write(process, json.dumps({"jsonrpc": "2.0", **message}).encode())
    found: dict[str, Any] = json.loads(process.stdout.readline())
    assert found["jsonrpc"] == "2.0"
    return found


def list_jobs(number: int) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": "list_jobs", "arguments": {}}}


def test_nonsense_is_passed_over_until_the_input_is_closed(prompt: CliPrompt) -> None:
    lines = [b"", b"nonsense", b"\xff\xfe\x00", b"[]", b"[" * 100_000, b'{"jsonrpc": "2.0"}', b"x" * (2 * LONGEST_LINE)]
    with started(prompt.folder) as process:
        for number, line in enumerate(lines, start=2):
            write(process, line)
            answer = ask(process, list_jobs(number))
            while answer.get("id") != number:
                answer = json.loads(process.stdout.readline())  # type: ignore[union-attr]
                assert answer["jsonrpc"] == "2.0"
            assert answer["result"]["isError"] is False
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(timeout=30) == 0


def test_it_ends_with_its_parent_although_another_process_holds_its_input(prompt: CliPrompt) -> None:
    # The parent tells the id of its child, and is killed; the pipe of the input stays open in this process.
    parent = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.argv[1], 'mcp']); print(p.pid, file=sys.stderr);"
        " sys.stderr.flush(); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(GNOMON)],
        cwd=prompt.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        child = int(process.stderr.readline())
        assert ask(process, {"id": 1, **_HELLO})["id"] == 1
        process.send_signal(signal.SIGKILL)

        # The output ends when the child, which holds it too, has ended.
        assert process.stdout.read() == b""
        assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text()
