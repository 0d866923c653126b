"""The fields capability, risk_tags and breaker: read, inherited by steps, exported, and known to every interface."""

from collections.abc import Mapping
from typing import Any

import pytest

from gnomon.core.breakers import BreakerLimits, StepBreaker
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import FieldError
from gnomon.runners.registry import Functions

USUAL = StepBreaker(name="").limits


def read(definition: Mapping[str, Any]) -> Job:
    return read_job(definition, Defaults(), now=0)


def job(**fields: Any) -> Job:  # noqa: ANN401
    return read({"name": "pay", "function": "shop.pay", **fields})


def graph(*steps: dict[str, Any], **fields: Any) -> Job:  # noqa: ANN401
    return read({"name": "pay", "dag": list(steps), **fields})


@pytest.mark.req("R-12")
def test_a_breaker_is_read_with_its_limits() -> None:
    [step] = job(breaker={"name": "stripe", "failures": 3, "open": "10m", "probes": 2, "successes": 4}).workflow.steps

    limits = BreakerLimits(failures=3, open_ms=600_000, probes=2, successes=4, probe_ms=USUAL.probe_ms)
    assert step.breaker == StepBreaker(name="stripe", limits=limits)


def test_a_breaker_needs_only_a_name() -> None:
    [step] = job(breaker={"name": "stripe"}).workflow.steps

    assert step.breaker == StepBreaker(name="stripe")
    assert (USUAL.failures, USUAL.open_ms, USUAL.probes, USUAL.successes) == (5, 60_000, 1, 1)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("stripe", "breaker"),
        ({}, "breaker.name"),
        ({"name": "Stripe"}, "breaker.name"),
        ({"name": "s", "failures": 0}, "breaker.failures"),
        ({"name": "s", "failures": 1001}, "breaker.failures"),
        ({"name": "s", "open": "1ms"}, "breaker.open"),
        ({"name": "s", "open": "8d"}, "breaker.open"),
        ({"name": "s", "probes": 0}, "breaker.probes"),
        ({"name": "s", "successes": "2"}, "breaker.successes"),
        ({"name": "s", "closes": 2}, "breaker.closes"),
    ],
)
def test_a_bad_breaker_is_refused_by_its_field(value: object, field: str) -> None:
    with pytest.raises(FieldError) as refused:
        job(breaker=value)

    assert refused.value.field == field


def test_a_step_has_the_breaker_and_the_capability_of_its_job_unless_it_has_its_own_and_all_risk_tags() -> None:
    one, other = graph(
        {"step": "one", "function": "f"},
        {"step": "other", "function": "f", "breaker": {"name": "b"}, "capability": "y", "risk_tags": ["Money"]},
        breaker={"name": "a"},
        capability="x",
        risk_tags=["prod"],
    ).workflow.steps

    assert (one.breaker, one.capability, one.risk_tags) == (StepBreaker(name="a"), "x", ("prod",))
    assert (other.breaker, other.capability, other.risk_tags) == (StepBreaker(name="b"), "y", ("prod", "money"))


@pytest.mark.parametrize("field", ["capability", "risk_tags", "breaker"])
def test_a_step_that_runs_a_workflow_or_only_waits_cannot_have_them(field: str) -> None:
    value = {"capability": "x", "risk_tags": ["x"], "breaker": {"name": "x"}}[field]
    for step in ({"workflow": "other"}, {"delay": "1s"}):
        with pytest.raises(FieldError) as refused:
            graph({"step": "one", **step, field: value})

        assert refused.value.field == f"dag[0].{field}"


@pytest.mark.parametrize(
    "fields",
    [
        {"function": "f"},
        {"command": "true"},
        {"http": {"url": "https://example.com"}},
        {"agent": {"prompt": "x", "model": "test:x"}},
    ],
)
def test_they_survive_an_export_whatever_the_step_does(fields: dict[str, Any]) -> None:
    said = {"capability": "pay.out", "risk_tags": ["money"], "breaker": {"name": "stripe", "open": "10m"}}
    alone = read({"name": "pay", **fields, **said})
    steps = graph({"step": "a", **fields, **said}, {"step": "b", "function": "f"})

    for one in (alone, steps):
        assert one.workflow.steps[0].breaker is not None
        assert read(job_as_data(one)).workflow == one.workflow


def test_the_decorator_takes_them() -> None:
    functions = Functions()

    @functions.job(capability="pay.out", risk_tags=["money"], breaker={"name": "stripe"}, name="pay")
    def pay() -> None:
        """Do nothing."""

    [step] = read(functions.jobs[0]).workflow.steps
    assert (step.capability, step.risk_tags, step.breaker) == ("pay.out", ("money",), StepBreaker(name="stripe"))
