"""The admissions that a dispatcher hands to the worker beside it."""

import pytest

from contracts.store import NOON
from gnomon.core.model import Run, RunId, RunSource, RunStatus, Task, TaskId
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.services.execution.admission_cache import AdmissionCache, NoAdmissionCache
from gnomon.services.execution.local_dispatch import NoTaker
from support.execution import ExecutionHarness
from support.task_steps import admission_request


def request(name: str, *, fence: int = 0) -> AdmissionRequest:
    run = Run(
        run_id=RunId(f"run_{name}"),
        tenant="default",
        schedule_uid=None,
        schedule_id=None,
        workflow_id="report",
        workflow_version=1,
        user_id="ada",
        source=RunSource.MANUAL,
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
    return admission_request(ReadyTask(task=task, run=run))


@pytest.fixture
def admission_cache() -> AdmissionCache:
    return AdmissionCache(most=8)


def test_an_expected_admission_is_cached_until_it_is_taken(admission_cache: AdmissionCache) -> None:
    admission_cache.add_pending([request("a")])

    assert admission_cache.taken(TaskId("a"), 1) == request("a")
    assert admission_cache.taken(TaskId("a"), 1) is None


def test_an_admission_of_an_earlier_attempt_is_not_cached(admission_cache: AdmissionCache) -> None:
    admission_cache.add_pending([request("a")])

    assert admission_cache.taken(TaskId("a"), 3) is None


def test_a_refused_admission_is_removed_from_the_cache(admission_cache: AdmissionCache) -> None:
    admission_cache.add_pending([request("a"), request("b")])
    admission_cache.confirm_written(void=[TaskId("a")])

    assert list(admission_cache) == ["b"]


def test_if_nothing_is_left_to_take_others_have_taken_it(admission_cache: AdmissionCache) -> None:
    admission_cache.add_pending([request("a")])
    admission_cache.confirm_written()
    admission_number = admission_cache.admission_number()
    admission_cache.add_pending([request("b")])
    admission_cache.mark_empty(admission_number)

    assert list(admission_cache) == ["b"]


def test_the_last_taken_task_is_cached_until_it_is_started(admission_cache: AdmissionCache) -> None:
    admission_cache.add_pending([request("a"), request("b")])
    admission_cache.confirm_written()
    admission_cache.mark_empty(admission_cache.admission_number(), [request("b").waiting])

    assert list(admission_cache) == ["b"]


def test_an_admission_in_flight_is_not_evicted(admission_cache: AdmissionCache) -> None:
    admission_cache.add_pending([request("a")])
    admission_cache.mark_empty(admission_cache.admission_number())

    assert list(admission_cache) == ["a"]


def test_a_take_with_an_admission_finds_it_written() -> None:
    admission_cache = AdmissionCache(most=8, sole_dispatcher=True)
    admission_cache.add_pending([request("a")])
    admission_cache.mark_empty(admission_cache.admission_number(along=True))
    admission_cache.confirm_written()

    assert admission_cache.known_empty(admission_cache.admission_number())


def test_a_take_with_one_admission_says_nothing_of_another() -> None:
    admission_cache = AdmissionCache(most=8, sole_dispatcher=True)
    admission_cache.add_pending([request("a")])
    admission_cache.add_pending([request("b")])
    admission_cache.mark_empty(admission_cache.admission_number(along=True))
    admission_cache.confirm_written()
    admission_cache.confirm_written()

    assert not admission_cache.known_empty(admission_cache.admission_number())
    assert list(admission_cache) == ["a", "b"]


def test_it_is_full_long_before_it_forgets(admission_cache: AdmissionCache) -> None:
    admission_cache.add_pending([request(name) for name in "abcd"])

    assert admission_cache.full
    assert len(admission_cache) == 4


def test_more_than_it_can_keep_drives_out_the_oldest(admission_cache: AdmissionCache) -> None:
    admission_cache.add_pending([request(name) for name in "abcdefghij"])

    assert list(admission_cache) == list("cdefghij")


def test_when_most_of_it_is_taken_someone_hears_of_it() -> None:
    heard: list[int] = []

    def on_low() -> None:
        heard.append(len(cache))

    cache = AdmissionCache(most=8, on_low=on_low)
    cache.add_pending([request(name) for name in "abcd"])
    for name in "abcd":
        cache.taken(TaskId(name), 1)

    assert heard == [2]


async def test_a_dispatcher_with_nobody_beside_it_keeps_nothing_and_waits_for_nobody() -> None:
    harness = ExecutionHarness(flags={"execution.batch": 10})
    taker = NoTaker()
    taker.admission_cache = NoAdmissionCache(most=10)
    harness.taker.connect(taker)
    await harness.worker.step()
    job = await harness.job()
    for number in range(30):
        await harness.run(job, f"{number}")

    waits = [await harness.dispatcher.step() for _ in range(3)]

    assert (waits, len(taker.admission_cache)) == ([0.0, 0.0, 0.0], 0)
