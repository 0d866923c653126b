"""Turn the return value or the error of a function into the outcome of its attempt."""

import inspect
import traceback
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gnomon.core.model import LogLine, Result
from gnomon.core.runs.outcomes import AttemptOutcome, bounded_output
from gnomon.errors import CommandRefused, truncate
from gnomon.runners.context import GiveUp, Snooze, snooze_ms
from gnomon.runners.logs import Redact, no_redaction, storable
from gnomon.runners.secrets import redacted_json

_LONGEST_ERROR = 4_000
_LONGEST_MESSAGE = 2_000
_FRAMES = 3
#: The limit that inputs of runs have, too.
_DEEPEST = 64
_HERE = str(Path(__file__).parent)
_NOTHING = AttemptOutcome(result=Result.SUCCEEDED)


def returned_outcome(value: object, *, max_bytes: int, redact: Redact) -> AttemptOutcome:
    """The outcome of a function that returned the value."""
    if value is None:
        return _NOTHING
    if isinstance(value, Snooze | GiveUp):
        return raised_outcome(value, redact=redact)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        return failed_outcome("returned something to be awaited: declare the function with async def")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return failed_outcome("returned a generator that nobody runs: return its results, as in list(...)")
    return AttemptOutcome(result=Result.SUCCEEDED, output=bounded_output(_json(value, redact, max_bytes), max_bytes))


def raised_outcome(error: BaseException, *, redact: Redact) -> AttemptOutcome:
    """The outcome of a function that raised the error."""
    if isinstance(error, Snooze):
        return _snooze_outcome(error, redact)
    if isinstance(error, GiveUp):
        return give_up_outcome(redact(_message(error)))
    message = f"{type(error).__name__}: {_message(error)}".removesuffix(": ")
    text = truncate(storable(redact(message)), _LONGEST_MESSAGE) + redact("".join(_frames(error)))
    return failed_outcome(text)


def give_up_outcome(reason: str) -> AttemptOutcome:
    """The outcome of an attempt that must not be retried."""
    return AttemptOutcome(result=Result.GAVE_UP, error=truncate(storable(reason), _LONGEST_ERROR))


def denied_outcome(error: CommandRefused, redact: Redact) -> AttemptOutcome:
    """The outcome of a command that the policy refused before its program existed: it is never retried."""
    return AttemptOutcome(result=Result.DENIED, error=truncate(storable(redact(str(error))), _LONGEST_ERROR))


def failed_outcome(reason: str) -> AttemptOutcome:
    """The outcome of an attempt that failed."""
    return AttemptOutcome(result=Result.FAILED, error=truncate(storable(reason), _LONGEST_ERROR))


def with_logs(outcome: AttemptOutcome, logs: tuple[LogLine, ...], *, kept: bool = False) -> AttemptOutcome:
    """The outcome with the log lines of the attempt; `kept`: some of them were kept while it went on."""
    return msgspec.structs.replace(outcome, logs=logs, log_kept=kept) if logs else outcome


def _snooze_outcome(snooze: Snooze, redact: Redact) -> AttemptOutcome:
    try:
        return AttemptOutcome(result=Result.SNOOZED, snooze_ms=snooze_ms(snooze.delay))
    except Exception as error:  # noqa: BLE001 - the delay of a subclass may be any object
        return give_up_outcome(redact(_message(error)))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - an error's own __str__ may raise anything
        return f"[its text cannot be shown: {type(failure).__name__}]"


def _frames(error: BaseException) -> Iterable[str]:
    """The innermost frames of the traceback, without those of this package."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_HERE)]
    return [f"\n{line.rstrip()}" for line in traceback.format_list(frames[-_FRAMES:])]


def _json(value: object, redact: Redact, limit: int) -> bytes:
    try:
        written = msgspec.json.encode(value)
        if len(written) <= limit:
            # msgspec writes a Raw value as it is, even if it is not JSON: decoding finds that out.
            refuse_depth(msgspec.json.decode(written))
    except Exception:  # noqa: BLE001 - an object's own conversion may raise anything
        written = msgspec.json.encode({"repr": _repr(value)})
    return written if redact is no_redaction else redacted_json(written, redact)


def refuse_depth(value: object) -> None:
    """Raise ValueError for a value that is nested more deeply than readers of the output can decode."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_DEEPEST):
        if not level:
            return
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for many in inner for one in many if isinstance(one, dict | list)]
    raise ValueError(f"is nested more than {_DEEPEST} deep")


def _repr(value: object) -> str:
    try:
        return storable(repr(value))
    except Exception:  # noqa: BLE001 - an object's own __repr__ may raise anything
        return storable(f"<{type(value).__name__} that cannot be shown>")
