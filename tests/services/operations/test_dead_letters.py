"""The dead letter service: what has failed for good is shown whole and tried again once."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import DeadLetter, Result, Run, RunId, RunStatus
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest
from gnomon.errors import FieldError, NotFound, Overlapping
from gnomon.ports.runs import LetterQuery
from gnomon.services.operations.dead_letters import DeadLetterService, ReplayResult
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.schedules import ScheduleService
from gnomon.testing.clock import CountedIds, VirtualClock
from support.task_steps import completion_of, take_task, workflow


class DeadLetterFixture:
    """A store with a job that leaves dead letters, and everybody around it."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        ids = CountedIds()
        self.job_service = JobService(self.store.jobs, self.store.schedules, self.store.history, self.clock, ids)
        self.launcher = Launcher(
            self.store.runs, self.store.executions, self.store.jobs, self.store.schedules, self.clock, ids
        )
        self.service = DeadLetterService(self.store.dead_letters, self.store.executions, self.launcher, self.clock)

    async def register(self, name: str = "report", **said: Any) -> None:  # noqa: ANN401 - any field of a job
        whole = {"name": name, "function": "reports.make", "dead_letter": True} | said
        await self.job_service.apply([read_job(whole, Defaults(), now=NOON)], actor="ada")

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

    async def failed(self, job: str = "report", *, error: str = "disk full", **request: Any) -> DeadLetter:  # noqa: ANN401 - what a trigger takes
        """The letter of a run that has just failed."""
        done = await self.launcher.trigger(job, actor="ada", force=True, **request)
        await self.end(done.run_id, Result.FAILED, error)
        [letter] = [one for one in await self.service.page(job=job) if one.run_id == done.run_id]
        return letter


@pytest.fixture
async def setup() -> DeadLetterFixture:
    made = DeadLetterFixture()
    await made.register()
    return made


@pytest.mark.req("H-09")
async def test_a_dead_letter_shows_every_attempt(setup: DeadLetterFixture) -> None:
    letter = await setup.failed(input={"day": 1})

    seen = await setup.service.get(letter.dead_letter_id)

    assert (seen.letter.job, seen.letter.last_error, seen.letter.input) == ("report", "disk full", b'{"day":1}')
    assert [(one.worker, one.result, one.error) for one in seen.attempts] == [("worker-1", "failed", "disk full")]
    assert seen.run is not None
    assert seen.run.status is RunStatus.FAILED


@pytest.mark.req("H-09")
async def test_a_replay_has_the_input_that_the_job_had_at_the_failure(setup: DeadLetterFixture) -> None:
    await setup.register(input={"day": "monday"})
    letter = await setup.failed()
    await setup.register(input={"day": "tuesday"})

    replayed = await setup.service.replay(letter.dead_letter_id, actor="ada")

    assert letter.input == b'{"day":"monday"}'
    assert await setup.store.executions.payload(replayed.run_id, "input") == b'{"day":"monday"}'


@pytest.mark.req("H-09")
async def test_dead_letters_are_listed_by_job_and_by_whether_they_are_resolved(setup: DeadLetterFixture) -> None:
    await setup.register("other")
    dealt_with, open_one, others = await setup.failed(), await setup.failed(), await setup.failed("other")
    await setup.service.resolve(dealt_with.dead_letter_id, actor="ada")

    found = await setup.service.page(job="report", unresolved=True)

    assert [one.dead_letter_id for one in found] == [open_one.dead_letter_id]
    assert others.dead_letter_id in [one.dead_letter_id for one in await setup.service.page(unresolved=True)]


@pytest.mark.req("H-09")
async def test_a_replay_is_a_new_run_of_the_newest_version_on_the_same_input(setup: DeadLetterFixture) -> None:
    letter = await setup.failed(input={"day": 1})
    await setup.register(function="reports.mended")

    done = await setup.service.replay(letter.dead_letter_id, actor="bob")

    run = await setup.run(done.run_id)
    assert done.became is LaunchOutcome.STARTED
    assert (run.replay_of, run.workflow_version, run.user_id) == (letter.dead_letter_id, 2, "bob")
    assert await setup.store.executions.payload(run.run_id, "input") == b'{"day":1}'
    assert (await setup.service.get(letter.dead_letter_id)).letter.replayed_by == run.run_id


async def test_a_replay_is_of_the_newest_version_even_if_the_job_runs_an_older_one(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()
    await setup.register(function="reports.mended")
    older = {"schedule_id": "report", "schedule": "@daily", "workflow_id": "report", "workflow_version": 1}
    await ScheduleService(setup.store.schedules, setup.store.history, setup.clock, CountedIds()).upsert(
        older, actor="ada"
    )

    done = await setup.service.replay(letter.dead_letter_id, actor="ada")

    assert (await setup.run(done.run_id)).workflow_version == 2


@pytest.mark.req("H-09")
@pytest.mark.guarantee("S14")
async def test_asking_twice_for_a_replay_is_one_run(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()

    first, second = [await setup.service.replay(letter.dead_letter_id, actor="ada") for _ in range(2)]

    assert (second.run_id, second.became) == (first.run_id, LaunchOutcome.ALREADY)


async def test_another_key_is_another_replay(setup: DeadLetterFixture) -> None:
    await setup.register(overlap="allow")
    letter = await setup.failed()

    first = await setup.service.replay(letter.dead_letter_id, actor="ada")
    second = await setup.service.replay(letter.dead_letter_id, actor="ada", key="again")

    assert (second.run_id != first.run_id, second.became) == (True, LaunchOutcome.STARTED)


async def test_a_replay_that_succeeds_resolves_the_letter(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()
    done = await setup.service.replay(letter.dead_letter_id, actor="ada")

    await setup.end(done.run_id, Result.SUCCEEDED)

    resolved = (await setup.service.get(letter.dead_letter_id)).letter
    assert (resolved.resolved_at, resolved.resolved_by) == (setup.clock.now(), f"replay {done.run_id}")


async def test_the_letter_of_a_replay_stands_for_the_one_before(setup: DeadLetterFixture) -> None:
    first = await setup.failed()
    done = await setup.service.replay(first.dead_letter_id, actor="ada")
    await setup.end(done.run_id, Result.FAILED)
    [second] = [one for one in await setup.service.page() if one.run_id == done.run_id]

    await setup.service.replay(second.dead_letter_id, actor="ada")

    assert [one.dead_letter_id for one in await setup.service.page(unresolved=True)] == [second.dead_letter_id]


async def test_a_replay_respects_a_run_under_way(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()
    under_way = await setup.launcher.trigger("report", actor="ada")

    with pytest.raises(Overlapping, match=under_way.run_id):
        await setup.service.replay(letter.dead_letter_id, actor="ada")


async def test_the_letter_of_a_deleted_job_cannot_be_replayed(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()
    await setup.job_service.delete("report", actor="ada")

    with pytest.raises(NotFound, match="there is no job 'report'"):
        await setup.service.replay(letter.dead_letter_id, actor="ada")


async def test_the_letter_of_a_run_without_a_job_is_replayed_without_one(setup: DeadLetterFixture) -> None:
    await setup.launcher.start("report", 1, "bob", NOON, "k", actor="bob")
    [run] = [one for one in setup.store.state.runs.values() if one.schedule_id is None]
    await setup.end(run.run_id, Result.FAILED)
    [letter] = await setup.service.page()

    done = await setup.service.replay(letter.dead_letter_id, actor="ada")

    again = await setup.run(done.run_id)
    assert (again.schedule_uid, again.workflow_id, again.replay_of) == (None, "report", letter.dead_letter_id)


@pytest.mark.req("H-09")
async def test_replaying_all_says_what_became_of_each(setup: DeadLetterFixture) -> None:
    letters = [await setup.failed(), await setup.failed()]
    await setup.register("other")
    other = await setup.failed("other")
    await setup.job_service.delete("other", actor="ada")
    dealt_with = await setup.failed()
    await setup.service.resolve(dealt_with.dead_letter_id, actor="ada")

    done = {one.dead_letter_id: one for one in (await setup.service.replay_all(LetterQuery(), actor="ada")).items}

    first, second = (done[letter.dead_letter_id] for letter in letters)
    assert (first.became, first.refused) == (LaunchOutcome.STARTED, None)
    assert (second.became, second.refused) == (LaunchOutcome.QUEUED, None)
    assert done[other.dead_letter_id] == ReplayResult(
        dead_letter_id=other.dead_letter_id, job="other", refused="there is no job 'other'"
    )
    assert dealt_with.dead_letter_id not in done


@pytest.mark.req("H-09", "H-19")
@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
async def test_all_letters_of_a_job_are_replayed_one_after_the_other(setup: DeadLetterFixture, overlap: str) -> None:
    await setup.register(overlap=overlap, queue_limit=1)
    letters = [await setup.failed(input={"day": day}) for day in range(6)]

    replays = (await setup.service.replay_all(LetterQuery(), actor="ada")).items
    again = (await setup.service.replay_all(LetterQuery(), actor="ada")).items

    assert [one.dead_letter_id for one in replays] == [letter.dead_letter_id for letter in letters]
    assert [one.run_id for one in again] == [one.run_id for one in replays]
    waiting = {one.run_id for one in replays if one.run_id is not None}
    while waiting:
        [active] = [name for name in waiting if not (await setup.run(name)).queued]
        await setup.end(active, Result.SUCCEEDED)
        waiting.remove(active)
    assert await setup.service.page(unresolved=True) == []


def letter_of_another_item(letter: DeadLetter) -> DeadLetter:
    return replace(letter, dead_letter_id=f"{letter.dead_letter_id}.000001")


@pytest.mark.req("H-09")
@pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED])
async def test_the_letters_of_one_execution_have_one_replay(setup: DeadLetterFixture, result: Result) -> None:
    await setup.register(overlap="allow")
    letter = await setup.failed()
    item = letter_of_another_item(letter)
    setup.store.state.dead_letters[item.dead_letter_id] = item

    replays = (await setup.service.replay_all(LetterQuery(), actor="ada")).items
    single = await setup.service.replay(item.dead_letter_id, actor="ada")

    [run_id] = {one.run_id for one in replays} | {single.run_id}
    assert run_id is not None
    assert {one.replayed_by for one in await setup.service.page()} == {run_id}
    await setup.end(run_id, result)
    unresolved = await setup.service.page(unresolved=True)
    assert len(unresolved) == (0 if result is Result.SUCCEEDED else 3)
    if result is Result.FAILED:
        [newest] = [one for one in unresolved if one.run_id == run_id]
        await setup.service.replay(newest.dead_letter_id, actor="ada")
        assert [one.dead_letter_id for one in await setup.service.page(unresolved=True)] == [newest.dead_letter_id]


async def test_letters_are_listed_newest_first(setup: DeadLetterFixture) -> None:
    letters = [(await setup.failed()).dead_letter_id for _ in range(3)]

    assert [one.dead_letter_id for one in await setup.service.page()] == letters[::-1]


async def test_replaying_all_of_a_job_leaves_others_alone(setup: DeadLetterFixture) -> None:
    await setup.register("other")
    await setup.failed("other")
    mine = await setup.failed()

    done = (await setup.service.replay_all(LetterQuery(job="report"), actor="ada")).items

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

    [done] = (await setup.service.replay_all(LetterQuery(), actor="ada")).items
    assert done.dead_letter_id == letter.dead_letter_id


async def test_many_are_replayed_page_by_page_and_what_fails_again_meanwhile_is_left_alone(
    setup: DeadLetterFixture,
) -> None:
    await setup.register(overlap="allow")
    letters = {(await setup.failed()).dead_letter_id for _ in range(5)}
    setup.clock.advance(1000)

    replayed, after = set[str](), None
    while True:
        page = await setup.service.replay_all(LetterQuery(limit=2), actor="ada", after=after)
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

    first = await setup.service.resolve(letter.dead_letter_id, actor="ada")
    second = await setup.service.resolve(letter.dead_letter_id, actor="bob")

    seen = (await setup.service.get(letter.dead_letter_id)).letter
    assert (first, second) == (True, False)
    assert (seen.resolved_by, seen.resolved_at) == ("ada", setup.clock.now())


@pytest.mark.parametrize("act", ["get", "replay", "resolve"])
async def test_a_letter_that_is_not_there_is_not_found(setup: DeadLetterFixture, act: str) -> None:
    actor = {} if act == "get" else {"actor": "ada"}

    with pytest.raises(NotFound, match="there is no dead letter 'dl_none'"):
        await getattr(setup.service, act)("dl_none", **actor)


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_a_page_has_a_size(setup: DeadLetterFixture, limit: int) -> None:
    with pytest.raises(FieldError, match="limit"):
        await setup.service.page(limit=limit)


# ---- many of them --------------------------------------------------------------------------------


@pytest.mark.req("H-09")
async def test_only_the_dead_letters_that_match_are_replayed(setup: DeadLetterFixture) -> None:
    await setup.register(overlap="allow")
    full, other = await setup.failed(error="disk full\nat /srv"), await setup.failed(error="no route")

    done = (await setup.service.replay_all(LetterQuery(error_line="disk full"), actor="ada")).items

    assert [one.dead_letter_id for one in done] == [full.dead_letter_id]
    assert (await setup.service.get(other.dead_letter_id)).letter.replayed_by is None


@pytest.mark.req("H-09")
@pytest.mark.guarantee("S14")
async def test_a_doubled_request_does_not_replay_the_replay_that_has_failed_meanwhile(
    setup: DeadLetterFixture,
) -> None:
    await setup.register(overlap="allow")
    letter = await setup.failed()

    async def replayed(key: str | None) -> list[ReplayResult]:
        return list((await setup.service.replay_all(LetterQuery(), actor="ada", key=key)).items)

    [first] = await replayed("click-1")
    assert first.run_id is not None
    await setup.end(first.run_id, Result.FAILED, "disk full")
    again, [_, anew] = await replayed("click-1"), await replayed("click-2")

    assert [(one.dead_letter_id, one.run_id, one.became) for one in again] == [
        (letter.dead_letter_id, first.run_id, LaunchOutcome.ALREADY)
    ]
    assert (anew.became, anew.run_id != first.run_id) == (LaunchOutcome.STARTED, True)


@pytest.mark.req("H-09")
async def test_requests_with_and_without_a_key_share_the_only_replay(setup: DeadLetterFixture) -> None:
    letter = await setup.failed()

    single = await setup.service.replay(letter.dead_letter_id, actor="ada")
    [many] = (await setup.service.replay_all(LetterQuery(), actor="ada", key="click")).items

    assert (many.run_id, many.became) == (single.run_id, LaunchOutcome.ALREADY)


@pytest.mark.req("H-09")
async def test_named_dead_letters_are_replayed_and_an_unknown_name_replays_none(setup: DeadLetterFixture) -> None:
    await setup.register(overlap="allow")
    first, second = await setup.failed(), await setup.failed()

    with pytest.raises(NotFound):
        await setup.service.replay_these([first.dead_letter_id, "dl_none"], actor="ada")
    before = (await setup.service.get(first.dead_letter_id)).letter
    done = (await setup.service.replay_these([first.dead_letter_id], actor="ada")).items

    assert before.replayed_by is None
    assert [one.dead_letter_id for one in done] == [first.dead_letter_id]
    assert (await setup.service.get(second.dead_letter_id)).letter.replayed_by is None


@pytest.mark.req("H-09")
async def test_dead_letters_that_match_are_resolved_page_by_page_and_none_that_came_since(
    setup: DeadLetterFixture,
) -> None:
    letters = [await setup.failed() for _ in range(3)]
    kept = await setup.failed(error="no route")
    query = LetterQuery(error="disk", limit=2)

    first = await setup.service.resolve_all(query, actor="ada")
    newer = await setup.failed()
    second = await setup.service.resolve_all(query, actor="ada", after=first.after)
    last = await setup.service.resolve_all(query, actor="ada", after=second.after)

    assert [one.dead_letter_id for one in (*first.items, *second.items)] == [one.dead_letter_id for one in letters]
    assert (last.items, last.after) == ((), None)
    unresolved = await setup.service.page(unresolved=True)
    assert {one.dead_letter_id for one in unresolved} == {kept.dead_letter_id, newer.dead_letter_id}


async def test_a_dead_letter_that_was_resolved_before_is_not_resolved_again(setup: DeadLetterFixture) -> None:
    first, second = await setup.failed(), await setup.failed()
    await setup.service.resolve(first.dead_letter_id, actor="eve")

    done = await setup.service.resolve_these([first.dead_letter_id, second.dead_letter_id], actor="ada")

    assert [one.dead_letter_id for one in done.items] == [second.dead_letter_id]
    assert (await setup.service.get(first.dead_letter_id)).letter.resolved_by == "eve"
