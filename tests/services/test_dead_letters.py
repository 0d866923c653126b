"""The dead letter office: what has failed for good is shown whole and tried again once."""

from collections.abc import Sequence
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import DeadLetter, Result, Run, RunId, RunStatus
from gnomon.core.runs.launch import Launch, Launching
from gnomon.errors import FieldError, NotFound, Overlapping
from gnomon.services.operations.dead_letters import DeadLetterOffice, Replayed
from gnomon.services.operations.jobs import JobBook
from gnomon.services.operations.launcher import Launcher
from gnomon.services.scheduling.registrar import Registrar
from gnomon.testing.clock import CountedIds, VirtualClock
from support.labour import ended, taken_by, workflow


class Desk:
    """A store with a job that leaves dead letters, and everybody around it."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        ids = CountedIds()
        self.book = JobBook(self.store, self.store, self.store, self.clock, ids)
        self.launcher = Launcher(self.store, self.store, self.store, self.store, self.clock, ids)
        self.office = DeadLetterOffice(self.store, self.store, self.launcher, self.clock)

    async def register(self, name: str = "report", **said: Any) -> None:  # noqa: ANN401 - any field of a job
        whole = {"name": name, "function": "reports.make", "dead_letter": True} | said
        await self.book.apply([read_job(whole, Defaults(), now=NOON)], actor="ada")

    async def run(self, run_id: RunId) -> Run:
        found = await self.store.find_run(run_id)
        assert found is not None
        return found

    async def end(self, run_id: RunId, result: Result, error: str | None = None) -> None:
        taken = await taken_by(self.store, "worker-1", await self.run(run_id), now=self.clock.now())
        self.clock.advance(1000)
        lettered = workflow(dead_letter=True)
        ending = ended(taken, result, now=self.clock.now(), definition=lettered, error=error)
        await self.store.report([ending])

    async def failed(self, job: str = "report", **wish: Any) -> DeadLetter:  # noqa: ANN401 - what a trigger takes
        """The letter of a run that has just failed."""
        done = await self.launcher.trigger(job, actor="ada", force=True, **wish)
        await self.end(done.run_id, Result.FAILED, "disk full")
        [letter] = [one for one in await self.office.page(job=job) if one.run_id == done.run_id]
        return letter


@pytest.fixture
async def desk() -> Desk:
    made = Desk()
    await made.register()
    return made


@pytest.mark.req("H-09")
async def test_a_dead_letter_shows_every_attempt(desk: Desk) -> None:
    letter = await desk.failed(input={"day": 1})

    seen = await desk.office.get(letter.dead_letter_id)

    assert (seen.letter.job, seen.letter.last_error, seen.letter.input) == ("report", "disk full", b'{"day":1}')
    assert [(one.worker, one.result, one.error) for one in seen.attempts] == [("worker-1", "failed", "disk full")]
    assert seen.run is not None
    assert seen.run.status is RunStatus.FAILED


@pytest.mark.req("H-09")
async def test_dead_letters_are_listed_by_job_and_by_whether_they_are_dealt_with(desk: Desk) -> None:
    await desk.register("other")
    dealt_with, open_one, others = await desk.failed(), await desk.failed(), await desk.failed("other")
    await desk.office.resolve(dealt_with.dead_letter_id, actor="ada")

    found = await desk.office.page(job="report", unresolved=True)

    assert [one.dead_letter_id for one in found] == [open_one.dead_letter_id]
    assert others.dead_letter_id in [one.dead_letter_id for one in await desk.office.page(unresolved=True)]


@pytest.mark.req("H-09")
async def test_a_replay_is_a_new_run_of_the_newest_version_on_the_same_input(desk: Desk) -> None:
    letter = await desk.failed(input={"day": 1})
    await desk.register(function="reports.mended")

    done = await desk.office.replay(letter.dead_letter_id, actor="bob")

    run = await desk.run(done.run_id)
    assert done.became is Launching.STARTED
    assert (run.replay_of, run.workflow_version, run.user_id) == (letter.dead_letter_id, 2, "bob")
    assert await desk.store.payload(run.run_id, "input") == b'{"day":1}'
    assert (await desk.office.get(letter.dead_letter_id)).letter.replayed_by == run.run_id


async def test_a_replay_is_of_the_newest_version_even_if_the_job_runs_an_older_one(desk: Desk) -> None:
    letter = await desk.failed()
    await desk.register(function="reports.mended")
    older = {"schedule_id": "report", "schedule": "@daily", "workflow_id": "report", "workflow_version": 1}
    await Registrar(desk.store, desk.store, desk.clock, CountedIds()).upsert(older, actor="ada")

    done = await desk.office.replay(letter.dead_letter_id, actor="ada")

    assert (await desk.run(done.run_id)).workflow_version == 2


@pytest.mark.req("H-09")
@pytest.mark.guarantee("S14")
async def test_asking_twice_for_a_replay_is_one_run(desk: Desk) -> None:
    letter = await desk.failed()

    first, second = [await desk.office.replay(letter.dead_letter_id, actor="ada") for _ in range(2)]

    assert (second.run_id, second.became) == (first.run_id, Launching.ALREADY)


async def test_another_key_is_another_replay(desk: Desk) -> None:
    await desk.register(overlap="allow")
    letter = await desk.failed()

    first = await desk.office.replay(letter.dead_letter_id, actor="ada")
    second = await desk.office.replay(letter.dead_letter_id, actor="ada", key="again")

    assert (second.run_id != first.run_id, second.became) == (True, Launching.STARTED)


async def test_a_replay_that_succeeds_resolves_the_letter(desk: Desk) -> None:
    letter = await desk.failed()
    done = await desk.office.replay(letter.dead_letter_id, actor="ada")

    await desk.end(done.run_id, Result.SUCCEEDED)

    resolved = (await desk.office.get(letter.dead_letter_id)).letter
    assert (resolved.resolved_at, resolved.resolved_by) == (desk.clock.now(), f"replay {done.run_id}")


async def test_the_letter_of_a_replay_stands_for_the_one_before(desk: Desk) -> None:
    first = await desk.failed()
    done = await desk.office.replay(first.dead_letter_id, actor="ada")
    await desk.end(done.run_id, Result.FAILED)
    [second] = [one for one in await desk.office.page() if one.run_id == done.run_id]

    await desk.office.replay(second.dead_letter_id, actor="ada")

    assert [one.dead_letter_id for one in await desk.office.page(unresolved=True)] == [second.dead_letter_id]


async def test_a_replay_respects_a_run_under_way(desk: Desk) -> None:
    letter = await desk.failed()
    under_way = await desk.launcher.trigger("report", actor="ada")

    with pytest.raises(Overlapping, match=under_way.run_id):
        await desk.office.replay(letter.dead_letter_id, actor="ada")


async def test_the_letter_of_a_deleted_job_cannot_be_replayed(desk: Desk) -> None:
    letter = await desk.failed()
    await desk.book.delete("report", actor="ada")

    with pytest.raises(NotFound, match="there is no job 'report'"):
        await desk.office.replay(letter.dead_letter_id, actor="ada")


async def test_the_letter_of_a_run_without_a_job_is_replayed_without_one(desk: Desk) -> None:
    await desk.launcher.start("report", 1, "bob", NOON, "k")
    [run] = [one for one in desk.store._runs.values() if one.schedule_id is None]  # noqa: SLF001 - no other is there
    await desk.end(run.run_id, Result.FAILED)
    [letter] = await desk.office.page()

    done = await desk.office.replay(letter.dead_letter_id, actor="ada")

    again = await desk.run(done.run_id)
    assert (again.schedule_uid, again.workflow_id, again.replay_of) == (None, "report", letter.dead_letter_id)


@pytest.mark.req("H-09")
async def test_replaying_all_says_what_became_of_each(desk: Desk) -> None:
    letters = sorted([await desk.failed(), await desk.failed()], key=lambda one: one.dead_letter_id)
    await desk.register("other")
    other = await desk.failed("other")
    await desk.book.delete("other", actor="ada")
    dealt_with = await desk.failed()
    await desk.office.resolve(dealt_with.dead_letter_id, actor="ada")

    done = {one.dead_letter_id: one for one in (await desk.office.replay_all(actor="ada")).items}

    first, second = (done[letter.dead_letter_id] for letter in letters)
    assert (first.became, first.refused) == (Launching.STARTED, None)
    assert second.refused == f"a run of 'report' is under way: {first.run_id}"
    assert done[other.dead_letter_id] == Replayed(
        dead_letter_id=other.dead_letter_id, job="other", refused="there is no job 'other'"
    )
    assert dealt_with.dead_letter_id not in done


async def test_replaying_all_of_a_job_leaves_others_alone(desk: Desk) -> None:
    await desk.register("other")
    await desk.failed("other")
    mine = await desk.failed()

    done = (await desk.office.replay_all(actor="ada", job="report")).items

    assert [one.dead_letter_id for one in done] == [mine.dead_letter_id]


async def test_replaying_all_leaves_alone_what_fails_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.register(overlap="allow")
    letter = await desk.failed()
    launch = desk.store.launch

    async def launched_and_failed(launches: Sequence[Launch], *, now: int) -> Sequence[Launching]:
        became = await launch(launches, now=now)
        await desk.end(launches[0].run.run_id, Result.FAILED)
        return became

    monkeypatch.setattr(desk.store, "launch", launched_and_failed)

    [done] = (await desk.office.replay_all(actor="ada")).items
    assert done.dead_letter_id == letter.dead_letter_id


async def test_many_are_replayed_page_by_page_and_what_fails_again_meanwhile_is_left_alone(desk: Desk) -> None:
    await desk.register(overlap="allow")
    letters = {(await desk.failed()).dead_letter_id for _ in range(5)}
    desk.clock.advance(1000)

    replayed, after = set[str](), None
    while True:
        page = await desk.office.replay_all(actor="ada", after=after, limit=2)
        replayed |= {one.dead_letter_id for one in page.items}
        for one in page.items:
            assert one.run_id is not None
            await desk.end(one.run_id, Result.FAILED)
        if page.after is None:
            break
        after = page.after

    assert replayed == letters


async def test_resolving_says_who_and_when_and_is_done_once(desk: Desk) -> None:
    letter = await desk.failed()

    first = await desk.office.resolve(letter.dead_letter_id, actor="ada")
    second = await desk.office.resolve(letter.dead_letter_id, actor="bob")

    seen = (await desk.office.get(letter.dead_letter_id)).letter
    assert (first, second) == (True, False)
    assert (seen.resolved_by, seen.resolved_at) == ("ada", desk.clock.now())


@pytest.mark.parametrize("act", ["get", "replay", "resolve"])
async def test_a_letter_that_is_not_there_is_not_found(desk: Desk, act: str) -> None:
    actor = {} if act == "get" else {"actor": "ada"}

    with pytest.raises(NotFound, match="there is no dead letter 'dl_none'"):
        await getattr(desk.office, act)("dl_none", **actor)


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_a_page_has_a_size(desk: Desk, limit: int) -> None:
    with pytest.raises(FieldError, match="limit"):
        await desk.office.page(limit=limit)
