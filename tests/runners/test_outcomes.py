"""Outcomes: whatever a function returns or raises fits into the history."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import NoReturn

import msgspec
import pytest

from gnomon.core.model import Result
from gnomon.runners.context import GiveUp, Snooze
from gnomon.runners.logs import no_redaction
from gnomon.runners.outcomes import raised_outcome, returned_outcome


def output(value: object, max_bytes: int = 1000) -> bytes:
    outcome = returned_outcome(value, max_bytes=max_bytes, redact=no_redaction)
    assert outcome.result is Result.SUCCEEDED
    assert outcome.output is not None
    return outcome.output


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


class Unshowable:
    def __repr__(self) -> NoReturn:
        raise ValueError("no")


class Unspeakable(Exception):
    def __str__(self) -> NoReturn:
        raise ValueError("no")


def test_json_values_are_encoded_as_json() -> None:
    assert output({"at": datetime(2026, 3, 2, tzinfo=UTC), "n": [1, 2.5, None]}) == (
        b'{"at":"2026-03-02T00:00:00Z","n":[1,2.5,null]}'
    )


def test_other_values_are_encoded_by_their_representation() -> None:
    assert output([Odd()]) == b'{"repr":"[<odd>]"}'


def test_a_value_that_holds_itself_is_shown() -> None:
    value: list[object] = []
    value.append(value)

    assert output(value) == b'{"repr":"[[...]]"}'


@pytest.mark.parametrize(("depth", "kept"), [(63, True), (64, False), (500, False)])
def test_deeply_nested_values_are_encoded_by_their_representation(depth: int, *, kept: bool) -> None:
    value: object = 1
    for number in range(depth):
        value = [value] if number % 2 else {"in": value}

    assert (output(value, 100_000) == msgspec.json.encode(value)) is kept


def test_values_without_a_representation_are_encoded_by_their_type() -> None:
    assert output(Unshowable()) == b'{"repr":"<Unshowable that cannot be shown>"}'


@pytest.mark.guarantee("S25")
@pytest.mark.parametrize("value", ["x" * 5000, '"\\' * 5000, "é" * 5000, "\x00" * 5000, ["row"] * 5000, "😀" * 3000])
def test_an_output_over_the_limit_says_how_much_there_was_and_how_it_began(value: object) -> None:
    cut = output(value, max_bytes=1000)

    read = msgspec.json.decode(cut)
    whole = msgspec.json.encode(value)
    assert len(cut) <= 1000
    assert (read["truncated"], read["bytes"]) == (True, len(whole))
    assert whole.decode().startswith(read["head"])
    assert len(read["head"]) >= 150


def test_an_output_at_the_limit_is_whole() -> None:
    assert output("x" * 998) == msgspec.json.encode("x" * 998)


@pytest.mark.guarantee("S25")
def test_an_endless_message_is_cut() -> None:
    outcome = raised_outcome(ValueError("x" * 10_000_000), redact=no_redaction)

    assert outcome.error is not None
    assert len(outcome.error) <= 4000


class OddText:
    def __repr__(self) -> str:
        return "<\0 \ud800>"


@pytest.mark.parametrize("value", ["\ud800", {"a": "\ud800"}, {"\ud800": 1}, OddText(), [OddText(), "\udcff"]])
def test_an_output_holds_no_halves_of_characters(value: object) -> None:
    read = msgspec.json.decode(output(value))

    assert read["repr"].encode()
    assert r"\ud" in read["repr"]


def test_an_encoded_output_holds_no_nul() -> None:
    assert msgspec.json.decode(output(OddText())) == {"repr": r"<\x00 \ud800>"}


@pytest.mark.parametrize("raw", [b"\xff", b'"\\ud800"', b'"\\ud800 "', b'"\\udc00"', b"{"])
def test_bytes_of_other_programs_are_json_or_a_string(raw: bytes) -> None:
    [name] = msgspec.json.decode(output(msgspec.Raw(raw)))

    assert name == "repr"


@pytest.mark.parametrize("error", [ValueError("a\ud800\0"), OSError(2, "a\ud800\0"), GiveUp("a\ud800\0")])
def test_an_error_holds_nothing_that_no_database_keeps(error: Exception) -> None:
    outcome = raised_outcome(error, redact=no_redaction)

    assert outcome.error is not None
    assert r"a\ud800\x00" in outcome.error


class Sleepless(Snooze):
    def __init__(self) -> None:
        """Say nothing of a delay."""


@pytest.mark.parametrize("asked", [Snooze(1e18), Snooze(-1), Snooze("soon"), Sleepless()])  # type: ignore[arg-type] # that is the point
def test_a_snooze_that_is_no_span_ends_the_task(asked: Snooze) -> None:
    outcomes = [returned_outcome(asked, max_bytes=100, redact=no_redaction), raised_outcome(asked, redact=no_redaction)]

    assert [outcome.result for outcome in outcomes] == [Result.GAVE_UP, Result.GAVE_UP]


def test_a_snooze_that_is_no_span_says_why_it_ends_the_task() -> None:
    outcome = raised_outcome(Snooze(1e18), redact=no_redaction)

    assert outcome.error == "Snooze: 1e+18 must be a number of seconds from 0 to 31536000 (365 days)"


async def _later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("value", [(n for n in [1]), _later()])
def test_a_generator_that_nobody_runs_is_a_failure(value: object) -> None:
    outcome = returned_outcome(value, max_bytes=100, redact=no_redaction)

    assert outcome.result is Result.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("returned a generator that nobody runs")


def test_an_error_whose_text_raises_is_still_a_failure() -> None:
    outcome = raised_outcome(Unspeakable(), redact=no_redaction)

    assert (outcome.result, outcome.error) == (
        Result.FAILED,
        "Unspeakable: [its text cannot be shown: ValueError]",
    )
