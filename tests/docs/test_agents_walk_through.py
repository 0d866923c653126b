"""The walk-through of the page about agents, with a real process and stand-ins of the provider and the channel."""

import asyncio
import json
import re
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from support.channel_server import channel_server
from support.command_line import run_command
from support.gnomon_processes import up
from support.model_servers import openai_calls, openai_text, tool_results
from support.scripted_server import ScriptedReply, ScriptedServer, scripted_server

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
WALK = PAGE.partition("## Walk through")[2].partition("\n## ")[0]
[JOBS, SETTINGS] = (
    yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", WALK, re.MULTILINE | re.DOTALL)
)
COMMANDS = [
    line.split("#")[0].strip()
    for line in re.findall(r"^gnomon .*", "".join(re.findall(r"(?s)```sh\n(.*?)```", WALK)), re.MULTILINE)
]
ANSWER = {"urgent": 1, "summary": "The report fails: the disk is full."}
FAILING = {"name": "report", "command": "echo disk full >&2; exit 3"}

pytestmark = pytest.mark.timeout(180)


def written(folder: Path, model: ScriptedServer, channel: str) -> list[str]:
    """The flags of a process with the jobs and the settings of the page, and a job that fails."""
    agents = {**SETTINGS["agents"], "providers": {"local": {"kind": "openai", "url": model.url("/v1")}}}
    ops = {"kind": "mattermost", "url": channel, "token": "12", "to": "ops"}
    workspace = {"shell": {"workspace": str(folder / "workspace")}}
    (folder / "workspace").mkdir()
    (folder / "gnomon.yaml").write_text(json.dumps({"agents": agents, "channels": {"ops": ops}, **workspace}))
    (folder / "jobs.yaml").write_text(json.dumps({"jobs": [*JOBS["jobs"], FAILING]}))
    return ["--config", str(folder / "gnomon.yaml"), "--jobs", str(folder / "jobs.yaml")]


@pytest.mark.req("Z-03")
@pytest.mark.req("Z-07")
async def test_a_nightly_agent_reads_logs_answers_in_json_announces_and_is_paused_by_a_person(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"

    async def gnomon(command: str) -> CompletedProcess[str]:
        words = command.removeprefix("gnomon ").split()
        done = await asyncio.to_thread(run_command, *words, "--database", str(database), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return done

    async with scripted_server() as model, channel_server() as channel:
        model.replies = [
            openai_calls(("gnomon_list_executions", {"status": "failed"})),
            openai_calls(("final_result", {"urgent": "one"})),
            openai_calls(("final_result", ANSWER)),
        ]
        with up(database, *written(tmp_path, model, channel.url), imports=()):
            await asyncio.to_thread(
                run_command, "jobs", "trigger", "report", "--wait", "--database", str(database), folder=tmp_path
            )
            triggered, shown, usage, paused, why = [await gnomon(command) for command in COMMANDS]
            await asyncio.wait_for(channel.until(1), 60)

    [listing] = tool_results(model.requests[-2].json)
    assert '"status":"failed"' in listing
    assert json.loads(channel.texts[0]) == ANSWER
    assert "completed" in triggered.stdout
    assert "45 tokens" in shown.stdout
    assert "local:small" in usage.stdout
    assert "nightly-triage" in paused.stdout
    assert "paused" in why.stdout


NAMES = ["ada", "bob", "eve"]


def greetings(folder: Path, model: ScriptedServer) -> list[str]:
    """The flags of a process with a job whose agent greets each of the names, all in one session."""
    step: dict[str, Any] = {
        "step": "greet",
        "foreach": "${input.names}",
        "agent": {"model": "local:small", "prompt": "Greet ${item}.", "session": "main"},
    }
    job = {"name": "greetings", "input": {"names": NAMES}, "dag": [step]}
    (folder / "gnomon.yaml").write_text(
        json.dumps({"agents": {"providers": {"local": {"kind": "openai", "url": model.url("/v1")}}}})
    )
    (folder / "jobs.yaml").write_text(json.dumps({"jobs": [job]}))
    return ["--config", str(folder / "gnomon.yaml"), "--jobs", str(folder / "jobs.yaml")]


def answers_before(model: ScriptedServer) -> list[int]:
    """How many answers of its session each request has."""
    return [sum(one["role"] == "assistant" for one in asked.json["messages"]) for asked in model.requests]


@pytest.mark.req("Z-03")
async def test_an_agent_for_each_item_shares_a_session_one_at_a_time(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"
    async with scripted_server() as model:
        model.replies = [openai_text(f"Hello {number}.") for number in range(3)]
        flags = greetings(tmp_path, model)
        with up(database, *flags, imports=()):
            done = await asyncio.to_thread(
                run_command, "jobs", "trigger", "greetings", "--wait", "--database", str(database), folder=tmp_path
            )
        shown = await asyncio.to_thread(run_command, "sessions", "list", "--database", str(database), folder=tmp_path)

    assert done.returncode == 0, done.stderr
    # Each has the messages of those before it.
    assert answers_before(model) == [0, 1, 2]
    prompts = [asked.json["messages"][-1]["content"] for asked in model.requests]
    assert sorted(name for name in NAMES for prompt in prompts if f"\n{name}\n" in prompt) == NAMES
    assert re.search(r"main\s+3\b", shown.stdout)


@pytest.mark.req("Z-03")
async def test_a_killed_process_repeats_its_agent_and_counts_each_attempt_once(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"
    lists = openai_calls(("list_files", {}))
    async with scripted_server() as model:
        model.replies = [lists, ScriptedReply(silent=True), openai_text("Nothing to do.")]
        agent = {"model": "local:small", "prompt": "Look around.", "tools": ["list_files"], "session": "main"}
        (tmp_path / "gnomon.yaml").write_text(
            json.dumps({"agents": {"providers": {"local": {"kind": "openai", "url": model.url("/v1")}}}})
        )
        (tmp_path / "jobs.yaml").write_text(json.dumps({"jobs": [{"name": "look", "agent": agent}]}))
        flags = ["--config", str(tmp_path / "gnomon.yaml"), "--jobs", str(tmp_path / "jobs.yaml")]

        def gnomon(*words: str) -> str:
            return run_command(*words, "--database", str(database), folder=tmp_path).stdout

        with up(database, *flags, imports=()) as first:
            await asyncio.to_thread(gnomon, "jobs", "trigger", "look")
            await asyncio.wait_for(model.until(2), 60)
            for _ in range(200):
                found = await asyncio.to_thread(gnomon, "agents", "usage", "--output", "json")
                if [one["requests"] for one in json.loads(found)["days"]] == [2]:
                    break
            first.kill()
            # Nothing is left running: the connection of the agent is closed.
            await asyncio.wait_for(model.given_up.wait(), 30)
        with up(database, *flags, imports=()):
            await asyncio.wait_for(model.until(3), 60)
            shown = ""
            while "completed" not in shown:
                shown = await asyncio.to_thread(gnomon, "executions", "list")
        [day] = json.loads(await asyncio.to_thread(gnomon, "agents", "usage", "--output", "json"))["days"]
        sessions = await asyncio.to_thread(gnomon, "sessions", "list")

    assert (day["attempts"], day["requests"], day["input_tokens"], day["tool_calls"]) == (2, 3, 20, 1)
    assert re.search(r"main\s+1\b", sessions)


@pytest.mark.req("Z-03")
async def test_a_killed_process_loses_and_repeats_no_turn_of_a_session_of_items(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"

    def gnomon(*words: str) -> str:
        return run_command(*words, "--database", str(database), folder=tmp_path).stdout

    async with scripted_server() as model:
        model.replies = [openai_text("Hello."), ScriptedReply(silent=True), *[openai_text("Hello.")] * 2]
        flags = greetings(tmp_path, model)
        with up(database, *flags, imports=()) as first:
            await asyncio.to_thread(gnomon, "jobs", "trigger", "greetings")
            await asyncio.wait_for(model.until(2), 60)
            first.kill()
            await asyncio.wait_for(model.given_up.wait(), 30)
        with up(database, *flags, imports=()):
            await asyncio.wait_for(model.until(4), 60)
            while "completed" not in await asyncio.to_thread(gnomon, "executions", "list"):
                pass
        usage = json.loads(await asyncio.to_thread(gnomon, "agents", "usage", "--output", "json"))["days"]
        sessions = await asyncio.to_thread(gnomon, "sessions", "list")

    # The item that was lost is repeated with the history before it, and each answer is there once.
    assert answers_before(model) == [0, 1, 1, 2]
    assert re.search(r"main\s+3\b", sessions)
    assert sum(one["output_tokens"] for one in usage) == 15
