"""Reading back what was kept: every record is looked at before anything is decided or written."""

from collections.abc import Iterable
from typing import NamedTuple

from gnomon.declarative.errors import InvalidCronExpressionError, TaskInvalidValueError, TaskTryDeserializeError
from gnomon.declarative.expression import parse
from gnomon.declarative.records import Record, decode


class Kept(NamedTuple):
    """A record and the number of its row."""

    number: int
    record: Record


def read_records(rows: Iterable[tuple[int, object]]) -> dict[str, Kept]:
    """Every kept task by its name, or the TaskTryDeserializeError of the first that cannot be believed."""
    found: dict[str, Kept] = {}
    expressions: set[str] = set()
    for index, (number, text) in enumerate(rows):
        try:
            record = decode(text)
            if record.name in found:
                raise TaskInvalidValueError("name", record.name, "another record has the same")
            if record.cron_expression not in expressions:
                _check_expression(record.cron_expression)
                expressions.add(record.cron_expression)
        except TaskTryDeserializeError as error:
            error.record_index = index
            error.add_note(f"in record {index} of the state")
            raise
        found[record.name] = Kept(number, record)
    return found


def _check_expression(expression: str) -> None:
    try:
        parse(expression)
    except InvalidCronExpressionError as error:
        reason = f"{error.details['field']} field {error.details['reason']}"
        raise TaskInvalidValueError("cronExpression", expression, reason) from error
