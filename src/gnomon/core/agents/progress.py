"""The progress of an agent: its usage and its log so far, so that a lost worker takes neither along."""

from msgspec import Struct

from gnomon.core.agents.rules import AgentSpending, checked_spending
from gnomon.core.instants import FOREVER
from gnomon.core.model import LogLine, Result, TaskId

#: The ends of attempts that their workers may not have reported: these have the usage and the log that were kept.
UNREPORTED_ENDS = frozenset((Result.LOST, Result.TIMED_OUT, Result.CANCELLED))
#: A worker keeps no lines beyond this place in the log of an attempt, nor more of them at once.
_LAST_PLACE, _MOST_LINES = 10_000, 1_000
_LONGEST_LINE, _LONGEST_LEVEL = 2_000, 50


class AgentProgress(Struct, frozen=True, kw_only=True):
    """The usage of an attempt so far, and the lines of its log from a place on. A later report has more."""

    task_id: TaskId
    fence: int
    spent: AgentSpending
    #: The place of the first of these lines in the log of the attempt, from 0.
    first: int = 0
    #: The last one may be about a call that has not ended: the next report replaces it.
    lines: tuple[LogLine, ...] = ()


def checked_progress(progress: AgentProgress) -> AgentProgress:
    """The progress that another process reports, within bounds."""
    first = max(0, progress.first)
    lines = progress.lines[: min(_MOST_LINES, max(0, _LAST_PLACE - first))]
    return AgentProgress(
        task_id=progress.task_id,
        fence=progress.fence,
        spent=checked_spending(progress.spent),
        first=first,
        lines=tuple(
            LogLine(min(max(0, one.at), FOREVER), one.level[:_LONGEST_LEVEL], one.text[:_LONGEST_LINE]) for one in lines
        ),
    )


def merged_progress(earlier: AgentProgress, later: AgentProgress) -> AgentProgress:
    """One report instead of two of the same attempt: the later lines replace those at their places."""
    kept = earlier.lines[: max(0, later.first - earlier.first)]
    if later.first <= earlier.first or not kept:
        return later
    return AgentProgress(
        task_id=later.task_id,
        fence=later.fence,
        spent=later.spent,
        first=earlier.first,
        lines=(*kept, *later.lines),
    )
