"""The starter of agents: one process loads the library of models, and forks the others."""

import asyncio
import os
import signal
from pathlib import Path

from gnomon.core.agents.spec import AgentSpec
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import AGENT
from gnomon.runners.agents.agent_process import process_variables
from gnomon.runners.agents.agent_starter import AgentStarter, ForkedAgent
from runners.runner_harness import alive, assignment, wait_until
from runners.test_agents import agent_processes, agents, output, starters
from support.model_servers import openai_text
from support.scripted_server import ScriptedReply


def asking() -> Assignment:
    given = {"prompt": "Sum up."}
    return assignment(AGENT, given, agent=AgentSpec(model="openai:small"), input=given)


async def test_agents_at_the_same_time_have_one_starter_which_ends_with_the_runner(tmp_path: Path) -> None:
    async with agents(tmp_path) as tried:
        tried.server.replies = [ScriptedReply(silent=True), ScriptedReply(silent=True)]
        held = [asking(), asking()]
        tried.harness.runner.start(held)
        await tried.server.until(2)
        [starter], forked = starters(), agent_processes()
        for pid in forked:
            os.kill(pid, signal.SIGKILL)
        ends = [await tried.harness.outcome(one) for one in held]
        tried.server.replies = [openai_text("Done.")]
        after = await tried.run()
        same = starters()

    assert len(forked) == 2
    assert [one.error for one in ends] == ["its process was killed by signal 9 (SIGKILL)"] * 2
    assert output(after) == "Done."
    assert same == [starter]
    assert not alive(starter)


async def test_a_killed_starter_takes_its_agents_along_and_the_next_one_has_another(tmp_path: Path) -> None:
    async with agents(tmp_path) as tried:
        tried.server.replies = [ScriptedReply(silent=True), openai_text("Done.")]
        held = asking()
        tried.harness.runner.start([held])
        await tried.server.until(1)
        [starter], [forked] = starters(), agent_processes()
        os.kill(starter, signal.SIGKILL)
        done = await tried.harness.outcome(held)
        await wait_until(lambda: not alive(forked))
        await asyncio.wait_for(tried.server.given_up.wait(), 10)
        after = await tried.run()

    assert (done.result, done.error) == (Result.FAILED, "its process was killed by signal 9 (SIGKILL)")
    assert output(after) == "Done."


async def forked_by(starter: AgentStarter) -> ForkedAgent | None:
    return await starter.start(["openai"], {"GNOMON_RUN_ID": "run_1"})


def descriptors_of(pid: int) -> set[str]:
    """The pipes and sockets of a process."""
    found = {one.readlink().name for one in Path(f"/proc/{pid}/fd").iterdir()}
    return {one for one in found if one.startswith(("pipe:", "socket:"))}


async def test_an_agent_has_no_descriptor_of_another_one_or_of_the_starter() -> None:
    """The task of an agent, with the keys of its provider, comes over its first pipe."""
    starter = AgentStarter(process_variables())
    agents_of_it: list[ForkedAgent] = []
    try:
        for _ in range(2):
            agent = await forked_by(starter)
            assert agent is not None
            agents_of_it.append(agent)
        [process] = starters()
        connection = descriptors_of(process)
        one, other = (agent.pid for agent in agents_of_it)
        # It closes what it has of the starter as the first thing that it does.
        await wait_until(lambda: not connection & (descriptors_of(one) | descriptors_of(other)))
        first, second = descriptors_of(one), descriptors_of(other)
    finally:
        for agent in agents_of_it:
            for each in (agent.given, *agent.pipes):
                os.close(each)
        starter.close()

    assert len(connection) == 1
    assert first
    assert second
    assert not first & second


async def test_a_starter_without_agents_ends_and_is_started_again() -> None:
    starter = AgentStarter(process_variables(), idle_ms=50)
    try:
        for _ in range(2):
            agent = await forked_by(starter)
            assert agent is not None
            exited = asyncio.Event()
            agent.watch(exited.set)
            # Its input ends, and so does it.
            for each in (agent.given, *agent.pipes):
                os.close(each)
            await asyncio.wait_for(exited.wait(), 30)
            agent.wait()
            await wait_until(lambda: not starters())
    finally:
        starter.close()


async def test_an_agent_that_cannot_be_forked_leaves_the_others_alone(tmp_path: Path) -> None:
    (tmp_path / "anthropic.py").write_text("raise RuntimeError('broken')")
    starter = AgentStarter({**process_variables(), "PYTHONPATH": str(tmp_path)})
    try:
        agent = await forked_by(starter)
        assert agent is not None
        [process] = starters()
        broken = await starter.start(["anthropic"], {})
        too_long = await starter.start(["openai"], {"GNOMON_CONSTRAINTS": "x" * 100_000})
        assert (broken, too_long, starters(), agent_processes()) == (None, None, [process], [agent.pid])
        for each in (agent.given, *agent.pipes):
            os.close(each)
    finally:
        starter.close()


async def test_without_a_starter_each_agent_loads_the_library() -> None:
    starter = AgentStarter({**process_variables(), "PYTHONHOME": "/nowhere"})
    try:
        assert await forked_by(starter) is None
    finally:
        starter.close()


async def test_an_agent_whose_caller_was_stopped_does_not_stay() -> None:
    starter = AgentStarter(process_variables())
    try:
        asked = asyncio.ensure_future(forked_by(starter))
        await wait_until(lambda: bool(starters()))
        asked.cancel()
        await asyncio.wait([asked])
        other = await forked_by(starter)
        assert other is not None
        await wait_until(lambda: agent_processes() == [other.pid])
        for each in (other.given, *other.pipes):
            os.close(each)
    finally:
        starter.close()
