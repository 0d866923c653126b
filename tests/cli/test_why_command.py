"""`gnomon why` on a real database."""

from pathlib import Path

import pytest
import yaml

from contracts.store import NOON
from gnomon.cli.actions.why import show
from gnomon.cli.output import Format
from gnomon.core.explain.evidence import ExplanationKind, JobExplanation, SubjectExplanation
from gnomon.core.model import Attempt, Result, RunId, Task, TaskId
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.services.operations.presenters.why import why_response
from support.cli_prompt import JOBS, CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    made = CliPrompt(tmp_path, monkeypatch, capsys)
    made.make_database()
    made.lines("jobs", "apply", "-f", "jobs.yaml")
    return made


def shown(lines: list[str]) -> str:
    """The output as one line."""
    return " ".join(" ".join(lines).split())


def test_a_database_that_is_not_there_is_said_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = CliPrompt(tmp_path, monkeypatch, capsys).run("why", "report")

    assert done.err == ["error: there is no database gnomon.db: start with gnomon up or gnomon jobs apply"]
    assert done.code == 2


def test_a_run_is_explained_with_its_attempts(prompt: CliPrompt) -> None:
    execution = prompt.triggered()
    prompt.finish_execution(execution, Result.FAILED, error="disk full\nTraceback")

    lines = prompt.lines("why", "report")

    assert lines[0] == "report: every weekday at 09:00 in America/New_York"
    assert lines[2].endswith("UTC)  started")
    assert f"ada triggered it. Its run {execution} failed at" in shown(lines)
    [heading] = [line for line in lines if line.startswith("  step")]
    assert heading.split() == ["step", "fence", "worker", "started", "took", "ended", "error"]
    row = lines[lines.index(heading) + 1].split()
    assert (row[:3], row[-5:]) == (["main", "1", "worker-1"], ["1.2", "s", "failed", "disk", "full"])
    assert lines[-2].endswith("  coming")
    assert lines[-1].startswith("  It will fire in ")


def test_a_job_that_nobody_has_asked_for_says_so(prompt: CliPrompt) -> None:
    lines = prompt.lines("why", "cleanup")

    assert lines == [
        "cleanup: only when it is triggered",
        "",
        "next: no tick",
        "  Nothing is planned: the job runs only when it is triggered.",
    ]


def test_a_moment_is_shown_in_the_zone_of_the_schedule_and_in_utc(prompt: CliPrompt) -> None:
    lines = prompt.lines("why", "report", "--at", "2020-01-02 09:00")

    assert lines[2] == "Thu 2020-01-02 09:00 EST (14:00 UTC)  no tick"
    assert shown(lines[3:]).startswith("The job did not exist yet: ada created it at ")


def test_a_day_of_its_own_is_named_in_utc_too(prompt: CliPrompt) -> None:
    lines = prompt.lines("why", "report", "--at", "2020-01-02 23:30")

    assert lines[2] == "Thu 2020-01-02 23:30 EST (Fri 2020-01-03 04:30 UTC)  no tick"


def test_a_deleted_job_is_explained(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "delete", "report", "--yes")

    assert shown(prompt.lines("why", "report")[3:]).startswith("The job is gone: ada deleted it at ")


def test_machines_get_every_fact(prompt: CliPrompt) -> None:
    execution = prompt.triggered()
    prompt.finish_execution(execution, Result.FAILED, error="disk full")

    found = prompt.data("why", "report", "--last", "1")

    assert list(found) == ["job", "schedule", "timezone", "explanations", "more", "forgotten_before", "coming"]
    [one] = found["explanations"]
    assert list(one) == [
        "at",
        "local",
        "kind",
        "reason",
        "sentence",
        "waits",
        "schedule",
        "timezone",
        "revision",
        "decision",
        "previous_at",
        "next_at",
        "execution",
        "attempts",
    ]
    assert (one["kind"], one["reason"], one["execution"]["execution_id"]) == ("started", "manual", execution)
    [attempt] = one["attempts"]
    assert (attempt["step"], attempt["fence"], attempt["worker"], attempt["result"], attempt["error"]) == (
        "main",
        1,
        "worker-1",
        "failed",
        "disk full",
    )
    assert (found["coming"]["kind"], found["coming"]["decision"]) == ("coming", None)


def test_attempts_are_listed_in_order_and_of_many_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    # The task names sort in the opposite order.
    numbers = range(12)
    tasks = tuple(
        Task(
            task_id=TaskId(f"task_{99 - number}"),
            tenant="default",
            run_id=RunId("run_1"),
            step=f"step-{number}",
            state=TaskState.SUCCEEDED,
            wait_reason=WaitReason.READY,
            available_at=NOON,
            created_at=NOON,
        )
        for number in numbers
    )
    attempts = tuple(
        Attempt(task_id=task.task_id, number=1, worker="w1", lease_until=NOON, dispatched_at=NOON + number)
        for number, task in zip(numbers, tasks, strict=True)
    )[::-1]
    one = SubjectExplanation(
        at=NOON,
        kind=ExplanationKind.FIRED,
        reason="on_time",
        sentence="It fired on time.",
        timezone="UTC",
        schedule="every hour",
        revision=1,
        tasks=tasks,
        attempts=attempts,
    )

    answer = JobExplanation(job="report", timezone="UTC", schedule="every hour", explanations=(one,))
    show(why_response(answer), Format.TABLE)

    steps = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "w1" in line]
    assert steps == [f"step-{number}" for number in range(2, 12)]


def test_yaml_says_the_same(prompt: CliPrompt) -> None:
    reported = yaml.safe_load("\n".join(prompt.lines("why", "cleanup", "-o", "yaml")))

    assert (reported["job"], reported["explanations"], reported["coming"]["reason"]) == ("cleanup", [], "on_demand")


def test_of_many_ticks_the_rest_is_counted(prompt: CliPrompt) -> None:
    prompt.write(JOBS.replace('"every weekday at 9am"', '"* * * * * *"').replace("America/New_York", "UTC"))
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")

    lines = prompt.lines("why", "report", "--at", "tomorrow 12:00")

    assert lines[-1] == "... and 50 more in that time: narrow it down"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nothing",), "error: there is no job 'nothing'"),
        (("Report!",), "error: job: 'Report!' must be 1 to 128 of"),
        (("report", "--at", "noon"), "error: at: 'noon' is no moment such as"),
        (("report", "--at", "02:00", "--last", "2"), "error: --at explains one time and --last the newest ticks"),
    ],
)
def test_an_invalid_question_is_refused(prompt: CliPrompt, arguments: tuple[str, ...], error: str) -> None:
    done = prompt.run("why", *arguments)

    assert (done.code, done.out) == (2, [])
    assert done.err[0].startswith(error)


def test_a_time_alone_is_the_last_one_on_the_clocks_of_the_schedule(prompt: CliPrompt) -> None:
    found = prompt.data("why", "report", "--at", "09:00")

    assert found["explanations"][0]["local"][11:16] == "09:00"
