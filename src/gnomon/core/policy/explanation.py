"""The rulings that a policy would make about the steps of a job, before any of them runs."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gnomon.core.model import RunSource
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.facts import RequestFacts, secret_names, step_facts
from gnomon.core.policy.ruling import Ruling
from gnomon.core.runs.expressions import references
from gnomon.core.runs.secret_text import shown_data
from gnomon.core.runs.workflow import Step, Workflow


class StepExplanation(Struct, frozen=True, kw_only=True):
    """The ruling about one step."""

    step: str
    #: None if it depends on data that only a run has.
    ruling: Ruling | None
    #: The rules that can match tasks of the step, in their order.
    rules: tuple[str, ...]
    #: Whether each of them would let the task run.
    always_allowed: bool = False


class AssumedRun(Struct, frozen=True, kw_only=True):
    """The run whose tasks are judged."""

    tenant: str
    job: str
    #: The input of the run; None for that of the workflow.
    input: Mapping[str, Any] | None = None
    actor: str = ""
    groups: tuple[str, ...] = ()
    source: RunSource = RunSource.CRON
    at: int


def explain_steps(policy: CompiledPolicy, workflow: Workflow, run: AssumedRun) -> list[StepExplanation]:
    """The rulings about all steps that are tasks: a step that only waits, or runs another workflow, is none."""
    return [_explained(policy, workflow, step, run) for step in workflow.all_steps if step.function]


def held_steps(policy: CompiledPolicy, workflow: Workflow, run: AssumedRun) -> list[StepExplanation]:
    """The steps that the policy would deny, put off or ask about, or may: that depends on the input of their tasks."""
    return [one for one in explain_steps(policy, workflow, run) if not _runs_anyway(one)]


def _runs_anyway(one: StepExplanation) -> bool:
    return one.ruling.allows if one.ruling is not None else one.always_allowed


def _explained(policy: CompiledPolicy, workflow: Workflow, step: Step, run: AssumedRun) -> StepExplanation:
    about = step_facts(run.tenant, run.job, workflow, step)
    rules = policy.for_step(about, step)
    found = rules.fixed
    # References are resolved in a run. Their values are not guessed here.
    if found is None and step.foreach is None and not any(True for _ in references(step.input)):
        given = {**(workflow.input if run.input is None else run.input), **step.input}
        facts = RequestFacts(
            step=about,
            actor=run.actor,
            groups=run.groups,
            source=run.source,
            secrets=secret_names(given),
            input=shown_data(given),
            run={"job": run.job},
        )
        found = rules.ruling(facts, run.at)
    names = tuple(rules.rule_ids)
    return StepExplanation(step=step.name, ruling=found, rules=names, always_allowed=rules.always_allows)
