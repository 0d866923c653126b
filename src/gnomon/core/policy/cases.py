"""Test cases of a policy: tasks, and the rulings that are expected about them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from gnomon.core.instants import ms_of
from gnomon.core.jobs.fields import FieldReader, key_text, printable
from gnomon.core.model import RunSource
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.document import StepKind
from gnomon.core.policy.facts import STEP_KINDS, RequestFacts, StepFacts
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.workflow import Step

CASE_FIELDS = ("name", "task", "at", "expect")
TASK_FIELDS = (
    "tenant", "job", "step", "topic", "function", "kind", "capability", "risk_tags", "requires", "labels",
    "actor", "groups", "source", "secrets", "input",
)  # fmt: skip
EXPECT_FIELDS = ("decision", "rule")
#: The time of a case that names none.
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_BUILT_IN = {kind: function for function, kind in STEP_KINDS.items()}
_MOST_CASES, _MOST_WORDS = 10_000, 200


class PolicyCase(Struct, frozen=True, kw_only=True):
    """One case."""

    name: str
    facts: RequestFacts
    #: When the task becomes ready.
    at: int
    decision: PolicyDecision
    #: The id of the rule that should decide; None for any.
    rule: str | None = None


class CaseResult(Struct, frozen=True, kw_only=True):
    """The ruling about the task of a case."""

    case: PolicyCase
    ruling: Ruling

    @property
    def passed(self) -> bool:
        """Whether the ruling is the expected one."""
        return self.ruling.decision is self.case.decision and self.case.rule in (None, self.ruling.rule)


def read_cases(data: object) -> tuple[PolicyCase, ...]:
    """The cases in the data; FieldError for the first mistake."""
    fields = FieldReader(data, ("cases",))
    fields.required("cases")
    found = [FieldReader(entry, CASE_FIELDS, path=path) for path, entry in fields.entries("cases", most=_MOST_CASES)]
    if not found:
        raise fields.refused("cases", "is empty")
    return tuple(map(_case, found))


def judge_cases(policy: CompiledPolicy, cases: Iterable[PolicyCase]) -> list[CaseResult]:
    """The rulings of the policy about all cases."""
    return [CaseResult(case=case, ruling=_ruling(policy, case)) for case in cases]


def _ruling(policy: CompiledPolicy, case: PolicyCase) -> Ruling:
    about = case.facts.step
    step = Step(name=about.step, function=_BUILT_IN.get(about.kind, about.function))
    return policy.for_step(about, step).ruling(case.facts, case.at)


def _case(fields: FieldReader) -> PolicyCase:
    expected = FieldReader(fields.required("expect"), EXPECT_FIELDS, path=fields.at("expect"))
    expected.required("decision")
    return PolicyCase(
        name=fields.text("name"),
        facts=_facts(FieldReader(fields.required("task"), TASK_FIELDS, path=fields.at("task"))),
        at=_at(fields),
        decision=expected.choice("decision", PolicyDecision, PolicyDecision.DENY),
        rule=expected.name("rule") if "rule" in expected else None,
    )


def _at(fields: FieldReader) -> int:
    found = fields.instant("at")
    return ms_of(_NOON) if found is None else found


def _facts(fields: FieldReader) -> RequestFacts:
    job, kind = fields.text("job", "job"), fields.choice("kind", StepKind, StepKind.FUNCTION)
    function = fields.text("function", _BUILT_IN.get(kind, job))
    return RequestFacts(
        step=StepFacts(
            tenant=fields.text("tenant", "default"),
            job=job,
            workflow=job,
            step=fields.text("step", "main"),
            topic=fields.text("topic", function),
            function=function,
            kind=kind,
            capability=fields.text("capability", ""),
            risk_tags=_words(fields, "risk_tags"),
            requires=_words(fields, "requires"),
            labels=_labels(fields),
        ),
        actor=fields.text("actor", ""),
        groups=_words(fields, "groups"),
        source=fields.choice("source", RunSource, RunSource.CRON),
        secrets=_words(fields, "secrets"),
        input=_mapping(fields, "input"),
        run={"job": job},
    )


def _words(fields: FieldReader, field: str) -> tuple[str, ...]:
    return tuple(printable(path, entry) for path, entry in fields.entries(field, most=_MOST_WORDS))


def _labels(fields: FieldReader) -> dict[str, str]:
    path = fields.at("labels")
    given = _mapping(fields, "labels").items()
    return {printable(path, key): printable(f"{path}.{key_text(key)}", entry) for key, entry in given}


def _mapping(fields: FieldReader, field: str) -> dict[str, Any]:
    if field not in fields:
        return {}
    value = fields[field]
    if not isinstance(value, dict):
        raise fields.refused(field, "must be a mapping")
    return value
