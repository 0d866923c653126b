"""The steps of an execution as they are drawn: a graph, and a time line with waits and attempts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from gnomon.core.durations import span_text
from gnomon.core.instants import ms_of
from gnomon.core.runs.graph_layout import GraphDrawing, StepBox, draw_graph
from gnomon.core.runs.rollback import is_compensation, undone_step

_Step = Mapping[str, Any]
#: With more steps there is no time line: a page has a limited number of elements.
MOST_ROWS = 100
#: Sizes of the time line: the names, the scale, a row, and the scale's own height.
_NAMES, _SCALE, _ROW, _HEAD = 180, 720, 24, 22
#: Attempts of a step beyond this number are drawn as one bar.
_MOST_BARS = 20
#: The steps of scales in milliseconds, and how many a scale has at most.
_UNITS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 21_600_000, 43_200_000, 86_400_000,
)  # fmt: skip
_MOST_TICKS = 8
#: A name is cut so that it fits into its box or column.
_LONGEST_NAME = 18


class NodeView(Struct, frozen=True):
    """A step in the graph."""

    step: str
    #: The number of the step in the table, which it leads to.
    number: int
    shown: str
    state: str
    box: StepBox


class GraphView(Struct, frozen=True):
    """The graph of the steps of an execution."""

    drawing: GraphDrawing
    nodes: tuple[NodeView, ...]
    #: The path of each edge, and whether it leads to a compensation.
    edges: tuple[tuple[str, bool], ...]


def graph_view(steps: Sequence[_Step]) -> GraphView | None:
    """The graph, with an edge from each step to its compensation; None if there is nothing to draw, or too much."""
    before = {one["step"]: [*one["depends_on"], *_undone(one["step"])] for one in steps}
    drawing = draw_graph(before) if len(steps) > 1 else None
    if drawing is None:
        return None
    numbers = {one["step"]: number for number, one in enumerate(steps, 1)}
    states = {one["step"]: one["state"] for one in steps}
    nodes = (
        NodeView(box.step, numbers[box.step], shown_name(box.step), states[box.step], box) for box in drawing.boxes
    )
    edges = ((_path(edge.points), is_compensation(edge.target)) for edge in drawing.edges)
    return GraphView(drawing, tuple(nodes), tuple(edges))


def _undone(step: str) -> list[str]:
    """The step that this one undoes, if it is a compensation."""
    return [undone_step(step)] if is_compensation(step) else []


def _path(points: Sequence[tuple[int, int]]) -> str:
    """A line that leaves and reaches each layer straight down."""
    (x, y), *rest = points
    found = [f"M{x} {y}"]
    for to_x, to_y in rest:
        middle = (y + to_y) // 2
        found.append(f"V{to_y}" if to_x == x else f"C{x} {middle} {to_x} {middle} {to_x} {to_y}")
        x, y = to_x, to_y
    return "".join(found)


def shown_name(name: str) -> str:
    """The name of a step, cut to the width of its box."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"


# ---- the time line -------------------------------------------------------------------------------


class BarView(Struct, frozen=True):
    """A stretch of time of a step: a wait, or an attempt with its result."""

    x: int
    width: int
    #: `waits`, or the result of the attempt; `running` if it goes on.
    kind: str
    #: The words about it.
    title: str


class RowView(Struct, frozen=True):
    """A step in the time line."""

    step: str
    number: int
    shown: str
    y: int
    bars: tuple[BarView, ...]


class TimeLineView(Struct, frozen=True):
    """The time line of the steps of an execution."""

    width: int
    height: int
    rows: tuple[RowView, ...]
    #: The places of the scale, and the time since the beginning there.
    ticks: tuple[tuple[int, str], ...]


def time_line_view(execution: Mapping[str, Any], now: int) -> TimeLineView | None:
    """The time line; None if no step has begun or waits for a worker, or if there are too many steps."""
    steps: Sequence[_Step] = execution["steps"]
    spans = [_spans(one, steps, execution, now) for one in steps]
    moments = [at for many in spans for begin, end, *_ in many for at in (begin, end)]
    if not moments or len(steps) > MOST_ROWS:
        return None
    first, last = min(moments), max(moments)
    length = max(1, last - first)

    def x_of(at: int) -> int:
        return _NAMES + (at - first) * _SCALE // length

    rows = tuple(
        RowView(
            one["step"],
            number,
            shown_name(one["step"]),
            _HEAD + number * _ROW - _ROW,
            tuple(BarView(x_of(begin), max(2, x_of(end) - x_of(begin)), *about) for begin, end, *about in many),
        )
        for number, (one, many) in enumerate(zip(steps, spans, strict=True), 1)
    )
    unit = next((unit for unit in _UNITS if length / unit <= _MOST_TICKS), _UNITS[-1] * (1 + length // _UNITS[-1] // 8))
    ticks = tuple((x_of(first + at), span_text(at) if at else "0") for at in range(0, length + 1, unit))
    return TimeLineView(_NAMES + _SCALE + 40, _HEAD + len(rows) * _ROW + 4, rows, ticks)


def _spans(
    step: _Step, steps: Sequence[_Step], execution: Mapping[str, Any], now: int
) -> list[tuple[int, int, str, str]]:
    """The waits and attempts of a step: begin, end, kind and words."""
    ends = {one["step"]: _at(one["ended_at"]) for one in steps}
    before = [*step["depends_on"], *_undone(step["step"])]
    ready = max([_at(execution["created_at"]) or 0, *(ends.get(one) or 0 for one in before)])
    over = _at(execution["completed_at"])
    attempts = step["attempts"]
    if step["items"] is not None or len(attempts) > _MOST_BARS:
        begun = _at(step["started_at"])
        if begun is None:
            return []
        kind = "running" if step["ended_at"] is None else step["state"].lower()
        end = _at(step["ended_at"]) or over or now
        return [*_wait(ready, begun), (begun, max(begun, end), kind, f"{kind}, {_took(end - begun)}")]
    found: list[tuple[int, int, str, str]] = []
    for one in attempts:
        begun = _at(one["started_at"]) or _at(one["ended_at"]) or now
        end = _at(one["ended_at"]) or over or now
        found += _wait(ready, begun)
        kind = one["result"] or "running"
        words = f"attempt {one['attempt']} {kind}, {_took(end - begun)}"
        if one["started_at"] is not None:
            found.append((begun, max(begun, end), kind, words))
        ready = max(ready, end)
    if step["waits_for"] is not None and over is None:
        found += _wait(ready, now)
    return found


def _wait(begin: int, end: int) -> list[tuple[int, int, str, str]]:
    return [(begin, end, "waits", f"waits, {_took(end - begin)}")] if end > begin else []


def _at(instant: str | None) -> int | None:
    return None if instant is None else ms_of(datetime.fromisoformat(instant))


def _took(milliseconds: int) -> str:
    return span_text(max(0, milliseconds))
