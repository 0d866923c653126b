"""The progress of an attempt: its log and the usage of its agent so far, so that a lost worker takes neither along.

Lines that are kept while an attempt goes on are replaced by those of its end, which have the same numbers.
"""

from collections.abc import Sequence

from msgspec import Struct

from gnomon.core.agents.rules import AgentSpending, checked_spending
from gnomon.core.instants import FOREVER
from gnomon.core.model import LogLine, Result, TaskId
from gnomon.core.runs.outcomes import TaskCompletion

#: The ends of attempts that their workers may not have reported.
_UNREPORTED_ENDS = frozenset((Result.LOST, Result.TIMED_OUT, Result.CANCELLED))
#: A worker keeps no lines beyond this place in the log of an attempt, nor more of them at once.
LAST_PLACE, MOST_LINES = 10_000, 1_000
_LONGEST_LINE, _LONGEST_LEVEL = 2_000, 50
#: A text to redact may begin in one line and end in another: so many lines of the report before are looked at again.
OVERLAP_LINES = 200
#: The first and the last line of a text of several lines that must not be shown, such as a key.
_BLOCK_BEGIN, _BLOCK_END = "-----BEGIN ", "-----END "


class AttemptProgress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The lines of the log of an attempt from a place on, and what its agent has spent. A later report has more."""

    task_id: TaskId
    fence: int
    #: None for other functions than agents.
    spent: AgentSpending | None = None
    #: The place of the first of these lines in the log of the attempt, from 0.
    first: int = 0
    #: How many of the first lines an earlier report had: they show whether they belong to a text that is redacted.
    known: int = 0
    #: The last one may be about a call that has not ended: the next report replaces it.
    lines: tuple[LogLine, ...] = ()


def checked_progress(progress: AttemptProgress) -> AttemptProgress:
    """The progress that another process reports, within bounds."""
    first = max(0, progress.first)
    lines = progress.lines[: min(MOST_LINES + OVERLAP_LINES, max(0, LAST_PLACE - first))]
    return AttemptProgress(
        task_id=progress.task_id,
        fence=progress.fence,
        spent=None if progress.spent is None else checked_spending(progress.spent),
        first=first,
        known=min(max(0, progress.known), len(lines)),
        lines=tuple(
            LogLine(min(max(0, one.at), FOREVER), one.level[:_LONGEST_LEVEL], one.text[:_LONGEST_LINE]) for one in lines
        ),
    )


def with_clean_lines(progress: AttemptProgress, clean: Sequence[LogLine]) -> AttemptProgress:
    """The progress with its lines redacted; without those of an earlier report, unless these are redacted only now."""
    known = progress.known
    if tuple(clean[:known]) != progress.lines[:known]:
        known = 0
    first = progress.first + known
    return AttemptProgress(
        task_id=progress.task_id, fence=progress.fence, spent=progress.spent, first=first, lines=tuple(clean[known:])
    )


def showable_lines(lines: Sequence[LogLine], known: int = 0) -> int:
    """How many of the lines may be shown before those that follow them are known, at least the first `known` ones.

    A block that has begun is shown once it has ended, because redaction finds it as a whole; a very long one is none.
    """
    begun = None
    for number, one in enumerate(lines):
        if begun is None and _BLOCK_BEGIN in one.text:
            begun = number
        if begun is not None and _BLOCK_END in one.text[one.text.find(_BLOCK_BEGIN) + 1 :]:
            begun = None
        if begun is not None and number - begun >= OVERLAP_LINES:
            begun = None
    return len(lines) if begun is None else max(known, begun)


def ends_with_kept_log(one: TaskCompletion) -> bool:
    """Whether the end of the attempt has the log and the usage that were kept: its worker has reported none."""
    unreported = one.result in _UNREPORTED_ENDS and one.usage is None and not one.logs and not one.log_kept
    return unreported or one.log_left_out


def may_have_kept_log(one: TaskCompletion) -> bool:
    """Whether something may have been kept of the attempt while it went on."""
    return one.log_kept or one.usage is not None or ends_with_kept_log(one)
