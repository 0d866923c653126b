"""One spelling for each schedule, so that two texts that mean the same can be seen to."""

from gnomon.core.cron.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    ON_THE_MINUTE,
    SECOND,
    WEEKDAY,
    Field,
    Fields,
    Kind,
    listed,
)

_STEPS = range(2, 60)


def canonical(fields: Fields) -> str:
    """The expression in numbers, sorted, with stars where they mean something."""
    words = [
        _word(MINUTE, fields.minute),
        _word(HOUR, fields.hour),
        _word(DAY, fields.day),
        _word(MONTH, fields.month),
        _word(WEEKDAY, fields.weekday),
    ]
    if fields.second != ON_THE_MINUTE:
        words.insert(0, _word(SECOND, fields.second))
    return " ".join(words)


def _word(kind: Kind, field: Field) -> str:
    if not field.starred:
        parts = [listed(field.values), *sorted(field.tokens)]
        return ",".join(part for part in parts if part)
    return ",".join([*_starred(kind, field.values), *sorted(field.tokens)])


def _starred(kind: Kind, values: frozenset[int]) -> list[str]:
    """The values with a star in front: the densest step among them, then the rest."""
    everything = _stepped(kind, 1)
    if values == everything:
        return ["*"]
    step = next(step for step in _STEPS if _stepped(kind, step) <= values)
    rest = listed(values - _stepped(kind, step))
    return [f"*/{step}", rest] if rest else [f"*/{step}"]


def _stepped(kind: Kind, step: int) -> frozenset[int]:
    values = range(kind.low, kind.high + 1, step)
    return frozenset(value % 7 for value in values) if kind is WEEKDAY else frozenset(values)
