"""The contract of the sessions of agents, for any store."""

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.agents.sessions import ADMISSION_MS, history_of
from gnomon.core.agents.spec import AgentSpec
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, Task
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.workflow import AGENT, ONLY_STEP, Step, Workflow
from gnomon.ports.audit import AuditQuery
from gnomon.ports.store import Store
from support.task_steps import completion_of, take_task

TRIAGE = Workflow(
    workflow_id="report",
    version=1,
    steps=(Step(name=ONLY_STEP, function=AGENT, agent=AgentSpec(model="a:b", session="triage")),),
)


class AgentSessionContract:
    """Tests for any store. `store` is a fresh one."""

    async def launched_agent(self, store: Store, number: int, *, now: int = NOON) -> tuple[Run, Task]:
        schedule = minutely("triage", overlap=Overlap.ALLOW)
        if await store.schedules.find("default", "triage") is None:
            await store.schedules.add([schedule], actor="ada", tzdata="")
        run = new_requested_run(RunId(f"run_{number:03}"), schedule, source=RunSource.API, now=now)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=now)
        [task] = await store.history.tasks([run])
        return run, task

    async def ended_agent(
        self, store: Store, number: int, result: Result = Result.SUCCEEDED, *, turn: bytes = b'[{"n": 1}]'
    ) -> TaskCompletion:
        run, _ = await self.launched_agent(store, number)
        taken = await take_task(store, "w1", run, now=NOON)
        return completion_of(taken, result, now=NOON + number, definition=TRIAGE, turn=turn)

    @pytest.mark.req("Z-03")
    async def test_a_success_appends_its_messages_once(self, store: Store) -> None:
        one = await self.ended_agent(store, 1)
        two = await self.ended_agent(store, 2, turn=b'[{"n": 2}, {"n": 3}]')

        for ending in (one, one, two, two):
            await store.attempts.report([ending])

        found = await store.agent_sessions.turns("default", "triage", limit=10)
        assert [(turn.number, turn.run_id, turn.job) for turn in found] == [
            (2, two.run_id, "triage"),
            (1, one.run_id, "triage"),
        ]
        history = history_of((turn.messages for turn in found), most_tokens=100)
        assert history.replace(b" ", b"") == b'[{"n":1},{"n":2},{"n":3}]'
        [listed] = await store.agent_sessions.list_sessions("default", limit=10)
        assert (listed.session, listed.turns, listed.updated_at) == ("triage", 2, NOON + 2)
        assert await store.agent_sessions.turns("acme", "triage", limit=10) == []
        assert await store.agent_sessions.list_sessions("acme", limit=10) == []

    @pytest.mark.req("Z-03")
    @pytest.mark.parametrize("result", [Result.FAILED, Result.LOST, Result.CANCELLED, Result.GAVE_UP])
    async def test_a_run_that_fails_appends_nothing(self, store: Store, result: Result) -> None:
        await store.attempts.report([await self.ended_agent(store, 1, result)])

        assert await store.agent_sessions.turns("default", "triage", limit=10) == []

    async def test_an_attempt_that_was_superseded_appends_nothing(self, store: Store) -> None:
        one = await self.ended_agent(store, 1)

        await store.attempts.report([replace(one, fence=one.fence + 1)])

        assert await store.agent_sessions.turns("default", "triage", limit=10) == []

    @pytest.mark.req("Z-03")
    async def test_one_run_at_a_time_is_in_a_session(self, store: Store) -> None:
        sessions = store.agent_sessions
        first, task = await self.launched_agent(store, 1)
        _, other = await self.launched_agent(store, 2)

        assert await sessions.acquire("default", "triage", task.task_id, now=NOON)
        assert await sessions.acquire("default", "triage", task.task_id, now=NOON)
        # The first one has not been admitted yet.
        assert not await sessions.acquire("default", "triage", other.task_id, now=NOON)
        assert await sessions.acquire("default", "another", other.task_id, now=NOON)
        assert await sessions.acquire("acme", "triage", other.task_id, now=NOON)
        taken = await take_task(store, "w1", first, now=NOON)
        assert not await sessions.acquire("default", "triage", other.task_id, now=NOON + 2 * ADMISSION_MS)
        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON)])
        assert await sessions.acquire("default", "triage", other.task_id, now=NOON)

    async def test_a_task_that_is_never_admitted_loses_its_session(self, store: Store) -> None:
        _, task = await self.launched_agent(store, 1)
        _, other = await self.launched_agent(store, 2)
        await store.agent_sessions.acquire("default", "triage", task.task_id, now=NOON)

        assert await store.agent_sessions.acquire("default", "triage", other.task_id, now=NOON + ADMISSION_MS)

    async def test_clearing_a_session_is_audited(self, store: Store) -> None:
        await store.attempts.report([await self.ended_agent(store, 1)])

        assert await store.agent_sessions.clear("acme", "triage", actor="ada", now=NOON) == 0
        assert await store.agent_sessions.clear("default", "triage", actor="ada", now=NOON) == 1
        assert await store.agent_sessions.clear("default", "triage", actor="ada", now=NOON) == 0

        assert await store.agent_sessions.turns("default", "triage", limit=10) == []
        entries = await store.audit.page(AuditQuery(tenant="default", kind="session"))
        assert [(one.entry.actor, one.entry.action, one.entry.name) for one in entries] == [("ada", "delete", "triage")]
