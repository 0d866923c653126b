"""Judging dead letters: one for each task that has failed for good, as its job wanted it, and none for any other."""

from collections import Counter
from collections.abc import Iterator

from gnomon.core.model import Result, RunStatus
from gnomon.core.runs.states import TaskState
from gnomon.testing.evidence import LOSSES, Case, Evidence
from gnomon.testing.history import Violation


def judged_letters(evidence: Evidence) -> Iterator[Violation]:
    """Every violation of K15."""
    letters = Counter(letter.task_id for letter in evidence.history.dead_letters)
    for task_id, case in evidence.cases.items():
        if letters[task_id] != _wanted(case):
            text = f"{task_id} is {case.task.state} and has left {letters[task_id]} letters, not {_wanted(case)}"
            yield Violation("K15", case.name, text)
    if unknown := letters.keys() - evidence.cases.keys():
        yield Violation("K15", "", f"letters of nobody: {sorted(unknown)}")
    yield from _replayed(evidence)


def _wanted(case: Case) -> bool:
    """Whether the task leaves a letter."""
    if case.task.state not in (TaskState.FAILED, TaskState.TIMEOUT):
        return False
    asked_for = case.workflow is not None and case.workflow.dead_letter
    last = case.counted[-1] if case.counted else None
    if last is None or last.after is None or last.after.state is TaskState.PENDING:
        # Nobody could run it, or find out what was to be run.
        return True
    if last.result is Result.NEVER_STARTED:
        return True
    poison = [one.result for one in case.counted].count(Result.LOST) >= LOSSES
    return asked_for or (last.result is Result.LOST and poison and not case.only_once)


def _replayed(evidence: Evidence) -> Iterator[Violation]:
    """K15: a key has one replay, and what a replay has made good is resolved, and nothing else."""
    replays = [run for run in evidence.runs.values() if run.replay_of is not None]
    keys = Counter((run.replay_of, run.idempotency_key) for run in replays)
    for key, count in keys.items():
        if count > 1:
            yield Violation("K15", "", f"{count} replays of {key}")
    good = {run.replay_of for run in replays if run.status is RunStatus.COMPLETED}
    # A replay that fails leaves a letter of its own; once someone replays that, the first is no longer open.
    taken_over = {
        evidence.runs[letter.run_id].replay_of
        for letter in evidence.history.dead_letters
        if letter.run_id in evidence.runs and any(run.replay_of == letter.dead_letter_id for run in replays)
    }
    for letter in evidence.history.dead_letters:
        resolved, name = letter.resolved_at is not None, letter.dead_letter_id
        if resolved != (name in good or name in taken_over):
            yield Violation("K15", letter.job, f"{name} resolved at {letter.resolved_at} by {letter.resolved_by}")
