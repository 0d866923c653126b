"""Texts with secrets: the definition marks the places, and no data ever does."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.config.sections import SecretsSettings
from gnomon.core.messages import decode_task_message, encode_task_message, task_message_of
from gnomon.core.runs.expressions import DataAllowance, Scope, evaluate_condition, resolve_references
from gnomon.core.runs.secret_text import SecretPlace, TextPart, escape_data, parts_of, shown_data, text_of
from gnomon.runners.secrets import SecretSource
from runners.runner_harness import assignment
from support.processor_time import is_done_within

VALUE = "hunter22"
SECRETS = SecretSource(SecretsSettings(allow=("KEY",)), {"KEY": VALUE})
#: Pieces of references: joined at random they make whole ones.
PIECES = (
    "$",
    "${",
    "{",
    "}",
    "${secret:KEY}",
    "{secret:KEY}",
    "${sec",
    "ret:KEY}",
    "secret:",
    "KEY",
    "input.a",
    "x",
    '"',
)
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=8)
data = st.recursive(
    texts | st.integers(0, 9) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def filled(value: Any) -> Any:  # noqa: ANN401 - any JSON
    return SECRETS.resolve({"it": value}, tenant="default", job="job")[0]["it"]


def resolved(value: object, scope: Scope) -> Any:  # noqa: ANN401 - any JSON
    return resolve_references(value, scope, DataAllowance(1 << 20))


def sent(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The input as a remote worker receives it."""
    message = task_message_of(assignment("report", {"it": value}), deadline=0)
    return decode_task_message(encode_task_message(message, now=0)).input["it"]


@given(st.lists(texts | st.just(SecretPlace("KEY")), max_size=6))
def test_a_text_has_the_places_that_were_put_in_and_no_others(parts: list[TextPart]) -> None:
    found = parts_of(text_of(parts))

    assert _merged(found) == _merged(parts)


def _merged(parts: list[TextPart]) -> list[TextPart]:
    merged: list[TextPart] = [""]
    for part in parts:
        last = merged[-1]
        if isinstance(part, str) and isinstance(last, str):
            merged[-1] = last + part
        else:
            merged += (part,) if isinstance(part, str) else (part, "")
    return merged


@pytest.mark.req("H-22")
@given(data)
def test_data_is_delivered_as_it_was_given(value: object) -> None:
    assert filled(sent(escape_data(value))) == value
    assert shown_data(escape_data(value)) == value


@pytest.mark.req("H-22")
@given(data, data, texts, texts, st.sampled_from(("", "${secret:KEY}")))
def test_a_secret_is_where_the_template_has_it_and_nowhere_else(
    one: object, two: object, first: str, last: str, named: str
) -> None:
    template = f"<${{input.a}}{named}${{steps.s.output}}${{item.x}}${{input.b}}>"
    scope = {
        "input": escape_data({"a": first, "b": one}),
        "item": escape_data({"x": last}),
        "steps": {"s": {"output": two}},
    }

    result = filled(sent(resolved(template, scope)))

    assert result == f"<{first}{VALUE if named else ''}{_spelled(two)}{last}{_spelled(one)}>"


def _spelled(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@given(data)
def test_a_whole_reference_is_the_data_itself(value: object) -> None:
    assert filled(resolved("${steps.s.output}", {"steps": {"s": {"output": value}}})) == value
    assert filled(resolved("${input}", {"input": escape_data(value)})) == value


def test_data_is_not_read_as_a_reference() -> None:
    scope = {"input": {"a": "${inp", "b": "ut.c}", "c": "secret", "d": "${input.c}"}}

    assert resolved("${input.a}${input.b} ${input.d}", scope) == "${input.c} ${input.c}"


def test_a_secret_of_the_job_may_be_passed_on_by_reference() -> None:
    scope = {"input": {"token": "${secret:KEY}", "all": {"of": ["${secret:KEY}"], "${secret:KEY}": 1}}}

    assert filled(resolved("Bearer ${input.token}", scope)) == f"Bearer {VALUE}"
    assert filled(resolved("=${input.all}", scope)) == f'={{"of":["{VALUE}"],"${{secret:KEY}}":1}}'


def test_a_definition_can_write_the_text_itself() -> None:
    assert filled("$${secret:KEY} $$${secret:KEY} ${secret:KEY}") == f"${{secret:KEY}} ${VALUE} {VALUE}"


def test_a_long_row_of_dollar_signs_is_read_once() -> None:
    text = "$" * 100_000 + "x{secret:"

    def read() -> None:
        assert escape_data(text) == text
        assert parts_of(text_of([text, "$", SecretPlace("KEY")])) == [f"{text}$", SecretPlace("KEY"), ""]

    assert is_done_within(1, read)


def test_conditions_compare_data_as_it_was_given() -> None:
    scope = {"input": {"a": escape_data("${secret:KEY}")}, "steps": {"s": {"output": "${secret:KEY}"}}}

    assert evaluate_condition('input.a == "${secret:KEY}" and steps.s.output == input.a', scope)
