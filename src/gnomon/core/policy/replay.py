"""Replay: what another policy would have decided about the tasks of the history, from what is stored about them.

A fact that is no longer known is not guessed: if the ruling depends on it, the task counts as not known.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.model import RunSource
from gnomon.core.payloads import has_sealed_field
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.facts import FactName, facts_of
from gnomon.core.policy.past_tasks import PastDecision, PastTask, asked_within, recorded_decision
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.policy.step_rules import StepRulesCache
from gnomon.core.runs.admission import AdmissionRequest, merged_input
from gnomon.core.runs.expressions import references
from gnomon.core.runs.workflow import Step, Workflow

#: How many different changes a replay keeps.
MOST_CHANGES = 10_000
#: How runs start that a caller requests.
_REQUESTED = (RunSource.API, RunSource.MANUAL)


class Missing(StrEnum):
    """The reasons why it is not known what another policy would have decided."""

    #: The version of the workflow is no longer stored, or has no such step.
    DEFINITION = "definition"
    #: Its input was never stored, or cannot be decrypted.
    INPUT = "input"
    #: An older program stored the run without the name of its caller.
    ACTOR = "actor"
    #: An older program stored the run without the groups of its caller.
    GROUPS = "groups"
    #: A window opened or closed while the task waited: nobody knows on which side of that it was asked about.
    TIME = "time"


_MISSING = {
    FactName.INPUT: Missing.INPUT,
    FactName.SECRETS: Missing.INPUT,
    FactName.ACTOR: Missing.ACTOR,
    FactName.GROUPS: Missing.GROUPS,
    FactName.TIME: Missing.TIME,
}


class ChangedTasks(Struct, frozen=True, kw_only=True):
    """Tasks of one job that would be decided about otherwise, in the same way and by the same rules."""

    tenant: str
    job: str
    before: PastDecision
    after: PastDecision
    tasks: int
    #: The first of them.
    run_id: str
    step: str


class ReplayTally(Struct, kw_only=True):
    """The counts of a replay."""

    #: The tasks that were judged, or would have been if everything were known.
    tasks: int = 0
    unchanged: int = 0
    changed: int = 0
    #: Tasks that nobody ever asked about: they were skipped or cancelled, or still wait for others.
    not_asked: int = 0
    changes: dict[tuple[str, str, PastDecision, PastDecision], ChangedTasks] = {}
    #: How many tasks changed in ways that are not kept, because there are too many different ones.
    left_out: int = 0
    #: By rule, and the tasks that it decides.
    rules: Counter[str] = msgspec.field(default_factory=Counter)
    #: By tenant, job and reason.
    unknown: Counter[tuple[str, str, Missing]] = msgspec.field(default_factory=Counter)


class PolicyReplay:
    """Judges tasks of the history by a policy."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._rules = StepRulesCache(policy)

    def needs_input(self, task: PastTask, workflow: Workflow | None) -> bool:
        """Whether a rule looks at the input of the task."""
        step = None if workflow is None else workflow.step(task.ready.task.step)
        if workflow is None or step is None or recorded_decision(task) is None:
            return False
        _, rules = self._rules.of(task.ready.run, workflow, step)
        return rules.needed.input or rules.needed.secrets

    def judge(self, tally: ReplayTally, task: PastTask, workflow: Workflow | None) -> None:
        """Count the task, with its inputs if `needs_input`; `workflow` is the definition that its run started with."""
        before = recorded_decision(task)
        step = None if workflow is None else workflow.step(task.ready.task.step)
        if before is None or (step is not None and not step.function):
            tally.not_asked += 1
            return
        tally.tasks += 1
        run = task.ready.run
        job = run.schedule_id or run.workflow_id
        if workflow is None or step is None:
            tally.unknown[run.tenant, job, Missing.DEFINITION] += 1
            return
        found = self._ruling(task, workflow, step)
        if isinstance(found, FactName):
            tally.unknown[run.tenant, job, _MISSING[found]] += 1
            return
        tally.rules[found.rule] += 1
        after = _after(before, found)
        if after.same_effect(before):
            tally.unchanged += 1
            return
        tally.changed += 1
        _add_change(
            tally,
            ChangedTasks(
                tenant=run.tenant,
                job=job,
                before=before,
                after=after,
                tasks=1,
                run_id=run.run_id,
                step=task.ready.task.step,
            ),
        )

    def _ruling(self, task: PastTask, workflow: Workflow, step: Step) -> Ruling | FactName:
        about, rules = self._rules.of(task.ready.run, workflow, step)
        if rules.fixed is not None:
            return rules.fixed
        unknown: set[FactName] = set()
        if not task.has_actor and task.ready.run.source in _REQUESTED:
            unknown.add(FactName.ACTOR)
        if not task.has_groups and task.ready.run.source in _REQUESTED:
            unknown.add(FactName.GROUPS)
        given = None
        if rules.needed.input or rules.needed.secrets:
            given = _input_of(task, workflow, step)
            if given is None:
                unknown |= {FactName.INPUT, FactName.SECRETS}
        request = AdmissionRequest(waiting=task.ready, workflow=workflow, step=step, input=given or {})
        since, until = asked_within(task)
        facts = facts_of(request, about, rules.needed)
        return rules.past_ruling(facts, unknown, since=since, until=until)


def _after(before: PastDecision, ruling: Ruling) -> PastDecision:
    """The decision about a task by a new ruling. A command that was refused for its own sake stays refused."""
    if before.by_commands and ruling.decision is not PolicyDecision.DENY:
        return before
    return PastDecision(decision=ruling.decision, rule=ruling.rule, constraints=ruling.constraints)


def _input_of(task: PastTask, workflow: Workflow, step: Step) -> Mapping[str, object] | None:
    """The input that the task was asked about with; None if it is not known."""
    ready = task.ready
    resolved = task.has_input or ready.task.parent is not None or any(True for _ in references(step.input))
    if ready.own_input is None and resolved:
        return None
    found = merged_input(workflow, step, ready)
    return None if has_sealed_field(found) else found


def _add_change(tally: ReplayTally, change: ChangedTasks) -> None:
    key = (change.tenant, change.job, change.before, change.after)
    known = tally.changes.get(key)
    if known is not None:
        tally.changes[key] = replace(known, tasks=known.tasks + change.tasks)
    elif len(tally.changes) < MOST_CHANGES:
        tally.changes[key] = change
    else:
        tally.left_out += change.tasks
