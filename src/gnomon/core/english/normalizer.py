"""The normalizer between lexer and parser: it makes the words of a sentence regular, so that the grammar stays small.

It drops commas, "and" and "the", and adds an "at", "on" or "from" that people leave out. "second" becomes either
the unit or the ordinal. "every noon" becomes every day at noon, and "nightly" becomes daily where a time is named.
An "and" must join things of one kind: clauses side by side narrow a schedule down, while "and" between them
would widen it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gnomon.core.english.statement import SentenceRefusal
from gnomon.errors import Position

if TYPE_CHECKING:
    from lark import Token

_KINDS = {
    "TIME": "time",
    "WEEKDAY": "weekday",
    "WORKDAY": "weekday",
    "WEEKEND": "weekday",
    "ORDINAL": "number",
    "NUMBER": "number",
    "LAST": "number",
    "DAY": "day",
    "MONTH_NAME": "month",
    "SECOND": "unit",
    "MINUTE": "unit",
    "HOUR": "unit",
    "MARK": "mark",
}
_JOINS = {
    ("time", "time"),
    ("weekday", "weekday"),
    ("weekday", "number"),
    ("number", "number"),
    ("day", "number"),
    ("month", "month"),
    ("month", "number"),
    ("number", "month"),
    ("unit", "number"),
    ("mark", "mark"),
}
#: The words that may be repeated after "and": "at 8am and at 8pm".
_REPEATED = {
    "time": {"AT"},
    "weekday": {"ON", "EVERY"},
    "number": {"ON", "EVERY"},
    "month": {"ON", "IN", "EVERY"},
}
_DAYS = {"WEEKDAY", "WORKDAY", "WEEKEND", "ORDINAL", "LAST", "MONTH_NAME"}
_BEFORE_TIME = {"TIME", "AT", "FROM", "BETWEEN", "THROUGH"}
_ENDS_A_CLAUSE = {"TIME", "SECOND", "MINUTE", "HOUR", "DURATION", "ADVERB", "HOURLY", "ZONE", "IN_ZONE"}
_UNITS = {"SECOND", "MINUTE", "HOUR", "MONTH", "QUARTER", "YEAR"}


class TokenNormalizer:
    """The post-lexer that lark runs between its lexer and its parser."""

    #: lark drops words that the grammar does not use, unless they are named here.
    always_accept = ("AND", "COMMA", "THE", "NIGHTLY", "OTHER")

    def process(self, stream: Iterator["Token"]) -> Iterator["Token"]:
        """The tokens as the grammar expects them."""
        tokens = list(stream)
        tokens = [_settled(tokens, place) for place in range(len(tokens))]
        yield from _completed(_joined([token for token in tokens if token.type not in ("COMMA", "THE")]))


def place_of(token: "Token") -> Position:
    """The position of a token in the text."""
    start = token.start_pos or 0
    return Position(start, token.end_pos or start)


def _settled(tokens: list["Token"], place: int) -> "Token":
    """The token with the type it has in its context."""
    token, types = tokens[place], [token.type for token in tokens]
    if token.type == "NIGHTLY" and "TIME" in types:
        return token.update(type="ADVERB")
    counts = types[max(0, place - 1) : place] == ["EVERY"] and types[place + 1 : place + 2] != []
    if token.type == "OTHER" and counts and types[place + 1] in _UNITS:
        return token.update(type="ORDINAL", value="second")
    if token.type != "SECOND" or token.lower() != "second":
        return token
    if counts and types[place + 1] in _UNITS:
        return token.update(type="ORDINAL")
    return _second_settled(tokens, place, types)


def _second_settled(tokens: list["Token"], place: int, around: list[str]) -> "Token":
    """The word "second" as a unit or as an ordinal."""
    before, after = around[max(0, place - 2) : place], around[place + 1 : place + 3]
    if before[-1:] in (["ORDINAL"], ["NUMBER"], ["AT"]) or before == ["AT", "EVERY"]:
        return tokens[place]
    ordinal = (
        before[-1:] == ["THE"]
        or after[:1] in (["WEEKDAY"], ["OF"], ["MONTH_NAME"], ["ORDINAL"], ["LAST"])
        or (after[:1] in (["AND"], ["COMMA"]) and after[1:] in (["ORDINAL"], ["LAST"], ["THE"]))
        or (before[:1] == ["ORDINAL"] and before[1] in ("AND", "COMMA", "THROUGH"))
    )
    return tokens[place].update(type="ORDINAL") if ordinal else tokens[place]


def _joined(tokens: list["Token"]) -> list["Token"]:
    """The tokens without "and"; refuse one that joins things of different kinds."""
    kept: list[Token] = []
    words = iter(range(len(tokens)))
    for place in words:
        if tokens[place].type != "AND":
            kept.append(tokens[place])
            continue
        for _ in range(_repeated(tokens, place, before=kept[-1] if kept else None)):
            next(words)
    if any(token.type == "IF" for token in kept):
        # After "if it is a", "or" lists weekdays; before it, "or" joins days of the month and weekdays.
        start = next(place for place, token in enumerate(kept) if token.type == "IF")
        kept = [token for place, token in enumerate(kept) if token.type != "OR" or place < start]
    return kept


def _repeated(tokens: list["Token"], place: int, before: "Token | None") -> int:
    """How many words after the "and" at `place` only repeat the words before it."""
    first = _KINDS.get(before.type) if before else None
    after = [token.type for token in tokens[place + 1 : place + 3]]
    for skipped, name in enumerate(after):
        second = _KINDS.get(name)
        allowed = second and set(after[:skipped]) <= _REPEATED.get(second, set())
        if allowed and (first, second) in _JOINS and not (first == "unit" and skipped):
            return skipped
        if second:
            break
    raise _wrongly_joined(tokens, place)


def _wrongly_joined(tokens: list["Token"], place: int) -> SentenceRefusal:
    word = tokens[place]
    reason = f'has "{word}" where it joins different things; that takes two schedules'
    return SentenceRefusal(reason, place_of(word), vague=True)


def _completed(tokens: list["Token"]) -> Iterator["Token"]:
    """The tokens with the prepositions that people leave out."""
    last = ""
    for place, token in enumerate(tokens):
        if token.type == "TIME" and last == "EVERY" and token.lower().endswith(("noon", "midnight", "midday")):
            yield token.new_borrow_pos("DAY", "day", token)
            yield token.new_borrow_pos("AT", "at", token)
        elif token.type == "TIME" and last not in _BEFORE_TIME:
            ranges = [after.type for after in tokens[place + 1 : place + 2]] == ["THROUGH"]
            yield token.new_borrow_pos(*(("FROM", "from") if ranges else ("AT", "at")), token)
        elif last not in ("AT", "OF") and _begins_past(tokens[place : place + 4]):
            yield token.new_borrow_pos("AT", "at", token)
        elif token.type in _DAYS and last in _ENDS_A_CLAUSE:
            yield token.new_borrow_pos("ON", "on", token)
        yield token
        last = token.type


def _begins_past(tokens: list["Token"]) -> bool:
    """Whether "5 minutes past", "every minute past" or "every 5th minute past" begins here."""
    types = [token.type for token in tokens]
    return types[:3] in (["NUMBER", "MINUTE", "PAST"], ["EVERY", "MINUTE", "PAST"]) or types == [
        "EVERY",
        "ORDINAL",
        "MINUTE",
        "PAST",
    ]
