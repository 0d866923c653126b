"""The rules about outputs, compiled once per policy version, and the ruling on one output."""

from collections.abc import Sequence
from hashlib import sha256

from msgspec.structs import replace

from gnomon.core.output_policy.redaction import redacted_output, redacted_texts
from gnomon.core.output_policy.ruling import (
    NO_CONTENT,
    NO_RULE,
    OutputDecision,
    OutputRuling,
    ScanFinding,
    ScanSeverity,
)
from gnomon.core.output_policy.scanners import (
    SCANNERS,
    ContentScanner,
    Scanner,
    ScanPattern,
    keyword_expression,
    scanned_text,
)
from gnomon.core.policy.compiled import step_tests
from gnomon.core.policy.document import OutputMatch, OutputRule
from gnomon.core.policy.facts import StepFacts

#: How many findings a ruling keeps.
MOST_FINDINGS = 32
#: The rules that count if there is no policy, or one without rules about outputs.
DEFAULT_OUTPUT_RULES = (
    OutputRule(
        rule_id="secrets",
        decision=OutputDecision.QUARANTINE,
        match=OutputMatch(scanners=("secret",)),
        severity=ScanSeverity.CRITICAL,
    ),
)


class CompiledOutputPolicy:
    """The rules of a policy version, ready to rule."""

    def __init__(self, rules: Sequence[OutputRule], version: int) -> None:
        self.version = version
        self._rules = [_CompiledOutputRule(rule) for rule in rules]
        self._any_step = StepOutputRules(self._rules, version)

    def for_step(self, facts: StepFacts) -> "StepOutputRules":
        """The rules that can match outputs of the step."""
        found = list[_CompiledOutputRule]()
        for rule in self._rules:
            if rule.matches_step(facts):
                found.append(rule)
                if rule.is_last:
                    break
        return StepOutputRules(found, self.version)

    def for_any_step(self) -> "StepOutputRules":
        """All rules, as if all steps were one."""
        return self._any_step


class StepOutputRules:
    """The rules about the outputs of one step, in their order."""

    def __init__(self, rules: "Sequence[_CompiledOutputRule]", version: int) -> None:
        self._rules, self._version = rules, version
        self._content_scanner = ContentScanner(
            {one.name: one for rule in rules for one in rule.content_scanners}.values()
        )
        self._held_scanner = ContentScanner(
            {
                one.name: one
                for rule in rules
                if rule.rule.decision is not OutputDecision.ALLOW
                for one in rule.content_scanners
            }.values()
        )
        #: Whether any rule holds back or redacts by the content.
        self.redacts = any(
            rule.rule.match.reads_content and rule.rule.decision is not OutputDecision.ALLOW for rule in rules
        )
        #: Whether any rule needs the content of outputs.
        self.reads_content = any(rule.rule.match.reads_content for rule in rules)

    def ruling(self, output: bytes | None, *, has_error: bool, largest: int) -> OutputRuling:
        """The ruling on an output of an attempt. The content of larger ones than `largest` bytes is not read.

        The first rule that matches rules. An output that is redacted is judged by the rules after it as it is then:
        they may find what the redaction has left.
        """
        content = output or NO_CONTENT
        size = 0 if output is None else len(output)
        readable = size <= largest
        text = scanned_text(content) if self.reads_content and readable else b""
        is_clean = not self._content_scanner.may_match(text)
        incomplete, made = (
            False,
            OutputRuling(
                decision=OutputDecision.ALLOW, rule=NO_RULE, version=self._version, content_digest="", size=size
            ),
        )
        for rule in self._rules:
            if not rule.matches_size(size, has_error=has_error):
                continue
            findings: tuple[ScanFinding, ...] = ()
            if rule.rule.match.reads_content:
                incomplete = incomplete or not readable
                findings = () if is_clean or not readable else rule.scanner.findings(text, most=MOST_FINDINGS)
                if not findings:
                    continue
            redacted = made.redacted
            if rule.rule.decision is OutputDecision.REDACT:
                redacted = redacted_output(redacted or content, rule.scanner)
            made = _with_rule(made, rule.rule, findings, redacted, content)
            if redacted is None or rule.rule.decision is not OutputDecision.REDACT:
                break
            text = scanned_text(redacted)
        return replace(made, incomplete=incomplete and made.decision is not OutputDecision.QUARANTINE)

    def redacted(self, texts: Sequence[str]) -> list[str]:
        """Log lines or errors without the texts for which an output would be held back or redacted."""
        return redacted_texts(texts, self._held_scanner)

    def redacted_messages(self, turn: bytes) -> bytes | None:
        """The messages of an agent without these texts; None if they cannot be removed."""
        return turn if not self._held_scanner.matches(scanned_text(turn)) else redacted_output(turn, self._held_scanner)


def _with_rule(
    made: OutputRuling, rule: OutputRule, findings: tuple[ScanFinding, ...], redacted: bytes | None, content: bytes
) -> OutputRuling:
    """The ruling after one more rule that matches. `redacted` is the output as it may be stored, if that is another."""
    if rule.decision is OutputDecision.ALLOW:
        return made if made.redacted is not None else replace(made, rule=rule.rule_id, reason=rule.reason)
    reason = rule.reason or _found_text(findings)
    decision = rule.decision
    if decision is OutputDecision.REDACT:
        if redacted is None:
            decision, reason = OutputDecision.QUARANTINE, f"{reason}; it cannot be redacted"
        elif made.redacted is not None:
            return replace(made, findings=(*made.findings, *findings)[:MOST_FINDINGS], redacted=redacted)
    return OutputRuling(
        decision=decision,
        rule=rule.rule_id,
        version=made.version,
        content_digest=content_digest(content),
        size=made.size,
        reason=reason,
        findings=findings,
        redacted=redacted if decision is OutputDecision.REDACT else None,
    )


class _CompiledOutputRule:
    """A rule with its conditions as functions and its patterns compiled."""

    def __init__(self, rule: OutputRule) -> None:
        self.rule = rule
        # A permission is about the step itself; every other decision also about the functions that its agent may call.
        self._step_tests = step_tests(rule.match.step, with_tools=rule.decision is not OutputDecision.ALLOW)
        self.content_scanners = _scanners(rule)
        self.scanner = ContentScanner(self.content_scanners)
        match = rule.match
        #: Whether it matches every output, so that no later rule counts.
        self.is_last = not match.reads_content and match.has_error is None and match.larger_than is None

    def matches_step(self, facts: StepFacts) -> bool:
        """Whether its conditions about the step hold."""
        return all(test(facts) for test in self._step_tests)

    def matches_size(self, size: int, *, has_error: bool) -> bool:
        """Whether its conditions about the size and the error of the attempt hold."""
        match = self.rule.match
        if match.has_error is not None and match.has_error is not has_error:
            return False
        return match.larger_than is None or size > match.larger_than


def content_digest(content: bytes) -> str:
    """The digest by which an output is known."""
    return sha256(content).hexdigest()


def _scanners(rule: OutputRule) -> list[Scanner]:
    """The scanners of a rule; its own patterns and keywords are one whose name is the rule's."""
    found = [SCANNERS[name] for name in rule.match.scanners]
    own = _own_patterns(rule)
    return [*found, Scanner(name=f"rule:{rule.rule_id}", patterns=own)] if own else found


def _own_patterns(rule: OutputRule) -> tuple[ScanPattern, ...]:
    match: OutputMatch = rule.match
    expressions = [(f"pattern {number}", text) for number, text in enumerate(match.patterns, 1)]
    expressions += [(f"keyword {number}", keyword_expression(text)) for number, text in enumerate(match.keywords, 1)]
    return tuple(ScanPattern(name=name, expression=text, severity=rule.severity) for name, text in expressions)


def _found_text(findings: Sequence[ScanFinding]) -> str:
    """The reason of a rule that gives none: where it found something, never the text itself."""
    if not findings:
        return ""
    first = findings[0]
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{first.scanner}: {first.pattern} at byte {first.offset}{more}"
