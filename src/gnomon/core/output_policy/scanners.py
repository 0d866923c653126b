"""Scanners: named lists of patterns that find secrets, personal data and injected instructions in a text.

All patterns are RE2: their time is linear in the text, whatever the pattern and the text are. A clean text is read
once: one expression holds the patterns of all rules as alternatives, and the patterns are tried one by one only if it
matches. `re2.Set` would tell which pattern matched, but it reports no match at all if its automaton grows too large,
and a text could be made to cause that.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import re2
from msgspec import Struct

from gnomon.core.output_policy.ruling import ScanFinding, ScanSeverity

#: The memory that the automaton of a pattern may take.
_PATTERN_MEMORY = 4 << 20
#: How many alternatives one expression holds: an automaton of too many no longer fits into its memory.
_ALTERNATIVES = 64
#: The text in the place of one that was found.
REDACTED = "[REDACTED]"
_REDACTED = REDACTED.encode()
_DIGITS = re.compile(rb"[0-9]+")
#: How many digits a card has, the fewest in one of its groups, and the first digits of all issuers.
_CARD_DIGITS, _SMALLEST_GROUP, _CARD_STARTS = range(13, 20), 3, b"23456"
_ZERO = ord("0")
#: Each digit as the digit sum of its double.
_DOUBLED = bytes.maketrans(b"0123456789", b"0246813579")


class ScanPattern(Struct, frozen=True, kw_only=True):
    """One pattern, in the syntax of RE2."""

    name: str
    expression: str
    severity: ScanSeverity = ScanSeverity.HIGH
    #: Whether a match may hold the number of a payment card: only groups of digits with a valid check digit count.
    is_card: bool = False


class Scanner(Struct, frozen=True, kw_only=True):
    """A named list of patterns. It finds a text if any of them matches."""

    name: str
    patterns: tuple[ScanPattern, ...]


_SECRETS = (
    ScanPattern(name="aws_key_id", expression=r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", severity=ScanSeverity.CRITICAL),
    ScanPattern(
        name="aws_secret",
        expression=r"(?i:aws_?(?:secret_?)?(?:access_?)?key(?:_?id)?)\\?[\"']?\s*[:=]\s*\\?[\"']?[A-Za-z0-9/+=]{40}",
        severity=ScanSeverity.CRITICAL,
    ),
    ScanPattern(
        name="credential",
        expression=r"(?i:passw(?:or)?d|secret|token|api[_-]?key|credentials?)\\?[\"']?\s*[:=]\s*\\?[\"'][^\"'\s\\]{8,}\\?[\"']",
    ),
    ScanPattern(
        name="private_key",
        expression=r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]*-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?",
        severity=ScanSeverity.CRITICAL,
    ),
    ScanPattern(
        name="github_token",
        expression=r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22})[A-Za-z0-9_]*",
        severity=ScanSeverity.CRITICAL,
    ),
    ScanPattern(name="slack_token", expression=r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ScanPattern(name="model_key", expression=r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}"),
    ScanPattern(name="google_key", expression=r"\bAIza[A-Za-z0-9_-]{35}"),
    ScanPattern(name="json_web_token", expression=r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ScanPattern(name="address_with_password", expression=r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']+:[^\s/@\"']+@"),
)  # fmt: skip
_PERSONAL_DATA = (
    ScanPattern(
        name="email",
        expression=r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2}[A-Za-z]*\b",
        severity=ScanSeverity.MEDIUM,
    ),
    ScanPattern(name="us_social_security", expression=r"\b[0-8]\d\d-\d\d-\d\d\d\d\b"),
    ScanPattern(
        name="phone",
        expression=r"(?:\+\d{1,3}[ .-]?)?(?:\(\d{3}\) ?|\b\d{3}[ .-])\d{3}[ .-]\d{4}\b",
        severity=ScanSeverity.MEDIUM,
    ),
    ScanPattern(name="card", expression=r"(?:^|[^0-9.])[0-9](?:[ -]?[0-9]){12,}", is_card=True),
)
_INJECTION = (
    ScanPattern(
        name="sql",
        expression=r"(?i:\bunion\s+(?:all\s+)?select\b|[;'\"]\s*(?:drop|truncate)\s+table\b|;\s*delete\s+from\b"
        r"|['\"]\s*or\s+['\"]?1['\"]?\s*=\s*['\"]?1)",
    ),
    ScanPattern(
        name="destructive_command",
        expression=r"\brm\s+(?:-[a-zA-Z]+\s+)*-[a-zA-Z]*[rRf][a-zA-Z]*\s+[/~$*]|\bmkfs(?:\.\w+)?\s+/dev/|\bdd\s+[^\n]*\bof=/dev/|:\(\)\s*\{",
        severity=ScanSeverity.CRITICAL,
    ),
    ScanPattern(
        name="pipe_to_shell",
        expression=r"(?i:\b(?:curl|wget)\b[^|\n]*\|\s*(?:sudo\s+)?(?:ba|da|k|z)?sh\b)",
        severity=ScanSeverity.CRITICAL,
    ),
    ScanPattern(
        name="instruction",
        expression=r"(?i:\b(?:ignore|disregard|forget)\s+(?:all\s+)?(?:of\s+)?(?:the\s+|your\s+|my\s+)?"
        r"(?:previous|prior|above|earlier|preceding)\s+(?:instructions?|prompts?|rules|messages)\b"
        r"|\byou\s+are\s+now\s+(?:in\s+)?(?:developer|admin|root|dan)\b|\breveal\s+(?:your|the)\s+system\s+prompt\b)",
    ),
)  # fmt: skip

#: The scanners that are built in, by name.
SCANNERS = {
    one.name: one
    for one in (
        Scanner(name="secret", patterns=_SECRETS),
        Scanner(name="pii", patterns=_PERSONAL_DATA),
        Scanner(name="injection", patterns=_INJECTION),
    )
}
#: Other names for them.
SCANNER_NAMES = {"secret_leak": "secret", "code_injection": "injection"}


#: Texts that together have every kind of place where a pattern such as `\b` can match the empty text.
_EMPTY_PLACES = (b"", b"a", b"aa", b" ", b" a ", b"a\na")


class PatternError(ValueError):
    """The reason that refuses a pattern."""


def check_pattern(expression: str) -> None:
    """Raise PatternError if the pattern does not compile or matches the empty text."""
    if r"\Q" in expression:
        raise PatternError(r"must not quote with \Q: write each character with \ before it")
    pattern = _compiled(expression)
    if any(one.start() == one.end() for text in _EMPTY_PLACES for one in pattern.finditer(text)):
        raise PatternError("matches the empty text, and so every output")


def keyword_expression(keyword: str) -> str:
    """The pattern of a keyword: the text itself, in capital or small letters."""
    return f"(?i:{re2.escape(keyword)})"


class ContentScanner:
    """Finds the matches of scanners in a text."""

    def __init__(self, scanners: Iterable[Scanner]) -> None:
        self._patterns = [_CompiledPattern(one.name, pattern) for one in scanners for pattern in one.patterns]
        expressions = [one.pattern.expression for one in self._patterns]
        self._filters = [
            one
            for start in range(0, len(expressions), _ALTERNATIVES)
            for one in _filters(expressions[start : start + _ALTERNATIVES])
        ]

    def may_match(self, content: bytes) -> bool:
        """Whether any pattern matches; a number that only looks like that of a card matches here."""
        return any(one.search(content) is not None for one in self._filters)

    def findings(self, content: bytes, *, most: int) -> tuple[ScanFinding, ...]:
        """The first findings in the order of their patterns, at most so many."""
        found = list[ScanFinding]()
        if self.may_match(content):
            for pattern in self._patterns:
                for one in pattern.findings(content):
                    found.append(one)
                    if len(found) == most:
                        return tuple(found)
        return tuple(found)

    def matches(self, content: bytes) -> bool:
        """Whether anything is found."""
        return bool(self.findings(content, most=1))

    def ranges(self, content: bytes) -> list[tuple[int, int]]:
        """The ranges of all findings in their order; those that touch or overlap are one."""
        if not self.may_match(content):
            return []
        return merged((one.offset, one.end) for pattern in self._patterns for one in pattern.findings(content))


class _CompiledPattern:
    """A pattern as it finds."""

    def __init__(self, scanner: str, pattern: ScanPattern) -> None:
        self.scanner, self.pattern = scanner, pattern
        self._expression = _compiled(pattern.expression)

    def findings(self, content: bytes) -> Iterator[ScanFinding]:
        """All its findings in the content."""
        for start, end in self._ranges(content):
            yield ScanFinding(
                scanner=self.scanner,
                pattern=self.pattern.name,
                severity=self.pattern.severity,
                offset=start,
                length=end - start,
            )

    def _ranges(self, content: bytes) -> Iterator[tuple[int, int]]:
        for match in self._expression.finditer(content):
            start, end = match.span()
            if self.pattern.is_card:
                yield from _cards(content, start, end)
            elif not self._is_redacted(content[start:end]):
                yield start, end

    def _is_redacted(self, found: bytes) -> bool:
        """Whether the text was found only because of a redaction, as in `password="[REDACTED]"`."""
        return _REDACTED in found and self._expression.search(found.replace(_REDACTED, b"")) is None


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in their order; those that touch or overlap are one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


# ---- texts inside JSON -----------------------------------------------------------------------------


def scanned_text(content: bytes) -> bytes:
    r"""The text to scan for an output in JSON: its bytes, and each text in it that is written with escapes.

    `AK\u0049A` is a key, too, although its bytes do not match.
    """
    if b"\\" not in content:
        return content
    try:
        texts = "\n".join(_texts(msgspec.json.decode(content)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content
    return b"%s\n%s" % (content, texts.encode(errors="replace"))


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - decoded JSON
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            for key, entry in one.items():
                yield f"{key}: '{entry}'" if isinstance(entry, str) else key
                pending.append(entry)
        elif isinstance(one, list):
            pending.extend(one)


# ---- payment cards -----------------------------------------------------------------------------------


def _cards(content: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges of card numbers in a run of digits: consecutive groups of digits, as cards are written."""
    groups = [(start + one.start(), start + one.end()) for one in _DIGITS.finditer(content[start:end])]
    after = -1
    for index, (first, _) in enumerate(groups):
        if first < after or content[first] not in _CARD_STARTS:
            continue
        digits = b""
        for group_start, group_end in groups[index:]:
            digits += content[group_start:group_end]
            if group_end - group_start < _SMALLEST_GROUP or len(digits) > _CARD_DIGITS[-1]:
                break
            if len(digits) in _CARD_DIGITS and luhn_valid(digits):
                after = group_end
                yield first, group_end
                break


def luhn_valid(digits: bytes) -> bool:
    """Whether the last digit is the check digit of the others."""
    doubled = digits[-2::-2].translate(_DOUBLED)
    return (sum(digits[-1::-2]) + sum(doubled) - _ZERO * len(digits)) % 10 == 0


def _filters(expressions: Sequence[str]) -> list[Any]:
    """As few expressions as possible that match if one of these does: many large ones do not fit into one."""
    try:
        return [_compiled("|".join(f"(?:{one})" for one in expressions))]
    except PatternError:
        half = len(expressions) // 2
        if not half:
            raise
        return _filters(expressions[:half]) + _filters(expressions[half:])


def _compiled(expression: str) -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _PATTERN_MEMORY
    try:
        return re2.compile(expression, options=options)
    except re2.error as error:
        text = error.args[0]
        raise PatternError(f"is no pattern of RE2: {text.decode() if isinstance(text, bytes) else text}") from None
