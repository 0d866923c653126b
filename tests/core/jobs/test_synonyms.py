"""Fields and values that people know from other schedulers, or misspell: the error names the right one."""

import pytest

from gnomon.core.jobs.job import JOB_FIELDS
from gnomon.core.jobs.steps import RETRY_FIELDS, STEP_FIELDS
from gnomon.core.jobs.synonyms import unknown_choice, unknown_field
from gnomon.core.model import Catchup, Overlap


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("cron", "schedule"),
        ("tz", "timezone"),
        ("args", "input"),
        ("params", "input"),
        ("retries", "retry"),
        ("coalesce", "catchup"),
        ("max_instances", "overlap"),
        ("concurrencyPolicy", "overlap"),
        ("startingDeadlineSeconds", "misfire_grace"),
        ("suspend", "enabled"),
        ("steps", "dag"),
        ("cmd", "command"),
    ],
)
def test_the_word_of_another_scheduler_leads_to_ours(name: str, field: str) -> None:
    assert unknown_field(name, JOB_FIELDS) == f"is called {field} here"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("shedule", "schedule"),
        ("retires", "retry"),
        ("Timeout", "timeout"),
        ("timeZone", "timezone"),
        ("pamars", "input"),
        ("timezome", "timezone"),
    ],
)
def test_a_misspelt_word_leads_to_the_nearest(name: str, field: str) -> None:
    assert unknown_field(name, JOB_FIELDS) == f"is no field; did you mean {field}?"


@pytest.mark.parametrize("name", ["rate_limit", "owner", "x", "", "a" * 10_000, 5])
def test_a_word_that_resembles_none_leads_nowhere(name: object) -> None:
    assert unknown_field(name, JOB_FIELDS) == "is no field"


def test_only_fields_that_are_known_there_are_named() -> None:
    assert unknown_field("needs", STEP_FIELDS) == "is called depends_on here"
    assert unknown_field("retries", RETRY_FIELDS) == "is called max_attempts here"
    assert unknown_field("cron", STEP_FIELDS) == "is no field"


@pytest.mark.parametrize(
    ("value", "choice"), [("Forbid", "skip"), ("Replace", "replace"), ("quue", "queue"), ("buffer_all", "queue")]
)
def test_the_value_of_another_scheduler_leads_to_ours(value: str, choice: str) -> None:
    assert unknown_choice(value, list(Overlap)).endswith(f"; did you mean {choice}?")


def test_a_value_that_resembles_none_leads_nowhere() -> None:
    assert unknown_choice("sometimes", list(Catchup)) == "must be one of none, latest, all, spread"
    assert unknown_choice("last", list(Catchup)).endswith("; did you mean latest?")
