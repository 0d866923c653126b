"""The progress of attempts: lines that may be shown, and lines that are redacted in lots."""

from gnomon.core.model import LogLine, TaskId
from gnomon.core.runs.progress import OVERLAP_LINES, AttemptProgress, showable_lines, with_clean_lines

BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"


def lines(*texts: str) -> tuple[LogLine, ...]:
    return tuple(LogLine(1, "info", text) for text in texts)


def test_lines_are_shown_up_to_a_block_that_has_not_ended() -> None:
    assert showable_lines(lines("a", "b")) == 2
    assert showable_lines(lines("a", BEGIN, "x")) == 1
    assert showable_lines(lines("a", BEGIN, "x", END, "b")) == 5
    assert showable_lines(lines("a", f"{BEGIN} x {END}", "b")) == 3
    assert showable_lines(lines("a", END, BEGIN, END, "b", BEGIN)) == 5


def test_a_block_that_is_too_long_is_none() -> None:
    assert showable_lines(lines(BEGIN, *["x"] * (OVERLAP_LINES - 1))) == 0
    assert showable_lines(lines(BEGIN, *["x"] * OVERLAP_LINES)) == OVERLAP_LINES + 1


def test_lines_that_were_shown_stay_shown() -> None:
    assert showable_lines(lines(BEGIN, "x", "y"), known=2) == 2


def test_lines_of_an_earlier_report_are_written_again_only_if_they_are_redacted_now() -> None:
    given = AttemptProgress(task_id=TaskId("task_1"), fence=1, first=5, known=2, lines=lines("a", "b", "c"))

    same = with_clean_lines(given, lines("a", "b", "[REDACTED]"))
    assert (same.first, same.known, [one.text for one in same.lines]) == (7, 0, ["[REDACTED]"])

    other = with_clean_lines(given, lines("a", "[REDACTED]", "[REDACTED]"))
    assert (other.first, [one.text for one in other.lines]) == (5, ["a", "[REDACTED]", "[REDACTED]"])
