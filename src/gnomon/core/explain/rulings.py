"""The sentences about the rulings of the policy: who let each task of a run start, or did not, and why."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gnomon.core.durations import span_text
from gnomon.core.explain.approvals import explain_approvals
from gnomon.core.explain.evidence import RunEvidence
from gnomon.core.explain.phrases import TimeFormatter, join_names, one_line, pluralized
from gnomon.core.model import Run
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.ruling import (
    BY_APPROVAL,
    BY_BUDGETS,
    BY_COMMANDS,
    BY_OVERRIDE,
    BY_POLICY,
    DEFAULT_RULE,
    FAIL_OPEN,
    PolicyDecision,
    StoredRuling,
    policy_text,
)
from gnomon.core.runs.states import TaskState

if TYPE_CHECKING:
    from gnomon.core.policy.explanation import StepExplanation

#: The largest number of tasks that a sentence names.
_MOST_NAMED = 5

#: The sentence about a ruling, by its decision.
RULING_SENTENCES: Mapping[PolicyDecision, str] = {
    PolicyDecision.ALLOW: "{it.ruler} allowed {it.whom} at {it.at}{it.because}.",
    PolicyDecision.ALLOW_WITH_CONSTRAINTS: "{it.ruler} allowed {it.whom} at {it.at}, with {it.limits}{it.because}.",
    PolicyDecision.DENY: "{it.ruler} denied {it.whom} at {it.at}{it.because}.",
    PolicyDecision.THROTTLE: "{it.ruler} has put {it.whom} off {it.times}{it.because}.",
    PolicyDecision.REQUIRE_APPROVAL: "{it.ruler} has asked for an approval of {it.whom} since {it.at}{it.because}.",
}


#: The sentence about a coming run, by the decision that holds a step back.
COMING_SENTENCES: Mapping[PolicyDecision, str] = {
    PolicyDecision.DENY: "{ruler} would deny {whom}{because}.",
    PolicyDecision.THROTTLE: "{ruler} would put {whom} off{because}.",
    PolicyDecision.REQUIRE_APPROVAL: "{ruler} would ask for an approval of {whom}{because}.",
}


class RulingFacts:
    """The facts that the sentence about a ruling may use."""

    def __init__(self, ruling: StoredRuling, tasks: Sequence[str], clocks: TimeFormatter) -> None:
        """`tasks` are the names of the tasks that it is about; none if they are all of their run."""
        self._ruling, self._tasks, self._clocks = ruling, tasks, clocks

    @property
    def ruler(self) -> str:
        """The rule and its policy: the subject of the sentence."""
        one = self._ruling
        if one.ruled_by == BY_COMMANDS:
            return f"The policy of commands, rule {one.rule},"
        if one.ruled_by == FAIL_OPEN:
            return "The fail mode of the policy"
        policy = policy_text(one.version, one.ruled_by)
        if one.ruled_by == BY_BUDGETS:
            return f"Budget {one.rule} of {policy}"
        return _rule_phrase(one.rule, policy)

    @property
    def whom(self) -> str:
        """The tasks."""
        if not self._tasks:
            return "it"
        named = list(self._tasks[:_MOST_NAMED])
        more = len(self._tasks) - len(named)
        return join_names(named + ([f"{more} more"] if more else []))

    @property
    def at(self) -> str:
        """When it was made."""
        return self._clocks(self._ruling.at)

    @property
    def times(self) -> str:
        """How often it was made, and since when."""
        return f"{pluralized(self._ruling.count, 'time')} since {self.at}"

    @property
    def because(self) -> str:
        """The reason; and that nobody was asked again about a task that was tried again."""
        reason = f": {one_line(self._ruling.reason)}" if self._ruling.reason else ""
        tried_again = self._ruling.count > 1 and self._ruling.ruled_by in (BY_APPROVAL, BY_OVERRIDE)
        return f"{reason}, which counted again at {self._clocks(self._ruling.last_at)}" if tried_again else reason

    @property
    def limits(self) -> str:
        """The constraints in words."""
        return constraints_text(self._ruling.constraints)


def constraints_text(limits: Constraints | None) -> str:
    """The constraints as a list of words."""
    data = {} if limits is None else limits.as_data()
    words = [
        f"max_runtime {span_text(value)}"
        if name == "max_runtime_ms"
        else f"{name} {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in data.items()
    ]
    return join_names(words) or "no constraint"


def explain_rulings(run: Run, details: RunEvidence, clocks: TimeFormatter) -> Iterator[str]:
    """One sentence for each different ruling that counts for the tasks of a run, then one for each approval.

    The denial that the run failed with is left out: its sentence quotes that already.
    """
    names = dict(_task_names(details))
    quoted = {task.task_id for task in details.tasks if task.state is TaskState.DENIED and task.note == run.error}
    last: dict[str, StoredRuling] = {one.task_id: one for one in details.rulings if one.task_id not in quoted}
    groups: dict[tuple[object, ...], list[StoredRuling]] = {}
    for one in last.values():
        key = one.decision, one.rule, one.version, one.ruled_by, one.reason
        groups.setdefault(key, []).append(one)
    for rulings in groups.values():
        # The time is that of a task that the sentence is about.
        about = [one for one in rulings if names.get(one.task_id)]
        first = min(about or rulings, key=lambda one: one.at)
        tasks = [names[one.task_id] for one in about]
        yield RULING_SENTENCES[first.decision].format(it=RulingFacts(first, tasks, clocks))
    yield from explain_approvals(run, details.approvals, details.rulings, names, clocks)


def _task_names(details: RunEvidence) -> Iterable[tuple[str, str]]:
    alone = details.workflow.is_single_step if details.workflow is not None else len(details.tasks) == 1
    for task in details.tasks:
        if task.item is not None:
            yield task.task_id, f"item {task.item} of step {task.step}"
        else:
            yield task.task_id, "" if alone else f"step {task.step}"


def explain_coming_rulings(steps: "Sequence[StepExplanation]", version: int, *, alone: bool) -> Iterator[str]:
    """One sentence for each step of a coming run that the policy would hold back; `alone` if the run has no other."""
    for one in steps:
        whom = "it" if alone else f"step {one.step}"
        ruling = one.ruling
        if ruling is None:
            policy = policy_text(version, BY_POLICY)
            yield f"The input of {whom} decides by which rule of {policy} it may run: {join_names(list(one.rules))}."
            continue
        ruler = _rule_phrase(ruling.rule, policy_text(ruling.version, ruling.ruled_by))
        because = f": {one_line(ruling.reason)}" if ruling.reason else ""
        yield COMING_SENTENCES[ruling.decision].format(ruler=ruler, whom=whom, because=because)


def _rule_phrase(rule: str, policy: str) -> str:
    return f"The default decision of {policy}" if rule == DEFAULT_RULE else f"Rule {rule} of {policy}"
