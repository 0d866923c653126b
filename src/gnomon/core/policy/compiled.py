"""A policy, compiled once per version: the rules that can match a step are selected once, and not for every task.

A rule has fixed and open conditions. A fixed condition is about the step, such as its topic, and is decided once per
step. An open one is about the task, such as its input, or about the time. The rules of a step end with the first one
that has no open condition, because no later one can match.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from gnomon.core.cron.cron import Cron
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.model import RunSource
from gnomon.core.policy.budgets import ACTIONS, COST_MICROS, TASKS, TOKENS, BudgetKey, BudgetUse, OverBudget, scope_text
from gnomon.core.policy.constraints import unenforceable
from gnomon.core.policy.document import Budget, PolicyDocument, RuleMatch, RuleWindow, TaskRule
from gnomon.core.policy.facts import FactName, NeededFacts, RequestFacts, StepFacts
from gnomon.core.policy.ruling import DEFAULT_RULE, PERMISSIONS, SAFETY_DENIED, SAFETY_UNKNOWN, PolicyDecision, Ruling
from gnomon.core.runs.expressions import check_condition, compile_condition, evaluate_compiled, segments
from gnomon.core.runs.workflow import Step
from gnomon.errors import FieldError

#: The facts that are others for each run, or as time passes.
_VARYING = frozenset({FactName.RUN, FactName.TIME})
#: Whether an open condition holds for a task at a time.
_Holds = Callable[[RequestFacts, int], bool]


class _OpenTest(NamedTuple):
    """An open condition, and the facts that it looks at."""

    facts: frozenset[FactName]
    holds: _Holds
    #: The window, if it is one.
    window: "_Window | None" = None


class CompiledPolicy:
    """A version of the policy, ready to rule."""

    def __init__(self, document: PolicyDocument, version: int, *, throttle_ms: int) -> None:
        """`throttle_ms` is how long a throttled task waits before it is asked about again."""
        self.document, self.version = document, version
        self._rules = [_CompiledRule(rule, version, throttle_ms) for rule in document.rules]
        self._budgets = [_CompiledBudget(one, throttle_ms) for one in document.budgets]
        self._default = Ruling(
            decision=document.default_decision,
            rule=DEFAULT_RULE,
            version=version,
            digest=b"",
            reason="" if document.default_decision is PolicyDecision.ALLOW else "no rule allows it",
        )

    def for_step(self, facts: StepFacts, step: Step) -> "StepRules":
        """The rules that can match tasks of the step."""
        found: list[_StepRule] = []
        for rule in self._rules:
            if rule.matches_step(facts):
                found.append(_StepRule(rule, step))
                if not rule.tests:
                    return StepRules(found, None)
        return StepRules(found, self._default)

    def budgets_for_step(self, facts: StepFacts, step: Step) -> "StepBudgets | None":
        """The budgets that tasks of the step may use; None without any."""
        found = [one for one in map(partial(_CompiledBudget.for_step, facts=facts, step=step), self._budgets) if one]
        return StepBudgets(found) if found else None


class StepRules:
    """The rules of one step, in their order."""

    def __init__(self, rules: "Sequence[_StepRule]", default: Ruling | None) -> None:
        """`default` is None if the last rule matches every task."""
        self._rules, self._default = rules, default
        #: The ruling about every task of the step, if none of its rules has an open condition.
        self.fixed: Ruling | None = default if not rules else rules[0].ruling if not rules[0].tests else None
        #: The facts about a task that its ruling depends on.
        self.needed = _needed_facts({fact for rule in rules for test in rule.tests for fact in test.facts})

    @property
    def vary(self) -> bool:
        """Whether a ruling about tasks of the step may differ from run to run, or as time passes."""
        return any(test.facts & _VARYING for rule in self._rules for test in rule.tests)

    @property
    def may_ask(self) -> bool:
        """Whether one of the rules asks for an approval."""
        made = [rule.ruling for rule in self._rules] + ([] if self._default is None else [self._default])
        return any(one.decision is PolicyDecision.REQUIRE_APPROVAL for one in made)

    @property
    def rule_ids(self) -> list[str]:
        """The ids of the rules, in their order."""
        return [rule.ruling.rule for rule in self._rules] + ([] if self._default is None else [DEFAULT_RULE])

    @property
    def always_allows(self) -> bool:
        """Whether each rule would let the task run, and none needs an answer that may be missing."""
        made = [rule.ruling for rule in self._rules] + ([] if self._default is None else [self._default])
        return all(one.allows for one in made) and not (self.needed.input or self.needed.run)

    def ruling(self, facts: RequestFacts, now: int) -> Ruling:
        """The ruling about a task; it lacks the digest."""
        for rule in self._rules:
            try:
                for holds in rule.open:
                    if not holds(facts, now):
                        break
                else:
                    return rule.ruling
            except FieldError as error:
                return rule.unanswered(error)
        assert self._default is not None, "the last rule has no open condition"  # noqa: S101 - tells the type checker
        return self._default

    def past_ruling(
        self, facts: RequestFacts, unknown: Collection[FactName], *, since: int, until: int
    ) -> Ruling | FactName:
        """The ruling about a task that was asked about within these times; the first fact that is missing for it."""
        for rule in self._rules:
            try:
                matches = _known_match(rule.tests, facts, unknown, since, until)
            except FieldError as error:
                return rule.unanswered(error)
            if matches is not False:
                return rule.ruling if matches is True else matches
        assert self._default is not None, "the last rule has no open condition"  # noqa: S101 - tells the type checker
        return self._default


def _needed_facts(names: Collection[FactName]) -> NeededFacts:
    return NeededFacts(input=FactName.INPUT in names, secrets=FactName.SECRETS in names, run=FactName.RUN in names)


def _known_match(
    tests: Iterable[_OpenTest], facts: RequestFacts, unknown: Collection[FactName], since: int, until: int
) -> FactName | bool:
    """Whether all conditions hold; if that is not known, the first fact that is missing for it."""
    missing: FactName | None = None
    for test in tests:
        lacking = next((fact for fact in test.facts if fact in unknown), None)
        if lacking is None and test.window is not None and not test.window.is_steady(since, until):
            lacking = FactName.TIME
        if lacking is not None:
            missing = missing or lacking
            continue
        try:
            if not test.holds(facts, until):
                return False
        except FieldError:
            if missing is None:
                raise
    return missing or True


class _CompiledRule:
    """A rule with its conditions as functions."""

    def __init__(self, rule: TaskRule, version: int, throttle_ms: int) -> None:
        self.rule = rule
        # A permission is about the step itself; a refusal also about the functions that its agent may call as tools.
        self._matches_step = step_tests(rule.match, with_tools=rule.decision not in PERMISSIONS)
        self.tests = _open_tests(rule.match, rule.when)
        self.ruling = Ruling(
            decision=rule.decision,
            rule=rule.rule_id,
            version=version,
            digest=b"",
            reason=rule.full_reason,
            code=SAFETY_DENIED,
            constraints=rule.constraints,
            rule_digest=rule.digest,
            retry_after_ms=throttle_ms,
            approval=rule.approval,
        )

    def matches_step(self, facts: StepFacts) -> bool:
        """Whether its fixed conditions hold."""
        return all(test(facts) for test in self._matches_step)


class _CompiledBudget:
    """A budget with its conditions as functions."""

    def __init__(self, budget: Budget, throttle_ms: int) -> None:
        self._budget, self._throttle_ms = budget, throttle_ms
        self._digest = budget.digest if budget.over is OverBudget.REQUIRE_APPROVAL else ""
        self._matches_step = step_tests(budget.match, with_tools=False)
        self._tests = _open_tests(budget.match, None)

    def for_step(self, facts: StepFacts, step: Step) -> "_StepBudget | None":
        """The budget as it counts for one step; None if its tasks never use it."""
        one = self._budget
        amount = _amount_of(one, step)
        if not amount or not all(test(facts) for test in self._matches_step):
            return None
        use = BudgetUse(
            budget=one.budget_id,
            scope="",
            meter=one.meter,
            limit=one.limit,
            per_ms=one.per_ms,
            amount=amount,
            # A task whose part exceeds the limit would wait in vain for the next window.
            over=one.over if amount <= one.limit or one.over is OverBudget.REQUIRE_APPROVAL else OverBudget.DENY,
            retry_ms=self._throttle_ms,
            digest=self._digest,
            approval=one.approval,
        )
        return _StepBudget(use, one.by, self._tests)


def _amount_of(budget: Budget, step: Step) -> int:
    """How much of the budget an attempt at the step reserves."""
    if budget.meter == TASKS:
        return 1
    if budget.meter == ACTIONS:
        return 1 if step.is_command else step.agent.reserved_actions if step.agent is not None else 0
    most = budget.limit if budget.reserve is None else budget.reserve
    own = _own_limit(budget.meter, step)
    return most if own is None else min(own, most)


def _own_limit(meter: str, step: Step) -> int | None:
    """How much of the meter the step itself lets an attempt spend; None if it says nothing about it."""
    if step.agent is None:
        return None
    return {TOKENS: step.agent.budget.tokens, COST_MICROS: step.agent.budget.cost_micros}.get(meter)


class _StepBudget(NamedTuple):
    """A budget as it counts for one step."""

    use: BudgetUse
    by: tuple[BudgetKey, ...]
    tests: Sequence[_OpenTest]


class StepBudgets:
    """The budgets of one step."""

    def __init__(self, budgets: Sequence[_StepBudget]) -> None:
        self._budgets = budgets
        #: The facts about a task that decide which of them it uses.
        self.needed = _needed_facts({fact for one in budgets for test in one.tests for fact in test.facts})

    def uses(self, facts: RequestFacts, now: int) -> tuple[BudgetUse, ...]:
        """The uses of these budgets by a task."""
        return tuple(
            replace(one.use, scope=scope_text((key, _value_of(key, facts)) for key in one.by)) if one.by else one.use
            for one in self._budgets
            if all(test.holds(facts, now) for test in one.tests)
        )


def _value_of(key: BudgetKey, facts: RequestFacts) -> str:
    value: str = facts.actor if key is BudgetKey.ACTOR else getattr(facts.step, key)
    return value


class _StepRule:
    """A rule as it counts for one step."""

    def __init__(self, rule: _CompiledRule, step: Step) -> None:
        self.tests = rule.tests
        self.open = tuple(test.holds for test in rule.tests)
        limits = rule.rule.constraints
        problem = None if limits is None else unenforceable(step, limits)
        self.ruling = rule.ruling
        if problem is not None:
            self.ruling = self.undecided(problem)

    def unanswered(self, error: FieldError) -> Ruling:
        """The denial of a task for which the condition has no answer.

        Nobody knows whether the rule would allow the task, so nobody has allowed it.
        """
        return self.undecided(f"its condition cannot be decided: {error}")

    def undecided(self, reason: str) -> Ruling:
        """The denial of a task about which the rule gives no valid answer."""
        one = self.ruling
        return Ruling(
            decision=PolicyDecision.DENY,
            rule=one.rule,
            version=one.version,
            digest=b"",
            reason=reason,
            code=SAFETY_UNKNOWN,
            rule_digest=one.rule_digest,
        )


# ---- fixed conditions --------------------------------------------------------------------------------


def step_tests(match: RuleMatch, *, with_tools: bool) -> list[Callable[[StepFacts], bool]]:
    """The fixed conditions as functions; `with_tools`, also about the functions that an agent may call."""
    tests: list[Callable[[StepFacts], bool]] = []
    for name, patterns in (("tenant", match.tenants), ("job", match.jobs)):
        if patterns is not None:
            tests.append(_text_test(name, _pattern(patterns)))
    for name, patterns in (("topic", match.topics), ("function", match.functions)):
        if patterns is not None:
            tests.append((_tool_test if with_tools else _text_test)(name, _pattern(patterns)))
    if match.kinds is not None:
        kinds = frozenset(match.kinds)
        tests.append(lambda facts: facts.kind in kinds)
    if match.capabilities is not None:
        capability = _pattern(match.capabilities)
        tests.append(lambda facts: bool(facts.capability) and capability(facts.capability.lower()))
    if match.risk_tags is not None:
        tag = _pattern(match.risk_tags)
        tests.append(lambda facts: any(tag(one.lower()) for one in facts.risk_tags))
    if match.requires is not None:
        wanted = frozenset(match.requires)
        tests.append(lambda facts: wanted <= {one.lower() for one in facts.requires})
    if match.labels is not None:
        labels = match.labels.items()
        tests.append(lambda facts: labels <= facts.labels.items())
    return tests


def _text_test(name: str, matches: Callable[[str], bool]) -> Callable[[StepFacts], bool]:
    return lambda facts: matches(getattr(facts, name))


def _tool_test(name: str, matches: Callable[[str], bool]) -> Callable[[StepFacts], bool]:
    """Whether the pattern matches the step, or a function that it may call: a tool has the topic of its name."""
    return lambda facts: matches(getattr(facts, name)) or any(map(matches, facts.tools))


def _pattern(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether one of the patterns matches a text."""
    known = re.compile("|".join(translate(one) for one in patterns))
    return lambda text: known.match(text) is not None


# ---- open conditions -----------------------------------------------------------------------------------


def _open_tests(match: RuleMatch, when: str | None) -> list[_OpenTest]:
    tests: list[_OpenTest] = []
    if match.sources is not None:
        tests.append(_open_test(FactName.SOURCE, _source_test(match.sources)))
    if match.actors is not None:
        actor = _pattern(match.actors)
        tests.append(_open_test(FactName.ACTOR, lambda facts, _: bool(facts.actor) and actor(facts.actor)))
    if match.groups is not None:
        group = _pattern(match.groups)
        tests.append(_open_test(FactName.GROUPS, lambda facts, _: any(map(group, facts.groups))))
    if match.secrets is not None:
        secret = _pattern(match.secrets)
        tests.append(_open_test(FactName.SECRETS, lambda facts, _: any(map(secret, facts.secrets))))
    if match.window is not None:
        window = _Window(match.window)
        tests.append(_OpenTest(frozenset({FactName.TIME}), lambda _, now: window.is_open(now), window))
    if when is not None:
        tests.append(_when_test(when))
    return tests


def _open_test(fact: FactName, holds: _Holds) -> _OpenTest:
    return _OpenTest(frozenset({fact}), holds)


def _source_test(sources: Iterable[str]) -> _Holds:
    # A tuple: finding the members of an enumeration in it costs less than their hashes would.
    known = tuple(map(RunSource, sources))
    return lambda facts, _: facts.source in known


def _when_test(text: str) -> _OpenTest:
    evaluator = compile_condition("when", text)
    roots = {segments(path)[0] for path in check_condition("when", text)}

    def holds(facts: RequestFacts, _: int) -> bool:
        scope: Mapping[str, Any] = {"input": facts.input, "labels": facts.step.labels, "run": facts.run}
        return evaluate_compiled(evaluator, text, scope, field="when")

    return _OpenTest(frozenset(fact for root, fact in _FACTS_OF_ROOTS.items() if root in roots), holds)


#: The roots of `when` that differ between the tasks of a step.
_FACTS_OF_ROOTS = {"input": FactName.INPUT, "run": FactName.RUN}


class _Window:
    """A window, and the last span of time for which it was computed."""

    def __init__(self, window: RuleWindow) -> None:
        self._cron, self._lasts_ms = Cron(window.cron, window.timezone), window.lasts_ms
        self._since, self._until, self._open = 0, 0, False

    def is_open(self, now: int) -> bool:
        """Whether one of its fires is at most so long ago."""
        if not self._since <= now < self._until:
            self._since, self._until, self._open = self._span_at(now)
        return self._open

    def is_steady(self, since: int, until: int) -> bool:
        """Whether it neither opens nor closes within these times."""
        self.is_open(until)
        return since >= self._since

    def _span_at(self, now: int) -> tuple[int, int, bool]:
        """The span around `now` in which the window stays open or closed."""
        last = self._cron.previous_before(instant_of(now + 1))
        if last is not None and now < ms_of(last) + self._lasts_ms:
            return ms_of(last), ms_of(last) + self._lasts_ms, True
        following = self._cron.next_after(instant_of(now))
        closed_at = now if last is None else ms_of(last) + self._lasts_ms
        return closed_at, now if following is None else ms_of(following), False
