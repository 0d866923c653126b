"""Reports of running attempts: lines of their logs, and the usage of agents, while they go on.

Once in a while the reporter looks at the attempts that have run for a second, and has their new lines kept, those of
all attempts together. It asks for nothing more until that is done, so that a slow store is not asked more often. An
attempt that ends sooner is never looked at, and costs nothing.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.model import LogLine
from gnomon.core.runs.progress import LAST_PLACE, MOST_LINES, OVERLAP_LINES, AttemptProgress, showable_lines
from gnomon.errors import GnomonError
from gnomon.ports.execution import ProgressWriter
from gnomon.ports.tasks import AttemptRef
from gnomon.runners.attempt_table import RunningAttempt

#: How long an attempt must have run before its lines are kept, and how much time is between two reports.
_YOUNGEST_SECONDS, _INTERVAL_SECONDS = 1.0, 1.0
#: How often the attempts are looked at while there are any, and while there are none.
_LOOK_SECONDS, _IDLE_SECONDS = 0.25, 1.0
#: A report has about as many characters, of all attempts together; and of the lines that the one before had.
_MOST_CHARACTERS, _MOST_OVERLAP = 256 * 1024, 16 * 1024


class AttemptReport:
    """The state of the reports of an attempt: how far they are."""

    __slots__ = ("attempt", "reported", "spent", "under_way", "urgent")

    def __init__(self, attempt: RunningAttempt) -> None:
        self.attempt = attempt
        #: How many lines were reported.
        self.reported = 0
        #: The usage of its agent, and the call that has not ended; empty without one.
        self.spent: AgentSpending | None = None
        self.under_way = ""
        #: Whether the usage has changed since the last report.
        self.urgent = False

    def following(self) -> "NextReport | None":
        """The next report; None if there is nothing new."""
        known = min(self.reported, OVERLAP_LINES)
        unreported = self.attempt.log.lines_to_keep(self.reported - known)
        if unreported is None:
            return None
        lines = _within_limits(unreported[: known + min(MOST_LINES, max(0, LAST_PLACE - self.reported))], known)
        shown = showable_lines(lines, known)
        if shown <= known and not self.urgent:
            return None
        # Behind lines that are not shown yet there is no place for the call.
        has_call = bool(self.under_way) and shown == len(lines)
        call = (LogLine(time.time_ns() // 1_000_000, "tool", self.under_way),) if has_call else ()
        left_out = _too_long_ago(lines[:known])
        task_id, fence = self.attempt.ref
        progress = AttemptProgress(
            task_id=task_id,
            fence=fence,
            spent=self.spent,
            first=self.reported - known + left_out,
            known=known - left_out,
            lines=(*lines[left_out:shown], *call),
        )
        self.urgent = False
        return NextReport(self, progress, self.reported - known + shown)


class NextReport(NamedTuple):
    """A report that is to be written, and how many lines are reported then."""

    report: AttemptReport
    progress: AttemptProgress
    reported: int


def _within_limits(lines: Sequence[LogLine], known: int) -> Sequence[LogLine]:
    """The known lines, and as many new ones as a report has at most."""
    size = 0
    for number, line in enumerate(lines[known:], known):
        size += len(line.text)
        if size > _MOST_CHARACTERS:
            return lines[: max(number, known + 1)]
    return lines


def _too_long_ago(known: Sequence[LogLine]) -> int:
    """How many of the lines that were reported before are too far away to be looked at again."""
    size = 0
    for number, line in enumerate(reversed(known)):
        size += len(line.text)
        if size > _MOST_OVERLAP:
            return len(known) - number
    return 0


class ProgressReporter:
    """Has the progress of the attempts of one runner kept. All methods are called on one event loop."""

    def __init__(self, writer: ProgressWriter, attempts: Callable[[], Sequence[RunningAttempt]]) -> None:
        """`attempts` returns those that have not ended."""
        self._writer, self._attempts = writer, attempts
        self._reports: dict[AttemptRef, AttemptReport] = {}
        self._writing: asyncio.Task[None] | None = None
        self._next_at = 0.0

    def start(self) -> None:
        """Look at the attempts from now on, until the loop ends."""
        under_way = self._attempts()
        self._look(under_way)
        asyncio.get_running_loop().call_later(_LOOK_SECONDS if under_way else _IDLE_SECONDS, self.start)

    def report(self, attempt: RunningAttempt, spent: AgentSpending, call: str) -> None:
        """Have this usage kept soon, and the log so far with the call that has not ended; it is empty without one.

        Nothing waits for it.
        """
        report = self._report_of(attempt)
        report.spent, report.under_way, report.urgent = spent, call, True
        if self._writing is None:
            self._begin([report])

    def _report_of(self, attempt: RunningAttempt) -> AttemptReport:
        return self._reports.setdefault(attempt.ref, AttemptReport(attempt))

    def _look(self, under_way: Sequence[RunningAttempt]) -> None:
        for ref in self._reports.keys() - {attempt.ref for attempt in under_way}:
            del self._reports[ref]
        now = time.monotonic()
        if self._writing is None and now >= self._next_at:
            old = [one for one in under_way if now - one.arrived_at >= _YOUNGEST_SECONDS and one.log.has_lines]
            for one in old:
                self._report_of(one)
            # Those that were reported longest ago come first: a talkative one does not hold up the others.
            wanted = {one.ref for one in old}
            self._begin([one for ref, one in self._reports.items() if ref in wanted])

    def _begin(self, reports: Sequence[AttemptReport]) -> None:
        found, size = list[NextReport](), 0
        for report in reports:
            made = report.following()
            if made is None:
                continue
            found.append(made)
            size += sum(len(line.text) for line in made.progress.lines)
            if size >= _MOST_CHARACTERS:
                break
        if found:
            self._writing = asyncio.get_running_loop().create_task(self._write(found))

    async def _write(self, found: Sequence[NextReport]) -> None:
        self._next_at = time.monotonic() + _INTERVAL_SECONDS
        try:
            await self._writer.keep([one.progress for one in found])
        except GnomonError:
            # The next report has these lines, too.
            pass
        else:
            for one in found:
                one.report.reported = one.reported
        finally:
            self._writing = None
        for one in found:
            ref = one.report.attempt.ref
            if ref in self._reports:
                self._reports[ref] = self._reports.pop(ref)
        urgent = [one for one in self._reports.values() if one.urgent]
        if urgent:
            self._begin(urgent)
