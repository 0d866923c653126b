"""Every error that Gnomon raises on purpose, sorted by who can do something about it.

GnomonError
├── UsageError            the caller can fix it; a retry does not help
│   ├── NoDatabase        the database does not exist yet
│   ├── CronError         a schedule that cannot be understood, or can never fire
│   │   └── SentenceError an English schedule that is unknown or ambiguous
│   ├── FieldError        a value that its field does not admit
│   ├── FileError         a file that cannot be read or has a wrong value
│   │   └── JobsFileError a jobs file
│   ├── DeclaredJobError  a job that is declared in code
│   ├── NotFound          an unknown name
│   └── BodyError         a request body that cannot be read
│       ├── TooLarge
│       └── WrongType
├── Unauthenticated       the caller is unknown
│   └── TokenRefused      the token is not valid
│       └── TokenMissing  there is no token
├── TooMany               the caller exceeds its rate limit
├── Refused               the rules of the domain forbid it
│   ├── IllegalTransition a task state cannot follow another
│   ├── Overlapping       another run of the job is active
│   ├── QueueFull         the queue of the job is full
│   ├── KeyTaken          the idempotency key belongs to another request
│   ├── AlreadyOver       it has ended already
│   ├── NameTaken         the name belongs to something else
│   ├── Stale             it has changed since the caller read it
│   │   └── PlanChanged   jobs have changed since they were planned
│   ├── Forbidden         the caller lacks the permission
│   ├── AddressRefused    an outgoing request leads to an address that it may not reach
│   ├── CommandRefused    the policy does not let a command run
│   ├── ChannelRefused    a channel does not take an announcement, now or later
│   ├── ChangesRefused    the autonomy is read-only: nothing may be changed
│   ├── ActionBudgetSpent the hourly budget of actions is spent
│   └── Contended         other writers keep changing it
├── Superseded            another node has taken over: stop, do not retry
│   └── StaleTerm         the lease term of a shard has ended
└── Unavailable           a dependency failed: a retry may help
    ├── StoreUnavailable  the store is unreachable, slow, full or read-only
    ├── ClockAhead        the clock of this node is ahead of the store's
    ├── StoreLocked       another scheduler has this database file
    ├── BusUnavailable    the message bus is unreachable
    ├── ArchiveUnavailable  the archive cannot be written
    ├── RequestFailed     an outgoing request was not answered
    │   ├── PingFailed    a ping was not answered
    │   └── ChannelFailed a channel did not take an announcement
    ├── IssuerUnavailable the keys of a token issuer cannot be fetched
    ├── KernelUnavailable the policy kernel has not answered
    └── RulingUnavailable nobody can rule on a task now
"""

from collections.abc import Iterable
from enum import StrEnum
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


class BudgetExceeded(GnomonError):
    """A function may not spend so much: its attempt has not reserved it."""

    code = "budget_exceeded"

    def __init__(self, meter: str, amount: int, *, left: int) -> None:
        self.meter, self.amount, self.left = meter, amount, left
        super().__init__(f"{amount} {meter} are more than the {left} that the attempt may still spend")


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


class CommandUnreadable(UsageError):
    """The grammar of guarded commands does not cover a command. Carries the position of the first such character."""

    code = "bad_command"

    def __init__(self, position: int, reason: str) -> None:
        #: `reason` continues a sentence about the command: "has a comment".
        self.position, self.reason = position, reason
        super().__init__(f"the command {reason} (character {position + 1})")


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
    """A jobs file was refused. None of its jobs was registered. The first mistake carries the others in `more`."""

    code = "bad_jobs_file"
    #: The other mistakes of the same file.
    more: "tuple[JobsFileError, ...]" = ()

    def add(self, others: Iterable["JobsFileError"]) -> None:
        """Carry these mistakes of the same file too."""
        self.more = (*self.more, *others)


class DeclaredJobError(UsageError):
    """A job that is declared in code was refused. Names the job, its function, file and line, and the reason."""

    code = "bad_declared_job"

    def __init__(self, job: object, place: str, error: FieldError) -> None:
        super().__init__(escape_unprintable(f"the job {quote_value(job)} of {place}: {error}"))
        self.job, self.place, self.error = job, place, error


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


class RefusalReason(StrEnum):
    """Why a caller could not be identified: the label of a metric, so the set is small."""

    NO_TOKEN = "no_token"  # noqa: S105 - a label
    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    KEY = "key"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    LIFETIME = "lifetime"
    CLAIMS = "claims"
    REVOKED = "revoked"
    OTHER = "other"


class Unauthenticated(GnomonError):
    """The caller could not be identified. Nothing was done."""

    code = "unauthenticated"
    cause = RefusalReason.OTHER


class TokenRefused(Unauthenticated):
    """A token is not valid. The reason never shows the token."""

    def __init__(self, reason: str, cause: RefusalReason = RefusalReason.CLAIMS) -> None:
        super().__init__(f"the token is refused: {reason}")
        self.reason = reason
        self.cause = cause


class TokenMissing(TokenRefused):
    """The request has no token."""

    def __init__(self) -> None:
        super().__init__("there is none", RefusalReason.NO_TOKEN)
        self.args = ("no token: send Authorization: Bearer TOKEN",)


class TooMany(GnomonError):
    """The caller exceeded its rate limit and may retry after `seconds`."""

    code = "too_many"

    def __init__(self, message: str, *, seconds: int = 1) -> None:
        super().__init__(message)
        self.seconds = seconds


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


class NotReplayed(Refused):
    """The dead letter is that of a compensation: a replay would run the steps again that it was to undo."""

    code = "not_replayed"

    def __init__(self, dead_letter: str, execution: str) -> None:
        super().__init__(
            f"dead letter {truncate(repr(dead_letter), 80)} is that of a compensation, which is no work of its own:"
            f" roll {execution} back again with gnomon executions rollback {execution}"
        )
        self.dead_letter, self.execution = dead_letter, execution


class NotRolledBack(Refused):
    """The execution is not rolled back. Nothing was done."""

    code = "not_rolled_back"

    def __init__(self, execution: str, reason: str) -> None:
        super().__init__(f"execution {truncate(repr(execution), 80)} is not rolled back: {reason}")
        self.execution, self.reason = execution, reason


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


class PlanChanged(Stale):
    """Jobs have changed since they were planned, so that their plan does not hold any more. Nothing was done."""

    code = "plan_changed"
    _SHOWN = 5

    def __init__(self, changed: Iterable[str], *, gone: int = 0) -> None:
        self.changed, self.gone = tuple(changed), gone
        named = ", ".join(truncate(name, 80) for name in self.changed[: self._SHOWN])
        more = len(self.changed) - self._SHOWN
        said = [f"{named} and {more} more" if more > 0 else named] if named else []
        said += [f"{gone} of its jobs exist no longer"] if gone else []
        what = "; ".join(said) or "the jobs or options of the request are others"
        Refused.__init__(self, f"the plan does not hold any more: {what}: plan again")


class Forbidden(Refused):
    """The caller lacks the permission. Nothing was done."""

    code = "forbidden"


class ApprovalChanged(Refused):
    """The voter has seen another request than the one that waits. Nothing was done."""

    code = "approval_changed"

    def __init__(self, name: str) -> None:
        super().__init__(f"approval {truncate(repr(name), 80)} is about something else than what you saw: look again")
        self.name = name


class ApprovalClosed(Refused):
    """The approval waits for no vote. Nothing was done."""

    code = "approval_closed"

    def __init__(self, name: str, status: str) -> None:
        super().__init__(f"approval {truncate(repr(name), 80)} is {status}")
        self.name, self.status = name, status


class HeldOutputDecided(Refused):
    """The output was released or discarded before. Nothing was done."""

    code = "output_decided"

    def __init__(self, task: str, status: str) -> None:
        super().__init__(f"the output of {truncate(repr(task), 80)} is {status}: it is held back no more")
        self.task, self.status = task, status


class VotedAlready(Refused):
    """The same person has voted on the approval before. Nothing was done."""

    code = "voted_already"

    def __init__(self, name: str, voter: str) -> None:
        super().__init__(f"{truncate(repr(voter), 80)} has voted on approval {truncate(repr(name), 80)} already")
        self.name, self.voter = name, voter


class AddressRefused(Refused):
    """An outgoing request leads to an address that it may not reach. Nothing was sent."""

    code = "address_refused"


class ChannelRefused(Refused):
    """A channel does not take an announcement, however often it is tried. The text holds no address and no token."""

    code = "channel_refused"


class CommandRefused(Refused):
    """The policy does not let a command run. Its program was not started."""

    code = "safety_denied"

    def __init__(self, reason: str) -> None:
        #: Without the beginning that all refusals of the policy share.
        self.reason = reason
        super().__init__(f"blocked by security policy: {reason}")


class ChangesRefused(Refused):
    """Nothing may be changed while the autonomy is read-only. Nothing was done."""

    code = "read_only"

    def __init__(self) -> None:
        super().__init__("blocked by security policy: autonomy is read-only (security.autonomy): nothing was changed")


class ActionBudgetSpent(Refused):
    """The tenant has spent its hourly budget of actions. Nothing was done."""

    code = "action_budget_spent"

    def __init__(self, limit: int) -> None:
        super().__init__(
            "blocked by security policy: action budget exhausted:"
            f" {limit} guarded commands and changes by models may begin within an hour (security.max_actions_per_hour)"
        )


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


class ClockAhead(Unavailable):
    """The clock of this node is ahead of the clock of the store. Nothing was written."""

    code = "clock_ahead"

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms
        super().__init__(f"the clock of this node is {ahead_ms / 1000:g} s ahead of the clock of the store")


class StoreLocked(Unavailable):
    """Another scheduler has this database file."""

    code = "store_locked"


class ArchiveUnavailable(Unavailable):
    """The archive could not be written, so the rows for it must not be deleted."""

    code = "archive_unavailable"


class RequestFailed(Unavailable):
    """An outgoing HTTP request got no usable answer. The text does not hold the URL, which may hold a secret."""

    code = "request_failed"


class PingFailed(RequestFailed):
    """A ping URL answered with an error, or not in time."""

    code = "ping_failed"


class ChannelFailed(RequestFailed):
    """A channel did not take an announcement; a later try may help. The text holds neither the address nor a token."""

    code = "channel_failed"

    def __init__(self, reason: str, *, retry_after_ms: int | None = None) -> None:
        #: How long the channel asks to wait.
        self.retry_after_ms = retry_after_ms
        super().__init__(reason)


class IssuerUnavailable(Unavailable):
    """A token could not be checked, because the keys of its issuer cannot be fetched."""

    code = "issuer_unavailable"


class KernelUnavailable(Unavailable):
    """The policy kernel has not answered."""

    code = "kernel_unavailable"


class RulingUnavailable(Unavailable):
    """Nobody can rule on a task now. Carries when to ask again."""

    code = "ruling_unavailable"

    def __init__(self, reason: str, *, after_ms: int) -> None:
        super().__init__(reason)
        self.after_ms = after_ms


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
        return truncate(literal(value, 80), 80)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} without end"


def literal(value: object, characters: int) -> str:
    """The value as a literal; only its first characters count, because a large value takes long to spell out."""
    return repr(_beginning(value, characters, [characters]))


def _beginning(value: object, characters: int, left: list[int]) -> object:
    """The part of a value that the first characters of its literal show; `left` counts the values that may follow."""
    left[0] -= 1
    if isinstance(value, str | bytes):
        return value[: characters + 1]
    if type(value) is dict:
        shown = {}
        for key, entry in value.items():
            if left[0] < 0:
                break
            shown[_beginning(key, characters, left)] = _beginning(entry, characters, left)
        return shown
    if type(value) is list:
        several = []
        for entry in value:
            if left[0] < 0:
                break
            several.append(_beginning(entry, characters, left))
        return several
    return value


def truncate(text: str, limit: int = 120) -> str:
    """The text, shortened to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
