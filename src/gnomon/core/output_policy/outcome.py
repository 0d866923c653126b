"""The outcome of an attempt after its output was checked."""

from msgspec.structs import replace

from gnomon.core.model import Result
from gnomon.core.output_policy.ruling import NO_CONTENT, OutputCheck, OutputDecision, OutputRuling, held_text
from gnomon.core.runs.outcomes import AttemptOutcome


def checked_outcome(outcome: AttemptOutcome, ruling: OutputRuling, *, topic: str, ms: int) -> AttemptOutcome:
    """The outcome by the ruling on its output.

    A failed attempt may have an output, too, if it ran a command. If that must be held back, it is dropped, and the
    attempt stays failed.
    """
    check = OutputCheck(topic=topic, ruling=ruling, ms=ms)
    if ruling.decision is OutputDecision.ALLOW:
        return replace(outcome, check=check)
    if ruling.decision is OutputDecision.REDACT:
        return replace(outcome, output=ruling.redacted, check=replace(check, ruling=replace(ruling, redacted=None)))
    if outcome.result is not Result.SUCCEEDED:
        return replace(outcome, output=None, turn=None, check=check)
    held = replace(check, held=outcome.output or NO_CONTENT)
    return replace(outcome, output=None, turn=None, quarantine=held_text(ruling), check=held)
