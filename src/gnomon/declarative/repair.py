"""Repair a state whose records cannot be read, so that `initialize` accepts it again."""

import os
from collections.abc import Callable

from msgspec import Struct

from gnomon.declarative.errors import InvalidArgumentError, TaskTryDeserializeError
from gnomon.declarative.records import check_records, decode
from gnomon.declarative.state import State, StateFile, state_at


class UnreadableRecord(Struct, frozen=True):
    """A record that `initialize` refuses."""

    #: Its index, counted from 0 in the order of the state.
    index: int
    #: The stored value, usually JSON.
    value: object
    error: TaskTryDeserializeError


def drop(record: UnreadableRecord) -> None:
    """Remove the record: its task is new when it is registered again."""
    del record


async def repair_state(
    state: str | os.PathLike[str] | State, repair: Callable[[UnreadableRecord], str | None] = drop
) -> list[UnreadableRecord]:
    """Replace each unreadable record by the JSON that `repair` returns, or remove it for None; return those records.

    By default they are removed. Nothing is written if `repair` raises, or if one of its results is unreadable too.
    """
    opened = state_at(state)
    if isinstance(opened, StateFile) and not opened.exists():
        raise InvalidArgumentError("state", state, "must name an existing file")
    rows = await opened.open()
    try:
        unreadable = {
            number: UnreadableRecord(index, text, error) for index, number, text, error in check_records(rows)
        }
        repaired = {number: _repaired(record, repair) for number, record in unreadable.items()}
        kept = [(number, text) for number, text in repaired.items() if text is not None]
        _check_result(dict(rows) | repaired)
        if unreadable:
            await opened.write(kept, [number for number, text in repaired.items() if text is None])
        return list(unreadable.values())
    finally:
        await opened.close()


def _repaired(record: UnreadableRecord, repair: Callable[[UnreadableRecord], str | None]) -> str | None:
    text = repair(record)
    if text is not None:
        decode(text)
    return text


def _check_result(rows: dict[int, object]) -> None:
    for _, _, text, error in check_records([(number, text) for number, text in rows.items() if text is not None]):
        raise InvalidArgumentError("repair", text, f"leaves a record unreadable: {error}")
