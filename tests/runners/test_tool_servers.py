"""Tools of servers that the settings name: real servers, and hostile ones."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gnomon.config.agents import ToolServerSettings
from gnomon.config.sections import SecuritySettings
from gnomon.core.agents.spec import AgentBudget, AgentSpec
from gnomon.core.commands.policy import Autonomy, SecurityProfile
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import AGENT
from gnomon.runners.agents.tool_servers import ProgramSlots
from runners.runner_harness import alive, assignment, attempt_ref, wait_for_numbers, wait_until
from runners.test_agents import AgentHarness, agents, output, steps
from support.hostile_tool_server import INJECTED
from support.model_servers import openai_calls, openai_text, tool_results
from support.scripted_server import ScriptedReply

pytestmark = [pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]
SUPPORT = Path(__file__).parents[1] / "support"
FOLDERS = (sys.prefix, sys.base_prefix, str(SUPPORT))
NOTES = ToolServerSettings(
    command=(sys.executable, str(SUPPORT / "sdk_tool_server.py"), "stdio"),
    env={"NOTES_TOKEN": "${secret:NOTES}"},
    folders=FOLDERS,
)
TOO_MUCH = "it sent a message that is too long, or too many\n"
TOOLS = ("mcp:notes/add", "mcp:notes/look_around", "mcp:notes/fail")


def hostile(how: str, *arguments: str) -> ToolServerSettings:
    program = (sys.executable, "-I", str(SUPPORT / "hostile_tool_server.py"), how, *arguments)
    return ToolServerSettings(command=program, folders=FOLDERS)


#: Behaviours of hostile servers that keep an agent from beginning, the tool that it wants, and the reason given.
UNUSABLE = [
    ("old", "look", "it speaks an unknown version of the protocol"),
    ("no-schema", "look", "must describe an object"),
    ("costly-schema", "look", "tools.look.inputSchema"),
    ("giant-schema", "look", "tools.look.inputSchema"),
    ("usual", "absent", "it has no tool absent"),
    ("endless", "absent", "it has no tool absent"),
]
#: Behaviours of hostile servers when their tool is called, and how the answer of the tool shows them.
HOSTILE = [
    pytest.param("ends", "it has ended: out of memory [31m\n", id="ends"),
    pytest.param("garbage", "it sent what is no message\n", id="garbage"),
    pytest.param("flood", TOO_MUCH, id="flood"),
    pytest.param("long", TOO_MUCH, id="long"),
    pytest.param("many", TOO_MUCH, marks=pytest.mark.thorough, id="many"),
    pytest.param("empty-lines", TOO_MUCH, id="empty-lines"),
    pytest.param("noisy", TOO_MUCH, marks=pytest.mark.thorough, id="noisy"),
    pytest.param("parts", "[None left out]\n[999000 more parts left out]\n", marks=pytest.mark.thorough, id="parts"),
    pytest.param("odd", "[image left out]\n[None left out]\n[text left out]", id="odd"),
    pytest.param("demands", "[-32601, {}]", id="demands"),
    pytest.param("usual", INJECTED, id="usual"),
]
#: Those whose failure the answer of the tool names.
FAILING = ("ends", "garbage", "flood", "long", "many", "empty-lines", "noisy")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_agents(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentHarness]:
    """A runner with the usual settings, and the hostile servers under the names of what they do."""
    names = [how for how, _, _ in UNUSABLE] + [str(one.values[0]) for one in HOSTILE]
    servers = {"notes": NOTES, **{how: hostile(how) for how in names}}
    async with agents(tmp_path_factory.mktemp("agents"), servers=servers, request_timeout_ms=60_000) as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="module")
async def tried(shared_agents: AgentHarness) -> AsyncIterator[AgentHarness]:
    """The shared runner: its provider has no replies, and its folders are empty."""
    yield shared_agents
    await shared_agents.forget()


@asynccontextmanager
async def with_servers(
    tmp_path: Path,
    **settings: Any,  # noqa: ANN401 - those of agents
) -> AsyncIterator[AgentHarness]:
    servers = {name: settings.pop(name) for name in ("notes", "hostile") if name in settings}
    async with agents(tmp_path, servers=servers, **{"request_timeout_ms": 60_000, **settings}) as tried:
        yield tried


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """The address of a server over streamable HTTP, in a process of its own."""
    program = [sys.executable, str(SUPPORT / "sdk_tool_server.py"), "http"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield f"http://127.0.0.1:{int(running.stdout.readline())}/mcp"
        running.terminate()


@pytest.mark.req("Z-04")
async def test_an_agent_calls_the_listed_tools_of_a_program(tried: AgentHarness, tmp_path: Path) -> None:
    calls = openai_calls(
        ("mcp_notes_add", {"first": 3, "second": 4}),
        ("mcp_notes_add", {"first": "three"}),
        ("mcp_notes_look_around", {"path": str(tmp_path / "outside")}),
        ("mcp_notes_fail", {}),
    )
    (tmp_path / "outside").write_text("hidden")
    tried.server.replies = [calls, openai_text("Seven.")]
    done = await tried.run(spec={"tools": TOOLS})

    assert output(done) == "Seven."
    add, *_ = (one["function"] for one in tried.server.requests[0].json["tools"])
    assert add["name"] == "mcp_notes_add"
    assert "which says about it: <data-" in add["description"]
    assert "Add two numbers." in add["description"]
    assert add["parameters"]["required"] == ["first", "second"]
    added, wrong, looked, failed = tool_results(tried.server.requests[1].json)
    assert added.splitlines()[1] == "7"
    assert wrong.startswith("failed: <data-")
    assert "Permission denied" in looked
    # Its variables are those of a command, and its own; the value of a secret is not shown.
    assert "NOTES_TOKEN" in looked
    assert "OPENAI" not in looked
    assert "value of NOTES" not in repr(tried.server.requests)
    assert "hidden" not in looked
    assert failed.startswith("failed: <data-")
    assert done.usage is not None
    assert (done.usage.tool_calls, done.usage.actions) == (4, 4)
    written = steps(done)
    assert written[0].startswith('mcp:notes/add {"first": 3, "second": 4}: allowed, ')
    assert written[3].startswith("mcp:notes/fail {}: failed, ")


async def test_an_agent_calls_the_tools_of_a_server_at_a_url(tmp_path: Path, server_url: str) -> None:
    notes = ToolServerSettings(url=server_url, token="${secret:NOTES}")  # noqa: S106 - a name
    async with with_servers(tmp_path, notes=notes) as tried:
        tried.server.replies = [openai_calls(("mcp_notes_add", {"first": 3, "second": 4})), openai_text("Seven.")]
        done = await tried.run(spec={"tools": ("mcp:notes/add",), "network": ("127.0.0.1",)})
        elsewhere = await tried.run(spec={"tools": ("mcp:notes/add",), "network": ("example.com",)})

    assert output(done) == "Seven."
    [added] = tool_results(tried.server.requests[1].json)
    assert added.splitlines()[1] == "7"
    assert elsewhere.result is Result.GAVE_UP
    assert "does not list 127.0.0.1, which has the tool mcp:notes/add" in (elsewhere.error or "")


@pytest.mark.parametrize(("how", "tool", "said"), UNUSABLE)
async def test_an_agent_does_not_begin_without_a_usable_server(
    tried: AgentHarness, how: str, tool: str, said: str
) -> None:
    done = await tried.run(spec={"tools": (f"mcp:{how}/{tool}",)})

    assert_did_not_begin(tried, done, how, said)


async def test_an_agent_does_not_begin_with_a_server_that_says_nothing(tmp_path: Path) -> None:
    async with with_servers(tmp_path, hostile=hostile("mute"), request_timeout_ms=2_000) as tried:
        done = await tried.run(spec={"tools": ("mcp:hostile/look",)})

    assert_did_not_begin(tried, done, "hostile", "did not")


def assert_did_not_begin(tried: AgentHarness, done: AttemptOutcome, server: str, said: str) -> None:
    assert done.result is Result.GAVE_UP
    assert f"agents.servers.{server}: " in (done.error or "")
    assert said in (done.error or "")
    assert tried.server.requests == []


@pytest.mark.parametrize(("how", "said"), HOSTILE)
@pytest.mark.req("H-22")
async def test_a_hostile_server_ends_no_attempt(tried: AgentHarness, how: str, said: str) -> None:
    """The model obeys it, and calls tools that the job does not list."""
    result = await look_of(tried, how)

    assert (f"\nthe server {how} failed: {said}" if how in FAILING else said) in result


@pytest.mark.req("H-22")
async def test_a_server_that_does_not_answer_ends_no_attempt(tmp_path: Path) -> None:
    async with with_servers(tmp_path, hostile=hostile("silent"), shell_timeout_ms=1_000) as tried:
        result = await look_of(tried, "hostile")

    assert "\nthe server hostile failed: it did not answer within 1 s\n" in result


async def look_of(tried: AgentHarness, server: str) -> str:
    """The answer of the tool of a hostile server, whose demands the model obeys in vain."""
    demanded: list[tuple[str, Mapping[str, Any]]] = [("shell", {"command": "rm -rf /"}), (f"mcp_{server}_shell", {})]
    tried.server.replies = [openai_calls((f"mcp_{server}_look", {})), openai_calls(*demanded), openai_text("Done.")]
    done = await tried.run(spec={"tools": (f"mcp:{server}/look",)})

    assert output(done) == "Done."
    [described] = [one["function"]["description"] for one in tried.server.requests[0].json["tools"]]
    assert len(described) < 1_500
    result, *unknown = tool_results(tried.server.requests[2].json)
    assert result.removeprefix("failed: ").startswith("<data-")
    assert not [one for one in unknown if one.startswith("<data-")]
    carried_out, *in_vain = steps(done)
    assert carried_out.startswith(f"mcp:{server}/look {{}}: ")
    assert [line.partition(" ")[0] for line in in_vain] == ["shell", f"mcp_{server}_shell"]
    assert all("refused: blocked by security policy: the job does not list the tool" in line for line in in_vain)
    # The tools are those of the beginning.
    assert tried.server.requests[2].json["tools"] == tried.server.requests[0].json["tools"]
    return result


async def test_a_server_that_breaks_the_protocol_is_killed_while_the_agent_goes_on(tmp_path: Path) -> None:
    noted = tmp_path / "workspace" / "noted"
    async with with_servers(tmp_path, hostile=hostile("stubborn", str(noted))) as tried:
        tried.server.replies = [openai_calls(("mcp_hostile_look", {})), ScriptedReply(silent=True)]
        spec = AgentSpec(model="openai:small", tools=("mcp:hostile/look",))
        held = assignment(AGENT, {"prompt": "Wait."}, agent=spec, input={"prompt": "Wait."})
        tried.harness.runner.start([held])
        [pid] = await wait_for_numbers(noted, 1)
        await tried.server.until(2)
        await wait_until(lambda: not alive(pid))
        tried.harness.runner.stop([attempt_ref(held)], why=Result.CANCELLED)
        await tried.harness.outcome(held)


async def test_agents_take_turns_for_the_programs_of_servers(tmp_path: Path) -> None:
    """The second one starts its program when the first one has ended; the one without programs does not wait."""
    noted = tmp_path / "workspace" / "noted"
    spec = AgentSpec(model="openai:small", tools=("mcp:hostile/look",))
    given = {"prompt": "Wait."}
    first, second = (assignment(AGENT, given, agent=spec, input=given) for _ in range(2))
    async with with_servers(tmp_path, hostile=hostile("leaves-children", str(noted)), max_server_programs=1) as tried:
        tried.server.replies = [ScriptedReply(silent=True), openai_text("No tools."), openai_text("My turn.")]
        tried.harness.runner.start([first])
        await tried.server.until(1)
        noted.unlink()
        tried.harness.runner.start([second])
        other = await tried.run()
        begun = noted.exists()
        tried.harness.runner.stop([attempt_ref(first)], why=Result.CANCELLED)
        await tried.harness.outcome(first)
        done = await tried.harness.outcome(second)

    assert (output(other), begun, output(done)) == ("No tools.", False, "My turn.")
    assert "it waits for the programs of other agents: agents.max_server_programs is 1" in [
        line.text for line in done.logs
    ]


async def test_programs_are_started_in_the_order_in_which_agents_ask() -> None:
    slots = ProgramSlots(2)
    order: list[str] = []

    async def take(name: str, count: int) -> int:
        taken = await slots.acquire(count)
        order.append(name)
        return taken

    held = await slots.acquire(1)
    big, small, gone = (asyncio.ensure_future(take(*one)) for one in (("big", 9), ("small", 1), ("gone", 2)))
    await asyncio.sleep(0)
    gone.cancel()
    assert (slots.has(1), order) == (False, [])
    slots.release(held)
    slots.release(await big)
    slots.release(await small)

    assert (order, big.result(), slots.has(2)) == (["big", "small"], 2, True)


async def test_a_stopped_agent_ends_its_servers_with_all_that_they_have_started(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    noted = workspace / "noted"
    async with with_servers(tmp_path, hostile=hostile("leaves-children", str(noted))) as tried:
        tried.server.replies = [openai_calls(("mcp_hostile_look", {})), openai_text("Done.")]
        tried.server.replies.insert(0, openai_text("never"))
        spec = AgentSpec(model="openai:small", tools=("mcp:hostile/look",))
        held = assignment(AGENT, {"prompt": "Wait."}, agent=spec, input={"prompt": "Wait."})
        tried.harness.runner.start([held])
        [pid] = await wait_for_numbers(noted, 1)
        tried.harness.runner.stop([attempt_ref(held)], why=Result.CANCELLED)
        await tried.harness.outcome(held)
        await tried.harness.idle()

    assert not alive(pid)


async def test_no_tool_of_a_server_is_called_with_read_only_autonomy(tmp_path: Path) -> None:
    security = SecuritySettings(profile=SecurityProfile.OPEN, autonomy=Autonomy.READ_ONLY)
    async with with_servers(tmp_path, hostile=hostile("usual"), security=security) as tried:
        tried.server.replies = [openai_calls(("mcp_hostile_look", {})), openai_text("I could not.")]
        done = await tried.run(spec={"tools": ("mcp:hostile/look",)})

    [refused] = tool_results(tried.server.requests[1].json)
    assert refused.startswith("refused: blocked by security policy: autonomy is read-only")
    assert output(done) == "I could not."


async def test_the_budget_of_actions_holds_for_tools_of_servers(tried: AgentHarness) -> None:
    tried.server.replies = [openai_calls(("mcp_usual_look", {}))] * 3
    done = await tried.run(spec={"tools": ("mcp:usual/look",), "budget": AgentBudget(actions=1)})

    assert (done.error or "").startswith("budget exhausted: actions: 1 of 1")


async def test_an_agent_waits_for_its_servers_no_longer_than_its_time(tmp_path: Path) -> None:
    async with with_servers(tmp_path, hostile=hostile("mute")) as tried:
        async with asyncio.timeout(60):
            done = await tried.run(spec={"tools": ("mcp:hostile/look",), "budget": AgentBudget(time_ms=3_000)})

    assert (done.error or "").startswith("budget exhausted: time: 3 s")
