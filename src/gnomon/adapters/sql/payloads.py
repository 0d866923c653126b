"""Payloads of the store: encrypted before they are written, and decrypted after they were read, if there is a key.

The cipher is an execution option of every connection of a process. Without one, nothing here costs anything.
"""

from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql.rows import Row, ready_task_of
from gnomon.core.model import DeadLetter
from gnomon.core.payloads import dead_letter_context, event_context, stored_context
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.external_events import ExternalEvent
from gnomon.core.runs.launch import LaunchRequest
from gnomon.ports.payloads import PayloadCipher

#: The execution option of connections that holds the cipher.
CIPHER = "gnomon_payload_cipher"
#: The mark in `gnomon_meta`: some payloads are encrypted. Its value is a number, as all others are.
_GET_MARK = sa.text("SELECT value FROM gnomon_meta WHERE key = 'payloads_encrypted'")
_SET_MARK = sa.text(
    "INSERT INTO gnomon_meta (key, value) VALUES ('payloads_encrypted', '1') ON CONFLICT (key) DO NOTHING"
)
#: The owner, the kind and the body of a payload.
PayloadRow = tuple[str, str, bytes]


def cipher_of(conn: sa.Connection) -> PayloadCipher | None:
    """The cipher of this process; None if it has none."""
    found: PayloadCipher | None = conn.get_execution_options().get(CIPHER)
    return found


def sealed_rows(conn: sa.Connection, rows: Sequence[PayloadRow]) -> Sequence[PayloadRow]:
    """The rows as they are written."""
    cipher = cipher_of(conn)
    if cipher is None:
        return rows
    return [(owner, kind, cipher.seal(stored_context(owner, kind), body)) for owner, kind, body in rows]


def unsealed(conn: sa.Connection, owner_id: str, kind: str, body: bytes | None) -> bytes | None:
    """The payload that was stored as `body`."""
    cipher = cipher_of(conn)
    return body if cipher is None or body is None else cipher.unseal(stored_context(owner_id, kind), body)


def ready_tasks(conn: sa.Connection, rows: Iterable[Row]) -> Iterable[ReadyTask]:
    """The ready tasks of rows of TASK, RUN and both inputs."""
    cipher, found = cipher_of(conn), map(ready_task_of, rows)
    return found if cipher is None else (_unsealed_inputs(cipher, one) for one in found)


def _unsealed_inputs(cipher: PayloadCipher, one: ReadyTask) -> ReadyTask:
    run_id, task_id = one.run.run_id, one.task.task_id
    given, own = one.input, one.own_input
    return replace(
        one,
        input=None if given is None else cipher.unseal(stored_context(run_id, "input"), given),
        own_input=None if own is None else cipher.unseal(stored_context(task_id, "input"), own),
    )


def sealed_letter(conn: sa.Connection, letter: DeadLetter) -> DeadLetter:
    """The dead letter as it is written."""
    cipher = cipher_of(conn)
    if cipher is None or letter.input is None:
        return letter
    return replace(letter, input=cipher.seal(dead_letter_context(letter.dead_letter_id), letter.input))


def unsealed_letter(conn: sa.Connection, letter: DeadLetter) -> DeadLetter:
    """The dead letter that was stored."""
    cipher = cipher_of(conn)
    if cipher is None or letter.input is None:
        return letter
    return replace(letter, input=cipher.unseal(dead_letter_context(letter.dead_letter_id), letter.input))


def sealed_event(conn: sa.Connection, event: ExternalEvent) -> ExternalEvent:
    """The event as it is written."""
    cipher = cipher_of(conn)
    return event if cipher is None else replace(event, body=cipher.seal(event_context(event.event_id), event.body))


def unsealed_event(conn: sa.Connection, event: ExternalEvent) -> ExternalEvent:
    """The event that was stored."""
    cipher = cipher_of(conn)
    return event if cipher is None else replace(event, body=cipher.unseal(event_context(event.event_id), event.body))


def fingerprinted(conn: sa.Connection, request: LaunchRequest) -> LaunchRequest:
    """The request for the audit trail, which stores a digest of its input: without the key no input can be guessed."""
    cipher = cipher_of(conn)
    if cipher is None or request.input is None:
        return request
    return replace(request, input=cipher.fingerprint(request.input))


# ---- the mark in the database --------------------------------------------------------------------


def holds_encrypted_payloads(conn: sa.Connection) -> bool:
    """Whether a process with a key has used the database."""
    return conn.execute(_GET_MARK).first() is not None


def mark_encrypted(conn: sa.Connection) -> None:
    """Note that payloads are encrypted: a process without a key must not add others in plain text."""
    conn.execute(_SET_MARK)
