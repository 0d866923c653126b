"""Presents explanations."""

from gnomon.core.explain.evidence import JobExplanation, SubjectExplanation
from gnomon.core.instants import in_zone, instant_of
from gnomon.core.model import ENGINE, Attempt, Task
from gnomon.core.responses.why import WhyAnswer, WhyAttempt, WhyDecision, WhyMoment
from gnomon.services.operations.executions import last_attempt
from gnomon.services.operations.presenters.common import optional_instant
from gnomon.services.operations.presenters.executions import attempt_fields, execution_summary


def why_response(answer: JobExplanation) -> WhyAnswer:
    """The explanation of one time or of the last ticks."""
    return WhyAnswer(
        job=answer.job,
        schedule=answer.schedule,
        timezone=answer.timezone,
        explanations=[_why_moment(one) for one in answer.explanations],
        more=answer.more,
        forgotten_before=optional_instant(answer.forgotten_before),
        coming=None if answer.coming is None else _why_moment(answer.coming),
    )


def tried_attempts(one: SubjectExplanation) -> list[tuple[Task, Attempt]]:
    """The attempts of workers in order of time; those of the engine, which only waits for other runs, are left out."""
    tasks = {task.task_id: task for task in one.tasks}
    by_workers = sorted((one for one in one.attempts if one.worker != ENGINE), key=lambda one: one.dispatched_at)
    return [(tasks[attempt.task_id], attempt) for attempt in by_workers]


def _why_moment(one: SubjectExplanation) -> WhyMoment:
    return WhyMoment(
        at=instant_of(one.at),
        local=in_zone(instant_of(one.at), one.timezone).isoformat(),
        kind=one.kind.value,
        reason=one.reason,
        sentence=one.sentence,
        waits=list(one.waits),
        schedule=one.schedule,
        timezone=one.timezone,
        revision=one.revision,
        decision=_why_decision(one),
        previous_at=optional_instant(one.previous_at),
        next_at=optional_instant(one.next_at),
        execution=None if one.run is None else execution_summary(one.run, attempt=last_attempt(one.tasks)),
        attempts=[
            WhyAttempt(step=task.step, item=task.item, fence=attempt.number, **attempt_fields(attempt))
            for task, attempt in tried_attempts(one)
        ],
    )


def _why_decision(one: SubjectExplanation) -> WhyDecision | None:
    decision = one.decision
    if decision is None:
        return None
    return WhyDecision(
        kind=decision.kind.value,
        reason=decision.reason.value,
        first_at=instant_of(decision.planned_at),
        last_at=instant_of(decision.last_at),
        count=decision.count,
        fire_at=optional_instant(decision.fire_at),
        decided_at=optional_instant(one.decided_at),
    )
