"""What a dispatcher tells the worker beside it."""

import pytest

from contracts.store import NOON
from gnomon.core.model import Run, RunId, RunStatus, Source, Task, TaskId
from gnomon.core.runs.admission import Request, Waiting
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.services.execution.admission_cache import Backlog, NobodyBeside
from support.crew import Crewed
from support.labour import asked


def request(name: str, *, fence: int = 0) -> Request:
    run = Run(
        run_id=RunId(f"run_{name}"),
        tenant="default",
        schedule_uid=None,
        schedule_id=None,
        workflow_id="report",
        workflow_version=1,
        user_id="ada",
        source=Source.MANUAL,
        status=RunStatus.PENDING,
        queued=False,
        planned_at=NOON,
        fire_at=NOON,
        created_at=NOON,
    )
    task = Task(
        task_id=TaskId(name),
        tenant="default",
        run_id=run.run_id,
        step="main",
        state=TaskState.PENDING,
        wait_reason=WaitReason.READY,
        available_at=NOON,
        created_at=NOON,
        fence=fence,
    )
    return asked(Waiting(task=task, run=run))


@pytest.fixture
def backlog() -> Backlog:
    return Backlog(most=8)


def test_what_is_expected_is_known_until_it_is_taken(backlog: Backlog) -> None:
    backlog.expect([request("a")])

    assert backlog.taken(TaskId("a"), 1) == request("a")
    assert backlog.taken(TaskId("a"), 1) is None


def test_what_was_tried_since_is_not_known(backlog: Backlog) -> None:
    backlog.expect([request("a")])

    assert backlog.taken(TaskId("a"), 3) is None


def test_what_could_not_be_let_through_is_forgotten(backlog: Backlog) -> None:
    backlog.expect([request("a"), request("b")])
    backlog.written(void=[TaskId("a")])

    assert list(backlog) == ["b"]


def test_if_nothing_is_left_to_take_others_have_taken_it(backlog: Backlog) -> None:
    backlog.expect([request("a")])
    backlog.written()
    moment = backlog.moment()
    backlog.expect([request("b")])
    backlog.none_left(moment)

    assert list(backlog) == ["b"]


def test_what_was_taken_last_is_known_until_it_is_begun(backlog: Backlog) -> None:
    backlog.expect([request("a"), request("b")])
    backlog.written()
    backlog.none_left(backlog.moment(), [request("b").waiting])

    assert list(backlog) == ["b"]


def test_what_is_still_being_written_is_not_given_up(backlog: Backlog) -> None:
    backlog.expect([request("a")])
    backlog.none_left(backlog.moment())

    assert list(backlog) == ["a"]


def test_what_is_taken_along_with_an_admission_finds_it_written(backlog: Backlog) -> None:
    backlog.only_source = True
    backlog.expect([request("a")])
    backlog.none_left(backlog.moment(along=True))
    backlog.written()

    assert backlog.exhausted(backlog.moment())


def test_what_is_taken_along_with_one_admission_says_nothing_of_another(backlog: Backlog) -> None:
    backlog.only_source = True
    backlog.expect([request("a")])
    backlog.expect([request("b")])
    backlog.none_left(backlog.moment(along=True))
    backlog.written()
    backlog.written()

    assert not backlog.exhausted(backlog.moment())
    assert list(backlog) == ["a", "b"]


def test_it_is_full_long_before_it_forgets(backlog: Backlog) -> None:
    backlog.expect([request(name) for name in "abcd"])

    assert backlog.full
    assert len(backlog) == 4


def test_more_than_it_can_keep_drives_out_the_oldest(backlog: Backlog) -> None:
    backlog.expect([request(name) for name in "abcdefghij"])

    assert list(backlog) == list("cdefghij")


def test_when_most_of_it_is_taken_someone_hears_of_it(backlog: Backlog) -> None:
    heard: list[int] = []
    backlog.on_low = lambda: heard.append(len(backlog))
    backlog.expect([request(name) for name in "abcd"])
    for name in "abcd":
        backlog.taken(TaskId(name), 1)

    assert heard == [2]


async def test_a_dispatcher_with_nobody_beside_it_keeps_nothing_and_waits_for_nobody() -> None:
    crew = Crewed(flags={"execution.batch": 10})
    crew.dispatcher.backlog = NobodyBeside(most=10)
    await crew.worker.step()
    job = await crew.job()
    for number in range(30):
        await crew.run(job, f"{number}")

    waits = [await crew.dispatcher.step() for _ in range(3)]

    assert (waits, len(crew.dispatcher.backlog)) == ([0.0, 0.0, 0.0], 0)
