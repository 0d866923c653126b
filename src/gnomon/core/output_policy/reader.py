"""Reads the rules about outputs: every key is known, every value is checked, and each error names its field."""

from gnomon.core.jobs.fields import FieldReader, printable
from gnomon.core.output_policy.ruling import NO_RULE, OutputDecision, ScanSeverity
from gnomon.core.policy.document import OutputMatch, OutputRule
from gnomon.core.policy.match_reader import STEP_MATCH_FIELDS, read_match, read_texts
from gnomon.errors import FieldError

OUTPUT_RULE_FIELDS = ("id", "match", "decision", "severity", "reason")
OUTPUT_MATCH_FIELDS = (*STEP_MATCH_FIELDS, "has_error", "larger_than", "scanners", "patterns", "keywords")
#: Another name for a decision.
_DECISION_NAMES = {"deny": OutputDecision.QUARANTINE}
MOST_OUTPUT_RULES = 500
#: How many patterns and keywords all rules may have together: each takes memory of its own.
MOST_PATTERNS = 1000
_MOST_IN_RULE = 50
#: In characters.
_LONGEST_PATTERN = 256
_LONGEST_REASON = 500
_LARGEST_OUTPUT = 64 << 20


def read_output_rules(fields: FieldReader, field: str) -> tuple[OutputRule, ...]:
    """The rules in the field; FieldError for the first mistake."""
    rules = list[OutputRule]()
    places: dict[str, int] = {}
    for index, (path, entry) in enumerate(fields.entries(field, most=MOST_OUTPUT_RULES)):
        rule = _rule(FieldReader(entry, OUTPUT_RULE_FIELDS, path=path))
        if places.setdefault(rule.rule_id, index) != index:
            reason = f"is already the id of {field}[{places[rule.rule_id]}]"
            raise FieldError(f"{path}.id", rule.rule_id, reason)
        rules.append(rule)
    if (number := sum(len(rule.match.patterns) + len(rule.match.keywords) for rule in rules)) > MOST_PATTERNS:
        raise fields.refused(field, f"has {number} patterns and keywords; at most {MOST_PATTERNS} are allowed")
    return tuple(rules)


def _rule(fields: FieldReader) -> OutputRule:
    name = fields.name("id")
    if name == NO_RULE:
        raise fields.refused("id", "is the name of the ruling about outputs that no rule matches")
    fields.required("decision")
    decision = fields.choice("decision", OutputDecision, OutputDecision.ALLOW, other_names=_DECISION_NAMES)
    match = OutputMatch()
    if "match" in fields:
        match = _match(FieldReader(fields["match"], OUTPUT_MATCH_FIELDS, path=fields.at("match")))
    if decision is OutputDecision.REDACT and not match.reads_content:
        raise fields.refused("decision", "needs scanners, patterns or keywords in match: only found texts are replaced")
    return OutputRule(
        rule_id=name,
        decision=decision,
        match=match,
        severity=fields.choice("severity", ScanSeverity, ScanSeverity.HIGH),
        reason=printable(fields.at("reason"), fields["reason"], longest=_LONGEST_REASON) if "reason" in fields else "",
    )


def _match(fields: FieldReader) -> OutputMatch:
    return OutputMatch(
        step=read_match(fields),
        has_error=fields.flag("has_error", default=False) if "has_error" in fields else None,
        larger_than=fields.whole("larger_than", 0, low=0, high=_LARGEST_OUTPUT) if "larger_than" in fields else None,
        scanners=_scanners(fields),
        patterns=_patterns(fields),
        keywords=_keywords(fields),
    )


def _scanners(fields: FieldReader) -> tuple[str, ...]:
    if "scanners" not in fields:
        return ()
    from gnomon.core.output_policy.scanners import SCANNER_NAMES, SCANNERS

    found: dict[str, None] = {}
    for index, text in enumerate(read_texts(fields, "scanners") or ()):
        name = SCANNER_NAMES.get(text, text)
        path = f"{fields.at('scanners')}[{index}]"
        if name not in SCANNERS:
            raise FieldError(path, text, f"must be one of {', '.join(SCANNERS)}")
        if name in found:
            raise FieldError(path, text, "is named a second time")
        found[name] = None
    return tuple(found)


def _patterns(fields: FieldReader) -> tuple[str, ...]:
    if "patterns" not in fields:
        return ()
    from gnomon.core.output_policy.scanners import PatternError, check_pattern

    texts = read_texts(fields, "patterns", most=_MOST_IN_RULE, longest=_LONGEST_PATTERN) or ()
    for index, text in enumerate(texts):
        try:
            check_pattern(text)
        except PatternError as error:
            raise FieldError(f"{fields.at('patterns')}[{index}]", text, str(error)) from None
    return texts


def _keywords(fields: FieldReader) -> tuple[str, ...]:
    return read_texts(fields, "keywords", str.strip, most=_MOST_IN_RULE) or ()
