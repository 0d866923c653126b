"""Encrypted payloads: the form of an envelope, and the context that each one is bound to.

Inputs, outputs and bodies of events can be encrypted with a key that neither the database nor the message bus has. An
envelope is a JSON object with one field, so that it can stand wherever the payload could: in a column, in a message and
in an archive. Its context names the row or the message that it belongs to. A holder of the database cannot move an
envelope to another row: it opens only under its own context.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

#: The field of an envelope. The input of no job may have it.
SEALED_FIELD = "$gnomon_encrypted"
SEALED_PREFIX = b'{"' + SEALED_FIELD.encode() + b'":"'


def is_sealed(body: bytes) -> bool:
    """Whether the payload is an envelope."""
    return body.startswith(SEALED_PREFIX)


def has_sealed_field(payload: Mapping[str, Any]) -> bool:
    """Whether the decoded payload is an envelope, or was made from one."""
    return SEALED_FIELD in payload


def stored_context(owner_id: str, kind: str) -> str:
    """The context of the input or output of a run or task in the store."""
    return f"payload {owner_id} {kind}"


def dead_letter_context(dead_letter_id: str) -> str:
    """The context of the input in a dead letter."""
    return f"dead_letter {dead_letter_id}"


def held_output_context(task_id: str) -> str:
    """The context of the output of a task that is held back."""
    return f"held_output {task_id}"


def event_context(event_id: str) -> str:
    """The context of the body of an event."""
    return f"event {event_id}"


def message_context(kind: str, task_id: str, fence: int) -> str:
    """The context of the input or output of one attempt in a message."""
    return f"message {kind} {task_id} {fence}"


class StoredPayload(NamedTuple):
    """The place of a payload in a row: its column and its context."""

    column: str
    context: str


def payload_of_row(row: Mapping[str, Any]) -> StoredPayload | None:
    """The payload in an archived row; None if its table has none."""
    match row.get("table"):
        case "payload":
            return StoredPayload("body", stored_context(row["owner_id"], row["kind"]))
        case "dead_letter":
            return StoredPayload("input", dead_letter_context(row["dead_letter_id"]))
        case "event":
            return StoredPayload("body", event_context(row["event_id"]))
        case _:
            return None
