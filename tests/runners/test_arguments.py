"""Inputs: they become arguments, or the attempt ends with a reason and is not repeated."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import pytest

from gnomon.core.model import Result
from gnomon.errors import FieldError, UsageError
from gnomon.runners.arguments import ArgumentBinder
from gnomon.runners.context import AttemptInfo, Context, StopFlag
from gnomon.runners.logs import TaskLog
from gnomon.runners.registry import Functions
from runners.runner_harness import open_runner

if TYPE_CHECKING:
    from decimal import Decimal


def bound(body: Callable[..., object], **given: object) -> object:
    facts = AttemptInfo(
        run_id="r", task_id="t", job="j", step="s", planned_at=0, attempt=1, fence=1,
        idempotency_key="k", source="api", user_id="", deadline_at=None,
    )  # fmt: skip
    positional, named = ArgumentBinder(body).bind(given, Context(facts, TaskLog(10), StopFlag(), None), given)
    return body(*positional, **named)


def refused(body: Callable[..., object], **given: object) -> FieldError:
    with pytest.raises(FieldError) as caught:
        bound(body, **given)
    return caught.value


def test_values_are_converted_to_what_the_annotations_say() -> None:
    def body(since: datetime, top: tuple[int, ...], rate: float = 0.5) -> object:
        return since, top, rate

    assert bound(body, since="2026-03-02T12:00:00Z", top=[1, 2]) == (datetime(2026, 3, 2, 12, tzinfo=UTC), (1, 2), 0.5)


def test_a_parameter_without_annotation_takes_anything() -> None:
    assert bound(lambda what: what, what={"any": ["thing"]}) == {"any": ["thing"]}


def test_an_annotation_that_does_not_exist_at_run_time_takes_anything() -> None:
    def body(amount: "Decimal") -> object:
        return amount

    assert bound(body, amount="7.50") == "7.50"


def test_remaining_arguments_go_to_the_keywords() -> None:
    def body(one: int, **rest: object) -> object:
        return one, rest

    assert bound(body, one=1, two=2) == (1, {"two": 2})


def test_a_default_that_can_change_is_left_to_the_function() -> None:
    def body(names: list[str] = ["a"]) -> object:  # noqa: B006 - that is the point
        return names

    assert bound(body) == ["a"]


def with_name(ctx):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - found by its name
    return ctx


def with_type(number: int, about: Context) -> object:
    return about if number else None


def by_position(about: Context, /, number: int) -> object:
    return about if number else None


@pytest.mark.parametrize(("body", "given"), [(with_name, {}), (with_type, {"number": 1}), (by_position, {"number": 1})])
def test_the_context_is_found_by_its_name_or_its_type(body: Callable[..., object], given: dict[str, object]) -> None:
    assert isinstance(bound(body, **given), Context)


def test_a_parameter_called_ctx_of_another_type_is_an_input() -> None:
    def body(ctx: int) -> int:
        return ctx

    assert bound(body, ctx=3) == 3


def test_the_context_cannot_be_given_as_input() -> None:
    def body(ctx: Context, **rest: object) -> object:
        return ctx, rest

    assert refused(body, ctx="forged").reason == "cannot be given as input"


def takes_int(number: int) -> int:
    return number


def test_a_missing_parameter_is_named() -> None:
    assert str(refused(takes_int)) == "number: None is missing: the function needs it"


def test_an_unknown_parameter_is_named_with_its_value() -> None:
    assert str(refused(takes_int, number=1, nubmer=2)) == "nubmer: 2 is not a parameter of the function"


def test_a_wrong_value_is_named_with_the_reason() -> None:
    assert str(refused(takes_int, number="7")) == "number: '7' is refused: Expected `int`, got `str`"


def test_a_wrong_value_inside_another_is_named_by_its_place() -> None:
    def body(rows: list[dict[str, int]]) -> None: ...

    assert refused(body, rows=[{"a": 1}, {"a": None}]).field == "rows[1][...]"


def test_bounds_in_annotations_count() -> None:
    def body(port: Annotated[int, msgspec.Meta(ge=1)]) -> None: ...

    assert "`int` >= 1" in refused(body, port=0).reason


def test_a_parameter_that_no_input_can_name_is_refused() -> None:
    def body(number: int, /) -> None: ...

    with pytest.raises(UsageError, match="positional only"):
        ArgumentBinder(body)


@pytest.mark.req("H-22")
async def test_an_input_that_does_not_fit_is_not_tried_again() -> None:
    functions = Functions()
    functions.add(takes_int, "takes-int")

    async with open_runner(functions) as harness:
        outcome = await harness.run("takes-int", {"number": "seven"})

    assert outcome.result is Result.GAVE_UP
    assert outcome.error == "number: 'seven' is refused: Expected `int`, got `str`"
