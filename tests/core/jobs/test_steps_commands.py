"""Commands as people write them: what they become, and that data never becomes a part of a program."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest

from gnomon.core.commands.sandbox import SandboxMode
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.json_schema import job_file_schema
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.runs.workflow import SHELL, Isolation, RetryPolicy, Step
from gnomon.errors import FieldError

USUAL: dict[str, Any] = {"name": "vacuum", "command": "vacuumdb --all"}


def job(**said: Any) -> Job:  # noqa: ANN401 - whatever a job may say
    return read_job({**USUAL, **said}, Defaults(), now=0)


def refusal(said: Mapping[str, Any]) -> FieldError:
    with pytest.raises(FieldError) as refused:
        read_job(said, Defaults(), now=0)
    return refused.value


@pytest.mark.req("Z-02")
def test_a_job_may_have_a_command_instead_of_a_function() -> None:
    made = job(env={"PGHOST": "db", "PGPORT": 5432}, workdir="backups", stdin="y\n", timeout="5m", retry={})

    assert made.workflow.steps == (
        Step(
            name="main",
            function=SHELL,
            command="vacuumdb --all",
            input={"env": {"PGHOST": "db", "PGPORT": "5432"}, "workdir": "backups", "stdin": "y\n"},
            timeout_ms=300_000,
            retry=RetryPolicy(),
        ),
    )


def test_so_may_a_step_which_takes_the_outputs_of_others_as_variables() -> None:
    steps = [
        {"step": "count", "function": "rows/count"},
        {
            "step": "tell",
            "command": 'echo "$ROWS"',
            "env": {"ROWS": "${steps.count.output}"},
            "depends_on": ["count"],
        },
    ]

    [_, tell] = read_job({"name": "etl", "dag": steps, "isolation": "process"}, Defaults(), now=0).workflow.steps

    assert (tell.function, tell.input) == (SHELL, {"env": {"ROWS": "${steps.count.output}"}})
    assert tell.isolation is Isolation.NONE


def test_shell_expansions_are_left_to_the_shell() -> None:
    command = 'for f in "${HOME}"/*.sql; do psql -f "${f}" "${1:-x}" ${input} ${arr[0]}; done; echo $(date) $$'

    assert job(command=command).workflow.steps[0].command == command


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"env": {"A": "${input.a}", "B": "${secret:TOKEN}"}, "input": {"a": 1}, "schedule": "@daily"},
        {"workdir": "a/b", "stdin": "two\nlines", "timeout": "1s"},
        {"sandbox": "required", "network": False},
    ],
)
def test_it_can_be_shown_and_read_again_and_the_schema_admits_it(said: dict[str, Any]) -> None:
    made = job(**said)
    shown = job_as_data(made)

    assert {field: shown[field] for field in said} | USUAL == {**USUAL, **said}
    assert read_job(shown, Defaults(), now=0) == made
    jsonschema_rs.Draft202012Validator(job_file_schema()).validate({"jobs": [{**USUAL, **said}, shown]})


def test_a_graph_with_commands_can_be_shown_and_read_again() -> None:
    steps = [{"step": "a", "command": "date", "env": {"A": "${item}"}, "foreach": [1, 2]}]
    made = read_job({"name": "etl", "dag": steps}, Defaults(), now=0)

    assert job_as_data(made)["dag"] == steps
    jsonschema_rs.Draft202012Validator(job_file_schema()).validate({"jobs": [job_as_data(made)]})


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("said", "field", "reason"),
    [
        ({"function": "f"}, "command", "cannot be beside function"),
        ({"dag": []}, "dag", "cannot be beside command"),
        ({"command": " \n"}, "command", "must be a text"),
        ({"command": ["ls", "-l"]}, "command", "must be a text"),
        ({"command": "x" * 20_000}, "command", "put it into a script"),
        ({"command": "a\0b"}, "command", "not every store can hold"),
        ({"command": "curl -H ${secret:TOKEN}"}, "command", "everybody can see commands"),
        ({"command": "echo ${input.name}"}, "command", "would make data a part of the program"),
        ({"isolation": "process"}, "isolation", "processes of its own in any case"),
        ({"env": ["A=1"]}, "env", "must be a mapping"),
        ({"env": {"A-B": "1"}}, "env.A-B", "is no name of a variable"),
        ({"env": {"GNOMON_TREE": "1"}}, "env.GNOMON_TREE", "is no name of a variable"),
        ({"env": {"A": True}}, "env.A", "must be a text"),
        ({"env": {"A": None}}, "env.A", "must be a text"),
        ({"env": {"A": "${HOME}"}}, "env", "must begin with"),
        ({"env": {"A": "${steps.a.output}"}}, "env", "does not come after"),
        ({"env": {"A": "${secret:}"}}, "env.A", "not as in ${secret:NAME}"),
        ({"env": {f"A{n}": "" for n in range(300)}}, "env", "at most 200"),
        ({"workdir": "../elsewhere"}, "workdir", "inside of the workspace"),
        ({"workdir": ""}, "workdir", "inside of the workspace"),
        ({"stdin": 5}, "stdin", "must be a text"),
        ({"stdin": "x" * 70_000}, "stdin", "at most 65536"),
    ],
)
def test_a_step_that_could_never_run_is_refused(said: dict[str, Any], field: str, reason: str) -> None:
    error = refusal({**USUAL, **said})

    assert error.field == field
    assert reason in error.reason


@pytest.mark.parametrize(
    ("said", "field", "reason"),
    [
        ({"command": "a", "function": "f"}, "function", "cannot be beside command"),
        ({"command": "a", "workflow": "w"}, "command", "cannot be beside workflow"),
        ({"command": "a", "input": {"x": 1}}, "input", "give it as env"),
        ({"function": "f", "env": {"A": "1"}}, "env", "means nothing without command"),
        ({"delay": "1s", "stdin": "x"}, "stdin", "means nothing without command"),
        ({"command": "echo ${item}", "foreach": [1]}, "command", "would make data a part of the program"),
        ({"command": "a", "env": {"A": "${steps.b.output}"}}, "env", "which this step does not come after"),
    ],
)
def test_so_is_a_step_that_could_never_run(said: dict[str, Any], field: str, reason: str) -> None:
    error = refusal({"name": "etl", "dag": [{"step": "a", **said}]})

    assert error.field == f"dag[0].{field}"
    assert reason in error.reason


def test_a_job_says_for_all_of_its_commands_how_they_are_confined() -> None:
    steps = [
        {"step": "a", "command": "a", "network": False},
        {"step": "b", "command": "b", "sandbox": "required"},
        {"step": "c", "function": "c"},
    ]

    open_job = read_job({"name": "etl", "dag": steps}, Defaults(), now=0)
    confined = read_job({"name": "etl", "dag": steps, "sandbox": "required"}, Defaults(), now=0)

    assert [(step.sandbox, step.network) for step in open_job.workflow.steps] == [
        (SandboxMode.AUTO, False),
        (SandboxMode.REQUIRED, True),
        (SandboxMode.AUTO, True),
    ]
    assert [step.sandbox for step in confined.workflow.steps] == [
        SandboxMode.REQUIRED,
        SandboxMode.REQUIRED,
        SandboxMode.AUTO,
    ]
    assert [step.get("sandbox") for step in job_as_data(confined)["dag"]] == ["required", "required", None]
    assert read_job(job_as_data(confined), Defaults(), now=0) == confined


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("said", "field", "reason"),
    [
        ({**USUAL, "sandbox": "off"}, "sandbox", "can only tighten"),
        # `off` is false in YAML.
        ({**USUAL, "sandbox": False}, "sandbox", "can only tighten"),
        ({**USUAL, "sandbox": "on"}, "sandbox", "auto, required"),
        ({**USUAL, "network": "no"}, "network", "true or false"),
        ({"name": "a", "function": "f", "sandbox": "auto"}, "sandbox", "means nothing without command"),
        ({"name": "a", "function": "f", "network": True}, "network", "means nothing without command"),
        (
            {"name": "a", "dag": [{"step": "b", "function": "f"}], "network": False},
            "network",
            "means nothing without command",
        ),
        (
            {"name": "a", "dag": [{"step": "b", "function": "f", "network": False}]},
            "dag[0].network",
            "means nothing without command",
        ),
        (
            {"name": "a", "dag": [{"step": "b", "command": "c", "network": True}], "network": False},
            "dag[0].network",
            "would loosen that of the job",
        ),
        (
            {"name": "a", "dag": [{"step": "b", "command": "c", "sandbox": "auto"}], "sandbox": "required"},
            "dag[0].sandbox",
            "would loosen that of the job",
        ),
    ],
)
def test_a_sandbox_that_could_not_be_is_refused(said: dict[str, Any], field: str, reason: str) -> None:
    error = refusal(said)

    assert error.field == field
    assert reason in error.reason


def test_variables_of_a_graph_belong_to_its_steps() -> None:
    assert refusal({"name": "etl", "dag": [{"step": "a", "command": "a"}], "env": {}}).field == "env"


def test_nobody_calls_the_shell_as_a_function() -> None:
    assert "use command instead" in refusal({"name": "a", "function": SHELL}).reason
