"""What the explainer has found, as answers for those who ask."""

from gnomon.core.explain.evidence import Answer, Explanation
from gnomon.core.instants import in_zone, instant_of
from gnomon.core.model import ENGINE, Attempt, Task
from gnomon.core.responses import WhyAnswer, WhyAttempt, WhyDecision, WhyMoment
from gnomon.services.answering import at, execution


def why_answer(answer: Answer) -> WhyAnswer:
    """Why, of one moment or of the last few."""
    return WhyAnswer(
        job=answer.job,
        schedule=answer.schedule,
        timezone=answer.timezone,
        explanations=[_moment(one) for one in answer.explanations],
        more=answer.more,
        forgotten_before=None if answer.forgotten_before is None else instant_of(answer.forgotten_before),
        coming=None if answer.coming is None else _moment(answer.coming),
    )


def tried(one: Explanation) -> list[tuple[Task, Attempt]]:
    """What workers have tried, as it happened; what only waited for others is no attempt to speak of."""
    tasks = {task.task_id: task for task in one.tasks}
    by_workers = sorted((one for one in one.attempts if one.worker != ENGINE), key=lambda one: one.dispatched_at)
    return [(tasks[attempt.task_id], attempt) for attempt in by_workers]


def _moment(one: Explanation) -> WhyMoment:
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
        decision=_decision(one),
        previous_at=at(one.previous_at),
        next_at=at(one.next_at),
        execution=None if one.run is None else execution(one.run),
        attempts=[_attempt(task, attempt) for task, attempt in tried(one)],
    )


def _decision(one: Explanation) -> WhyDecision | None:
    decision = one.decision
    if decision is None:
        return None
    return WhyDecision(
        kind=decision.kind.value,
        reason=decision.reason.value,
        first_at=instant_of(decision.planned_at),
        last_at=instant_of(decision.last_at),
        count=decision.count,
        fire_at=at(decision.fire_at),
        decided_at=at(one.decided_at),
    )


def _attempt(task: Task, attempt: Attempt) -> WhyAttempt:
    return WhyAttempt(
        step=task.step,
        item=task.item,
        fence=attempt.number,
        worker=attempt.worker,
        dispatched_at=instant_of(attempt.dispatched_at),
        started_at=at(attempt.started_at),
        ended_at=at(attempt.ended_at),
        result=None if attempt.result is None else attempt.result.value,
        error=attempt.error,
    )
