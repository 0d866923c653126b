"""Draw a graph of steps as a tree: each step stands under the last of its dependencies."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from graphlib import TopologicalSorter
from typing import Any

from gnomon.cli.output import first_line, format_duration, format_instant, print_table, supports_unicode
from gnomon.core.durations import duration_ms
from gnomon.core.responses.executions import StepDetail, WorkDetail
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import When

#: The state of a step that has no task yet.
_WAITING = "waiting"
_OVER = frozenset(state.value for state in TERMINAL)


def draw(steps: Sequence[StepDetail]) -> None:
    """Print the graph of a run: states, durations, attempts."""
    drawn = {one.step: one for one in steps}
    after = {one.step: one.depends_on for one in steps}
    rows = [[label, *_step_cells(drawn[name])] for label, name in outline(after)]
    print_table(["step", "state", "took", "attempts", "remarks"], rows)


def draw_definition(steps: Sequence[Mapping[str, Any]]) -> None:
    """Print the graph of a workflow: the action of each step."""
    known = {step["step"]: step for step in steps}
    order = TopologicalSorter({name: step.get("depends_on", []) for name, step in known.items()}).static_order()
    after = {name: known[name].get("depends_on", []) for name in order}
    rows = [[label, _action_text(known[name]), _conditions_text(known[name])] for label, name in outline(after)]
    print_table(["step", "does", "remarks"], rows)


def outline(after: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield a line of the tree and the name for each step; a step stands under the last of its dependencies."""
    places = {name: place for place, name in enumerate(after)}
    below: dict[str | None, list[str]] = {}
    for name, earlier in after.items():
        above = max(earlier, key=places.__getitem__, default=None)
        below.setdefault(above, []).append(name)
    branch, last, along = ("├─ ", "└─ ", "│  ") if supports_unicode() else ("|- ", "`- ", "|  ")
    ahead = [(name, "", "") for name in reversed(below.get(None, []))]
    while ahead:
        name, lead, under = ahead.pop()
        yield f"{lead}{name}", name
        inner = below.get(name, [])
        ahead += [
            (one, under + (last if one == inner[-1] else branch), under + ("   " if one == inner[-1] else along))
            for one in reversed(inner)
        ]


def _step_cells(step: StepDetail) -> list[str]:
    known = {"depends_on": step.depends_on, "when": step.when}
    terms = _conditions_text(known if step.skipped else known | {"if": step.condition})
    if step.state == _WAITING:
        return [_WAITING, "", "", terms]
    attempts = str(len(step.attempts)) if step.attempts and not step.items else ""
    remarks = [
        terms,
        item_counts_text(step.item_counts or {}),
        f"runs {step.execution_id}" if step.execution_id else "",
        f"until {format_instant(step.waits_until)}" if step.waits_until else "",
        first_line(step.note),
    ]
    return [state_of(step), format_duration(step_duration_ms(step)), attempts, "; ".join(one for one in remarks if one)]


def state_of(work: WorkDetail) -> str:
    """The state of a step or an item, with what it waits for."""
    if work.skipped:
        return "SKIPPED"
    return f"{work.state} ({work.waits_for})" if work.waits_for is not None else work.state


def step_duration_ms(work: WorkDetail) -> int | None:
    """The milliseconds from a completed step's first attempt to the end of its last; None otherwise."""
    if work.started_at is None or work.ended_at is None or work.state not in _OVER:
        return None
    return max(0, round((work.ended_at - work.started_at) / timedelta(milliseconds=1)))


def item_counts_text(states: Mapping[str, int]) -> str:
    """The number of items of a step that are done and that failed."""
    if not states:
        return ""
    done = states.get(TaskState.SUCCEEDED.value, 0)
    failed = sum(count for state, count in states.items() if state in _OVER) - done
    return f"each: {done} of {sum(states.values())} done" + (f", {failed} failed" if failed else "")


def _conditions_text(step: Mapping[str, Any]) -> str:
    """The dependencies besides the step above it, and the conditions."""
    earlier = step.get("depends_on", [])
    found = [f"after {', '.join(earlier)}"] if len(earlier) > 1 else []
    if step.get("when", When.ALL_SUCCESS) != When.ALL_SUCCESS:
        found.append(f"when {step['when']}")
    if step.get("if") is not None:
        found.append(f"if {first_line(step['if'], 40)}")
    return ", ".join(found)


def _action_text(step: Mapping[str, Any]) -> str:
    does = step.get("function") or (f"workflow {step['workflow']}" if "workflow" in step else "")
    if "command" in step:
        does = first_line(step["command"], 40)
    waits = ""
    if "delay" in step:
        waits = f"waits {format_duration(duration_ms('delay', step['delay']))}"
    elif "delay_until" in step:
        waits = f"waits until {step['delay_until']}"
    each = "for each item" if "foreach" in step else ""
    return ", ".join(one for one in (does, each, waits) if one)
