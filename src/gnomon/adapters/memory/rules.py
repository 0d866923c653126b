"""The rules of the store in memory that several of its parts share: how runs start, continue and end."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.state import MemoryTables, UsageRow
from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.sessions import MOST_TURNS, StoredTurn
from gnomon.core.announcements.decide import (
    counts_failures,
    end_of_held_run,
    run_announcements,
    streak_key,
    tick_announcements,
    tick_moment,
)
from gnomon.core.announcements.model import Announcement, AnnounceRule
from gnomon.core.approvals.decide import (
    BY_POLICY_CHANGE,
    BY_TASK_END,
    ENDED_NOTE,
    UNASKED_NOTE,
    ask_about_task,
    voided,
)
from gnomon.core.approvals.model import Approval, ApprovalStatus
from gnomon.core.audit import output_held_entry, resolved_entry
from gnomon.core.breakers import BreakerState
from gnomon.core.commands.actions import ACTION_WINDOW_MS, refusal_after
from gnomon.core.ids import run_id, task_id, undone_task_id
from gnomon.core.ledger.edits import SYSTEM_ACTOR, paused_schedule, verdict_before_edit
from gnomon.core.ledger.plan import run_record, schedule_after, superseded_run, tick_record, unchanged
from gnomon.core.model import (
    ENGINE,
    Decision,
    Result,
    Run,
    RunId,
    RunSource,
    RunStatus,
    Schedule,
    ScheduleUid,
    Task,
    TaskId,
    TickStatus,
    TickVerdict,
)
from gnomon.core.named_breakers import NamedBreaker, change_between
from gnomon.core.output_policy.late import is_under_way, steps_to_decide_again
from gnomon.core.output_policy.records import output_record
from gnomon.core.policy.budgets import settle, spent_of
from gnomon.core.policy.ruling import Ruling, rule_of, stored_ruling
from gnomon.core.runs.admission import (
    Admission,
    breaker_uses,
    budget_uses,
    held_by_breaker,
    stored_run_input,
    within_action_limits,
    within_policy_budgets,
)
from gnomon.core.runs.advance import RunAdvance, advance_run, never_run, released, rolled_back
from gnomon.core.runs.dag import ItemTotals, items_outcome, run_outcome, undone_runs_outcome
from gnomon.core.runs.deadlines import OverdueEnd, first_spans
from gnomon.core.runs.launch import (
    LaunchOutcome,
    LaunchRequest,
    advance_queue,
    decide_launch,
    first_tasks,
    sub_run_id,
    sub_run_ids,
)
from gnomon.core.runs.outcomes import (
    FAILURES,
    Assignment,
    AttemptOutcome,
    GiveUpLimits,
    TaskCompletion,
    cancel_instead_of_retry,
    complete_attempt,
    costs_nothing,
    dead_letter,
    outcome_by_deadline,
    run_error,
    run_status,
    tick_status,
)
from gnomon.core.runs.progress import AttemptProgress, ends_with_kept_log
from gnomon.core.runs.rollback import (
    COMPENSATION_UNREADABLE,
    UNDOABLE,
    RollbackStatus,
    UndoFact,
    is_compensation,
    items_to_undo,
    undo_fact,
    undone_step,
)
from gnomon.core.runs.states import ASSIGNED, TERMINAL, WAITING, TaskState, WaitReason, check_transition
from gnomon.core.runs.task_breakers import ask_for_tasks, gone_probes, record_ends, without_probes
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.core.worker_ids import may_hold
from gnomon.ports.schedules import Pause, Revision
from gnomon.ports.tasks import AttemptRef

#: A task in these states is with a worker, or about to be.
_IN_FLIGHT = (TaskState.SCHEDULED, TaskState.DISPATCHED, TaskState.RUNNING)


class MemoryRules:
    """Changes of the shared state that concern several tables."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    def after_task_end(self, ended: TaskCompletion | Admission | OverdueEnd, error: str | None, now: int) -> None:
        """Write the dead letter of a task that ended, and let its graph or run go on."""
        state = self._state
        task, run = state.tasks[ended.task_id], state.runs[ended.run_id]
        if ended.dead_letter is not None:
            self._write_letter(task, run, ended.dead_letter, error, now)
        if task.parent is not None and ended.graph is not None:
            self.count_ended_item(task, ended.graph, now)
        elif ended.graph is None:
            self.end_run(run, run_status(task.state), error, now, announce=ended.announce)
        else:
            self.advance(run, ended.graph, now)

    def _write_letter(self, task: Task, run: Run, reason: str, error: str | None, now: int) -> None:
        state = self._state
        attempts = [attempt for held, attempt in state.attempts.items() if held[0] == task.task_id]
        given = stored_run_input(state.payloads.get((run.run_id, "input")), self.workflow_of(run))
        made = dead_letter(task, run, attempts, reason, error, given, now=now)
        state.dead_letters.setdefault(made.dead_letter_id, made)

    # ---- rulings -----------------------------------------------------------------------------

    def write_ruling(self, task_id: TaskId, run_id: RunId, ruling: Ruling, now: int) -> None:
        """Write down a ruling about a task. A plain permission needs only the task itself."""
        state = self._state
        if ruling.allows:
            state.permissions[task_id] = ruling.rule_text, ruling.digest
            state.tasks[task_id] = replace(state.tasks[task_id], constraints=ruling.limits)
        if ruling.plain:
            return
        rows = state.rulings.setdefault(task_id, [])
        made = stored_ruling(ruling, task_id, run_id, rows[-1] if rows else None, now=now)
        rows[made.number - 1 :] = [made]

    # ---- approvals ---------------------------------------------------------------------------

    def approvals_of(self, task_id: TaskId) -> list[Approval]:
        """The approvals for which the task has asked, in the order in which it has."""
        found = (one for one in self._state.approvals.values() if one.request and one.request.task_id == task_id)
        return sorted(found, key=lambda one: one.approval_id)

    def ask_for(self, asked: Approval, announced: Sequence[Announcement], now: int) -> bool:
        """Add the approval for which a task asks; return whether it is approved already, and so need not wait."""
        earlier = [] if asked.request is None else self.approvals_of(asked.request.task_id)
        outcome = ask_about_task(earlier, asked, now=now)
        for one in (*outcome.void, *filter(None, (outcome.kept, outcome.added))):
            self._state.approvals[one.approval_id] = one
        if outcome.added is not None:
            self._add_announcements(announced)
        return outcome.kept is not None and outcome.kept.status is ApprovalStatus.APPROVED

    def void_approvals(self, task_id: TaskId, now: int, note: str = ENDED_NOTE, *, by: str = BY_TASK_END) -> None:
        """Make the waiting approvals of a task void: by default because it has ended in another way."""
        for one in self.approvals_of(task_id):
            if one.status is ApprovalStatus.WAITING:
                self._state.approvals[one.approval_id] = voided(one, note, by=by, now=now)

    def void_unasked(self, task_id: TaskId, now: int) -> None:
        """Make the waiting approvals of a task void for which the gate does not ask any more."""
        self.void_approvals(task_id, now, UNASKED_NOTE, by=BY_POLICY_CHANGE)

    def in_flight_by_rule(self) -> Mapping[str, int]:
        """The number of constrained tasks that each rule has let run, and that have not ended."""
        state = self._state
        going = (
            task for task in state.tasks.live.values() if task.state in _IN_FLIGHT and task.constraints is not None
        )
        return Counter(rule_of(state.permissions[task.task_id][0]) for task in going)

    # ---- breakers ----------------------------------------------------------------------------

    def within_breaker(self, one: Admission, now: int) -> Admission:
        """The admission; it is held if its breaker does not let the task start."""
        uses = breaker_uses([one])
        if not uses:
            return one
        state = self._state
        tasks = {task.task_id: (task.state, task.fence) for task in state.tasks.live.values()}
        known = {
            use.key: without_probes(named, gone_probes(named, tasks))
            for _, use in uses
            if (named := state.breakers.get(use.key)) is not None
        }
        asked = ask_for_tasks(uses, known, now=now)
        for named in asked.breakers.values():
            self.set_breaker(named, now)
        held = asked.waiting.get(one.task_id)
        return one if held is None else held_by_breaker(one, *held)

    def _record_attempt(self, one: TaskCompletion) -> None:
        """Record the end of an attempt with its breaker."""
        if one.breaker is not None:
            key = one.breaker.key
            known = {key: self._state.breakers[key]} if key in self._state.breakers else {}
            self.set_breaker(record_ends([(one.breaker, one)], known)[key], one.ended_at)

    def set_breaker(self, named: NamedBreaker, now: int) -> None:
        """Keep the breaker. The tasks that wait for one that has closed ask at once."""
        state = self._state
        before = state.breakers.get(named.key)
        state.breakers[named.key] = named
        change = change_between(before, named, now=now)
        if change is None or change.state is not BreakerState.CLOSED:
            return
        for task in list(state.tasks.live.values()):
            held = task.state is TaskState.PENDING and task.wait_reason is WaitReason.BREAKER
            if held and task.tenant == named.tenant:
                state.tasks[task.task_id] = replace(task, available_at=now)

    # ---- budgets of the policy ---------------------------------------------------------------

    def reserve_budgets(self, task: Task, one: Admission, now: int) -> Admission:
        """Reserve what the task uses; if a budget has not enough left, it waits, asks or is denied."""
        if not budget_uses([one]):
            return one
        state = self._state
        # A task that was recalled, and is admitted again, reserves once.
        self._settle_budgets((task.task_id, task.fence + 1), None, ran=False)
        earlier: dict[str, Sequence[Approval]] = {task.task_id: self.approvals_of(task.task_id)}
        [ruled], windows, made = within_policy_budgets([one], state.budget_windows, now=now, approvals=earlier)
        state.budget_windows.update(windows)
        ends = {use.window_id(now): use.window_at(now) + use.per_ms for use in budget_uses([one])}
        state.budget_ends.update(ends)
        if made:
            state.reservations[task.task_id, task.fence + 1] = made[task.task_id]
        return ruled

    def _settle_budgets(self, held: AttemptRef, reported: Mapping[str, int] | None, *, ran: bool) -> None:
        """Settle the reservations of an attempt, or give them back if it never ran."""
        state = self._state
        for one in state.reservations.pop(held, ()):
            window = state.budget_windows[one.window_id]
            state.budget_windows[one.window_id] = settle(window, one, spent=spent_of(one, reported) if ran else 0)

    # ---- actions -----------------------------------------------------------------------------

    def within_budget(self, task: Task, one: Admission, now: int) -> Admission:
        """Count the action of an admission, or deny it if its tenant has none left. A denial keeps earlier errors."""
        state, held = self._state, (task.task_id, task.fence + 1)
        if one.action_limit is not None:
            # A task that was recalled, and is admitted again, counts once.
            state.actions.pop(held, None)
            since = now - ACTION_WINDOW_MS
            for ref in [ref for ref, (_, at) in state.actions.items() if at <= since]:
                del state.actions[ref]
            [one] = within_action_limits([one], Counter(tenant for tenant, _ in state.actions.values()))
        if one.action_limit is not None:
            state.actions[held] = one.action_limit[0], now
        return self.with_earlier_error(one) if one.state is TaskState.DENIED else one

    def with_earlier_error(self, denial: Admission) -> Admission:
        """The denial of a task, with the error of an attempt that failed before."""
        return replace(denial, note=refusal_after(denial.note or "", self._last_failure(denial.task_id)))

    def _last_failure(self, task_id: TaskId) -> str | None:
        """The error of the last attempt that failed."""
        failed = [one for held, one in self._state.attempts.items() if held[0] == task_id and one.result in FAILURES]
        return max(failed, key=lambda one: one.number).error if failed else None

    def give_back_untaken(self, task: Task) -> None:
        """Forget the actions of a task that no worker has taken since its admission."""
        self._give_back((task.task_id, task.fence + 1))
        self._settle_budgets((task.task_id, task.fence + 1), None, ran=False)

    def _give_back(self, attempt: AttemptRef, *, taken: int = 0) -> None:
        """Forget the action of an attempt, and those that are reserved for its agent beyond those it has taken."""
        task_id, number = attempt
        actions, beyond = self._state.actions, f"{task_id}.{taken:05}"
        for held in [held for held in actions if held[1] == number and beyond <= held[0] < f"{task_id}/"]:
            del actions[held]
        if not taken:
            actions.pop(attempt, None)

    # ---- graphs ------------------------------------------------------------------------------

    def advance(self, run: Run, graph: Workflow, now: int) -> None:
        """Create the tasks of the steps that are ready, and end the run if all steps have ended."""
        if run.over:
            return
        gave_up = graph.may_be_undone and self._gave_up(run)
        self._write_advance(run, graph, self._advance_of(run, graph, gave_up=gave_up, now=now), now)

    def roll_back(self, run: Run, reason: str, now: int) -> bool:
        """Roll back a run that has ended; return whether there is anything to undo."""
        graph, begun = self.workflow_of(run), rolled_back(run, reason=reason)
        after = self._begun_rollback(begun, now)
        if graph is None or after is None:
            return False
        self._state.runs[run.run_id] = begun
        schedule = self._state.schedules.get(run.schedule_uid) if run.schedule_uid else None
        if schedule is not None:
            self._state.schedules[schedule.uid] = replace(schedule, active_runs=schedule.active_runs + 1)
        self._write_advance(begun, graph, after, now)
        return True

    def _begun_rollback(self, begun: Run, now: int) -> RunAdvance | None:
        """The first changes of a run whose rollback begins on request; None if there is nothing to undo."""
        graph = self.workflow_of(begun)
        if graph is None or not graph.may_be_undone:
            return None
        after = self._advance_of(begun, graph, gave_up=False, now=now)
        return after if after.made else None

    def go_on_after_release(self, task: Task, now: int, *, held_at: int) -> bool:
        """Let the run of a task go on whose output was released; return whether it does."""
        state, before = self._state, self._state.runs[task.run_id]
        run, graph = released(before, task, held_at=held_at), self.workflow_of(before)
        if run is None:
            return False
        state.runs[run.run_id] = run
        schedule = state.schedules.get(run.schedule_uid) if run.schedule_uid else None
        if before.over and schedule is not None:
            state.schedules[schedule.uid] = replace(schedule, active_runs=schedule.active_runs + 1)
        if graph is None:
            self.end_run(run, RunStatus.FAILED, "its workflow is gone", now)
        elif graph.is_single_step:
            self.end_run(run, RunStatus.COMPLETED, None, now, announce=graph.announce)
        else:
            for name in never_run(self.tasks_of(run.run_id)):
                del state.tasks[name]
            self.advance(run, graph, now)
        return True

    def _advance_of(self, run: Run, graph: Workflow, *, gave_up: bool, now: int) -> RunAdvance:
        tasks = [task for task in self.tasks_of(run.run_id) if task.parent is None]
        facts: dict[str, UndoFact] = {}
        while True:
            after = advance_run(run, graph, tasks, gave_up=gave_up, facts=facts, now=now)
            if after.asks is None:
                return after
            facts[after.asks] = self._undo_fact(graph, tasks, after.asks, now)

    def _write_advance(self, run: Run, graph: Workflow, after: RunAdvance, now: int) -> None:
        self._state.tasks.add(after.made)
        for name in after.released:
            self.release(self._state.tasks[name], now)
        if after.rollback is not None:
            # A run that is cancelled may still be rolled back: its compensations are not cancelled.
            run = self._state.runs[run.run_id] = replace(
                self._state.runs[run.run_id],
                rollback=after.rollback,
                rollback_cause=after.rollback_cause,
                rollback_number=after.rollback_number,
                cancel_requested_at=None,
            )
        if after.rollback is RollbackStatus.COMPLETE and after.rollback_number > 1:
            for letter in list(self._state.dead_letters.values()):
                if letter.run_id == run.run_id and is_compensation(letter.step):
                    self.resolve(letter.dead_letter_id, f"rollback {after.rollback_number}", now)
        for task in after.unreadable:
            self._write_letter(task, run, COMPENSATION_UNREADABLE, task.note, now)
        if after.status is not None:
            self.end_run(run, after.status, after.error, now, announce=graph.announce)

    def _gave_up(self, run: Run) -> bool:
        """Whether the function of a step of the run, or of one of its sub-runs, has given up for good."""
        state = self._state
        failed = {
            task.task_id: task
            for task in self.tasks_of(run.run_id)
            if task.state is TaskState.FAILED and not is_compensation(task.step)
        }
        return any(
            one.result is Result.GAVE_UP and one.worker != ENGINE
            for held, one in state.attempts.items()
            if held[0] in failed
        ) or any(self._gave_up(state.runs[name]) for name in map(sub_run_id, failed.values()) if name in state.runs)

    def _undo_fact(self, graph: Workflow, tasks: Sequence[Task], name: str, now: int) -> UndoFact:
        """The answer to the question what the undoing of the step finds."""
        step = graph.step(name)
        task = next((one for one in tasks if one.step == name), None)
        if step is None or task is None:
            return UndoFact.NOTHING
        own = [task] if step.foreach is None else self.items_of(task.task_id)
        if step.compensate is None:
            found = any(self._next_run_to_undo(one, now) is not None for one in own)
            return UndoFact.READY if found else UndoFact.NOTHING
        undone = self._undone_items(task.run_id, name) if step.foreach is not None else ()
        effects = [one for one in own if one.state in UNDOABLE and one.item not in undone]
        return undo_fact(step, [self._state.payloads.get((one.task_id, "compensation")) for one in effects])

    def _undone_items(self, run_id: RunId, step: str) -> set[int]:
        """The items of the step that a compensation has undone, in any of the rollbacks of its run."""
        return {
            task.item
            for task in self.tasks_of(run_id)
            if task.item is not None
            and task.state is TaskState.SUCCEEDED
            and is_compensation(task.step)
            and undone_step(task.step) == step
        }

    def numbers_to_undo(self, compensation: Task, step: Step) -> list[int]:
        """The numbers of the items that a compensation undoes, in this order."""
        undone = undone_step(step.name)
        items = self.items_of(task_id(compensation.run_id, undone))
        left = [one.item or 0 for one in items if step.workflow is not None or one.state in UNDOABLE]
        return items_to_undo(left, self._undone_items(compensation.run_id, undone))

    def _next_run_to_undo(self, task: Task, now: int, *, after: RunId | None = None) -> Run | None:
        """The next run of the step's task that is to be rolled back, the last one first."""
        names = sub_run_ids(task)
        for name in names[names.index(after) + 1 :] if after in names else names:
            run = self._state.runs.get(name)
            if run is None or run.rollback is RollbackStatus.COMPLETE:
                continue
            reason = "with the execution that it is a part of"
            begun = rolled_back(run, reason=reason, parent=task.task_id)
            if run.rollback is RollbackStatus.RUNNING or (run.over and self._begun_rollback(begun, now) is not None):
                return run
        return None

    def undo_next_run(self, compensation: Task, graph: Workflow, now: int, *, after: RunId | None = None) -> None:
        """Roll back the next run that the compensation undoes; end the compensation if there is none."""
        state = self._state
        undone = state.tasks[undone_task_id(compensation)]
        run = self._next_run_to_undo(undone, now, after=after)
        if run is None:
            runs = [state.runs[name] for name in sub_run_ids(undone) if name in state.runs]
            self.end_engine_task(compensation, graph, undone_runs_outcome(runs), now)
        elif run.rollback is RollbackStatus.RUNNING:
            state.runs[run.run_id] = replace(run, parent_task=compensation.task_id)
        else:
            reason = "with the execution that it is a part of"
            self._begin_rollback(rolled_back(run, reason=reason, parent=compensation.task_id), now)

    def _begin_rollback(self, begun: Run, now: int) -> None:
        graph, after = self.workflow_of(begun), self._begun_rollback(begun, now)
        if graph is not None and after is not None:
            self._state.runs[begun.run_id] = begun
            self._write_advance(begun, graph, after, now)

    def release(self, task: Task, now: int) -> None:
        """Make a held task ready."""
        self._state.tasks[task.task_id] = replace(task, wait_reason=WaitReason.READY, available_at=now)

    def tasks_of(self, run_id: RunId) -> list[Task]:
        """The tasks of the run."""
        return [task for task in self._state.tasks.values() if task.run_id == run_id]

    def items_of(self, parent: TaskId) -> list[Task]:
        """The items of a step, in their order."""
        return sorted((t for t in self._state.tasks.values() if t.parent == parent), key=lambda t: t.item or 0)

    def count_ended_item(self, item: Task, graph: Workflow, now: int) -> None:
        """Count one open item less at the step, and release the next item; the last one ends the step."""
        parent = self._state.tasks[item.parent or item.task_id]
        failed = parent.failed_items + (item.state is not TaskState.SUCCEEDED)
        parent = self._state.tasks[parent.task_id] = replace(
            parent, open_items=parent.open_items - 1, failed_items=failed
        )
        items = self.items_of(parent.task_id)
        waiting = [t for t in items if t.state is TaskState.PENDING and t.wait_reason is WaitReason.DEPS]
        # Items are undone from the last to the first.
        for one in waiting[-1:] if is_compensation(parent.step) else waiting[:1]:
            self.release(one, now)
        if not parent.open_items:
            self.end_items(parent, items, graph, now)

    def end_items(self, parent: Task, items: Sequence[Task], graph: Workflow, now: int) -> None:
        """End a step whose items have all ended."""
        outputs = [self._state.payloads.get((one.task_id, "output")) for one in items]
        cancelled = self._state.runs[parent.run_id].cancel_requested_at is not None
        ended = ItemTotals(count=len(items), failed=parent.failed_items, size=sum(len(one or b"") for one in outputs))
        self.end_engine_task(parent, graph, items_outcome(ended, outputs, cancelled=cancelled), now)

    def end_engine_task(self, held: Task, graph: Workflow, outcome: AttemptOutcome, now: int) -> None:
        """End a task that no worker carries out."""
        step = graph.step(held.step) or graph.steps[0]
        had = Assignment(task=held, run=self._state.runs[held.run_id], workflow=graph, step=step, input={})
        outcome = outcome_by_deadline(held, outcome, now=now)
        self.end_attempt(complete_attempt(had, outcome, now=now, limits=GiveUpLimits()))

    def items_output(self, parent: Task) -> bytes | None:
        """The output of a step with items that has succeeded, made again from those of its items."""
        items = self.items_of(parent.task_id)
        outputs = [self._state.payloads.get((one.task_id, "output")) for one in items]
        totals = ItemTotals(count=len(items), failed=0, size=sum(len(one or b"") for one in outputs))
        return items_outcome(totals, outputs, cancelled=False).output

    def run_output(self, run: Run) -> bytes | None:
        """The output of the step that waited for the run, made again from those of its steps."""
        steps = [task for task in self.tasks_of(run.run_id) if task.parent is None]
        outputs = {task.step: self._state.payloads.get((task.task_id, "output")) for task in steps}
        return run_outcome(run, self.workflow_of(run), outputs).output

    def decide_again(self, task: Task, now: int) -> None:
        """Let the run of a step go on whose output was taken away, as if it had failed."""
        run = self._state.runs[task.run_id]
        graph, steps = self.workflow_of(run), [one for one in self.tasks_of(run.run_id) if one.parent is None]
        if graph is None or graph.is_single_step or not is_under_way(run, steps):
            return
        for name in steps_to_decide_again(graph, task.step, steps):
            del self._state.tasks[name]
        self.advance(run, graph, now)

    def write_letter(self, task: Task, reason: str, error: str, now: int) -> None:
        """Write the dead letter of a task that had succeeded."""
        self._write_letter(task, self._state.runs[task.run_id], reason, error, now)

    def end_awaiting_step(self, run: Run, now: int) -> None:
        """End the step that started the run and waits for it."""
        state = self._state
        held = state.tasks[run.parent_task] if run.parent_task else None
        if held is None or held.state is not TaskState.RUNNING:
            return
        waits, made_from = self.workflow_of(state.runs[held.run_id]), self.workflow_of(run)
        if waits is not None and is_compensation(held.step):
            self.undo_next_run(held, waits, now, after=run.run_id)
        elif waits is not None and run.run_id == sub_run_id(held):
            steps = [task for task in self.tasks_of(run.run_id) if task.parent is None]
            outputs = {task.step: state.payloads.get((task.task_id, "output")) for task in steps}
            self.end_engine_task(held, waits, run_outcome(run, made_from, outputs), now)

    def workflow_of(self, run: Run) -> Workflow | None:
        """The version of the workflow that the run executes."""
        return self._version(run.tenant, run.workflow_id, run.workflow_version)

    def workflow_of_schedule(self, schedule: Schedule) -> Workflow | None:
        """The version of the workflow that the schedule starts."""
        return self._version(schedule.tenant, schedule.spec.workflow_id, schedule.spec.workflow_version)

    def _version(self, tenant: str, workflow_id: str, version: int) -> Workflow | None:
        versions = self._state.workflows.get((tenant, workflow_id), [])
        return next((one for one in versions if one.version == version), None)

    def end_run(
        self, run: Run, status: RunStatus, error: str | None, now: int, *, announce: Sequence[AnnounceRule] = ()
    ) -> None:
        """End the run and everything that depends on it: tick, dead letter, schedule, awaiting step.

        It goes on until its end is announced, if one of the rules wants that.
        """
        state = self._state
        if announce and self._announce_end(run, announce, status, run_error(run, status, error), now):
            return
        why = run_error(run, status, error)
        ended = replace(run, status=status, queued=False, completed_at=now, error=why)
        state.runs[run.run_id] = ended
        self.set_tick(ended, tick_status(status, started=ended.started_at is not None))
        if status is RunStatus.COMPLETED and ended.replay_of is not None:
            for name in self.letters_of_execution(ended.tenant, ended.replay_of):
                self.resolve(name, f"replay {ended.run_id}", now)
        schedule = state.schedules.get(ended.schedule_uid) if ended.schedule_uid else None
        if schedule is not None:
            self.release_slot(schedule, active=schedule.active_runs - (not run.queued), now=now)
            if schedule.spec.delete_after_run and run.source is RunSource.CRON:
                self.retire(state.schedules[schedule.uid], status, now)
        if ended.parent_task is not None:
            self.end_awaiting_step(ended, now)

    # ---- announcements -----------------------------------------------------------------------

    def _announce_end(
        self, run: Run, rules: Sequence[AnnounceRule], status: RunStatus, error: str | None, now: int
    ) -> bool:
        """Write the announcements of the end of a run; return whether it waits for one of them."""
        failures = self._count_failures(run, status) if counts_failures(rules) else 1
        made = run_announcements(run, rules, status, error, failures=failures, at=now)
        self._add_announcements(made)
        return any(one.holds_run for one in made)

    def _count_failures(self, run: Run, status: RunStatus) -> int:
        """How many runs have failed in a row: with this one, or before this success."""
        streaks, key = self._state.failure_streaks, streak_key(run)
        if status is RunStatus.COMPLETED:
            return streaks.pop(key, 0)
        if status is RunStatus.FAILED:
            streaks[key] = streaks.get(key, 0) + 1
        return streaks.get(key, 0)

    def _announce_ticks(self, schedule: Schedule, decisions: Sequence[Decision], now: int) -> None:
        if any(tick_moment(decision) for decision in decisions):
            workflow = self.workflow_of_schedule(schedule)
            rules = () if workflow is None else workflow.announce
            self._add_announcements(tick_announcements(schedule, decisions, rules, at=now))

    def _add_announcements(self, made: Sequence[Announcement]) -> None:
        for one in made:
            self._state.announcements.setdefault(one.announcement_id, one)

    def announcements_of(self, run_id: str) -> list[Announcement]:
        """The announcements of a run, by id."""
        return sorted(
            (one for one in self._state.announcements.values() if one.run_id == run_id),
            key=lambda one: one.announcement_id,
        )

    def awaits_announcement(self, run: Run) -> bool:
        """Whether the run stays open only until its end is announced."""
        return any(one.holds_run and not one.over for one in self.announcements_of(run.run_id))

    def end_held_run(self, run_id: str, now: int) -> None:
        """End the run that waited for its announcements, once none of them is pending."""
        run = self._state.runs.get(RunId(run_id))
        end = end_of_held_run(self.announcements_of(run_id))
        if run is not None and not run.over and end is not None:
            self.end_run(run, *end, now)

    def release_slot(self, schedule: Schedule, *, active: int, now: int) -> None:
        """Set the number of active runs, and release a queued run if there is a free slot."""
        state = self._state
        runs = state.runs.values() if schedule.queued_runs else ()
        queued = [r for r in runs if r.schedule_uid == schedule.uid and r.queued and not r.over]
        after = advance_queue(active=active, waiting=tuple(sorted(queued, key=lambda r: (r.planned_at, r.run_id))))
        state.schedules[schedule.uid] = replace(schedule, active_runs=after.active, queued_runs=after.queued)
        if after.released is not None:
            freed = after.released
            state.runs[freed.run_id] = replace(freed, queued=False)
            wait = WaitReason.DELAY if freed.fire_at > now else WaitReason.READY
            self.set_tasks(freed.run_id, wait_reason=wait)

    def set_tick(self, run: Run, status: TickStatus) -> None:
        """Set the status of the tick that started the run."""
        if run.schedule_uid is None:
            return
        tick = self._state.ticks.get((run.schedule_uid, run.planned_at))
        if tick is not None and tick.run_id == run.run_id:
            self._state.ticks[run.schedule_uid, run.planned_at] = replace(tick, status=status)

    def set_tasks(self, run_id: RunId, **changes: object) -> None:
        """Change all tasks of the run."""
        for task in [task for task in self._state.tasks.values() if task.run_id == run_id]:
            self._state.tasks[task.task_id] = replace(task, **changes)

    def supersede(self, uid: ScheduleUid, now: int, *, by: RunId) -> None:
        """Cancel the schedule's runs, all but the one that replaces them."""
        # Queued runs first: none of them may be released only to be cancelled.
        for made in sorted(self.open_runs(uid), key=lambda made: not made.queued):
            if made.run_id != by:
                self.stop_run(superseded_run(made, now=now), now)

    def cancel_queued(self, uid: ScheduleUid, now: int) -> None:
        """Cancel the queued runs of a schedule that is deleted."""
        for made in self.open_runs(uid):
            if made.queued:
                self.stop_run(superseded_run(made, now=now, why="its schedule was deleted"), now)

    def open_runs(self, uid: ScheduleUid) -> list[Run]:
        """The runs of the schedule that have not ended."""
        return [made for made in self._state.runs.values() if made.schedule_uid == uid and not made.over]

    def cancel(self, run: Run, reason: str, now: int) -> None:
        """Record the request and stop the run."""
        asked_at = now if run.cancel_requested_at is None else run.cancel_requested_at
        self.stop_run(replace(run, cancel_requested_at=asked_at, error=run.error or reason), now)

    def stop_run(self, stopped: Run, now: int) -> None:
        """Cancel the waiting tasks of the run, and the run itself if no other tasks are left.

        A run that is being rolled back is left alone.
        """
        state = self._state
        if state.runs[stopped.run_id].rollback is RollbackStatus.RUNNING:
            return
        state.runs[stopped.run_id] = stopped
        for task in self.tasks_of(stopped.run_id):
            if task.state in WAITING:
                state.tasks[task.task_id] = replace(task, state=TaskState.CANCELLED, note=stopped.error)
                self.give_back_untaken(task)
                if task.state is TaskState.APPROVAL_REQUIRED:
                    self.void_approvals(task.task_id, now)
        if stopped.over:
            self.set_tick(stopped, TickStatus.SKIPPED)
            return
        for made in [run for run in state.runs.values() if run.parent_task and not run.over]:
            if made.parent_task and state.tasks[made.parent_task].run_id == stopped.run_id:
                self.cancel(made, stopped.error or "", now)
        if not state.runs[stopped.run_id].over:
            self._end_idle_run(stopped, now)

    def _end_idle_run(self, stopped: Run, now: int) -> None:
        """End the steps whose items have all ended, and the run if no worker has a task of it."""
        state = self._state
        for task in self.tasks_of(stopped.run_id):
            if task.state is TaskState.RUNNING and task.open_items:
                left = sum(one.state not in TERMINAL for one in self.items_of(task.task_id))
                state.tasks[task.task_id] = replace(task, open_items=left)
        in_hand = [task for task in self.tasks_of(stopped.run_id) if task.state in ASSIGNED]
        inner = [task for task in in_hand if state.attempts[task.task_id, task.fence].worker == ENGINE]
        subs = {run.parent_task for run in state.runs.values() if not run.over}
        idle = [task for task in inner if not task.open_items and task.task_id not in subs]
        for task in idle:
            held = task.task_id, task.fence
            state.tasks[task.task_id] = replace(task, state=TaskState.CANCELLED, note=stopped.error)
            state.attempts[held] = replace(state.attempts[held], ended_at=now, result=Result.CANCELLED)
        if len(idle) < len(in_hand):
            return
        graph = self.workflow_of(stopped)
        if graph is not None and graph.may_be_undone:
            self.advance(stopped, graph, now)
        else:
            self.end_run(stopped, RunStatus.CANCELLED, stopped.error, now)

    def _append_turn(self, one: TaskCompletion) -> None:
        if one.turn is None or one.state is not TaskState.SUCCEEDED:
            return
        turns = self._state.session_turns.setdefault((one.run.tenant, one.turn.session), {})
        number = max((turn.number for turn in turns.values()), default=0) + 1
        made = StoredTurn(
            number=number,
            job=one.run.schedule_id or one.run.workflow_id,
            run_id=one.run_id,
            at=one.ended_at,
            tokens=one.turn.tokens,
            messages=one.turn.messages,
        )
        turns.setdefault(one.task_id, made)
        for old in [task for task, turn in turns.items() if turn.number <= number - MOST_TURNS]:
            del turns[old]

    def keep_progress(self, progress: AttemptProgress, worker: str | None, now: int) -> bool:
        """Keep the log and the usage of a running attempt so far."""
        state, held = self._state, (progress.task_id, progress.fence)
        if self.state_of(held) not in ASSIGNED or (worker is not None and not self.may_hold(held, worker)):
            return False
        if progress.spent is not None:
            row = _usage_row(state.runs[state.tasks[progress.task_id].run_id], now, progress.spent)
            if held not in state.agent_usage or _extent(progress.spent) >= _extent(state.agent_usage[held].spent):
                state.agent_usage[held] = row
        state.agent_logs.setdefault(held, {}).update(enumerate(progress.lines, progress.first))
        return True

    def _with_kept_progress(self, one: TaskCompletion) -> TaskCompletion:
        """The end of an attempt; if no worker has reported it, with the usage and the log that were kept of it."""
        held = one.task_id, one.fence
        lines, kept = self._state.agent_logs.pop(held, {}), self._state.agent_usage.get(held)
        if not ends_with_kept_log(one):
            return one
        usage = kept.spent if one.usage is None and kept is not None else one.usage
        return replace(one, usage=usage, logs=(*(lines[place] for place in sorted(lines)), *one.logs))

    def _keep_payloads(self, one: TaskCompletion) -> None:
        for kind, body in (("output", one.output), ("compensation", one.compensation)):
            if body is not None:
                self._state.payloads[one.task_id, kind] = body

    def _write_output_ruling(self, one: TaskCompletion) -> None:
        late = one.check is not None and one.check.late
        if late and one.state is TaskState.SUCCEEDED and one.output is not None:
            self._state.output_checks[one.task_id] = one.ended_at
        record = output_record(one)
        if record is None:
            return
        self._state.output_rulings[one.task_id, one.fence] = record
        if one.check is not None and one.check.held is not None:
            self._state.held_outputs[one.task_id, one.fence] = one.check.held
            self._state.write_audit([output_held_entry(record)])

    def end_attempt(self, one: TaskCompletion) -> bool:
        """Carry out the ending, if its attempt still counts."""
        state = self._state
        held = one.task_id, one.fence
        if self.state_of(held) not in ASSIGNED or one.lease_until not in (None, state.attempts[held].lease_until):
            return False
        if one.reported_by is not None and not self.may_hold(held, one.reported_by):
            return False
        if state.runs[one.run_id].cancel_requested_at is not None:
            one = cancel_instead_of_retry(one)
        if one.result is Result.DENIED:
            one = replace(one, error=refusal_after(one.error or "", self._last_failure(one.task_id)))
        free = costs_nothing(one, started=state.attempts[held].started_at is not None)
        if free:
            self._give_back(held)
        self._settle_budgets(held, one.spent, ran=not free)
        self._append_turn(one)
        if one.usage is not None:
            self._give_back(held, taken=one.usage.actions)
        one = self._with_kept_progress(one)
        if one.usage is not None:
            state.agent_usage[held] = _usage_row(one.run, one.ended_at, one.usage)
        # The end of an attempt is a transition even if the state stays the same.
        check_transition(one.task_id, state.tasks[one.task_id].state, one.state)
        state.tasks[one.task_id] = replace(
            state.tasks[one.task_id],
            state=one.state,
            wait_reason=one.wait_reason,
            available_at=one.available_at,
            attempts=one.attempts,
            losses=one.losses,
            routings=one.routings,
            note=one.error,
        )
        state.attempts[held] = replace(state.attempts[held], ended_at=one.ended_at, result=one.result, error=one.error)
        self._keep_payloads(one)
        self._write_output_ruling(one)
        state.logs.setdefault(one.task_id, []).extend(one.logs)
        if one.over:
            self.after_task_end(one, one.error, one.ended_at)
        self._record_attempt(one)
        return True

    def may_hold(self, held: AttemptRef, worker: str) -> bool:
        """Whether the worker may start, renew or end the attempt."""
        attempt, place = self._state.attempts[held], self._state.placements.get(held[0])
        pool = None if place is None else place.pool
        return may_hold(worker, holder=attempt.worker, started=attempt.started_at is not None, pool=pool)

    def state_of(self, held: AttemptRef) -> TaskState | None:
        """The state of the task, if this is its current attempt; else None."""
        task = self._state.tasks.get(held[0])
        return task.state if task is not None and task.fence == held[1] else None

    def resolve(self, dead_letter_id: str, by: str, now: int) -> bool:
        """Resolve the dead letter. False if there is none, or if it is resolved already."""
        letter = self._state.dead_letters.get(dead_letter_id)
        if letter is None or letter.resolved_at is not None:
            return False
        self._state.dead_letters[dead_letter_id] = replace(letter, resolved_at=now, resolved_by=by)
        return True

    def letters_of_execution(self, tenant: str, dead_letter_id: str) -> list[str]:
        """The ids of all letters of the execution that left this one."""
        one = self._state.dead_letters.get(dead_letter_id)
        if one is None or one.tenant != tenant:
            return []
        return sorted(name for name, other in self._state.dead_letters.items() if other.run_id == one.run_id)

    # ---- attempts ----------------------------------------------------------------------------

    def start_attempt(self, held: AttemptRef, now: int, *, attempt_at: int | None = None) -> None:
        """Start the attempt, at `attempt_at` if that is given, and its run if this is the first start."""
        state = self._state
        task = state.tasks[held[0]] = replace(state.tasks[held[0]], state=TaskState.RUNNING)
        state.attempts[held] = replace(state.attempts[held], started_at=attempt_at or now)
        run = state.runs[task.run_id]
        if run.started_at is None:
            state.runs[run.run_id] = replace(run, status=RunStatus.RUNNING, started_at=now)
            self.set_tick(run, TickStatus.STARTED)

    # ---- launches ----------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, now: int) -> LaunchOutcome:
        """Launch the run, if its schedule's overlap policy admits it."""
        run = request.run
        if run.run_id in self._state.runs:
            return LaunchOutcome.ALREADY
        outcome, replaces, schedule = LaunchOutcome.STARTED, False, None
        if run.schedule_uid is not None:
            schedule = self._state.schedules.get(run.schedule_uid)
            if schedule is None:
                return LaunchOutcome.GONE
            counts = {"active": schedule.active_runs, "queued": schedule.queued_runs}
            outcome, replaces = decide_launch(schedule.spec, **counts, force=request.force, waits=request.waits)
            if outcome not in (LaunchOutcome.STARTED, LaunchOutcome.QUEUED):
                return outcome
            run = replace(run, queued=outcome is LaunchOutcome.QUEUED)
            if replaces:
                schedule = replace(schedule, queued_runs=0)
        self._add_run(run, request, schedule, now)
        if schedule is not None and replaces:
            self.supersede(schedule.uid, now, by=run.run_id)
        return outcome

    def _add_run(self, run: Run, request: LaunchRequest, schedule: Schedule | None, now: int) -> None:
        state = self._state
        state.runs[run.run_id] = run
        state.tasks.add(first_tasks(run, request.first_steps, now=now, spans_ms=request.first_spans_ms))
        if request.input is not None:
            state.payloads[run.run_id, "input"] = request.input
        for name in self.letters_of_execution(run.tenant, run.replay_of or ""):
            state.dead_letters[name] = replace(state.dead_letters[name], replayed_by=run.run_id)
        if run.replay_of is not None:
            self._resolve_replaced(run, run.replay_of, now)
        if schedule is not None:
            active, queued = schedule.active_runs + (not run.queued), schedule.queued_runs + run.queued
            state.schedules[schedule.uid] = replace(schedule, active_runs=active, queued_runs=queued)

    def _resolve_replaced(self, run: Run, letter: str, now: int) -> None:
        """Resolve the letters whose replay left this one: it stands for the same work."""
        of = self._state.dead_letters.get(letter)
        failed = None if of is None else self._state.runs.get(of.run_id)
        if failed is None or failed.replay_of is None:
            return
        by = f"{run.actor}, in favour of {letter}"
        earlier = self.letters_of_execution(run.tenant, failed.replay_of)
        resolved = [name for name in earlier if self.resolve(name, by, now)]
        self._state.write_audit(resolved_entry(name, run.tenant, by, run.actor, now) for name in resolved)

    # ---- schedules ---------------------------------------------------------------------------

    def apply_verdict(self, verdict: TickVerdict, *, now: int) -> bool:
        """Write the ticks, runs and tasks of the verdict, if its schedule is still as it was read."""
        state = self._state
        before = verdict.schedule
        current = state.schedules.get(before.uid)
        if current is None or not unchanged(before, current):
            return False
        state.schedules[before.uid] = schedule_after(verdict)
        for decision in verdict.decisions:
            row = tick_record(before, decision, now=now, term=state.terms[before.shard])
            state.ticks[row.uid, decision.planned_at] = row
            if decision.starts_run:
                made = run_record(before, decision, now=now)
                state.runs[made.run_id] = made
                spans = first_spans(before.spec.deadlines)
                state.tasks.add(first_tasks(made, before.spec.first_steps, now=now, spans_ms=spans))
        self._announce_ticks(before, verdict.decisions, now)
        if verdict.replaces:
            # The newest run replaces the others; their end may release it at once.
            self.supersede(before.uid, now, by=run_id(before.uid, verdict.newest_run_at))
        return True

    def delete_schedule(self, uid: ScheduleUid, now: int, actor: str) -> None:
        """Delete the schedule and cancel its queued runs."""
        schedule = self._state.schedules.pop(uid)
        self.cancel_queued(schedule.uid, now)
        del self._state.names[schedule.tenant, schedule.schedule_id]
        self.add_revision(replace(schedule, revision=schedule.revision + 1, updated_at=now), actor, "")

    def retire(self, schedule: Schedule, status: RunStatus, now: int) -> None:
        """Delete a one-shot whose run succeeded, pause it if the run failed."""
        verdict = verdict_before_edit(schedule, now=now)
        self.apply_verdict(verdict, now=now)
        if status is RunStatus.COMPLETED:
            self.delete_schedule(schedule.uid, now, SYSTEM_ACTOR)
        else:
            self._state.schedules[schedule.uid] = stopped = self.with_current_counts(paused_schedule(verdict, now=now))
            self.record_pause(schedule, stopped, now, SYSTEM_ACTOR)

    def with_current_counts(self, after: Schedule) -> Schedule:
        """The schedule with the current run counts: runs that it replaced may have ended already."""
        current = self._state.schedules[after.uid]
        return replace(after, active_runs=current.active_runs, queued_runs=current.queued_runs)

    def add_revision(self, schedule: Schedule, actor: str, tzdata: str) -> None:
        """Add the schedule as a revision."""
        kept = Revision(
            revision=schedule.revision, schedule=schedule, from_at=schedule.updated_at, actor=actor, tzdata=tzdata
        )
        self._state.revisions.setdefault(schedule.uid, []).append(kept)

    def record_pause(self, before: Schedule, changed: Schedule, now: int, actor: str) -> None:
        """Open or close a pause, if the change pauses or resumes the schedule."""
        pauses = self._state.pauses.setdefault(changed.uid, [])
        if before.paused_at is None and changed.paused_at is not None:
            pauses.append(Pause(paused_at=changed.paused_at, paused_by=actor))
        if before.paused_at is not None and changed.paused_at is None:
            pauses[-1] = replace(pauses[-1], resumed_at=now, resumed_by=actor)


def _usage_row(run: Run, at: int, spent: AgentSpending) -> UsageRow:
    return UsageRow(run.run_id, run.tenant, run.schedule_id or run.workflow_id, at, spent)


def _extent(spent: AgentSpending) -> int:
    """Grows with each answer and each call."""
    return spent.requests + spent.tokens + spent.tool_calls
