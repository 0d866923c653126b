"""All mistakes of a definition are found in one reading, and none that only follows from another."""

from functools import partial
from typing import Any

import pytest

from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.mistakes import MOST_MISTAKES, mistakes
from gnomon.core.jobs.schedule_fields import Defaults

READ = partial(read_job, defaults=Defaults(), now=0)


def fields(definition: dict[str, Any]) -> list[str]:
    return [error.field for error in mistakes(definition, READ)]


def test_a_definition_that_is_right_has_none() -> None:
    assert fields({"name": "a", "function": "f", "schedule": "@daily"}) == []


@pytest.mark.parametrize(
    ("definition", "wrong"),
    [
        (
            {"name": "A B", "function": "", "schedule": "61 * * * *", "timezone": "Nowhere", "overlap": "x"},
            {"name", "function", "schedule", "timezone", "overlap"},
        ),
        (
            {"name": "a", "function": "f", "retry": {"max_attempts": 0, "jitter": 2}},
            {"retry.max_attempts", "retry.jitter"},
        ),
        ({"name": "a", "agent": "Look around."}, {"agent"}),
        (
            {"name": "a", "agent": {"tools": ["http_get"], "network": ["*"], "budget": {"cost": 0}}},
            {"agent.prompt", "agent.network[0]", "agent.budget.cost"},
        ),
        ({"name": "a", "http": "https://example.com/"}, {"http"}),
        ({"name": "a", "http": {"url": "ftp://example.com/", "method": "TRACE"}}, {"http.url", "http.method"}),
        (
            {"name": "a", "dag": [{"step": "x", "function": ""}, {"step": "y", "function": "f", "timeout": "no"}]},
            {"dag[0].function", "dag[1].timeout"},
        ),
        ({"schedule": "nonsense"}, {"name", "function", "schedule"}),
        # The time zone is fine beside a schedule that is not.
        ({"name": "a", "function": "f", "schedule": "nonsense", "timezone": "Europe/Berlin"}, {"schedule"}),
        ({"name": "a", "function": "f", "tags": ["", "b", "b"]}, {"tags[0]"}),
        ({"name": "a", "dag": [5]}, {"dag[0]"}),
    ],
)
def test_every_mistake_is_found_once(definition: dict[str, Any], wrong: set[str]) -> None:
    assert sorted(fields(definition)) == sorted(wrong)


def test_a_definition_is_left_as_it_was() -> None:
    definition = {"name": "A B", "function": "f"}

    mistakes(definition, READ)

    assert definition == {"name": "A B", "function": "f"}


def test_the_number_of_reported_mistakes_is_bounded() -> None:
    steps = [{"step": f"s{number}", "function": "f", "timeout": "no"} for number in range(100)]

    assert len(fields({"name": "a", "dag": steps})) == MOST_MISTAKES
