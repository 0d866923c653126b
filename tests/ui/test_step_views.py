"""The drawings of the steps of an execution: what is drawn where, in which words."""

from typing import Any

from gnomon.core.instants import instant_of
from gnomon.ui.step_views import graph_view, time_line_view

START = 1_772_452_800_000


def at(seconds: float | None) -> str | None:
    return None if seconds is None else instant_of(START + round(seconds * 1000)).isoformat()


def step(name: str, *depends_on: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - as the API shows it
    usual = dict.fromkeys(("started_at", "ended_at", "waits_for", "items"))
    return {"step": name, "depends_on": list(depends_on), "state": "SUCCEEDED", "attempts": [], **usual, **fields}


def attempt(number: int, start: float | None, end: float | None, result: str | None) -> dict[str, Any]:
    return {"attempt": number, "started_at": at(start), "ended_at": at(end), "result": result}


def execution(*steps: dict[str, Any], completed: float | None = None) -> dict[str, Any]:
    return {"created_at": at(0), "completed_at": at(completed), "steps": list(steps)}


def test_a_compensation_hangs_on_the_step_that_it_undoes() -> None:
    found = graph_view([step("book"), step("pay", "book"), step("compensate:book"), step("compensate:book#2")])

    assert found is not None
    assert sorted(undoes for _, undoes in found.edges) == [False, True, True]
    assert {one.step: one.box.layer for one in found.nodes}["compensate:book"] == 1


def test_one_step_alone_is_no_graph() -> None:
    assert graph_view([step("main")]) is None


def test_a_long_name_is_cut_to_its_box() -> None:
    found = graph_view([step("a" * 100), step("b")])

    assert found is not None
    assert max(len(one.shown) for one in found.nodes) == 18


def test_a_retried_step_has_a_wait_before_each_attempt() -> None:
    tried = [attempt(1, 10, 20, "failed"), attempt(2, 40, 50, "succeeded")]
    main = step("main", started_at=at(10), ended_at=at(50), attempts=tried)
    view = time_line_view(execution(main, completed=50), START + 99_000)

    assert view is not None
    [row] = view.rows
    assert [(bar.kind, bar.x, bar.width) for bar in row.bars] == [
        ("waits", 180, 144),
        ("failed", 324, 144),
        ("waits", 468, 288),
        ("succeeded", 756, 144),
    ]
    assert [bar.title for bar in row.bars][:2] == ["waits, 10.0 s", "attempt 1 failed, 10.0 s"]
    assert [text for _, text in view.ticks] == ["0", "10.0 s", "20.0 s", "30.0 s", "40.0 s", "50.0 s"]


def test_a_step_waits_from_the_end_of_those_before_it() -> None:
    first = step("a", started_at=at(0), ended_at=at(10), attempts=[attempt(1, 0, 10, "succeeded")])
    then = step("b", "a", state="PENDING", waits_for="capacity")
    view = time_line_view(execution(first, then), START + 20_000)

    assert view is not None
    assert [(bar.kind, bar.x, bar.width) for bar in view.rows[1].bars] == [("waits", 540, 360)]


def test_an_attempt_that_goes_on_reaches_until_now() -> None:
    view = time_line_view(execution(step("a", started_at=at(0), attempts=[attempt(1, 0, None, None)])), START + 4_000)

    assert view is not None
    assert [(bar.kind, bar.width) for bar in view.rows[0].bars] == [("running", 720)]


def test_items_are_one_bar() -> None:
    many = step("each", started_at=at(1), ended_at=at(3), items=[], attempts=[])
    view = time_line_view(execution(many, completed=3), START + 9_000)

    assert view is not None
    assert [bar.kind for bar in view.rows[0].bars] == ["waits", "succeeded"]


def test_an_execution_that_waits_for_nothing_and_has_no_attempt_has_no_time_line() -> None:
    assert time_line_view(execution(step("a", state="waiting")), START) is None


def test_bars_are_seen_and_begin_within_the_scale_however_short_or_long_they_are() -> None:
    for seconds in (0.0, 0.001, 40 * 86_400.0):
        done = step("a", started_at=at(0), ended_at=at(seconds), attempts=[attempt(1, 0, seconds, "succeeded")])
        view = time_line_view(execution(done, completed=seconds), START)

        assert view is not None
        assert all(bar.width >= 2 and 180 <= bar.x <= 900 for bar in view.rows[0].bars)
        assert 1 <= len(view.ticks) <= 9
