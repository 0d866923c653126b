"""Checks outputs by the rules of the policy in the store, in this process."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gnomon.core.model import LogLine, Result, Run, TaskId
from gnomon.core.output_policy.compiled import DEFAULT_OUTPUT_RULES, CompiledOutputPolicy, StepOutputRules
from gnomon.core.output_policy.compiled import content_digest as digest_of
from gnomon.core.output_policy.outcome import checked_outcome
from gnomon.core.output_policy.ruling import (
    NO_CONTENT,
    RELEASED_RULE,
    UNCHECKED_RULE,
    OutputCheck,
    OutputDecision,
    OutputRuling,
)
from gnomon.core.payloads import held_output_context
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.facts import step_facts
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import Unavailable
from gnomon.ports.execution import Finished
from gnomon.ports.output_policy import OutputJudge, OutputPolicy, OutputRulings, StoredOutput
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.runtime import Clock
from gnomon.services.execution.stored_policy import StoredPolicy

#: A larger output is checked in a thread, since the event loop cannot wait for it.
_LARGEST_AT_ONCE = 4096
#: The steps whose rules are remembered; when there are more, all are forgotten.
_MOST_STEPS = 10_000
_StepKey = tuple[str, str, str, int, str]


class _CheckedStep(NamedTuple):
    """The rules about the outputs of a step."""

    workflow: Workflow
    rules: StepOutputRules


class StoredOutputPolicy(OutputPolicy, OutputJudge):
    """Checks by the rules about outputs of the version that this process knows to be in force.

    It checks outputs before they are stored; as their judge, it reads those that were too large for that.
    """

    def __init__(
        self,
        stored: StoredPolicy,
        rulings: OutputRulings,
        clock: Clock,
        *,
        inline_bytes: int,
        holds_unchecked: bool,
        cipher: PayloadCipher | None,
        judges_all: bool = False,
    ) -> None:
        """`holds_unchecked`: an output that could not be checked is held back. `cipher` encrypts what is held back.

        `judges_all`: every output is checked again after it was stored, because another service judges it.
        """
        self._judges_all = judges_all
        self._stored, self._rulings, self._clock = stored, rulings, clock
        self._inline_bytes, self._holds_unchecked = inline_bytes, holds_unchecked
        self._cipher = cipher
        self._policy: CompiledPolicy | None = None
        self._compiled = CompiledOutputPolicy(DEFAULT_OUTPUT_RULES, 0)
        self._steps: dict[_StepKey, _CheckedStep] = {}

    def check_now(self, finished: Finished) -> AttemptOutcome | None:
        """See OutputPolicy.check_now. Outputs that are held back may have been released before: the store knows."""
        if not self._stored.is_known or _size(finished.outcome) > _LARGEST_AT_ONCE:
            return None
        since = self._clock.elapsed()
        rules = self._rules_of(finished.assignment)
        ruling, outcome = _judged(rules, finished.outcome, self._inline_bytes)
        if ruling.decision is not OutputDecision.ALLOW:
            return None
        return self._outcome(finished.assignment, outcome, ruling, since)

    async def check(self, finished: Finished) -> AttemptOutcome:
        """See OutputPolicy.check."""
        since = self._clock.elapsed()
        if not self._stored.is_known:
            await self._stored.refresh()
        if not self._stored.is_known:
            raise Unavailable(self._stored.unreadable)
        held, rules = finished.assignment, self._rules_of(finished.assignment)
        if _size(finished.outcome) > _LARGEST_AT_ONCE:
            ruling, outcome = await asyncio.to_thread(_judged, rules, finished.outcome, self._inline_bytes)
        else:
            ruling, outcome = _judged(rules, finished.outcome, self._inline_bytes)
        if ruling.decision is not OutputDecision.ALLOW and await self.is_exempt(held.run.tenant, ruling):
            ruling = replace(ruling, decision=OutputDecision.ALLOW, rule=RELEASED_RULE, redacted=None)
        return self._outcome(held, outcome, ruling, since)

    def unchecked(self, finished: Finished, reason: str) -> AttemptOutcome:
        """See OutputPolicy.unchecked."""
        held, outcome = finished.assignment, finished.outcome
        if not self._holds_unchecked:
            late = outcome.result is Result.SUCCEEDED and outcome.output is not None
            return replace(outcome, check=OutputCheck(topic=held.step.topic, ruling=None, late=late))
        error = None if outcome.error is None else "its error is held back: it could not be checked"
        outcome = replace(outcome, logs=(), log_left_out=False, error=error, turn=None)
        ruling = self._unchecked_ruling(outcome.output or NO_CONTENT, reason)
        return self._outcome(held, outcome, ruling, self._clock.elapsed())

    async def clean_lines(self, lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
        """See OutputPolicy.clean_lines."""
        if not self._stored.is_known:
            raise Unavailable(self._stored.unreadable)
        self._follow()
        rules, texts = self._compiled.for_any_step(), [one.text for one in lines]
        if sum(map(len, texts)) > _LARGEST_AT_ONCE:
            return _with_texts(lines, await asyncio.to_thread(rules.redacted, texts))
        return _with_texts(lines, rules.redacted(texts))

    async def judge(self, stored: StoredOutput) -> OutputRuling:
        """See OutputJudge.judge."""
        if not self._stored.is_known:
            await self._stored.refresh()
        if not self._stored.is_known:
            raise Unavailable(self._stored.unreadable)
        rules = self._rules(stored.run, stored.workflow, stored.step)
        size = len(stored.output)
        ruling = await asyncio.to_thread(rules.ruling, stored.output, has_error=False, largest=size)
        if ruling.decision is not OutputDecision.ALLOW and await self.is_exempt(stored.run.tenant, ruling):
            return replace(ruling, decision=OutputDecision.ALLOW, rule=RELEASED_RULE, redacted=None)
        return ruling

    def unchecked_ruling(self, output: bytes, reason: str) -> OutputRuling | None:
        """The ruling on a stored output that nothing could judge; None: it stays."""
        return self._unchecked_ruling(output, reason) if self._holds_unchecked else None

    def sealed(self, task_id: TaskId, output: bytes) -> bytes:
        """The output as it is held back."""
        return output if self._cipher is None else self._cipher.seal(held_output_context(task_id), output)

    def _unchecked_ruling(self, content: bytes, reason: str) -> OutputRuling:
        return OutputRuling(
            decision=OutputDecision.QUARANTINE,
            rule=UNCHECKED_RULE,
            version=self._compiled.version,
            content_digest=digest_of(content),
            size=len(content),
            reason=f"it could not be checked: {reason}",
        )

    @property
    def holds_unchecked(self) -> bool:
        """Whether an output is held back that nothing could check."""
        return self._holds_unchecked

    @staticmethod
    def digest_of(output: bytes) -> str:
        """The digest by which a content is exempt."""
        return digest_of(output)

    async def is_exempt(self, tenant: str, ruling: OutputRuling) -> bool:
        """Whether an operator has released the content before."""
        try:
            return await self._rulings.is_exempt(tenant, ruling.content_digest)
        except Unavailable:
            # It is not known: better held back a second time than leaked.
            return False

    def _outcome(self, held: Assignment, outcome: AttemptOutcome, ruling: OutputRuling, since: float) -> AttemptOutcome:
        ms = round((self._clock.elapsed() - since) * 1000)
        checked = checked_outcome(outcome, ruling, topic=held.step.topic, ms=ms)
        check = checked.check
        if check is None:
            return checked
        if check.held is not None:
            return replace(checked, check=replace(check, held=self.sealed(held.task.task_id, check.held)))
        is_stored = checked.result is Result.SUCCEEDED and checked.output is not None
        if is_stored and (ruling.incomplete or (self._judges_all and ruling.rule != RELEASED_RULE)):
            return replace(checked, check=replace(check, late=True))
        return checked

    def _follow(self) -> None:
        """Compile the rules of another version, if that is in force now."""
        policy = self._stored.current
        if policy is not self._policy:
            given = None if policy is None else policy.document.output_rules
            rules = DEFAULT_OUTPUT_RULES if given is None else given
            self._compiled = CompiledOutputPolicy(rules, 0 if policy is None else policy.version)
            self._policy, self._steps = policy, {}

    def _rules_of(self, held: Assignment) -> StepOutputRules:
        return self._rules(held.run, held.workflow, held.step)

    def _rules(self, run: Run, workflow: Workflow, step: Step) -> StepOutputRules:
        self._follow()
        key = (run.tenant, run.schedule_id or run.workflow_id, run.workflow_id, workflow.version, step.name)
        known = self._steps.get(key)
        if known is None or known.workflow is not workflow:
            if len(self._steps) >= _MOST_STEPS:
                self._steps.clear()
            facts = step_facts(key[0], key[1], workflow, step)
            known = self._steps[key] = _CheckedStep(workflow, self._compiled.for_step(facts))
        return known.rules


def _size(outcome: AttemptOutcome) -> int:
    """How many bytes and characters have to be read."""
    texts = sum(len(one.text) for one in outcome.logs) + len(outcome.error or "") + len(outcome.turn or b"")
    return len(outcome.output or b"") + texts


def _judged(rules: StepOutputRules, outcome: AttemptOutcome, largest: int) -> tuple[OutputRuling, AttemptOutcome]:
    """The ruling on the output, and the outcome with clean log lines, error and messages."""
    ruling = rules.ruling(outcome.output, has_error=outcome.error is not None, largest=largest)
    if not rules.redacts:
        return ruling, outcome
    texts = [one.text for one in outcome.logs]
    *lines, error = rules.redacted([*texts, outcome.error or ""])
    turn = None if outcome.turn is None else rules.redacted_messages(outcome.turn)
    if lines == texts and error == (outcome.error or "") and turn == outcome.turn:
        return ruling, outcome
    return ruling, replace(outcome, logs=_with_texts(outcome.logs, lines), error=error or None, turn=turn)


def _with_texts(lines: Sequence[LogLine], texts: Sequence[str]) -> tuple[LogLine, ...]:
    return tuple(one if one.text == text else replace(one, text=text) for one, text in zip(lines, texts, strict=True))
