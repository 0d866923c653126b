"""Presents dead letters."""

from msgspec.structs import asdict

from gnomon.core.instants import instant_of
from gnomon.core.model import DeadLetter
from gnomon.core.responses.dead_letters import (
    DeadLetterDetail,
    DeadLetterGroup,
    DeadLetterResolved,
    DeadLetterSummary,
    Replay,
)
from gnomon.core.runs.secret_text import shown_data
from gnomon.ports.runs import LetterGroup
from gnomon.services.operations.dead_letters import DeadLetterView, ReplayResult
from gnomon.services.operations.presenters.common import decoded, optional_instant
from gnomon.services.operations.presenters.executions import attempt_details


def dead_letter_summary(letter: DeadLetter) -> DeadLetterSummary:
    """A dead letter in a list."""
    return DeadLetterSummary(
        dead_letter_id=letter.dead_letter_id,
        job=letter.job,
        execution_id=letter.run_id,
        step=letter.step,
        reason=letter.reason,
        attempts=letter.attempts,
        last_error=letter.last_error,
        input=shown_data(decoded(letter.input)),
        first_attempt_at=instant_of(letter.first_attempt_at),
        last_attempt_at=instant_of(letter.last_attempt_at),
        created_at=instant_of(letter.created_at),
        resolved=letter.resolved_at is not None,
        resolved_at=optional_instant(letter.resolved_at),
        resolved_by=letter.resolved_by,
        replayed_by=letter.replayed_by,
    )


def dead_letter_detail(view: DeadLetterView) -> DeadLetterDetail:
    """A dead letter and its attempts."""
    kept = view.run is not None
    return DeadLetterDetail(
        **asdict(dead_letter_summary(view.letter)), attempt_history=attempt_details(view.attempts), kept=kept
    )


def dead_letter_group(group: LetterGroup) -> DeadLetterGroup:
    """A group in a list."""
    return DeadLetterGroup(
        job=group.job,
        step=group.step,
        error_line=group.error_line,
        count=group.count,
        oldest_at=instant_of(group.oldest_at),
        newest_at=instant_of(group.newest_at),
    )


def dead_letter_resolved(letter: DeadLetter) -> DeadLetterResolved:
    """One of several dead letters that were resolved."""
    return DeadLetterResolved(dead_letter_id=letter.dead_letter_id, job=letter.job)


def replay_response(one: ReplayResult) -> Replay:
    """The result of one of many replays."""
    return Replay(
        dead_letter_id=one.dead_letter_id,
        job=one.job,
        execution_id=one.run_id,
        became=None if one.became is None else one.became.value,
        refused=one.refused,
    )
