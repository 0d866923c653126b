"""The records of rulings on outputs that follow from the ends of attempts."""

from gnomon.core.output_policy.ruling import HeldStatus, OutputDecision, OutputPhase, StoredOutputRuling
from gnomon.core.runs.outcomes import TaskCompletion


def output_record(ended: TaskCompletion) -> StoredOutputRuling | None:
    """The record of the ruling on the output of an attempt that has ended; None if it was stored as it is."""
    ruling = None if ended.check is None else ended.check.ruling
    if ended.check is None or ruling is None or ruling.decision is OutputDecision.ALLOW:
        return None
    run = ended.run
    return StoredOutputRuling(
        task_id=ended.task_id,
        number=ended.fence,
        tenant=run.tenant,
        run_id=run.run_id,
        job=run.schedule_id or run.workflow_id,
        step=ended.step,
        phase=OutputPhase.INLINE,
        decision=ruling.decision,
        rule=ruling.rule,
        version=ruling.version,
        reason=ruling.reason,
        findings=ruling.findings,
        content_digest=ruling.content_digest,
        size=ruling.size,
        ruled_at=ended.ended_at,
        status=None if ended.check.held is None else HeldStatus.HELD,
    )
