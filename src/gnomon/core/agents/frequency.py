"""How often an agent starts: too often is a warning, since every start costs money."""

from itertools import pairwise

from msgspec.structs import replace

from gnomon.core.agents.rules import SHORTEST_GAP_MS
from gnomon.core.durations import duration_text
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import DAY_MS, Spec
from gnomon.core.runs.workflow import Workflow

#: The gaps between so many ticks are looked at, from a Thursday of a leap year on.
_MOST_TICKS = 500
_FROM = 18_262 * DAY_MS


def shortest_gap_ms(name: str, spec: Spec) -> int | None:
    """The shortest gap between ticks of the schedule, as far as one looks; None with less than two ticks."""
    ticks, found = Ticks(name, spec), list[int]()
    at: int | None = max(_FROM, spec.start_at or 0) - 1
    while at is not None and len(found) < _MOST_TICKS:
        at = ticks.after(at)
        if at is not None:
            found.append(at)
    return min((later - earlier for earlier, later in pairwise(found)), default=None)


def with_gaps(workflow: Workflow, name: str, spec: Spec) -> Workflow:
    """The workflow whose agents know that they start too often, so that the log of each run says it."""
    if not workflow.has_agents:
        return workflow
    gap = shortest_gap_ms(name, spec)
    if gap is None or gap >= SHORTEST_GAP_MS:
        return workflow
    steps = [one if one.agent is None else replace(one, agent=replace(one.agent, gap_ms=gap)) for one in workflow.steps]
    return replace(workflow, steps=tuple(steps))


def frequency_warning(gap_ms: int) -> str:
    """The warning about an agent that starts too often."""
    return (
        f"an agent starts every {duration_text(gap_ms)} at its most frequent, and each start costs: "
        f"at least {duration_text(SHORTEST_GAP_MS)} apart is usual"
    )


def agent_warnings(workflow: Workflow) -> list[str]:
    """The warnings about the agents of a definition."""
    gaps = [step.agent.gap_ms for step in workflow.steps if step.agent is not None and step.agent.gap_ms]
    return [frequency_warning(min(gaps))] if gaps else []
