"""The parser of English schedules: check the characters, parse, read the clauses, compile them into a schedule."""

import re
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from gnomon.core.cron.calendar import day_rule
from gnomon.core.cron.dialect_standard import parse
from gnomon.core.english.clauses import statement_from_tree
from gnomon.core.english.compiler import CronResult, IntervalResult, compile_statement
from gnomon.core.english.diagnostics import check_characters, sentence_error, unexpected
from gnomon.core.english.normalizer import TokenNormalizer
from gnomon.core.english.statement import SentenceRefusal

if TYPE_CHECKING:
    from lark import Lark

_INSTANT = re.compile(r"\d{4}-")


def parse_sentence(text: str) -> CronResult | IntervalResult:
    """The schedule that the sentence describes; raise SentenceError if it describes none."""
    try:
        return _parse(text)
    except SentenceRefusal as refusal:
        raise sentence_error(text, refusal, accepted=_accepted, following=_following) from None


def _parse(text: str) -> CronResult | IntervalResult:
    # lark is slow to import, so the first sentence imports it: here and below.
    check_characters(text)
    from lark.exceptions import UnexpectedInput

    try:
        tree = _parser().parse(text)
    except UnexpectedInput as failure:
        raise unexpected(text, failure) from None
    return compile_statement(statement_from_tree(text, tree))


def _accepted(text: str) -> bool:
    """Whether a sentence or an instant may be suggested: it can be parsed, and it fires."""
    try:
        if _INSTANT.match(text):
            return datetime.fromisoformat(text).tzinfo is not None
        found = _parse(text)
    except (SentenceRefusal, ValueError):
        return False
    if isinstance(found, IntervalResult):
        return True
    return day_rule(parse(found.expression)).fires_at_all()


def _following(text: str) -> set[str]:
    """The names of the terminals that could come after `text`."""
    from lark.exceptions import UnexpectedInput, UnexpectedToken

    try:
        # No sentence continues with a closing parenthesis, so the parser reports the terminals it would accept.
        _parser().parse(f"{text} )")
    except UnexpectedToken as failure:
        return failure.accepts if failure.token.type == "RPAR" else set()
    except (UnexpectedInput, SentenceRefusal):
        pass
    return set()


@cache
def _parser() -> "Lark":
    from lark import Lark

    return Lark.open_from_package(
        "gnomon.core.english",
        "grammar.lark",
        [""],
        parser="lalr",
        lexer="basic",
        postlex=TokenNormalizer(),
        propagate_positions=True,
        maybe_placeholders=False,
    )
