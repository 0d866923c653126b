"""F73: a scheduler that dies at each commit of a workflow with an approval and compensations, before or after it."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.store import SqlStore
from gnomon.app.operations import Operations
from gnomon.app.settings import schedule_defaults
from gnomon.config.settings import load
from gnomon.core.approvals.model import ApprovalKind, ApprovalStatus, Vote, VoteKind
from gnomon.core.jobs.job import read_job
from gnomon.core.model import Result, RunStatus
from gnomon.core.runs.rollback import RollbackStatus
from gnomon.errors import ApprovalClosed, VotedAlready
from gnomon.ports.approvals import ApprovalFilter
from support.fleet_processes import QUICK, all_runs, launch, wait_until_all_over
from support.gnomon_processes import up
from support.sqlite_files import new_sqlite_file
from support.witness import read_witness

pytestmark = [pytest.mark.timeout(240), pytest.mark.req("R-03", "R-09"), pytest.mark.guarantee("S5", "S13")]

POLICY = """
default_decision: allow
rules:
  - id: payments
    match: {capabilities: [payment]}
    decision: require_approval
    approval: {groups: [finance], quorum: 2}
"""


def step(name: str, *needs: str, **said: object) -> dict[str, object]:
    return {"step": name, "function": "witness/step", "depends_on": list(needs), "input": {"name": name}, **said}


def undo(name: str) -> dict[str, object]:
    return {"function": "witness/step", "input": {"name": f"no-{name}"}}


TRIP = {
    "name": "trip",
    "overlap": "allow",
    "rollback_on": ["denied"],
    "dag": [
        step("flight", compensate=undo("flight")),
        step("hotel", "flight", compensate=undo("hotel")),
        step("pay", "hotel", capability="payment"),
        step("ticket", "pay"),
    ],
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store(f"sqlite:///{new_sqlite_file(tmp_path / 'gnomon.db')}")
    yield opened
    await opened.close()


async def prepare(store: SqlStore, url: str) -> None:
    """A policy in force, and a run that has not begun."""
    settings, clock = load(flags={"database.url": url}), SystemClock()
    async with Operations.open(settings) as operations:
        await operations.jobs.apply([read_job(TRIP, schedule_defaults(settings), now=clock.now())], actor="ada")
    await store.policies.add(POLICY, author="ada", now=clock.now())
    await launch(store, "trip")


async def vote_when_asked(store: SqlStore, kinds: tuple[VoteKind, ...]) -> None:
    """Two people vote on whatever waits, until they are stopped."""
    wanted = ApprovalFilter(tenant="default", kind=ApprovalKind.TASK, status=ApprovalStatus.WAITING)
    while True:
        for one in await store.approvals.page(wanted, before=None, limit=10):
            for voter, kind in zip(("carl", "dora"), kinds, strict=True):
                with suppress(ApprovalClosed, VotedAlready):
                    cast = Vote(voter=voter, kind=kind, at=SystemClock().now())
                    await store.approvals.vote("default", one.approval_id, cast, digest=one.digest)
        await asyncio.sleep(0.02)


async def run_until_it_dies(database: Path, store: SqlStore, when: str) -> bool:
    """Run a scheduler that dies at a commit; return whether it did before everything was over."""
    imports = ("support.witness", "support.crash_at_commit")
    # It may die before it says that it runs.
    with suppress(AssertionError), up(database, imports=imports, environment={**QUICK, "CRASH_AT_COMMIT": when}) as one:
        dead = asyncio.create_task(asyncio.to_thread(one.ended))
        over = asyncio.create_task(wait_until_all_over(store))
        await asyncio.wait((dead, over), return_when=asyncio.FIRST_COMPLETED)
        died = dead.done()
        over.cancel()
        one.kill()
        await dead
        return died
    return True


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(1, 41))
async def test_a_crash_at_any_commit_loses_and_doubles_nothing(
    number: int, tmp_path: Path, store: SqlStore, witness: Path
) -> None:
    database = tmp_path / "gnomon.db"
    rejected = number % 4 >= 2
    await prepare(store, f"sqlite:///{database}")
    kinds = (VoteKind.APPROVE, VoteKind.REJECT if rejected else VoteKind.APPROVE)
    voting = asyncio.create_task(vote_when_asked(store, kinds))
    await run_until_it_dies(database, store, f"{number} {'after' if number % 2 else 'before'}")
    with up(database, environment=QUICK):
        await wait_until_all_over(store)
    voting.cancel()

    [run] = await all_runs(store)
    tasks = {task.task_id: task.step for task in await store.history.tasks([run])}
    succeeded: dict[str, int] = defaultdict(int)
    for attempt in await store.executions.attempts(list(tasks)):
        succeeded[tasks[attempt.task_id]] += attempt.result is Result.SUCCEEDED
    begun: list[str] = []
    for what, name, *_ in read_witness(witness):
        if what == "start" and name not in begun:
            begun.append(name)
    [approval] = await store.approvals.page(ApprovalFilter(tenant="default"), before=None, limit=10)
    assert {cast.voter: cast.kind for cast in approval.votes} == dict(zip(("carl", "dora"), kinds, strict=True))
    if rejected:
        assert (run.status, run.rollback) == (RunStatus.FAILED, RollbackStatus.COMPLETE)
        assert begun == ["flight", "hotel", "no-hotel", "no-flight"]
        assert [letter.reason for letter in await store.dead_letters.page("default")] == ["approval_rejected"]
    else:
        assert (run.status, run.rollback) == (RunStatus.COMPLETED, None)
        assert begun == ["flight", "hotel", "pay", "ticket"]
    assert set(succeeded.values()) <= {0, 1}
    assert sum(succeeded.values()) == len(begun)
