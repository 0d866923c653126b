"""Values as errors show them: on one line, and never without end."""

from typing import NamedTuple


def escape_unprintable(text: str) -> str:
    """The text on one line that no terminal or log obeys, so that input cannot forge what is shown."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def quote_value(value: object) -> str:
    """The value as one would write it; what it is, if it is too deep or too long for that."""
    try:
        return truncate(repr(value), 80)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} without end"


def truncate(text: str, limit: int = 120) -> str:
    """The text, or its beginning."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


#: The fields that stand in an expression; every other one is given beside it.
_CRON_FIELDS = frozenset(("second", "minute", "hour", "day", "month", "weekday"))


class Position(NamedTuple):
    """A stretch of a text: `text[start:end]` is what is meant."""

    start: int
    end: int


class GnomonError(Exception):
    """Base of them all. `code` is stable: the API, the CLI and the logs show it."""

    code = "error"


class UsageError(GnomonError, ValueError):
    """Something the caller said is wrong; saying it again will not help."""

    code = "usage"


class NoDatabase(UsageError):
    """There is no such database yet, and what was asked for does not make one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no database {path}: start with gnomon up or gnomon jobs apply")


class CronError(UsageError):
    """A schedule was refused. Carries what was said, where it is wrong, why, and what may have been meant."""

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
        #: Reads on from the subject: "has 61, which is out of range 0-59".
        self.reason = reason
        self.position = position
        #: A whole text that would be accepted and may be what was meant.
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
        """Whether the schedule's text is to blame, and not something given beside it."""
        return self.field == "expression" or self.field in _CRON_FIELDS

    @property
    def subject(self) -> str:
        """What the reason is about, as the sentence begins: "minute field", "expression", "it"."""
        if not self.in_the_text:
            return "it"
        return self.field if self.field == "expression" else f"{self.field} field"


class SentenceError(CronError):
    """A sentence was refused. Also says how far it was understood and what could have followed."""

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
        #: The words up to the place where understanding ended.
        self.understood = expression[: position.start].rstrip() if position else ""
        #: What could have stood there, as words a person would type.
        self.expected = expected
        super().__init__(expression, field=field, reason=reason, position=position, suggestion=suggestion)

    @property
    def in_the_text(self) -> bool:
        """A sentence has everything in its text, its zone included."""
        return True

    @property
    def subject(self) -> str:
        """A sentence has no fields."""
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
    """A file of jobs was refused. Nothing of it was registered."""

    code = "bad_jobs_file"


class NotFound(UsageError):
    """Nothing has that name."""

    code = "not_found"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {truncate(repr(name), 80)}")
        self.kind, self.name = kind, name


class BodyError(UsageError):
    """What was sent cannot be read. Nothing was done."""

    code = "bad_body"


class TooLarge(BodyError):
    """More was sent than is taken."""

    code = "too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body has more than {limit} bytes")
        self.limit = limit


class WrongType(BodyError):
    """What was sent is not in a format that is read here."""

    code = "wrong_type"


class Unauthenticated(GnomonError):
    """It is not known who asks. Nothing was done."""

    code = "unauthenticated"


class TokenRefused(Unauthenticated):
    """A token proves nothing. The reason never shows the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the token is refused: {reason}")
        self.reason = reason


class TooMany(GnomonError):
    """The caller asks too often, and may again after so many seconds."""

    code = "too_many"
    seconds = 1


class Refused(GnomonError):
    """The rules of the domain say no."""

    code = "refused"


class IllegalTransition(Refused):
    """A write of a task state that the table of transitions does not have. Nothing was written."""

    code = "illegal_transition"

    def __init__(self, task: str, before: str | None, after: str) -> None:
        start = "be created as" if before is None else f"go from {before} to"
        super().__init__(f"{task} cannot {start} {after}")
        self.task, self.before, self.after = task, before, after


class Overlapping(Refused):
    """A run was not started, because another of the same job is under way. Nothing was done."""

    code = "overlap"

    def __init__(self, job: str, run_id: str | None) -> None:
        which = f": {run_id}" if run_id else ""
        super().__init__(f"a run of {truncate(repr(job), 80)} is under way{which}")
        self.job, self.run_id = job, run_id


class QueueFull(Refused):
    """A run was not started, because as many wait as may. Nothing was done."""

    code = "queue_full"

    def __init__(self, job: str, waiting: int) -> None:
        super().__init__(f"{waiting} runs of {truncate(repr(job), 80)} wait already, and no more may")
        self.job, self.waiting = job, waiting


class KeyTaken(Refused):
    """A key was used again for something else. Nothing was done."""

    code = "key_taken"

    def __init__(self, key: str, run_id: str) -> None:
        super().__init__(f"the key {truncate(repr(key), 80)} belongs to {run_id}, which was given something else")
        self.key, self.run_id = key, run_id


class AlreadyOver(Refused):
    """Something was to be ended that has ended."""

    code = "already_over"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {truncate(repr(name), 80)} is over already")
        self.kind, self.name = kind, name


class NameTaken(Refused):
    """Something was to be registered under a name that stands for something else. Nothing was done."""

    code = "name_taken"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is another {kind} {truncate(repr(name), 80)}: change that, or take another name")
        self.kind, self.name = kind, name


class Stale(Refused):
    """Something was to be changed that is no longer as its caller saw it. Nothing was done."""

    code = "stale"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {truncate(repr(name), 80)} has changed in the meantime: look at it again")
        self.kind, self.name = kind, name


class Forbidden(Refused):
    """The caller may not do this. Nothing was done."""

    code = "forbidden"


class Contended(Refused):
    """Others kept changing the same thing for so long that the change was given up. Nothing was done."""

    code = "contended"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {truncate(repr(name), 80)} is being changed by others: try again")
        self.kind, self.name = kind, name


class Superseded(GnomonError):
    """Another node is in charge now."""

    code = "superseded"


class StaleTerm(Superseded):
    """A write came under a term that has ended. Nothing of it was done."""

    code = "stale_term"

    def __init__(self, shards: tuple[int, ...]) -> None:
        super().__init__(f"the terms of shards {', '.join(map(str, shards))} have ended")
        self.shards = shards


class Unavailable(GnomonError):
    """The world failed; trying again may help."""

    code = "unavailable"


class StoreUnavailable(Unavailable):
    """The store did not do what it was asked, and nothing of it was done, or it is not known."""

    code = "store_unavailable"


class BusUnavailable(Unavailable):
    """The way to workers elsewhere is away. What was sent may have arrived, or not."""

    code = "bus_unavailable"


class StoreLocked(Unavailable):
    """Another scheduler has this database file."""

    code = "store_locked"


class ArchiveUnavailable(Unavailable):
    """What was to be kept in the archive is not there, so that nothing of it may be removed."""

    code = "archive_unavailable"


class PingFailed(Unavailable):
    """An address elsewhere did not answer well, or not in time."""

    code = "ping_failed"


class IssuerUnavailable(Unavailable):
    """A token could not be checked, because its issuer's keys cannot be had."""

    code = "issuer_unavailable"


def _rebuild(kind: type[CronError], state: dict[str, object]) -> CronError:
    """Unpickle without running the constructor, whose signature differs from class to class."""
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = (error._message(),)  # noqa: SLF001 - the same class, one step later
    return error
