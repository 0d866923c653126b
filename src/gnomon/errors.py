"""Every error gnomon raises on purpose, sorted by who can do something about it.

GnomonError
└── UsageError            the caller can fix it, and retrying will not
    └── CronError         a schedule that cannot be understood, or can never fire
        └── SentenceError natural language that is unknown or says too little
"""

from typing import NamedTuple


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


class CronError(UsageError):
    """A schedule was refused. Carries what was said, where it is wrong, why, and what may have been meant."""

    code = "bad_cron"
    _subject = "cron expression"

    def __init__(
        self,
        expression: str,
        *,
        field: str,
        reason: str,
        position: Position | None = None,
        suggestion: str | None = None,
    ) -> None:
        self.expression = expression
        #: `minute`, `weekday`, …; `expression` for the whole; `timezone`, `dst.gap`, … beside it.
        self.field = field
        #: Reads on from the field's name: "has 61, which is out of range 0-59".
        self.reason = reason
        self.position = position
        #: A whole text that would be accepted and may be what was meant.
        self.suggestion = suggestion
        super().__init__(self._message())

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__))

    def _message(self) -> str:
        hint = f'; did you mean "{self.suggestion}"?' if self.suggestion else ""
        return f'Invalid {self._subject} "{_shortened(self.expression)}": {self.subject} {self.reason}{hint}'

    @property
    def subject(self) -> str:
        """What the reason is about, as the sentence begins: "minute field", "timezone", "it"."""
        whole = self.field == "expression" or "." in self.field or self.field == "timezone"
        return self.field if whole else f"{self.field} field"


class SentenceError(CronError):
    """A sentence was refused. Also says how far it was understood and what could have followed."""

    code = "bad_sentence"
    _subject = "schedule"

    def __init__(
        self,
        expression: str,
        *,
        reason: str,
        position: Position | None = None,
        suggestion: str | None = None,
        expected: tuple[str, ...] = (),
    ) -> None:
        #: The words up to the place where understanding ended.
        self.understood = expression[: position.start].rstrip() if position else ""
        #: What could have stood there, as words a person would type.
        self.expected = expected
        super().__init__(expression, field="expression", reason=reason, position=position, suggestion=suggestion)

    @property
    def subject(self) -> str:
        """A sentence has no fields."""
        return "it"


def _rebuild(kind: type[CronError], state: dict[str, object]) -> CronError:
    """Unpickle without running the constructor, whose signature differs from class to class."""
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = (error._message(),)  # noqa: SLF001 - the same class, one step later
    return error


def _shortened(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
