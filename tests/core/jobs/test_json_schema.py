"""The published schema: admits what is read, refuses what it can, and knows the same words."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import JOB_FIELDS, read_job
from gnomon.core.jobs.json_schema import job_file_schema, job_schema
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.jobs.steps import RETRY_FIELDS, STEP_FIELDS
from gnomon.errors import FieldError

ROOT = Path(__file__).parents[3]
FILES = [ROOT / "tests" / "data" / "seed_jobs.yaml", ROOT / "examples" / "jobs.yaml"]
USUAL: dict[str, Any] = {"name": "billing", "function": "team/app/bill"}


@pytest.fixture(scope="module")
def schema() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(job_file_schema())


def test_it_is_a_schema() -> None:
    jsonschema_rs.meta.validate(job_file_schema())


def test_it_has_the_words_of_the_reader() -> None:
    job = job_schema()["properties"]

    assert set(job) == set(JOB_FIELDS)
    assert set(job["dag"]["items"]["properties"]) == set(STEP_FIELDS)
    assert set(job["retry"]["properties"]) == set(RETRY_FIELDS)
    assert set(job["dst"]["properties"]) == {"gap", "fold"}


def test_every_word_is_explained() -> None:
    job = job_schema()["properties"]
    all_words = [job, job["dag"]["items"]["properties"], job["retry"]["properties"], job["dst"]["properties"]]

    assert all(said["description"] for words in all_words for said in words.values())


@pytest.mark.req("H-04")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_admits_what_is_read(file: Path, schema: jsonschema_rs.Draft202012Validator) -> None:
    schema.validate(yaml.safe_load(file.read_text()))


@pytest.mark.parametrize(
    "said",
    [
        {"on": {"event": "model.drift", "where": {"a.b": 1}, "batch": {"max": 100, "wait": "10s"}}, "function": "f"},
        {"dag": [{"step": "a", "workflow": "other"}, {"step": "b", "delay": "5s"}], "max_parallel": 2},
        {"dag": [{"step": "a", "function": "f", "foreach": [1], "if": "input.x", "delay_until": "${input.at}"}]},
    ],
)
def test_it_admits_graphs_and_events(said: dict[str, Any], schema: jsonschema_rs.Draft202012Validator) -> None:
    job = {"name": "etl", **said}

    schema.validate({"jobs": [job]})
    schema.validate({"jobs": [job_as_data(read_job(job, Defaults(), now=0))]})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_admits_what_is_shown(file: Path, schema: jsonschema_rs.Draft202012Validator) -> None:
    jobs = [read_job(said, Defaults(), now=0) for said in yaml.safe_load(file.read_text())["jobs"]]

    schema.validate({"jobs": [job_as_data(job) for job in jobs]})


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="no jobs"),
        pytest.param({"jobs": {}}, id="jobs that are no list"),
        pytest.param({"jobs": [], "job": []}, id="an unknown key beside them"),
        pytest.param({"jobs": [5]}, id="a job that is a number"),
    ],
)
def test_it_refuses_what_is_no_file_of_jobs(said: Any, schema: jsonschema_rs.Draft202012Validator) -> None:  # noqa: ANN401 - hostile
    assert not schema.is_valid(said)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"name": "Bad Name"}, id="a bad name"),
        pytest.param({"shedule": "@daily"}, id="an unknown key"),
        pytest.param({"schedule": 5}, id="a number for a text"),
        pytest.param({"schedule": "@daily", "every": "5m"}, id="two times"),
        pytest.param({"at": "2026-12-01T09:00:00Z", "every": "5m"}, id="an instant and an interval"),
        pytest.param({"schedule": "@daily", "on": {"event": "a"}}, id="a time and an event"),
        pytest.param({"on": {}}, id="an event without a name"),
        pytest.param({"on": {"event": "a", "each": False}}, id="not every event, and nothing else"),
        pytest.param({"on": {"event": "a", "each": True, "debounce": "5s"}}, id="two ways to count events"),
        pytest.param({"on": {"event": "a", "batch": {"max": 5}}}, id="a batch that waits forever"),
        pytest.param({"max_parallel": 2}, id="a limit for one step"),
        pytest.param({"dag": [{"step": "a", "function": "f"}]}, id="a function beside a graph"),
        pytest.param({"timeout": "30"}, id="a duration without a unit"),
        pytest.param({"timeout": "1:30"}, id="a duration of another kind"),
        pytest.param({"timeout": ""}, id="an empty duration"),
        pytest.param({"retry": {"max_attempts": 0}}, id="no attempt"),
        pytest.param({"retry": {"jitter": 1.5}}, id="too much jitter"),
        pytest.param({"retry": {"attempts": 3}}, id="an unknown key of a retry"),
        pytest.param({"schedule": "@daily", "dst": {"gap": "often"}}, id="a bad choice about clocks"),
        pytest.param({"overlap": "never"}, id="a bad overlap"),
        pytest.param({"lock": True, "overlap": "queue"}, id="a lock and another overlap"),
        pytest.param({"lock": "yes"}, id="a word for yes"),
        pytest.param({"delivery": "at_most_once", "retry": {"max_attempts": 2}}, id="one delivery, two attempts"),
        pytest.param({"delivery": "at_most_once", "retry": {}}, id="one delivery, the usual attempts"),
        pytest.param({"tags": "critical"}, id="tags that are a text"),
        pytest.param({"tags": ["a", "a"]}, id="a tag twice"),
        pytest.param({"retention": 0}, id="no history"),
        pytest.param({"input": []}, id="an input that is a list"),
    ],
)
def test_values_that_the_schema_refuses_are_refused_by_the_reader(
    said: dict[str, Any], schema: jsonschema_rs.Draft202012Validator
) -> None:
    job = {**USUAL, **said}

    assert schema.is_valid({"jobs": [USUAL]})
    assert not schema.is_valid({"jobs": [job]})
    with pytest.raises(FieldError):
        read_job(job, Defaults(), now=0)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([], id="no steps"),
        pytest.param([{"step": "a"}], id="a step without a function"),
        pytest.param([{"step": "a", "function": "f", "depends_on": "b"}], id="a text is no list"),
        pytest.param([{"step": "a", "function": "f", "tags": []}], id="an unknown key of a step"),
        pytest.param([{"step": "a", "function": "f", "workflow": "b"}], id="a function and a workflow"),
        pytest.param([{"step": "a", "function": "f", "max_parallel": 2}], id="a limit without items"),
        pytest.param([{"step": "a", "function": "f", "when": "never"}], id="an unknown when"),
    ],
)
def test_it_refuses_a_graph_that_is_none(
    steps: list[dict[str, Any]], schema: jsonschema_rs.Draft202012Validator
) -> None:
    assert not schema.is_valid({"jobs": [{"name": "etl", "dag": steps}]})
