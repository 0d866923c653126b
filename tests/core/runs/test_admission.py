"""From waiting to being handed out, and what happens to what is stuck in between."""

import pytest
from msgspec.structs import replace

from gnomon.core.model import Attempt, Result
from gnomon.core.runs.admission import (
    AdmissionRequest,
    GateDecision,
    GateVerdict,
    OutputRelease,
    ReadyTask,
    admission_for,
    check_release,
    launch_failed_admission,
    merged_input,
)
from gnomon.core.runs.outcomes import Assignment, GiveUpLimits
from gnomon.core.runs.reconcile import OpenAttempt, ReconcileTimeouts, overdue_outcome
from gnomon.core.runs.routing import Placement, ReasonCode, Unroutable, tenant_limit_reached
from gnomon.core.runs.states import TRANSITIONS, TaskState, WaitReason
from support.running_assignments import NOW, running_assignment

NOBODY = Unroutable(ReasonCode.NO_WORKERS, "no worker has registered the function 'f'")


def request(assignment: Assignment | None = None, *, given: bytes | None = None) -> AdmissionRequest:
    one = assignment or running_assignment()
    waiting = ReadyTask(task=replace(one.task, state=TaskState.PENDING), run=one.run, input=given)
    given_input = merged_input(one.workflow, one.step, waiting)
    return AdmissionRequest(waiting=waiting, workflow=one.workflow, step=one.step, input=given_input)


def test_an_allowed_and_routable_task_is_scheduled() -> None:
    assert (
        admission_for(request(), GateDecision(GateVerdict.ALLOW), None, now=NOW, limits=GiveUpLimits()).state
        is TaskState.SCHEDULED
    )


@pytest.mark.parametrize("reason", ["", " ", "\n", "\x00\x1b"])
def test_output_that_is_held_back_without_a_readable_reason_is_not_released(reason: str) -> None:
    released = check_release(b"1", OutputRelease(output=b"1", quarantine=reason))

    assert released.quarantine == "the gate gave no reason"


def test_output_that_is_released_has_no_reason() -> None:
    assert check_release(b"1", OutputRelease(output=b"1")).quarantine is None


@pytest.mark.req("R-04")
def test_a_function_that_no_worker_has_is_a_reason_on_the_task() -> None:
    made = admission_for(request(), GateDecision(GateVerdict.ALLOW), NOBODY, now=NOW, limits=GiveUpLimits())

    assert (made.state, made.wait_reason, made.routings) == (TaskState.PENDING, WaitReason.ROUTE, 1)
    assert made.note == "no_workers: no worker has registered the function 'f'"
    assert NOW + 1000 <= made.available_at <= NOW + 1500
    assert made.unroutable_since == NOW


@pytest.mark.req("H-15")
def test_every_try_without_a_worker_says_when_it_was_and_no_wait_for_a_tenant_does() -> None:
    # A task whose last attempt never started waits for a route too, and has not said so yet.
    tried = request(running_assignment(routings=3))
    waits = replace(tried.waiting, task=replace(tried.waiting.task, wait_reason=WaitReason.ROUTE))
    allow, limits = GateDecision(GateVerdict.ALLOW), GiveUpLimits()

    again = admission_for(replace(tried, waiting=waits), allow, NOBODY, now=NOW, limits=limits)
    first = admission_for(tried, allow, NOBODY, now=NOW, limits=limits)
    limited = admission_for(tried, allow, tenant_limit_reached("acme", 1, 0), now=NOW, limits=limits)

    assert (again.unroutable_since, first.unroutable_since, limited.unroutable_since) == (NOW, NOW, None)


@pytest.mark.req("R-04")
def test_after_fifty_tries_it_has_failed_and_leaves_a_dead_letter_whatever_the_job_says() -> None:
    made = admission_for(
        request(running_assignment(routings=49)),
        GateDecision(GateVerdict.ALLOW),
        NOBODY,
        now=NOW,
        limits=GiveUpLimits(),
    )

    assert (made.state, made.dead_letter, made.over) == (TaskState.FAILED, "no_workers", True)


@pytest.mark.req("R-04", "R-11")
@pytest.mark.parametrize("code", sorted(set(ReasonCode) - {ReasonCode.TENANT_LIMIT}))
def test_the_dead_letter_has_the_last_reason_code(code: ReasonCode) -> None:
    last = request(running_assignment(routings=49))

    made = admission_for(
        last, GateDecision(GateVerdict.ALLOW), Unroutable(code, "so it is"), now=NOW, limits=GiveUpLimits()
    )

    assert (made.dead_letter, made.note) == (code, f"{code}: so it is")


@pytest.mark.req("R-11")
def test_at_its_limit_a_tenants_task_waits_and_that_is_not_counted() -> None:
    full = tenant_limit_reached("acme", 10, ahead=0)

    made = admission_for(
        request(running_assignment(routings=49)), GateDecision(GateVerdict.ALLOW), full, now=NOW, limits=GiveUpLimits()
    )

    assert (made.state, made.wait_reason, made.routings) == (TaskState.PENDING, WaitReason.ROUTE, 49)
    assert made.available_at == NOW + 500
    assert made.note == "tenant_limit: tenant 'acme' has 10 tasks in flight, which is its limit"


@pytest.mark.req("R-11")
@pytest.mark.parametrize(("ahead", "after_ms"), [(0, 500), (9, 500), (10, 1000), (95, 5000), (10**6, 30_000)])
def test_the_more_wait_at_the_limit_the_later_each_asks_again(ahead: int, after_ms: int) -> None:
    assert tenant_limit_reached("acme", 10, ahead=ahead).after_ms == after_ms


def test_an_admission_names_its_placement() -> None:
    where = Placement("gpu", -1)

    made = admission_for(request(), GateDecision(GateVerdict.ALLOW), where, now=NOW, limits=GiveUpLimits())

    assert (made.state, made.placement) == (TaskState.SCHEDULED, where)


@pytest.mark.req("C-08")
def test_a_run_whose_workflow_is_missing_is_tried_a_few_times_and_then_fails() -> None:
    waiting = [request(running_assignment(routings=n)).waiting for n in range(3)]
    made = [launch_failed_admission(one, "there is no workflow", now=NOW, limits=GiveUpLimits()) for one in waiting]

    assert [one.state for one in made] == [TaskState.PENDING, TaskState.PENDING, TaskState.FAILED]
    assert made[0].available_at < made[1].available_at
    assert {one.note for one in made} == {"launch_failed: there is no workflow"}


@pytest.mark.parametrize(
    ("ruling", "state"),
    [
        (GateVerdict.ASK, TaskState.APPROVAL_REQUIRED),
        (GateVerdict.DENY, TaskState.DENIED),
        (GateVerdict.LATER, TaskState.PENDING),
        (GateVerdict.ALLOW, TaskState.SCHEDULED),
    ],
)
def test_every_ruling_has_its_state_in_the_table(ruling: GateVerdict, state: TaskState) -> None:
    made = admission_for(request(), GateDecision(ruling, "because", 500), None, now=NOW, limits=GiveUpLimits())

    assert made.state is state
    assert state in TRANSITIONS[TaskState.PENDING]


def test_a_gate_that_says_later_is_asked_again_then() -> None:
    made = admission_for(request(), GateDecision(GateVerdict.LATER, "busy", 500), None, now=NOW, limits=GiveUpLimits())

    assert (made.wait_reason, made.available_at, made.routings) == (WaitReason.POLICY, NOW + 500, 0)


def test_a_step_is_given_the_runs_input_and_its_own() -> None:
    one = running_assignment(input={"a": 1, "b": 1})
    step = replace(one.step, input={"b": 2})

    waiting = ReadyTask(task=one.task, run=one.run)

    assert merged_input(one.workflow, step, waiting) == {"a": 1, "b": 2}
    assert merged_input(one.workflow, step, replace(waiting, input=b'{"c":3}')) == {"c": 3, "b": 2}
    assert merged_input(one.workflow, step, replace(waiting, own_input=b'{"d":4}')) == {"d": 4}


# ---- what is stuck -------------------------------------------------------------------------------


def opened(*, lease_until: int, started_at: int | None, dispatched_at: int = NOW) -> OpenAttempt:
    one = running_assignment()
    attempt = Attempt(
        task_id=one.task.task_id,
        number=1,
        worker="w1",
        lease_until=lease_until,
        dispatched_at=dispatched_at,
        started_at=started_at,
    )
    return OpenAttempt(task=one.task, run=one.run, attempt=attempt)


@pytest.mark.req("R-07")
@pytest.mark.parametrize(
    ("lease_left", "started_ago", "dispatched_ago", "result"),
    [
        (1, 0, 0, None),
        (0, 0, 0, Result.LOST),
        (0, None, 0, Result.NEVER_STARTED),
        (1, None, 60_000, None),
        (1, None, 60_001, Result.NEVER_STARTED),
        (1, 330_000, 330_000, None),
        (1, 330_001, 330_001, Result.TIMED_OUT),
    ],
)
def test_an_attempt_is_given_up_after_its_timeout(
    lease_left: int, started_ago: int | None, dispatched_ago: int, result: Result | None
) -> None:
    started = None if started_ago is None else NOW - started_ago
    found = opened(lease_until=NOW + lease_left, started_at=started, dispatched_at=NOW - dispatched_ago)

    outcome = overdue_outcome(found, running_assignment().workflow, now=NOW, timeouts=ReconcileTimeouts())

    assert (outcome and outcome.result) == result


def test_a_task_may_take_as_long_as_it_says() -> None:
    one = running_assignment()
    patient = replace(one.workflow, steps=(replace(one.step, timeout_ms=10**9),))
    found = opened(lease_until=NOW + 10**6, started_at=NOW - 10**9)

    assert overdue_outcome(found, patient, now=NOW + 30_000, timeouts=ReconcileTimeouts(running_ms=1)) is None
    assert overdue_outcome(found, patient, now=NOW + 30_001, timeouts=ReconcileTimeouts(running_ms=1)) is not None


def test_a_task_that_does_not_say_may_not_take_longer_than_anybody() -> None:
    found = opened(lease_until=NOW + 10**6, started_at=NOW - 1001)

    assert (
        overdue_outcome(found, running_assignment().workflow, now=NOW, timeouts=ReconcileTimeouts(running_ms=1000))
        is not None
    )
