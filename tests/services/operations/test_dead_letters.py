"""The dead letter office: what has failed for good is shown whole and tried again once."""

from collections.abc import Sequence
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import DeadLetter, Result, Run, RunId, RunStatus
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest
from gnomon.errors import FieldError, NotFound, Overlapping
from gnomon.services.operations.dead_letters import DeadLetterService, ReplayResult
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.scheduling.registrar import Registrar
from gnomon.testing.clock import CountedIds, VirtualClock
from support.task_steps import completion_of, take_task, workflow


class DeadLetterFixture:
    """A store with a job that leaves dead letters, and everybody around it."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        ids = CountedIds()
        self.book = JobService(self.store.jobs, self.store.schedules, self.store.history, self.clock, ids)
        self.launcher = Launcher(
            self.store.runs, self.store.executions, self.store.jobs, self.store.schedules, self.clock, ids
        )
        self.office = DeadLetterService(self.store.dead_letters, self.store.executions, self.launcher, self.clock)

    async def register(self, name: str = "report", **said: Any) -> None:  # noqa: ANN401 - any field of a job
        whole = {"name": name, "function": "reports.make", "dead_letter": True} | said
        await self.book.apply([read_job(whole, Defaults(), now=NOON)], actor="ada")

    async def run(self, run_id: RunId) -> Run:
        found = await self.store.executions.find_run(run_id)
        assert found is not None
        return found

    async def end(self, run_id: RunId, result: Result, error: str | None = None) -> None:
        taken = await take_task(self.store, "worker-1", await self.run(run_id), now=self.clock.now())
        self.clock.advance(1000)
        lettered = workflow(dead_letter=True)
        ending = completion_of(taken, result, now=self.clock.now(), definition=lettered, error=error)
        await self.store.attempts.report([ending])

    async def failed(self, job: str = "report", **wish: Any) -> DeadLetter:  # noqa: ANN401 - what a trigger takes
        """The letter of a run that has just failed."""
        done = await self.launcher.trigger(job, actor="ada", force=True, **wish)
        await self.end(done.run_id, Result.FAILED, "disk full")
        [letter] = [one for one in await self.office.page(job=job) if one.run_id == done.run_id]
        return letter


@pytest.fixture
async def setup() -> DeadLetterFixture:
    made = DeadLetterFixture()
    await made.register()
    return made


@pytest.mark.req("H-09")
async def test_a_dead_letter_shows_every_attempt(setup: DeadLetterFixture) -> None:
    letter = await setup.failed(input={"day": 1})

    seen = await setup.office.get(letter.dead_letter_id)

    assert (seen.letter.job, seen.letter.last_error, seen.letter.input) == ("report", "disk full", b'{"day":1}')
    assert [(one.worker, one.result, one.error) for one in seen.attempts] == [("worker-1", "failed", "disk full")]
    assert seen.run is not None
    assert seen.run.status is RunStatus.FAILED


@pytest.mark.req("H-09")
async def test_dead_letters_are_listed_by_job_and_by_whether_they_are_dealt_with(setup: DeadLetterFixture) -> None:
    await setup.register("other")
    dealt_with, open_one, others = await setup.failed(), await setup.failed(), await setup.failed("other")
    await setup.office.resolve(dealt_with.dead_letter_id, actor="ada")

    found = await setup.office.page(job="report", unresolved=True)

    assert [one.dead_letter_id for one in found] == [open_one.dead_letter_id]
    assert others.dead_letter_id in [one.dead_letter_id for one in await setup.office.page(unresolved=True)]


@pytest.mark.req("H-09")
async def test_a_replay_is_a_new_run_of_the_newest_version_on_the_same_input(setup: DeadLetterFixture) -> None:
    letter = await setup.failed(input={"day": 1})
    await setup.register(function="reports.mended")

    done = await setup.office.replay(letter.dead_letter_id, actor="bob")

    run = await setup.run(done.run_id)
    assert done.became is LaunchOutcome.STARTED
    assert (run.replay_of, run.workflow_version, run.user_id) == (letter.dead_letter_id, 2, "bob")
    assert await setup.store.executions.payload(run.run_id, "input") == b'{"day":1}'
    assert (await setup.office.get(letter.dead_letter_id)).letter.replayed_by == run.run_id


async def test_a_replay_is_of_the_newest_version_even_if_the_job_runs_an_older_one(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()
    await setup.register(function="reports.mended")
    older = {"schedule_id": "report", "schedule": "@daily", "workflow_id": "report", "workflow_version": 1}
    await Registrar(setup.store.schedules, setup.store.history, setup.clock, CountedIds()).upsert(older, actor="ada")

    done = await setup.office.replay(letter.dead_letter_id, actor="ada")

    assert (await setup.run(done.run_id)).workflow_version == 2


@pytest.mark.req("H-09")
@pytest.mark.guarantee("S14")
async def test_asking_twice_for_a_replay_is_one_run(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()

    first, second = [await setup.office.replay(letter.dead_letter_id, actor="ada") for _ in range(2)]

    assert (second.run_id, second.became) == (first.run_id, LaunchOutcome.ALREADY)


async def test_another_key_is_another_replay(setup: DeadLetterFixture) -> None:
    await setup.register(overlap="allow")
    letter = await setup.failed()

    first = await setup.office.replay(letter.dead_letter_id, actor="ada")
    second = await setup.office.replay(letter.dead_letter_id, actor="ada", key="again")

    assert (second.run_id != first.run_id, second.became) == (True, LaunchOutcome.STARTED)


async def test_a_replay_that_succeeds_resolves_the_letter(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()
    done = await setup.office.replay(letter.dead_letter_id, actor="ada")

    await setup.end(done.run_id, Result.SUCCEEDED)

    resolved = (await setup.office.get(letter.dead_letter_id)).letter
    assert (resolved.resolved_at, resolved.resolved_by) == (setup.clock.now(), f"replay {done.run_id}")


async def test_the_letter_of_a_replay_stands_for_the_one_before(setup: DeadLetterFixture) -> None:
    first = await setup.failed()
    done = await setup.office.replay(first.dead_letter_id, actor="ada")
    await setup.end(done.run_id, Result.FAILED)
    [second] = [one for one in await setup.office.page() if one.run_id == done.run_id]

    await setup.office.replay(second.dead_letter_id, actor="ada")

    assert [one.dead_letter_id for one in await setup.office.page(unresolved=True)] == [second.dead_letter_id]


async def test_a_replay_respects_a_run_under_way(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()
    under_way = await setup.launcher.trigger("report", actor="ada")

    with pytest.raises(Overlapping, match=under_way.run_id):
        await setup.office.replay(letter.dead_letter_id, actor="ada")


async def test_the_letter_of_a_deleted_job_cannot_be_replayed(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()
    await setup.book.delete("report", actor="ada")

    with pytest.raises(NotFound, match="there is no job 'report'"):
        await setup.office.replay(letter.dead_letter_id, actor="ada")


async def test_the_letter_of_a_run_without_a_job_is_replayed_without_one(setup: DeadLetterFixture) -> None:
    await setup.launcher.start("report", 1, "bob", NOON, "k")
    [run] = [one for one in setup.store.state.runs.values() if one.schedule_id is None]
    await setup.end(run.run_id, Result.FAILED)
    [letter] = await setup.office.page()

    done = await setup.office.replay(letter.dead_letter_id, actor="ada")

    again = await setup.run(done.run_id)
    assert (again.schedule_uid, again.workflow_id, again.replay_of) == (None, "report", letter.dead_letter_id)


@pytest.mark.req("H-09")
async def test_replaying_all_says_what_became_of_each(setup: DeadLetterFixture) -> None:
    letters = sorted([await setup.failed(), await setup.failed()], key=lambda one: one.dead_letter_id)
    await setup.register("other")
    other = await setup.failed("other")
    await setup.book.delete("other", actor="ada")
    dealt_with = await setup.failed()
    await setup.office.resolve(dealt_with.dead_letter_id, actor="ada")

    done = {one.dead_letter_id: one for one in (await setup.office.replay_all(actor="ada")).items}

    first, second = (done[letter.dead_letter_id] for letter in letters)
    assert (first.became, first.refused) == (LaunchOutcome.STARTED, None)
    assert second.refused == f"a run of 'report' is under way: {first.run_id}"
    assert done[other.dead_letter_id] == ReplayResult(
        dead_letter_id=other.dead_letter_id, job="other", refused="there is no job 'other'"
    )
    assert dealt_with.dead_letter_id not in done


async def test_replaying_all_of_a_job_leaves_others_alone(setup: DeadLetterFixture) -> None:
    await setup.register("other")
    await setup.failed("other")
    mine = await setup.failed()

    done = (await setup.office.replay_all(actor="ada", job="report")).items

    assert [one.dead_letter_id for one in done] == [mine.dead_letter_id]


async def test_replaying_all_leaves_alone_what_fails_again(
    setup: DeadLetterFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.register(overlap="allow")
    letter = await setup.failed()
    launch = setup.store.runs.launch

    async def launched_and_failed(launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        became = await launch(launches, now=now)
        await setup.end(launches[0].run.run_id, Result.FAILED)
        return became

    monkeypatch.setattr(setup.store.runs, "launch", launched_and_failed)

    [done] = (await setup.office.replay_all(actor="ada")).items
    assert done.dead_letter_id == letter.dead_letter_id


async def test_many_are_replayed_page_by_page_and_what_fails_again_meanwhile_is_left_alone(
    setup: DeadLetterFixture,
) -> None:
    await setup.register(overlap="allow")
    letters = {(await setup.failed()).dead_letter_id for _ in range(5)}
    setup.clock.advance(1000)

    replayed, after = set[str](), None
    while True:
        page = await setup.office.replay_all(actor="ada", after=after, limit=2)
        replayed |= {one.dead_letter_id for one in page.items}
        for one in page.items:
            assert one.run_id is not None
            await setup.end(one.run_id, Result.FAILED)
        if page.after is None:
            break
        after = page.after

    assert replayed == letters


async def test_resolving_says_who_and_when_and_is_done_once(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()

    first = await setup.office.resolve(letter.dead_letter_id, actor="ada")
    second = await setup.office.resolve(letter.dead_letter_id, actor="bob")

    seen = (await setup.office.get(letter.dead_letter_id)).letter
    assert (first, second) == (True, False)
    assert (seen.resolved_by, seen.resolved_at) == ("ada", setup.clock.now())


@pytest.mark.parametrize("act", ["get", "replay", "resolve"])
async def test_a_letter_that_is_not_there_is_not_found(setup: DeadLetterFixture, act: str) -> None:
    actor = {} if act == "get" else {"actor": "ada"}

    with pytest.raises(NotFound, match="there is no dead letter 'dl_none'"):
        await getattr(setup.office, act)("dl_none", **actor)


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_a_page_has_a_size(setup: DeadLetterFixture, limit: int) -> None:
    with pytest.raises(FieldError, match="limit"):
        await setup.office.page(limit=limit)
