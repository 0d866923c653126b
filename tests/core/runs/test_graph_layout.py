"""Drawings of graphs: no two boxes overlap, every edge leads down, and the same graph has the same drawing."""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.runs.graph_layout import MOST_STEPS, DrawingSizes, GraphDrawing, draw_graph
from support.counted_calls import counted_calls

SIZES = DrawingSizes()
Steps = Mapping[str, Sequence[str]]


@st.composite
def graphs(draw: st.DrawFn) -> Steps:
    """Steps, each of which depends on some before it."""
    count = draw(st.integers(1, 25))
    return {
        f"s{number}": sorted(draw(st.sets(st.sampled_from([f"s{one}" for one in range(number)]), max_size=4)))
        if number
        else []
        for number in range(count)
    }


def drawn(steps: Steps) -> GraphDrawing:
    found = draw_graph(steps)
    assert found is not None
    return found


@given(graphs())
def test_no_two_steps_overlap_and_all_lie_within_the_drawing(steps: Steps) -> None:
    drawing = drawn(steps)

    assert {box.step for box in drawing.boxes} == steps.keys()
    for box in drawing.boxes:
        assert 0 <= box.x <= drawing.width - SIZES.width
        assert 0 <= box.y <= drawing.height - SIZES.height
    for one, other in combinations(drawing.boxes, 2):
        apart = abs(one.x - other.x) >= SIZES.width or abs(one.y - other.y) >= SIZES.height
        assert apart, (one, other)


@given(graphs())
def test_every_dependency_is_an_edge_that_leads_down(steps: Steps) -> None:
    drawing = drawn(steps)
    boxes = {box.step: box for box in drawing.boxes}

    assert sorted((edge.source, edge.target) for edge in drawing.edges) == sorted(
        (before, step) for step, many in steps.items() for before in many
    )
    for edge in drawing.edges:
        source, target = boxes[edge.source], boxes[edge.target]
        assert source.layer < target.layer
        assert edge.points[0] == (source.x + SIZES.width // 2, source.y + SIZES.height)
        assert edge.points[-1] == (target.x + SIZES.width // 2, target.y)
        assert all(upper[1] < lower[1] for upper, lower in pairwise(edge.points))
        assert all(0 <= x <= drawing.width for x, _ in edge.points)


@given(graphs())
def test_no_edge_runs_through_a_step_of_a_layer_between(steps: Steps) -> None:
    drawing = drawn(steps)

    for edge in drawing.edges:
        for x, y in edge.points[1:-1]:
            met = [
                box for box in drawing.boxes if box.x < x < box.x + SIZES.width and box.y <= y <= box.y + SIZES.height
            ]
            assert met == []


@given(graphs())
def test_the_same_graph_has_the_same_drawing(steps: Steps) -> None:
    assert draw_graph(steps) == draw_graph(dict(steps))


def test_a_step_lies_below_the_longest_path_to_it() -> None:
    drawing = drawn({"a": [], "b": ["a"], "c": ["b"], "d": ["a", "c"], "alone": []})

    assert {box.step: box.layer for box in drawing.boxes} == {"a": 0, "b": 1, "c": 2, "d": 3, "alone": 0}


def test_crossings_are_lessened() -> None:
    """As listed, each of these edges crosses others; in another order of the second layer none does."""
    drawing = drawn({"a": [], "b": [], "c": [], "z": ["c"], "y": ["b"], "x": ["a"]})
    places = {box.step: box.x for box in drawing.boxes}

    assert places["x"] < places["y"] < places["z"]


def test_a_chain_is_a_straight_line() -> None:
    drawing = drawn({"a": [], "b": ["a"], "c": ["b"]})

    assert len({box.x for box in drawing.boxes}) == 1
    assert drawing.width == SIZES.width + 2 * SIZES.margin


def test_dependencies_on_steps_that_are_not_shown_are_left_out() -> None:
    assert drawn({"a": ["gone", "gone"], "b": ["a", "a"]}).edges == drawn({"a": [], "b": ["a"]}).edges


@pytest.mark.parametrize("steps", [{}, {"a": ["b"], "b": ["a"]}, {"a": ["a"]}], ids=["none", "circle", "itself"])
def test_a_graph_that_has_no_drawing_is_a_list(steps: Steps) -> None:
    assert draw_graph(steps) is None


def test_the_largest_graphs_are_drawn_and_larger_ones_are_lists() -> None:
    long = {f"s{number}": [f"s{number - 1}", "s0"][: number and 2] for number in range(MOST_STEPS)}
    dense = {f"s{number}": [f"s{one}" for one in range(number)] for number in range(60)}
    wide = {"first": [], **{f"s{number}": ["first"] for number in range(MOST_STEPS - 1)}}

    assert drawn(long).height > drawn(wide).height
    assert draw_graph({**wide, "more": []}) is None
    assert draw_graph(dense) is None


def test_the_cost_of_a_drawing_is_bounded() -> None:
    """Two hundred steps in layers of five, each of which depends on all of the layer before."""
    steps = {
        f"s{number}": [f"s{one}" for one in range(max(0, number // 5 * 5 - 5), number // 5 * 5)]
        for number in range(MOST_STEPS)
    }

    assert counted_calls(lambda: draw_graph(steps)) < 100_000
