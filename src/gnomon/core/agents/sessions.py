"""Sessions: the history that runs of agents share, and how much of it the next run gets."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gnomon.core.agents.spec import ISOLATED, AgentSpec

#: How long a run waits for another one in its session before it looks again.
SESSION_WAIT_MS = 2_000
#: A holder of a session whose task waits for its worker counts for so long after its admission.
ADMISSION_MS = 10_000
#: The newest turns that are kept, and the longest one.
MOST_TURNS, LONGEST_TURN = 200, 131_072
#: The most that a run gets of its history.
MOST_HISTORY_BYTES = 262_144
#: A token has about so many bytes.
_TOKEN_BYTES = 4


class SessionTurn(Struct, frozen=True, kw_only=True):
    """The messages of one run, for the session that it belongs to."""

    session: str
    #: As JSON: a list.
    messages: bytes

    @property
    def tokens(self) -> int:
        """About how many tokens the messages have."""
        return -(-len(self.messages) // _TOKEN_BYTES)


def session_turn(agent: AgentSpec | None, messages: bytes | None) -> SessionTurn | None:
    """The turn of an attempt; None if its step has no session, or if a worker has sent what is no list of messages."""
    if messages is None or agent is None or agent.session == ISOLATED or len(messages) > LONGEST_TURN:
        return None
    try:
        msgspec.json.decode(messages, type=list[dict[str, Any]])
    except msgspec.DecodeError:
        return None
    return SessionTurn(session=agent.session, messages=messages)


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session with history."""

    session: str
    turns: int
    tokens: int
    #: The end of its newest run.
    updated_at: int


class StoredTurn(Struct, frozen=True, kw_only=True):
    """A turn of a session as it is stored."""

    number: int
    job: str
    run_id: str
    at: int
    tokens: int
    messages: bytes


def history_of(newest_first: Iterable[bytes], *, most_tokens: int) -> bytes:
    """The messages of the newest turns that fit, oldest first, as a list in JSON."""
    kept: list[list[Raw]] = []
    left = min(MOST_HISTORY_BYTES, most_tokens * _TOKEN_BYTES)
    for body in newest_first:
        left -= len(body)
        if left < 0:
            break
        kept.append(msgspec.json.decode(body, type=list[Raw]))
    return msgspec.json.encode([message for turn in reversed(kept) for message in turn])
