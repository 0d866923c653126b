"""Admission: a PENDING task becomes SCHEDULED if the gate allows it and routing finds a worker, else waits or ends."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.announcements.decide import approval_announcements
from gnomon.core.announcements.model import Announcement, AnnounceRule
from gnomon.core.approvals.decide import asked_approval, exceeding_budget, refusal_note, refused_ruling
from gnomon.core.approvals.model import APPROVAL_EXPIRED, APPROVAL_REJECTED, Approval, ApprovalStatus
from gnomon.core.commands.actions import BUDGET_RULE, refusal_text
from gnomon.core.commands.policy import BUDGET_TEXT
from gnomon.core.model import MINUTE_MS, Run, RunId, ScheduleUid, Task, TaskId
from gnomon.core.named_breakers import BreakerUse
from gnomon.core.policy.budgets import BudgetAnswer, BudgetUse, BudgetWindow, OverBudget, Reservation, reserve
from gnomon.core.policy.ruling import (
    BY_BUDGETS,
    BY_COMMANDS,
    PolicyDecision,
    Ruling,
    over_budget,
    put_off_by_concurrency,
    refused_by_commands,
    ruling_text,
)
from gnomon.core.runs.deadlines import DEADLINE_EXCEEDED, deadline_text
from gnomon.core.runs.failure_kinds import FailureReason, letter_of
from gnomon.core.runs.launch import LaunchRequest
from gnomon.core.runs.outcomes import GiveUpLimits
from gnomon.core.runs.retry import share_of
from gnomon.core.runs.rollback import COMPENSATION_FAILED, is_compensation
from gnomon.core.runs.routing import Placement, Unroutable
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.task_breakers import breaker_use
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import CommandRefused

#: The shortest and the longest time after which a gate may want to be asked again: at once would be a busy loop.
_SHORTEST_LATER_MS, _LONGEST_LATER_MS = 100, 7 * 24 * 60 * MINUTE_MS
#: How many characters of a gate's reason are kept, and how many of a value that it should not have returned.
_LONGEST_REASON, _LONGEST_SHOWN = 500, 60
_NO_REASON = "the gate gave no reason"
_NO_APPROVALS: Mapping[str, Sequence[Approval]] = {}


class ReadyTask(Struct, frozen=True, kw_only=True, gc=False):
    """A pending task that is due."""

    task: Task
    run: Run
    #: The input of the run, as JSON; None if that is the workflow's own input.
    input: bytes | None = None
    #: The input of the task itself with every reference resolved, if that was computed before.
    own_input: bytes | None = None
    #: The attempt (task, fence) whose success creates this task, while that is being written: the admission depends
    #: on it.
    behind: tuple[TaskId, int] | None = None

    def taken_at(self, now: int) -> int:
        """When it is taken, if the taker's time is `now`: not before the end of its last attempt.

        A taker may have looked at its clock before that end was written.
        """
        return max(now, self.task.available_at) if self.task.fence else now


class AdmissionRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A request to the gate: everything that a task is about to do. Secrets in it are still references."""

    waiting: ReadyTask
    workflow: Workflow
    step: Step
    input: Mapping[str, Any]
    #: The input as JSON, if references in it had to be resolved.
    own_input: bytes | None = None
    #: For a step that is asked about before it has items: these items. Its `input` is empty.
    fan_out: "FanOut | None" = None


class GateVerdict(StrEnum):
    """The verdict of a gate."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    #: Not now: ask again later.
    LATER = "later"


class GateDecision(Struct, frozen=True):
    """A gate's answer to one request."""

    verdict: GateVerdict
    reason: str = ""
    #: For LATER: how long to wait before the gate is asked again.
    after_ms: int = 0
    #: The task that the answer is about, if the gate says so; an answer about another task is invalid.
    task_id: TaskId | None = None
    #: For DENY: the rule that refuses it, for metrics.
    rule: str = "gate"
    #: For ALLOW: how many actions of its tenant may count within an hour, this one included; None: it does not count.
    action_limit: int | None = None
    #: The ruling of the policy that it follows from; the transaction that acts on the decision writes it down.
    ruling: Ruling | None = None
    #: For ASK about all items of a step: the digest of the request of each, one after another.
    item_digests: bytes = b""


class OutputRelease(Struct, frozen=True, kw_only=True):
    """The decision of a gate on the output of a task."""

    #: The output to store: the task's own, or another one in its place.
    output: bytes | None
    #: The reason for holding the output back; None if it is released.
    quarantine: str | None = None


def check_decision(request: AdmissionRequest, answer: object) -> GateDecision:
    """The answer, with a reason that a store can keep; ValueError if it is no valid answer to the request."""
    if not isinstance(answer, GateDecision):
        raise ValueError(f"it returned {type(answer).__name__}, not a decision")  # noqa: TRY004 - an invalid answer
    if problem := _decision_problem(request, answer):
        raise ValueError(problem)
    reason = clean_reason(answer.reason)
    after_ms = max(answer.after_ms, _SHORTEST_LATER_MS) if answer.verdict is GateVerdict.LATER else answer.after_ms
    if reason == answer.reason and after_ms == answer.after_ms:
        return answer
    return replace(answer, reason=reason, after_ms=after_ms)


def _decision_problem(request: AdmissionRequest, answer: GateDecision) -> str | None:
    """Why a decision is invalid. Its fields may hold objects of any type."""
    if not isinstance(answer.verdict, GateVerdict):
        return f"it returned the unknown verdict {_shown(answer.verdict)}"
    if not isinstance(answer.reason, str):
        return f"it returned a reason of type {type(answer.reason).__name__}"
    if type(answer.after_ms) is not int or not 0 <= answer.after_ms <= _LONGEST_LATER_MS:
        return f"it returned a delay of {_shown(answer.after_ms)} ms"
    if answer.task_id not in (None, request.waiting.task.task_id):
        return f"it answered about the task {_shown(answer.task_id)}"
    if answer.action_limit is not None and (type(answer.action_limit) is not int or answer.action_limit < 0):
        return f"it returned a limit of {_shown(answer.action_limit)} actions"
    return _rule_problem(answer)


def _rule_problem(answer: GateDecision) -> str | None:
    if type(answer.item_digests) is not bytes:
        return f"it returned digests of items of type {type(answer.item_digests).__name__}"
    if answer.ruling is not None and not isinstance(answer.ruling, Ruling):
        return f"it returned a ruling of type {type(answer.ruling).__name__}"
    if answer.ruling is not None and answer.ruling.allows != (answer.verdict is GateVerdict.ALLOW):
        return f"it returned a ruling that contradicts its verdict: {_shown(answer.ruling.decision)}"
    return None if isinstance(answer.rule, str) else f"it returned a rule of type {type(answer.rule).__name__}"


def check_release(output: bytes | None, answer: object) -> OutputRelease:
    """The answer, with a reason that a store can keep; ValueError if it is no valid answer about the output."""
    if type(answer) is OutputRelease and answer.output is output and answer.quarantine is None:
        return answer
    if not isinstance(answer, OutputRelease):
        raise ValueError(f"it returned {type(answer).__name__}, not a release")  # noqa: TRY004 - an invalid answer
    if problem := _release_problem(output, answer):
        raise ValueError(problem)
    if answer.quarantine is None:
        return answer
    # A reason without any printable character still holds the output back.
    return replace(answer, quarantine=clean_reason(answer.quarantine) or _NO_REASON)


def _release_problem(output: bytes | None, answer: OutputRelease) -> str | None:
    """Why a release is invalid. Its fields may hold objects of any type."""
    if not isinstance(answer.quarantine, str | None):
        return f"it returned a quarantine of type {type(answer.quarantine).__name__}"
    if answer.output is output or answer.output is None:
        return None
    if not isinstance(answer.output, bytes):
        return f"it returned an output of type {type(answer.output).__name__}"
    try:
        msgspec.json.decode(answer.output)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "it returned an output that is not JSON"
    return None


def clean_reason(reason: str) -> str:
    """The reason as one line of bounded length, without characters that a store or a terminal cannot take."""
    if not reason:
        return reason
    printable = "".join(char if char.isprintable() else " " for char in reason[:_LONGEST_REASON])
    line = " ".join(printable.split())
    return line if len(reason) <= _LONGEST_REASON else f"{line}…"


def _shown(value: object) -> str:
    return clean_reason(repr(value)[:_LONGEST_SHOWN])


class Admission(Struct, frozen=True, kw_only=True, gc=False):
    """The next state of a waiting task; the store applies it only if the task still waits."""

    task_id: TaskId
    run_id: RunId
    schedule_uid: ScheduleUid | None
    state: TaskState
    wait_reason: WaitReason = WaitReason.READY
    available_at: int
    routings: int
    #: The fence of its last attempt when it was read: a task attempted since then has moved on. None: not checked.
    fence: int | None = None
    #: Applied only if this attempt succeeded, because the input may hold its output. None: not checked.
    behind: tuple[TaskId, int] | None = None
    note: str | None = None
    dead_letter: str | None = None
    #: The workflow with which its run continues; None if the run has no other task.
    graph: Workflow | None = None
    #: The rules by which the end of its run is announced, if that has no other task.
    announce: tuple[AnnounceRule, ...] = ()
    #: The input of the task itself, to be stored.
    own_input: bytes | None = None
    #: The task does not run.
    skipped: bool = False
    #: If no worker was found: now. The store keeps the first such time since the last attempt.
    unroutable_since: int | None = None
    #: Where a SCHEDULED task waits for a worker; None for the default placement.
    placement: Placement | None = None
    #: Its tenant, and how many of its tasks may be in flight at once; None: any number.
    tenant_limit: tuple[str, int] | None = None
    #: Its tenant, and how many actions of that may count within an hour, this one included; None: it does not count.
    action_limit: tuple[str, int] | None = None
    #: The breaker that must let it start; None: its step names none.
    breaker: BreakerUse | None = None
    #: The rule of the policy of commands that denies it; or its topic, if the policy of tasks does.
    rule: str | None = None
    topic: str | None = None
    #: The ruling that it follows from.
    ruling: Ruling | None = None
    #: For APPROVAL_REQUIRED: what the task asks for, and how that is announced.
    approval: Approval | None = None
    announcements: tuple[Announcement, ...] = ()
    #: The gate was asked again, and asks for no approval: one that still waits is void.
    voids_approval: bool = False
    #: The task itself, if a budget of the policy may ask people about it.
    waiting: ReadyTask | None = None

    @property
    def may_be_denied(self) -> bool:
        """Whether a budget of the policy may deny it in the transaction that would admit it."""
        return any(use.over is OverBudget.DENY for use in _budgets_of(self))

    @property
    def over(self) -> bool:
        """Whether this admission ends the task."""
        return self.state in TERMINAL


class FanOut(Struct, frozen=True, kw_only=True):
    """A task that no worker runs: it waits for its items or for another run, or is done at once."""

    task_id: TaskId
    run_id: RunId
    schedule_uid: ScheduleUid | None
    fence: int
    graph: Workflow
    #: The input of each item, as JSON. If it undoes a step with items: the item itself; empty if nothing refers to it.
    items: tuple[bytes, ...] = ()
    #: The ruling that lets the step have its items, if the gate was asked about them.
    ruling: Ruling | None = None
    #: The step that it undoes: the store knows which items and runs of that there are to undo.
    undoes: str | None = None
    #: How many items may run at once.
    limit: int | None = None
    launch: LaunchRequest | None = None
    #: Its output, if it is done at once.
    output: bytes | None = None
    #: The run at the top, and how many tasks of its sub-runs this adds.
    root: RunId = RunId("")
    sub_run_tasks: int = 0

    @property
    def rows(self) -> int:
        """How many tasks it writes."""
        return len(self.items) + (0 if self.launch is None else len(self.launch.first_steps))


class FanOutResult(NamedTuple):
    """The tasks of fan-outs that were started, and those whose sub-runs would have had too many tasks."""

    started: frozenset[TaskId]
    over_limit: frozenset[TaskId] = frozenset()


def merged_input(workflow: Workflow, step: Step, waiting: ReadyTask) -> dict[str, Any]:
    """The input of a step: the input of its run, and the fields that the step adds.

    References are left unresolved, unless they were resolved for this task before.
    """
    if waiting.own_input is not None:
        own: dict[str, Any] = msgspec.json.decode(waiting.own_input)
        return own
    base = run_input(workflow, waiting)
    return base | step.input if step.input else base


def run_input(workflow: Workflow, waiting: ReadyTask) -> dict[str, Any]:
    """The input of the run: its own, or else the workflow's."""
    own: dict[str, Any] = workflow.input if waiting.input is None else msgspec.json.decode(waiting.input)
    return own


def stored_run_input(given: bytes | None, workflow: Workflow | None) -> bytes | None:
    """The input of a run as JSON, whatever becomes of its workflow later; None if it has none."""
    if given is not None or workflow is None or not workflow.input:
        return given
    return msgspec.json.encode(workflow.input)


def admission_for(
    request: AdmissionRequest,
    decision: GateDecision,
    where: Placement | Unroutable | None,
    *,
    now: int,
    limits: GiveUpLimits,
) -> Admission:
    """The admission of a task by the decision of the gate. `where` is None for the default placement."""
    made = _admission_by_verdict(request, decision, where, now, limits)
    if request.workflow.is_single_step and request.own_input is None and not request.workflow.announce:
        return made
    return replace(made, **_workflow_fields(request.workflow), own_input=request.own_input)


def _admission_by_verdict(
    request: AdmissionRequest,
    decision: GateDecision,
    where: Placement | Unroutable | None,
    now: int,
    limits: GiveUpLimits,
) -> Admission:
    waiting = request.waiting
    match decision.verdict:
        case GateVerdict.ALLOW:
            if isinstance(where, Unroutable):
                return _unroutable_admission(waiting, where, now, limits)
            made = _admission(waiting, TaskState.SCHEDULED, now)
            if decision.action_limit is not None:
                made = replace(made, action_limit=(waiting.run.tenant, decision.action_limit))
            made = made if where is None else replace(made, placement=where)
            use = breaker_use(request.step, waiting.run, waiting.task.task_id, waiting.task.fence + 1)
            made = made if use is None else replace(made, breaker=use)
            if decision.ruling is not None and decision.ruling.budgets:
                # A budget may still deny it, or ask people.
                asks = any(use.over is OverBudget.REQUIRE_APPROVAL for use in decision.ruling.budgets)
                made = replace(made, topic=request.step.topic, waiting=waiting if asks else None)
        case GateVerdict.ASK:
            made = _admission(waiting, TaskState.APPROVAL_REQUIRED, now, note=decision.reason)
            if decision.ruling is not None:
                asked = asked_approval(
                    waiting.task, waiting.run, decision.ruling, now=now, item_digests=decision.item_digests
                )
                announced = approval_announcements(waiting.run, request.workflow.announce, asked, at=now)
                made = replace(made, approval=asked, announcements=tuple(announced))
        case GateVerdict.DENY:
            made = _denied_admission(request, decision, now)
        case GateVerdict.LATER:
            later = now + decision.after_ms
            made = _admission(waiting, TaskState.PENDING, later, wait_reason=WaitReason.POLICY, note=decision.reason)
        case _:
            assert_never(decision.verdict)
    if decision.ruling is None:
        return made
    asked_again = waiting.task.wait_reason is WaitReason.POLICY and decision.verdict is not GateVerdict.ASK
    return replace(made, ruling=decision.ruling, voids_approval=asked_again)


def _denied_admission(request: AdmissionRequest, decision: GateDecision, now: int) -> Admission:
    waiting, ruling = request.waiting, decision.ruling
    if ruling is not None and ruling.ruled_by != BY_COMMANDS:
        denied = _admission(waiting, TaskState.DENIED, now, note=decision.reason, dead_letter=ruling.code)
        return replace(denied, topic=request.step.topic)
    note = refusal_text(decision.reason)
    denied = _admission(waiting, TaskState.DENIED, now, note=note, dead_letter=CommandRefused.code)
    return replace(denied, rule=decision.rule)


def refused_admission(task: Task, run: Run, workflow: Workflow | None, approval: Approval, *, now: int) -> Admission:
    """The end of a task that was rejected, or that nobody approved in time."""
    expired = approval.status is ApprovalStatus.EXPIRED
    request = approval.request
    note = refusal_note(approval)
    code = APPROVAL_EXPIRED if expired else APPROVAL_REJECTED
    made = Admission(
        task_id=task.task_id,
        run_id=task.run_id,
        schedule_uid=run.schedule_uid,
        state=TaskState.DENIED,
        available_at=now,
        routings=task.routings,
        note=note,
        dead_letter=code,
    )
    if request is not None:
        made = replace(made, ruling=refused_ruling(request, note, code))
    return made if workflow is None else replace(made, **_workflow_fields(workflow))


def approved_meanwhile(one: Admission, now: int) -> Admission:
    """The admission of a task for which the last vote has come since the gate looked: the gate is asked again."""
    return replace(
        one,
        state=TaskState.PENDING,
        wait_reason=WaitReason.POLICY,
        available_at=now,
        note=None,
        ruling=None,
        approval=None,
        announcements=(),
    )


def reopened_wait(version: int) -> str:
    """The note of a task that is asked about again, because there is a new policy."""
    return f"policy {version} is in force: its approval is looked at again"


def as_admitted(one: Admission, request: AdmissionRequest) -> AdmissionRequest:
    """The request whose task has the limits that its admission sets."""
    limits = None if one.ruling is None else one.ruling.limits
    task = request.waiting.task
    if one.ruling is None or task.constraints == limits:
        return request
    return replace(request, waiting=replace(request.waiting, task=replace(task, constraints=limits)))


def exhausted_admission(one: Admission) -> Admission:
    """The denial of a task whose admission would exceed the budget of its tenant."""
    return replace(
        one,
        state=TaskState.DENIED,
        note=refusal_text(BUDGET_TEXT),
        dead_letter=CommandRefused.code,
        rule=BUDGET_RULE,
        placement=None,
        action_limit=None,
        ruling=None if one.ruling is None else refused_by_commands(one.ruling, BUDGET_RULE, BUDGET_TEXT),
    )


def within_action_limits(admissions: Sequence[Admission], spent: Mapping[str, int]) -> list[Admission]:
    """The admissions in their order, with denials for those beyond the budget of their tenant.

    `spent` is the number of actions of each tenant that count already.
    """
    counted = Counter(spent)
    ruled: list[Admission] = []
    for one in admissions:
        if one.action_limit is not None:
            tenant, limit = one.action_limit
            if counted[tenant] >= limit:
                ruled.append(exhausted_admission(one))
                continue
            counted[tenant] += 1
        ruled.append(one)
    return ruled


def limited_rules(admissions: Iterable[Admission]) -> list[str]:
    """The rules of the policy that limit how many of their tasks may be in flight at once."""
    found = (one.ruling for one in admissions)
    return sorted({one.rule for one in found if one is not None and _most_in_flight(one) is not None})


def within_concurrency(admissions: Sequence[Admission], in_flight: Mapping[str, int], *, now: int) -> list[Admission]:
    """The admissions in their order; those beyond the `max_concurrent` of their rule are put off.

    `in_flight` is the number of tasks that each rule has let run, and that have not ended.
    """
    counted = Counter(in_flight)
    ruled: list[Admission] = []
    for one in admissions:
        ruling = one.ruling
        most = None if ruling is None else _most_in_flight(ruling)
        if ruling is None or most is None or one.state is not TaskState.SCHEDULED:
            ruled.append(one)
        elif counted[ruling.rule] < most:
            counted[ruling.rule] += 1
            ruled.append(one)
        else:
            ruled.append(_put_off(one, put_off_by_concurrency(ruling, most), now))
    return ruled


def _most_in_flight(ruling: Ruling) -> int | None:
    return None if ruling.constraints is None else ruling.constraints.max_concurrent


def _put_off(one: Admission, ruling: Ruling, now: int) -> Admission:
    """The admission of a task that the policy throttles in the transaction that would admit it."""
    return replace(
        one,
        state=TaskState.PENDING,
        wait_reason=WaitReason.POLICY,
        available_at=now + max(ruling.retry_after_ms, _SHORTEST_LATER_MS),
        note=ruling_text(ruling),
        placement=None,
        tenant_limit=None,
        action_limit=None,
        ruling=ruling,
    )


def budget_uses(admissions: Iterable[Admission]) -> list[BudgetUse]:
    """The uses of budgets by tasks that these admissions would let start."""
    return [use for one in admissions for use in _budgets_of(one)]


def _budgets_of(one: Admission) -> tuple[BudgetUse, ...]:
    return one.ruling.budgets if one.ruling is not None and one.state is TaskState.SCHEDULED else ()


def within_policy_budgets(
    admissions: Sequence[Admission],
    known: Mapping[str, BudgetWindow],
    *,
    now: int,
    approvals: Mapping[str, Sequence[Approval]] = _NO_APPROVALS,
) -> tuple[list[Admission], dict[str, BudgetWindow], dict[TaskId, tuple[Reservation, ...]]]:
    """The admissions in their order, the windows after them, and what each task has reserved.

    Tasks for which a budget has not enough left are put off or denied, or ask people, as the budget says. `approvals`
    are those of tasks that have asked before.
    """
    windows, ruled = dict(known), list[Admission]()
    made: dict[TaskId, tuple[Reservation, ...]] = {}
    for one in admissions:
        after, answer = _within_its_budgets(one, windows, approvals.get(one.task_id, ()), now)
        windows = answer.windows
        if answer.reservations:
            made[one.task_id] = answer.reservations
        ruled.append(after)
    return ruled, windows, made


def _within_its_budgets(
    one: Admission, windows: Mapping[str, BudgetWindow], approvals: Sequence[Approval], now: int
) -> tuple[Admission, BudgetAnswer]:
    """The admission after its budgets, and their answer."""
    uses, beyond = _budgets_of(one), list[str]()
    after = one
    while True:
        answer = reserve(uses, windows, now=now, beyond=beyond)
        short = answer.shortage
        if after.ruling is None or one.ruling is None or short is None:
            return after, answer
        ruling = over_budget(one.ruling, short, now=now)
        if ruling.decision is not PolicyDecision.REQUIRE_APPROVAL:
            put_off = _put_off(one, ruling, now)
            throttled = ruling.decision is PolicyDecision.THROTTLE
            return put_off if throttled else _denied_after_all(put_off, now), answer
        asking = _asking(one, ruling, now)
        granted = next((it for it in approvals if it.status is ApprovalStatus.APPROVED and _same(it, asking)), None)
        if granted is None:
            return asking, answer
        beyond.append(short.use.budget)
        after = replace(after, ruling=exceeding_budget(after.ruling, granted, short.use.budget))


def _same(approval: Approval, asking: Admission) -> bool:
    return asking.approval is not None and approval.digest == asking.approval.digest


def _asking(one: Admission, ruling: Ruling, now: int) -> Admission:
    """The admission of a task that asks people whether it may exceed a budget."""
    assert one.waiting is not None, "a budget that may ask comes with the task"  # noqa: S101 - tells the type checker
    asked = asked_approval(one.waiting.task, one.waiting.run, ruling, now=now)
    if asked.request is not None:
        # A rule of the policy may have the same name.
        asked = replace(asked, request=replace(asked.request, rule=f"budget {ruling.rule}"))
    put_off = _put_off(one, ruling, now)
    return replace(
        put_off,
        state=TaskState.APPROVAL_REQUIRED,
        wait_reason=WaitReason.READY,
        available_at=now,
        approval=asked,
        announcements=tuple(approval_announcements(one.waiting.run, one.announce, asked, at=now)),
        voids_approval=False,
    )


def asks_over_budget(ruled: Iterable[Admission]) -> list[TaskId]:
    """The tasks that ask people because of a budget."""
    return [one.task_id for one in ruled if one.approval is not None and _ruled_by_budget(one)]


def _ruled_by_budget(one: Admission) -> bool:
    return one.ruling is not None and one.ruling.ruled_by == BY_BUDGETS


def _denied_after_all(one: Admission, now: int) -> Admission:
    """The admission of a task that the policy denies in the transaction that would admit it."""
    letter = None if one.ruling is None else one.ruling.code
    return replace(
        one, state=TaskState.DENIED, wait_reason=WaitReason.READY, available_at=now, dead_letter=letter, breaker=None
    )


def breaker_uses(admissions: Iterable[Admission]) -> list[tuple[TaskId, BreakerUse]]:
    """The uses of breakers by tasks that these admissions would let start."""
    return [
        (one.task_id, one.breaker) for one in admissions if one.breaker is not None and one.state is TaskState.SCHEDULED
    ]


def held_by_breaker(one: Admission, at: int, why: str) -> Admission:
    """The admission of a task that waits for its breaker until it asks again."""
    return replace(
        one,
        state=TaskState.PENDING,
        wait_reason=WaitReason.BREAKER,
        available_at=at,
        note=why,
        placement=None,
        tenant_limit=None,
        action_limit=None,
        breaker=None,
        ruling=None,
    )


def delayed_admission(waiting: ReadyTask, workflow: Workflow, until: int) -> Admission:
    """The admission of a task that starts later."""
    made = _admission(waiting, TaskState.PENDING, until, wait_reason=WaitReason.DELAY)
    return replace(made, **_workflow_fields(workflow))


def skipped_admission(waiting: ReadyTask, workflow: Workflow, reason: str, *, now: int) -> Admission:
    """The admission of a task that does not run because its condition does not hold."""
    made = _admission(waiting, TaskState.CANCELLED, now, note=reason)
    return replace(made, **_workflow_fields(workflow), skipped=True)


def bad_input_admission(waiting: ReadyTask, workflow: Workflow, reason: str, *, now: int) -> Admission:
    """The admission of a task that can never run, because its input cannot be resolved."""
    letter = letter_of(FailureReason.BAD_INPUT, asked=workflow.dead_letter)
    if is_compensation(waiting.task.step):
        letter = COMPENSATION_FAILED
    made = _admission(waiting, TaskState.FAILED, now, note=reason, dead_letter=letter)
    return replace(made, **_workflow_fields(workflow))


def too_many_sub_run_tasks(waiting: ReadyTask, fan_out: FanOut, most: int, *, now: int) -> Admission:
    """The end of a task that may not be started: the sub-runs of its run at the top would have too many tasks."""
    reason = (
        f"bad_input: it adds {fan_out.sub_run_tasks} tasks, and the sub-runs of execution {fan_out.root} may have"
        f" {most} together (execution.max_sub_run_tasks)"
    )
    return bad_input_admission(waiting, fan_out.graph, reason, now=now)


def overdue_admission(waiting: ReadyTask, workflow: Workflow, *, now: int) -> Admission:
    """The admission of a task whose deadline has passed: it ends."""
    note = f"{deadline_text(waiting.task.deadline_at or now)} before it could begin"
    made = _admission(waiting, TaskState.TIMEOUT, now, note=note, dead_letter=DEADLINE_EXCEEDED)
    return replace(made, **_workflow_fields(workflow))


def _workflow_fields(workflow: Workflow) -> dict[str, Any]:
    """The fields of an admission that follow from its workflow."""
    return {"graph": None if workflow.is_single_step else workflow, "announce": workflow.announce}


def launch_failed_admission(
    waiting: ReadyTask, reason: str, *, now: int, limits: GiveUpLimits, workflow: Workflow | None = None
) -> Admission:
    """The admission of a task whose definition cannot be loaded: it is retried a few times, then it fails.

    `workflow` is that of its run, if that can be loaded; if not, the run fails with the task.
    """
    made = _retry_or_fail(
        waiting, f"launch_failed: {reason}", now, limits, most=limits.launches, letter=FailureReason.LAUNCH_FAILED.value
    )
    return made if workflow is None else replace(made, **_workflow_fields(workflow))


def _unroutable_admission(waiting: ReadyTask, why: Unroutable, now: int, limits: GiveUpLimits) -> Admission:
    if why.after_ms is not None:
        # Tasks over a tenant's limit wait; they never fail.
        later = now + why.after_ms
        return _admission(waiting, TaskState.PENDING, later, wait_reason=WaitReason.ROUTE, note=str(why))
    made = _retry_or_fail(waiting, str(why), now, limits, most=limits.routings, letter=why.code.value)
    return made if made.over else replace(made, unroutable_since=now)


def _retry_or_fail(
    waiting: ReadyTask, reason: str, now: int, limits: GiveUpLimits, *, most: int, letter: str
) -> Admission:
    tries = waiting.task.routings + 1
    if tries >= most:
        return _admission(waiting, TaskState.FAILED, now, routings=tries, note=reason, dead_letter=letter)
    later = now + limits.routing_delay_ms(tries - 1, share_of(waiting.task.task_id, tries))
    return _admission(waiting, TaskState.PENDING, later, wait_reason=WaitReason.ROUTE, routings=tries, note=reason)


def _admission(
    waiting: ReadyTask,
    state: TaskState,
    available_at: int,
    *,
    wait_reason: WaitReason = WaitReason.READY,
    routings: int | None = None,
    note: str | None = None,
    dead_letter: str | None = None,
) -> Admission:
    task = waiting.task
    return Admission(
        task_id=task.task_id,
        run_id=task.run_id,
        schedule_uid=waiting.run.schedule_uid,
        state=state,
        wait_reason=wait_reason,
        available_at=available_at,
        routings=task.routings if routings is None else routings,
        fence=task.fence,
        behind=waiting.behind,
        note=note,
        dead_letter=dead_letter,
    )
