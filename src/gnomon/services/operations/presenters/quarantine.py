"""Presents outputs that are held back."""

from typing import Any

from gnomon.core.instants import instant_of
from gnomon.core.output_policy.ruling import HeldOutput
from gnomon.core.responses.quarantine import HeldOutputDetail, HeldOutputSummary, OutputFinding
from gnomon.services.operations.presenters.common import optional_instant
from gnomon.services.operations.quarantine import HeldOutputView


def held_output_summary(one: HeldOutput) -> HeldOutputSummary:
    """An output in a list."""
    return HeldOutputSummary(**_held_output(one))


def held_output_detail(found: HeldOutputView) -> HeldOutputDetail:
    """An output with its content."""
    return HeldOutputDetail(**_held_output(found.held), content=found.content, continued=found.continued)


def _held_output(one: HeldOutput) -> dict[str, Any]:
    ruling = one.ruling
    return {
        "task_id": ruling.task_id,
        "execution_id": ruling.run_id,
        "job": ruling.job,
        "step": ruling.step,
        "status": str(ruling.status),
        "phase": ruling.phase.value,
        "rule": ruling.rule,
        "version": ruling.version,
        "reason": ruling.reason,
        "findings": [
            OutputFinding(
                scanner=found.scanner,
                pattern=found.pattern,
                severity=found.severity.value,
                offset=found.offset,
                length=found.length,
            )
            for found in ruling.findings
        ],
        "content_digest": ruling.content_digest,
        "size": ruling.size,
        "held_at": instant_of(ruling.ruled_at),
        "decided_by": ruling.decided_by,
        "decided_at": optional_instant(ruling.decided_at),
        "decided_why": ruling.decided_why,
        "readers": list(ruling.readers),
    }
