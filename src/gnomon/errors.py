"""Every error that Gnomon raises on purpose, sorted by who can do something about it.

GnomonError
├── UsageError            the caller can fix it; a retry does not help
│   ├── NoDatabase        the database does not exist yet
│   ├── CronError         a schedule that cannot be understood, or can never fire
│   │   └── SentenceError an English schedule that is unknown or ambiguous
│   ├── FieldError        a value that its field does not admit
│   ├── FileError         a file that cannot be read or has a wrong value
│   │   └── JobsFileError a jobs file
│   ├── NotFound          an unknown name
│   └── BodyError         a request body that cannot be read
│       ├── TooLarge
│       └── WrongType
├── Unauthenticated       the caller is unknown
│   └── TokenRefused      the token is not valid
├── TooMany               the caller exceeds its rate limit
├── Refused               the rules of the domain forbid it
│   ├── IllegalTransition a task state cannot follow another
│   ├── Overlapping       another run of the job is active
│   ├── QueueFull         the queue of the job is full
│   ├── KeyTaken          the idempotency key belongs to another request
│   ├── AlreadyOver       it has ended already
│   ├── NameTaken         the name belongs to something else
│   ├── Stale             it has changed since the caller read it
│   ├── Forbidden         the caller lacks the permission
│   └── Contended         other writers keep changing it
├── Superseded            another node has taken over: stop, do not retry
│   └── StaleTerm         the lease term of a shard has ended
└── Unavailable           a dependency failed: a retry may help
    ├── StoreUnavailable  the store is unreachable, slow, full or read-only
    ├── StoreLocked       another scheduler has this database file
    ├── BusUnavailable    the message bus is unreachable
    ├── ArchiveUnavailable  the archive cannot be written
    ├── PingFailed        a ping was not answered
    └── IssuerUnavailable the keys of a token issuer cannot be fetched
"""

from typing import NamedTuple

#: The fields inside a cron expression; every other one is given beside it.
_CRON_FIELDS = frozenset(("second", "minute", "hour", "day", "month", "weekday"))


class Position(NamedTuple):
    """A range of a text: `text[start:end]`."""

    start: int
    end: int


class GnomonError(Exception):
    """The base of all errors. `code` is stable: the API, the CLI and the logs show it."""

    code = "error"


class UsageError(GnomonError, ValueError):
    """The request of the caller is wrong; a retry does not help."""

    code = "usage"


class NoDatabase(UsageError):
    """The database does not exist yet, and the operation does not create one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no database {path}: start with gnomon up or gnomon jobs apply")


class CronError(UsageError):
    """A schedule was refused. Carries the text, the place of the error, the reason and a suggestion."""

    code = "bad_cron"
    _whole = "cron expression"

    def __init__(
        self,
        expression: str,
        *,
        field: str,
        reason: str,
        position: Position | None = None,
        suggestion: str | None = None,
    ) -> None:
        #: The text that was refused: the whole expression, or the value of a field beside it.
        self.expression = expression
        #: `minute`, `weekday`, …; `expression` for the whole; `timezone`, `dst.gap`, `period`, … beside it.
        self.field = field
        #: Continues the sentence after the subject: "has 61, which is out of range 0-59".
        self.reason = reason
        self.position = position
        #: A whole text that would be accepted and may have been meant.
        self.suggestion = suggestion
        super().__init__(self._message())

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__))

    def _message(self) -> str:
        hint = f'; did you mean "{self.suggestion}"?' if self.suggestion else ""
        refused = self._whole if self.in_the_text else self.field
        return escape_unprintable(
            f'Invalid {refused} "{truncate(self.expression)}": {self.subject} {self.reason}{hint}'
        )

    @property
    def in_the_text(self) -> bool:
        """Whether the error is in the text of the schedule, and not in a value given beside it."""
        return self.field == "expression" or self.field in _CRON_FIELDS

    @property
    def subject(self) -> str:
        """The subject of the reason: "minute field", "expression", "it"."""
        if not self.in_the_text:
            return "it"
        return self.field if self.field == "expression" else f"{self.field} field"


class SentenceError(CronError):
    """An English schedule was refused. Also carries the part that was understood and what could have followed."""

    code = "bad_sentence"
    _whole = "schedule"

    def __init__(
        self,
        expression: str,
        *,
        reason: str,
        position: Position | None = None,
        suggestion: str | None = None,
        expected: tuple[str, ...] = (),
        field: str = "expression",
    ) -> None:
        #: The words before the error.
        self.understood = expression[: position.start].rstrip() if position else ""
        #: Words that would have been accepted there.
        self.expected = expected
        super().__init__(expression, field=field, reason=reason, position=position, suggestion=suggestion)

    @property
    def in_the_text(self) -> bool:
        """True: a sentence has everything in its text, its zone included."""
        return True

    @property
    def subject(self) -> str:
        """Always "it": a sentence has no fields."""
        return "it"


class FieldError(UsageError):
    """A value was refused. Names the field, the value and the reason."""

    code = "bad_field"

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"{field}: {quote_value(value)} {reason}")
        self.field, self.value, self.reason = field, value, reason


class FileError(UsageError):
    """A file was refused. Names the file, the line, the field and the reason, as far as they are known."""

    code = "bad_file"

    def __init__(
        self, file: object, reason: str, *, line: int | None = None, column: int | None = None, field: str = ""
    ) -> None:
        place = f"line {line}, column {column}" if line else ""
        super().__init__(escape_unprintable(": ".join(part for part in (str(file), place, field, reason) if part)))
        self.file, self.reason, self.line, self.column, self.field = file, reason, line, column, field


class JobsFileError(FileError):
    """A jobs file was refused. None of its jobs was registered."""

    code = "bad_jobs_file"


class NotFound(UsageError):
    """There is nothing with that name."""

    code = "not_found"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {truncate(repr(name), 80)}")
        self.kind, self.name = kind, name


class BodyError(UsageError):
    """The body of a request cannot be read. Nothing was done."""

    code = "bad_body"


class TooLarge(BodyError):
    """The body of a request is too large."""

    code = "too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body has more than {limit} bytes")
        self.limit = limit


class WrongType(BodyError):
    """The body of a request has an unsupported media type."""

    code = "wrong_type"


class Unauthenticated(GnomonError):
    """The caller could not be identified. Nothing was done."""

    code = "unauthenticated"


class TokenRefused(Unauthenticated):
    """A token is not valid. The reason never shows the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the token is refused: {reason}")
        self.reason = reason


class TooMany(GnomonError):
    """The caller exceeded its rate limit and may retry after `seconds`."""

    code = "too_many"
    seconds = 1


class Refused(GnomonError):
    """The rules of the domain forbid the operation."""

    code = "refused"


class IllegalTransition(Refused):
    """The transition table does not have this change of a task state. Nothing was written."""

    code = "illegal_transition"

    def __init__(self, task: str, before: str | None, after: str) -> None:
        start = "be created as" if before is None else f"go from {before} to"
        super().__init__(f"{task} cannot {start} {after}")
        self.task, self.before, self.after = task, before, after


class Overlapping(Refused):
    """A run was not started, because another run of the same job is active. Nothing was done."""

    code = "overlap"

    def __init__(self, job: str, run_id: str | None) -> None:
        which = f": {run_id}" if run_id else ""
        super().__init__(f"a run of {truncate(repr(job), 80)} is under way{which}")
        self.job, self.run_id = job, run_id


class QueueFull(Refused):
    """A run was not started, because the queue of the job is full. Nothing was done."""

    code = "queue_full"

    def __init__(self, job: str, waiting: int) -> None:
        super().__init__(f"{waiting} runs of {truncate(repr(job), 80)} wait already, and no more may")
        self.job, self.waiting = job, waiting


class KeyTaken(Refused):
    """An idempotency key was used again for a different request. Nothing was done."""

    code = "key_taken"

    def __init__(self, key: str, run_id: str) -> None:
        super().__init__(f"the key {truncate(repr(key), 80)} belongs to {run_id}, which was given something else")
        self.key, self.run_id = key, run_id


class AlreadyOver(Refused):
    """The execution, backfill or dead letter to end has ended already."""

    code = "already_over"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {truncate(repr(name), 80)} is over already")
        self.kind, self.name = kind, name


class NameTaken(Refused):
    """The name to register belongs to something else. Nothing was done."""

    code = "name_taken"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is another {kind} {truncate(repr(name), 80)}: change that, or take another name")
        self.kind, self.name = kind, name


class Stale(Refused):
    """The object to change has changed since the caller read it. Nothing was done."""

    code = "stale"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {truncate(repr(name), 80)} has changed in the meantime: look at it again")
        self.kind, self.name = kind, name


class Forbidden(Refused):
    """The caller lacks the permission. Nothing was done."""

    code = "forbidden"


class Contended(Refused):
    """Other writers kept changing the same object until the change was given up. Nothing was done."""

    code = "contended"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {truncate(repr(name), 80)} is being changed by others: try again")
        self.kind, self.name = kind, name


class Superseded(GnomonError):
    """Another node has taken over."""

    code = "superseded"


class StaleTerm(Superseded):
    """A write used a lease term that has ended. Nothing was written."""

    code = "stale_term"

    def __init__(self, shards: tuple[int, ...]) -> None:
        super().__init__(f"the terms of shards {', '.join(map(str, shards))} have ended")
        self.shards = shards


class Unavailable(GnomonError):
    """A dependency failed; a retry may help."""

    code = "unavailable"


class StoreUnavailable(Unavailable):
    """The store failed. Nothing was written, or it is unknown whether it was."""

    code = "store_unavailable"


class BusUnavailable(Unavailable):
    """The message bus is unreachable. A message that was sent may have arrived or not."""

    code = "bus_unavailable"


class StoreLocked(Unavailable):
    """Another scheduler has this database file."""

    code = "store_locked"


class ArchiveUnavailable(Unavailable):
    """The archive could not be written, so the rows for it must not be deleted."""

    code = "archive_unavailable"


class PingFailed(Unavailable):
    """A ping URL answered with an error, or not in time."""

    code = "ping_failed"


class IssuerUnavailable(Unavailable):
    """A token could not be checked, because the keys of its issuer cannot be fetched."""

    code = "issuer_unavailable"


def _rebuild(kind: type[CronError], state: dict[str, object]) -> CronError:
    """Unpickle without the constructor, whose signature differs from class to class."""
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = (error._message(),)  # noqa: SLF001 - the same class
    return error


# ---- values in messages --------------------------------------------------------------------------


def escape_unprintable(text: str) -> str:
    """The text on one line without control characters, so that input cannot forge lines of a terminal or log."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def quote_value(value: object) -> str:
    """The value as a literal, shortened; its type, if it is too deep or too long for that."""
    try:
        return truncate(repr(value), 80)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} without end"


def truncate(text: str, limit: int = 120) -> str:
    """The text, shortened to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
