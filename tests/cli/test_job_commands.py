"""`gnomon jobs`, `executions` and `dead-letters` on a real database."""

import io
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from gnomon.adapters.sql.store import SqlStore
from gnomon.cli.commands import app
from gnomon.core.ledger.plan import plan, schedule_after
from gnomon.core.model import DAY_MS, LogLine, Result
from gnomon.ports.tasks import HostLoad, WorkerInfo
from support.cli_prompt import JOBS, CliPrompt

PROGRAM = Path(sys.executable).with_name("gnomon")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


@pytest.fixture
def prompt(empty: CliPrompt) -> CliPrompt:
    empty.make_database()
    empty.lines("jobs", "apply", "-f", "jobs.yaml")
    return empty


# ---- files and databases -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("jobs", "list"),
        ("jobs", "trigger", "report"),
        ("executions", "list"),
        ("dead-letters", "list"),
        ("schedule",),
        ("workers",),
    ],
    ids=" ".join,
)
def test_a_database_that_is_not_there_is_said_and_not_made(empty: CliPrompt, command: tuple[str, ...]) -> None:
    done = empty.run(*command)

    assert done.err == ["error: there is no database gnomon.db: start with gnomon up or gnomon jobs apply"]
    assert (done.code, done.out) == (2, [])
    assert not (empty.folder / "gnomon.db").exists()


@pytest.mark.req("H-19")
def test_applying_a_file_says_what_became_of_each_job(empty: CliPrompt) -> None:
    shown = empty.lines("jobs", "apply", "-f", "jobs.yaml")

    assert [line.split()[:3] for line in shown[1:3]] == [["report", "created", "1"], ["cleanup", "created", "1"]]
    assert shown[-1] == "2 created in the new database gnomon.db"


@pytest.mark.req("H-19")
def test_applying_a_file_again_changes_nothing(prompt: CliPrompt) -> None:
    assert prompt.lines("jobs", "apply", "-f", "jobs.yaml") == ["2 unchanged in gnomon.db"]


def test_applying_a_changed_file_shows_what_changed(prompt: CliPrompt) -> None:
    prompt.write(JOBS.replace("disk.clean", "disk.sweep"))

    changed = [one for one in prompt.data("jobs", "apply", "-f", "jobs.yaml") if one["change"] != "unchanged"]

    facts = {"change": "changed", "revision": 2, "version": 2, "next_run_at": None}
    assert changed == [
        {"job": "cleanup", **facts, "schedule": "only when it is triggered", "cron": None, "warnings": []}
    ]


def test_a_file_that_is_wrong_registers_nothing(empty: CliPrompt) -> None:
    empty.write(JOBS.replace("overlap: queue", "overlap: sometimes"))

    done = empty.run("jobs", "apply", "-f", "jobs.yaml")

    assert (done.code, len(done.err)) == (2, 1)
    assert "jobs[1].overlap" in done.err[0]
    assert not (empty.folder / "gnomon.db").exists()


def test_a_file_is_checked_without_a_database(empty: CliPrompt) -> None:
    assert empty.lines("jobs", "validate", "-f", "jobs.yaml") == ["jobs.yaml: 2 jobs, nothing wrong"]
    assert not (empty.folder / "gnomon.db").exists()


@pytest.mark.req("Z-13", "Z-14")
def test_a_folder_outside_of_the_workspace_is_refused_before_it_is_needed(empty: CliPrompt) -> None:
    job = "jobs:\n  - { name: list, command: ls, workdir: WHERE }\n"
    inside = empty.folder / "gnomon.db.workspace" / "reports"
    (empty.folder / "inside.yaml").write_text(job.replace("WHERE", str(inside)))
    (empty.folder / "outside.yaml").write_text(job.replace("WHERE", "/etc"))
    refused = [empty.run("jobs", command, "-f", "outside.yaml") for command in ("validate", "apply")]

    assert [one.code for one in refused] == [2, 2]
    assert all("workdir: '/etc' is outside of the workspace (" in "".join(one.err) for one in refused)
    assert empty.run("jobs", "show", "list").code == 2
    assert empty.lines("jobs", "validate", "-f", "inside.yaml") == ["inside.yaml: 1 job, nothing wrong"]
    assert empty.run("jobs", "apply", "-f", "inside.yaml").code == 0


def test_every_file_is_checked_and_all_mistakes_are_listed(empty: CliPrompt) -> None:
    for name, text in {"a": "jobs: [{name: a}]", "b": "jobs: [{name: b, cron: x}]", "c": "jobs: []"}.items():
        (empty.folder / f"{name}.yaml").write_text(text)

    done = empty.run("jobs", "validate", "-f", "a.yaml", "-f", "b.yaml", "-f", "jobs.yaml", "-f", "c.yaml")

    assert (done.code, done.out) == (2, [])
    assert [line.split(": ")[:2] for line in done.err] == [
        ["error", "a.yaml"],
        ["error", "b.yaml"],
        ["error", "b.yaml"],
    ]


def test_files_that_are_checked_together_share_no_name(empty: CliPrompt) -> None:
    (empty.folder / "copy.yaml").write_text((empty.folder / "jobs.yaml").read_text())

    done = empty.run("jobs", "validate", "-f", "jobs.yaml", "-f", "copy.yaml")

    assert done.code == 2


def test_several_files_that_are_checked_are_a_list_to_programs(empty: CliPrompt) -> None:
    (empty.folder / "none.yaml").write_text("jobs: []")

    done = empty.run("jobs", "validate", "-f", "jobs.yaml", "-f", "none.yaml", "-o", "json")

    assert [one["file"] for one in json.loads("\n".join(done.out))] == ["jobs.yaml", "none.yaml"]


def test_all_mistakes_of_a_file_are_listed_with_their_lines(empty: CliPrompt) -> None:
    empty.write("jobs:\n- name: a\n  cron: '@daily'\n  overlap: Forbid\n- name: b\n  function: f\n  timeout: 5min\n")

    reported = [empty.run("jobs", command, "-f", "jobs.yaml") for command in ("validate", "plan", "apply")]

    assert {one.code for one in reported} == {2}
    for one in reported:
        assert [line.split(": ")[2:4] for line in one.err] == [
            ["line 2, column 3", "jobs[0].function"],
            ["line 3, column 3", "jobs[0].cron"],
            ["line 4, column 3", "jobs[0].overlap"],
            ["line 7, column 3", "jobs[1].timeout"],
        ]
    assert not (empty.folder / "gnomon.db").exists()


def test_mistakes_are_data_for_programs(empty: CliPrompt) -> None:
    empty.write("jobs:\n- name: a\n  cron: '@daily'\n  function: f\n")

    for command in ("validate", "apply"):
        done = empty.run("jobs", command, "-f", "jobs.yaml", "-o", "json")

        [error] = json.loads("\n".join(done.err))["errors"]
        assert (done.code, done.out) == (2, [])
        assert error == {
            "code": "bad_jobs_file",
            "message": "jobs.yaml: line 3, column 3: jobs[0].cron: is called schedule here",
            "file": "jobs.yaml",
            "line": 3,
            "column": 3,
            "field": "jobs[0].cron",
            "reason": "is called schedule here",
        }


def test_other_errors_are_data_for_programs_too(prompt: CliPrompt) -> None:
    done = prompt.run("jobs", "show", "none", "-o", "json")

    [error] = json.loads("\n".join(done.err))["errors"]
    assert (done.code, error["code"]) == (2, "not_found")


def test_jobs_can_be_piped_in(empty: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, reported in (
        ("validate", "stdin: 2 jobs, nothing wrong"),
        ("apply", "2 created in the new database gnomon.db"),
        ("plan", "2 unchanged"),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(JOBS.encode())))
        assert any(line.startswith(reported) for line in empty.lines("jobs", command, "-f", "-")), command


def test_a_folder_stands_for_the_jobs_files_in_it(empty: CliPrompt) -> None:
    folder = empty.folder / "jobs.d"
    folder.mkdir()
    (folder / "notes.txt").write_text("no jobs")
    nothing = empty.run("jobs", "validate", "-f", "jobs.d")
    (folder / "b.yml").write_text("jobs: [{name: b, function: f}]")
    (folder / "a.yaml").write_text("jobs: [{name: a, function: f}]")

    assert (nothing.code, len(nothing.err)) == (2, 1)
    assert [line.split(": ")[0] for line in empty.lines("jobs", "validate", "-f", "jobs.d")] == [
        "jobs.d/a.yaml",
        "jobs.d/b.yml",
    ]
    assert empty.lines("jobs", "apply", "-f", "jobs.d")[-1] == "2 created in the new database gnomon.db"


def test_the_functions_of_a_file_are_checked_against_modules(empty: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty.folder / "our_functions.py").write_text(
        "import gnomon\n\n\n@gnomon.function('reports.make')\ndef make() -> None: ...\n"
    )
    monkeypatch.setattr("gnomon.runners.registry.FUNCTIONS._functions", {})
    empty.write("jobs: [{name: report, function: reports.mkae}, {name: tidy, command: 'true'}]")

    done = empty.run("jobs", "validate", "-f", "jobs.yaml", "--import", "our_functions")

    reason = "the function 'reports.mkae' of report is not registered; did you mean reports.make?"
    assert (done.code, done.err) == (2, [f"error: jobs.yaml: {reason}"])


def test_a_doubtful_definition_is_a_warning(empty: CliPrompt) -> None:
    empty.write("jobs: [{name: a, schedule: '@daily', function: f, catchup: all, overlap: skip}]")

    done = empty.run("jobs", "validate", "-f", "jobs.yaml")

    assert (done.code, done.out) == (0, ["jobs.yaml: 1 job, nothing wrong"])
    assert done.err[0].startswith("warning: a: catchup all with overlap skip")


@pytest.mark.parametrize("place", ["other.db", "sqlite:///other.db"])
def test_the_database_may_be_named_by_a_flag(empty: CliPrompt, place: str) -> None:
    empty.lines("jobs", "apply", "-f", "jobs.yaml", "--database", place)

    assert (empty.folder / "other.db").exists()


def test_the_database_may_be_named_by_the_environment(empty: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "sqlite:///other.db")

    empty.lines("jobs", "apply", "-f", "jobs.yaml")

    assert (empty.folder / "other.db").exists()


def test_the_database_may_be_named_by_a_configuration_file(empty: CliPrompt) -> None:
    (empty.folder / "gnomon.yaml").write_text('database: {url: "sqlite:///other.db"}')

    empty.lines("jobs", "apply", "-f", "jobs.yaml", "--config", "gnomon.yaml")

    assert (empty.folder / "other.db").exists()


def test_the_schema_of_a_file_admits_the_file(empty: CliPrompt) -> None:
    from jsonschema_rs import validator_for

    schema = json.loads("\n".join(empty.lines("jobs", "schema")))

    assert validator_for(schema).is_valid(yaml.safe_load(JOBS))


# ---- jobs ----------------------------------------------------------------------------------------


@pytest.mark.req("H-19", "H-25")
def test_jobs_are_listed_with_their_next_run_on_their_own_clocks(prompt: CliPrompt) -> None:
    cleanup, report = prompt.lines("jobs", "list")[1:]

    assert report.endswith("  cli")
    assert cleanup.split(maxsplit=2)[:2] == ["cleanup", "active"]
    assert "only when it is triggered " in cleanup
    assert "every weekday at 09:00 in America/New_York" in report
    assert " 09:00:00 E" in report


def test_jobs_are_listed_for_machines(prompt: CliPrompt) -> None:
    cleanup, report = prompt.data("jobs", "list")

    assert (cleanup["job"], cleanup["next_run_at"], cleanup["functions"]) == ("cleanup", None, ["disk.clean"])
    assert (report["timezone"], report["paused"], report["tags"]) == ("America/New_York", False, ["numbers"])


@pytest.mark.req("H-06", "C-14")
def test_a_job_is_shown_with_its_next_runs_and_its_lock(prompt: CliPrompt) -> None:
    execution = prompt.triggered()

    shown = prompt.lines("jobs", "show", "report")

    assert shown[:3] == ["job        report", "about      Yesterday in numbers", "state      waiting"]
    assert "from       cli" in shown
    assert f"under way  {execution}" in shown
    assert [line for line in shown if line.startswith("lock       scheduler.lock.report since ")]
    assert sum("09:00:00 E" in line for line in shown) == 5


def test_an_exported_job_can_be_applied_again(prompt: CliPrompt) -> None:
    shown = [prompt.data("jobs", "show", name)["definition"] for name in ("report", "cleanup")]
    prompt.write(yaml.safe_dump({"jobs": shown}))

    assert prompt.lines("jobs", "apply", "-f", "jobs.yaml") == ["2 unchanged in gnomon.db"]


@pytest.mark.req("H-19", "H-26")
def test_a_job_is_paused_and_resumed(prompt: CliPrompt) -> None:
    assert prompt.lines("jobs", "pause", "report") == ["report is paused"]
    assert prompt.data("jobs", "show", "report")["state"] == "paused"
    assert prompt.lines("jobs", "resume", "report")[0].startswith("report is resumed; its next run is at ")
    assert prompt.lines("jobs", "resume", "cleanup") == ["cleanup is resumed; nothing is planned"]


def test_a_deletion_has_to_be_meant(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    with (prompt.folder / "answer").open("w+") as answer:
        answer.write("n\n")
        answer.seek(0)
        monkeypatch.setattr(sys, "stdin", answer)
        done = prompt.run("jobs", "delete", "report")

    assert done.code == 1
    assert len(prompt.data("jobs", "list")) == 2


def test_a_job_is_deleted(prompt: CliPrompt) -> None:
    assert prompt.lines("jobs", "delete", "report", "--yes") == ["report is deleted; its history stays"]
    assert [job["job"] for job in prompt.data("jobs", "list")] == ["cleanup"]


def test_the_next_runs_are_shown_on_the_jobs_clocks_and_in_utc(prompt: CliPrompt) -> None:
    shown = prompt.lines("jobs", "next", "report", "-n", "3")

    assert shown[0].split() == ["next", "runs", "utc"]
    assert len(shown) == 4
    assert all(" 09:00:00 E" in line and line.endswith(" UTC") for line in shown[1:])


def test_the_next_runs_of_a_paused_job_are_those_it_would_have(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "pause", "report")

    assert prompt.lines("jobs", "next", "report")[0] == "report is paused; if it were not:"


def test_a_job_that_only_waits_has_nothing_planned(prompt: CliPrompt) -> None:
    assert prompt.lines("jobs", "next", "cleanup") == ["nothing is planned"]


@pytest.mark.parametrize("command", ["show", "pause", "resume", "next", "trigger"])
def test_a_job_that_is_not_there_is_an_error_in_one_line(prompt: CliPrompt, command: str) -> None:
    done = prompt.run("jobs", command, "nobody")

    assert (done.code, done.out, done.err) == (2, [], ["error: there is no job 'nobody'"])


@pytest.mark.parametrize(
    "command", [("jobs", "trigger"), ("jobs", "pause"), ("jobs", "show"), ("jobs", "next"), ("why",)]
)
def test_a_misspelt_job_is_answered_with_the_one_that_was_meant(prompt: CliPrompt, command: tuple[str, ...]) -> None:
    done = prompt.run(*command, "clean_up")

    assert (done.code, done.out) == (2, [])
    assert done.err == ["error: there is no job 'clean_up'; did you mean cleanup?"]


@pytest.mark.req("H-25")
def test_the_fires_of_registered_jobs_are_listed(prompt: CliPrompt) -> None:
    shown = prompt.lines("schedule", "--from", "2036-03-07T12:00:00Z", "-n", "1", "--hours", "100")

    assert shown == [
        "utc                      local          job     schedule",
        "Fri 2036-03-07 14:00:00  Fri 09:00 EST  report  every weekday at 09:00 in America/New_York",
        "... and more: -n shows a longer list, --hours looks further",
    ]


def test_when_nothing_fires_that_is_said(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "pause", "report")

    assert prompt.lines("schedule", "--from", "2036-03-07T12:00:00Z") == ["nothing fires before 2036-03-08 12:00 UTC"]


# ---- triggering ----------------------------------------------------------------------------------


@pytest.mark.req("H-19", "H-26")
def test_a_trigger_names_its_execution(prompt: CliPrompt) -> None:
    [line] = prompt.run("jobs", "trigger", "report", "--input", '{"day": "monday"}').out

    execution, _, _ = line.partition(" ")
    shown = prompt.data("executions", "show", execution)
    assert (shown["status"], shown["trigger"], shown["user_id"]) == ("pending", "manual", "ada")
    assert shown["input"] == {"day": "monday"}


def test_a_trigger_is_accepted_and_says_that_no_worker_is_alive(prompt: CliPrompt) -> None:
    done = prompt.run("jobs", "trigger", "report")

    assert (done.code, done.err) == (0, [])
    [line] = done.out
    assert line.partition(" ")[2] == "accepted; no worker is alive: gnomon up and gnomon worker start one"


def test_a_job_whose_run_has_not_begun_waits(prompt: CliPrompt) -> None:
    prompt.triggered("report")

    states = {line.split()[0]: line.split()[1] for line in prompt.lines("jobs", "list")[1:]}
    shown = prompt.lines("jobs", "show", "report")

    assert states["report"] == "waiting"
    assert [line.split(maxsplit=1)[1] for line in shown if line.startswith("state ")] == ["waiting"]
    assert prompt.data("jobs", "show", "report")["state"] == "waiting"


def test_an_input_may_stand_in_a_file(prompt: CliPrompt) -> None:
    (prompt.folder / "input.json").write_text('{"day": "friday"}')

    execution = prompt.triggered("report", "--input", "@input.json")

    assert prompt.data("executions", "show", execution)["input"] == {"day": "friday"}


def test_a_trigger_without_an_input_has_that_of_its_job(prompt: CliPrompt) -> None:
    assert prompt.data("executions", "show", prompt.triggered())["input"] == {"day": "yesterday"}


def test_a_second_trigger_is_refused_and_the_first_is_named(prompt: CliPrompt) -> None:
    execution = prompt.triggered()

    done = prompt.run("jobs", "trigger", "report")

    assert (done.code, done.err) == (1, [f"error: a run of 'report' is under way: {execution}"])


def test_force_starts_it_all_the_same(prompt: CliPrompt) -> None:
    prompt.triggered()

    assert prompt.run("jobs", "trigger", "report", "--force").out[0].partition(" ")[2].startswith("accepted")


def test_the_same_key_is_the_same_execution(prompt: CliPrompt) -> None:
    first, second = (prompt.run("jobs", "trigger", "report", "--key", "monday").out[0] for _ in range(2))

    execution, _, became = first.partition(" ")
    assert became.startswith("accepted")
    assert second.startswith(f"{execution} already")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param("{day", "--input: '{day' is not JSON", id="no JSON"),
        pytest.param("@none.json", "cannot be read", id="no file"),
        pytest.param("[]", "input: [] must be a mapping", id="no mapping"),
        pytest.param('{"day": 5}', "input.day: 5 is refused by input_schema", id="against the schema"),
    ],
)
def test_an_input_that_is_wrong_is_an_error_in_one_line(prompt: CliPrompt, given: str, problem: str) -> None:
    done = prompt.run("jobs", "trigger", "report", "--input", given)

    assert (done.code, len(done.err)) == (2, 1)
    assert problem in done.err[0]


@pytest.mark.parametrize(
    ("result", "code", "said"), [(Result.SUCCEEDED, 0, "completed in "), (Result.FAILED, 1, "failed in ")]
)
def test_a_trigger_that_waits_ends_as_its_execution_does(
    prompt: CliPrompt, result: Result, code: int, said: str
) -> None:
    with subprocess.Popen(
        [PROGRAM, "jobs", "trigger", "report", "--wait"], stdout=subprocess.PIPE, text=True, cwd=prompt.folder
    ) as process:
        assert process.stdout is not None
        execution = process.stdout.readline().split()[0]
        prompt.finish_execution(execution, result)
        rest = process.stdout.read()

    assert rest.startswith(f"{execution} {said}")
    assert process.returncode == code


# ---- executions ----------------------------------------------------------------------------------


@pytest.mark.req("H-10", "H-19")
def test_executions_are_listed_newest_first_with_how_they_went(prompt: CliPrompt) -> None:
    first = prompt.triggered()
    prompt.finish_execution(first, Result.FAILED, error="disk full\nTraceback")
    second = prompt.triggered()

    newest, oldest = prompt.lines("executions", "list", "--job", "report")[1:]

    assert newest.split()[:4] == [second, "report", "manual", "pending"]
    assert oldest.split()[:4] == [first, "report", "manual", "failed"]
    assert oldest.endswith("  1.2 s  disk full")


def test_executions_are_listed_by_status(prompt: CliPrompt) -> None:
    done, waiting = prompt.triggered("cleanup"), prompt.triggered("report")
    prompt.finish_execution(done)

    assert [one["execution_id"] for one in prompt.data("executions", "list", "--status", "completed")] == [done]
    assert [one["execution_id"] for one in prompt.data("executions", "list", "--status", "pending")] == [waiting]
    assert prompt.lines("executions", "list", "--status", "running") == ["no executions"]


@pytest.mark.req("H-10")
@pytest.mark.req("H-10", "H-19")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("--trigger", "manual"), 1),
        (("--trigger", "cron"), 0),
        (("--tag", "numbers"), 1),
        (("--tag", "letters"), 0),
        (("--since", "2020-01-01T00:00Z"), 1),
        (("--until", "2020-01-01T00:00Z"), 0),
    ],
)
def test_executions_are_listed_by_what_started_them_tag_and_time(
    prompt: CliPrompt, asked: tuple[str, ...], found: int
) -> None:
    prompt.triggered()

    assert len(prompt.data("executions", "list", *asked)) == found


@pytest.mark.req("H-19", "H-26")
def test_jobs_that_match_are_paused_and_resumed_after_a_preview(prompt: CliPrompt) -> None:
    preview = prompt.lines("jobs", "pause", "--all", "--tag", "numbers", "--dry-run")
    before = prompt.data("jobs", "list", "--state", "paused")
    paused = prompt.data("jobs", "pause", "--all", "--tag", "numbers")
    resumed = prompt.data("jobs", "resume", "--all", "--state", "paused", "--missed", "spread 10m")

    assert preview[1].split() == ["report", "paused"]
    assert before == []
    assert [(one["job"], one["became"]) for one in paused] == [("report", "paused")]
    assert [(one["job"], one["became"]) for one in resumed] == [("report", "resumed")]
    assert prompt.lines("jobs", "resume", "--all", "-q", "none") == ["no jobs match"]


@pytest.mark.req("H-19")
def test_executions_that_match_are_cancelled(prompt: CliPrompt) -> None:
    execution = prompt.triggered()

    assert prompt.lines("executions", "cancel", "--all", "--tag", "letters") == ["no executions match"]
    looked_at = prompt.data("executions", "cancel", "--all", "--job", "report", "--dry-run")
    done = prompt.data("executions", "cancel", "--all", "--status", "pending")

    assert [one["execution_id"] for one in looked_at] == [execution]
    assert [(one["execution_id"], one["became"]) for one in done] == [(execution, "cancelled")]


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "pause"),
        ("jobs", "pause", "report", "--all"),
        ("jobs", "pause", "report", "--tag", "x"),
        ("jobs", "resume", "report", "--dry-run"),
        ("executions", "cancel", "run_1", "--all"),
        ("executions", "cancel", "--tag", "x"),
    ],
    ids=" ".join,
)
def test_a_change_is_of_one_or_of_all_that_match(prompt: CliPrompt, arguments: tuple[str, ...]) -> None:
    done = prompt.run(*arguments)

    assert (done.code, len(done.err)) == (2, 1)


def test_jobs_are_listed_by_tag_text_state_and_order(prompt: CliPrompt) -> None:
    assert [one["job"] for one in prompt.data("jobs", "list", "--tag", "numbers")] == ["report"]
    assert prompt.lines("jobs", "list", "--tag", "letters") == ["no jobs with that tag"]
    assert [one["job"] for one in prompt.data("jobs", "list", "-q", "REP", "--state", "active")] == ["report"]
    assert prompt.lines("jobs", "list", "-q", "nothing") == ["no jobs match"]
    assert prompt.data("jobs", "list", "--order", "next")[0]["job"] == "report"


@pytest.mark.req("H-10", "H-19")
def test_ticks_without_an_execution_are_listed_as_skipped(prompt: CliPrompt) -> None:
    async def ten_days_later(store: SqlStore) -> None:
        schedule = await store.schedules.find("default", "report")
        assert schedule is not None
        now = schedule.mark_at + 10 * DAY_MS
        verdict = plan(schedule, now=now)
        assert await store.schedules.change(verdict, schedule_after(verdict), now=now, actor="", tzdata="")

    prompt.with_store(ten_days_later)

    missed = prompt.data("executions", "list", "--job", "report", "--status", "skipped")
    assert {(one["status"], one["reason"]) for one in missed} == {("skipped", "catchup_none")}
    assert sum(one["count"] for one in missed) in (6, 7, 8)
    assert prompt.data("executions", "list", "--status", "skipped", "--tag", "numbers") == missed
    [header, *rows] = prompt.lines("executions", "list", "--status", "skipped")
    assert header.split() == ["job", "planned", "count", "why"]
    assert all(row.startswith("report") and row.endswith("catchup none") for row in rows)
    assert prompt.lines("executions", "list", "--job", "cleanup", "--status", "skipped") == [
        "no ticks without an execution"
    ]


@pytest.mark.req("H-10")
def test_an_execution_is_shown_whole(prompt: CliPrompt) -> None:
    execution = prompt.triggered()
    prompt.finish_execution(execution, output=b'{"rows":3}')

    shown = prompt.data("executions", "show", execution)

    [step] = shown["steps"]
    [attempt] = step["attempts"]
    assert (shown["status"], shown["duration_ms"], shown["version"]) == ("completed", 1200, 1)
    assert (step["step"], step["state"], step["output"]) == ("main", "SUCCEEDED", {"rows": 3})
    assert (attempt["worker"], attempt["result"]) == ("worker-1", "succeeded")


def test_an_execution_is_shown_to_a_person(prompt: CliPrompt) -> None:
    execution = prompt.triggered()
    prompt.finish_execution(execution, Result.FAILED, error="disk full\n  line 5")

    shown = prompt.lines("executions", "show", execution)

    assert shown[:3] == [f"execution  {execution}", "job        report (version 1)", "status     failed"]
    at = shown.index("error      disk full")
    assert shown[at + 1] == "             line 5"
    assert shown[-1].split()[:4] == ["main", "FAILED", "1", "worker-1"]


@pytest.mark.req("H-26")
def test_an_execution_is_cancelled_once(prompt: CliPrompt) -> None:
    execution = prompt.triggered()

    assert prompt.lines("executions", "cancel", execution) == [f"{execution} is cancelled"]

    again = prompt.run("executions", "cancel", execution)
    assert (again.code, again.err) == (1, [f"error: execution '{execution}' is over already"])


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_logs_of_an_execution_are_printed(prompt: CliPrompt, follow: tuple[str, ...]) -> None:
    execution = prompt.triggered()
    said = (LogLine(1_772_452_800_000, "info", "began \x1b[31m"), LogLine(1_772_452_801_500, "error", "ended"))
    prompt.finish_execution(execution, logs=said)

    assert prompt.lines("executions", "logs", execution, *follow) == [
        "2026-03-02 12:00:00.000Z  info     main  began ?[31m",
        "2026-03-02 12:00:01.500Z  error    main  ended",
    ]


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_the_log_of_a_failed_execution_ends_with_its_error(prompt: CliPrompt, follow: tuple[str, ...]) -> None:
    execution = prompt.triggered()
    said = (LogLine(1_772_452_800_000, "info", "began"),)
    prompt.finish_execution(execution, Result.FAILED, error="ValueError: no\n  line 5", logs=said)

    lines = [line.split("Z  ", 1)[1] for line in prompt.lines("executions", "logs", execution, *follow)]

    assert lines == [
        "info     main  began",
        "error    main  attempt 1 failed: ValueError: no",
        "error    main    line 5",
    ]


def test_logs_of_an_execution_are_printed_as_json(prompt: CliPrompt) -> None:
    execution = prompt.triggered()
    prompt.finish_execution(execution, logs=(LogLine(1_772_452_800_000, "info", "began"),))

    assert prompt.data("executions", "logs", execution) == [
        {"at": "2026-03-02T12:00:00Z", "level": "info", "step": "main", "item": None, "line": 1, "text": "began"}
    ]


# ---- dead letters --------------------------------------------------------------------------------


@pytest.mark.req("H-09", "H-19")
def test_dead_letters_are_listed_until_they_are_resolved(prompt: CliPrompt) -> None:
    letter = prompt.failed()

    [line] = prompt.lines("dead-letters", "list", "--unresolved")[1:]
    assert line.split()[:3] == [letter, "report", "open"]
    assert line.endswith("disk full")
    assert prompt.lines("dead-letters", "resolve", letter) == [f"{letter} is resolved"]
    assert prompt.lines("dead-letters", "resolve", letter) == [f"{letter} was resolved before"]
    assert prompt.lines("dead-letters", "list", "--unresolved") == ["no dead letters"]


@pytest.mark.req("H-09")
def test_a_dead_letter_is_shown_with_every_attempt(prompt: CliPrompt) -> None:
    shown = prompt.data("dead-letters", "show", prompt.failed())

    assert (shown["job"], shown["attempts"], shown["last_error"]) == ("report", 1, "disk full\nTraceback")
    assert [(one["attempt"], one["result"]) for one in shown["attempt_history"]] == [(1, "failed")]


def test_a_dead_letter_is_shown_to_a_person(prompt: CliPrompt) -> None:
    letter = prompt.failed()

    shown = prompt.lines("dead-letters", "show", letter)

    assert shown[:3] == [f"dead letter  {letter}", "job          report, step main", "state        open"]
    assert shown[-1].split()[:2] == ["1", "worker-1"]


def test_a_dead_letter_whose_execution_was_removed_says_so(prompt: CliPrompt, tmp_path: Path) -> None:
    letter = prompt.failed()
    with closing(sqlite3.connect(tmp_path / "gnomon.db")) as file, file:
        for table in ("attempt", "task", "run"):
            file.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours

    shown = prompt.lines("dead-letters", "show", letter)

    assert [line for line in shown if line.startswith(("execution", "attempt"))] == [
        f"execution    {prompt.data('dead-letters', 'show', letter)['execution_id']} (deleted)",
        "attempts     1",
    ]


@pytest.mark.req("H-09", "H-19")
@pytest.mark.guarantee("S14")
def test_a_dead_letter_is_replayed_once(prompt: CliPrompt) -> None:
    letter = prompt.failed()

    first, second = (prompt.lines("dead-letters", "replay", letter)[0] for _ in range(2))

    execution, _, became = first.partition(" ")
    assert became.startswith("accepted")
    assert second.startswith(f"{execution} already")
    assert prompt.data("executions", "show", execution)["replay_of"] == letter


@pytest.mark.req("H-09", "H-19")
def test_all_dead_letters_are_replayed_and_what_could_not_be_is_said(prompt: CliPrompt) -> None:
    for _ in range(2):
        prompt.failed()

    done = prompt.run("dead-letters", "replay", "--all")

    assert done.code == 0
    assert [line.split()[2] for line in done.out[1:]] == ["accepted", "queued"]


def test_replaying_all_when_there_are_none_is_well(prompt: CliPrompt) -> None:
    assert prompt.lines("dead-letters", "replay", "--all") == ["no dead letters to replay"]


@pytest.mark.req("H-09", "H-19")
def test_dead_letters_are_counted_by_error_and_those_that_match_are_resolved(prompt: CliPrompt) -> None:
    letters = [prompt.failed() for _ in range(2)]
    [group] = prompt.data("dead-letters", "groups")
    shown = prompt.data("dead-letters", "show", letters[0])

    none = prompt.lines("dead-letters", "resolve", "--all", "--error", "no such error")
    done = prompt.data("dead-letters", "resolve", "--all", "--job", "report", "--error", shown["last_error"][:4])

    assert (group["job"], group["count"]) == ("report", 2)
    assert group["error_line"] == shown["last_error"].partition("\n")[0][:200]
    assert none == ["no dead letters to resolve"]
    assert [one["dead_letter_id"] for one in done] == letters
    assert prompt.lines("dead-letters", "groups") == ["no dead letters"]


@pytest.mark.parametrize(
    "arguments", [(), ("dl_x", "--all"), ("dl_x", "--job", "report"), ("dl_x", "--error", "e")], ids=" ".join
)
def test_a_replay_is_of_one_or_of_all(prompt: CliPrompt, arguments: tuple[str, ...]) -> None:
    done = prompt.run("dead-letters", "replay", *arguments)

    assert (done.code, len(done.err)) == (2, 1)


# ---- workers -------------------------------------------------------------------------------------


@pytest.mark.req("R-18")
def test_workers_are_listed_with_what_they_can_do_and_how_busy_they_are(prompt: CliPrompt) -> None:
    card = WorkerInfo(
        worker="worker-1",
        functions=("a.b", "c.d"),
        slots=4,
        pool="gpu",
        started_at=1_772_452_800_000,
        labels={"node.zone": "eu"},
        capabilities=("cuda",),
        in_hand=3,
        load=HostLoad(cpu=42),
        draining=True,
    )
    prompt.with_store(lambda store: store.workers.register(card, ttl_ms=60_000))

    [line] = prompt.lines("workers")[1:]
    [reported] = json.loads("\n".join(prompt.lines("workers", "-o", "json")))

    assert line.split()[:6] == ["worker-1", "gpu", "3/4", "draining", "42", "%"]
    assert line.endswith("node.zone=eu cuda  a.b, c.d")
    assert (reported["labels"], reported["capabilities"], reported["draining"]) == ({"node.zone": "eu"}, ["cuda"], True)
    assert (reported["in_hand"], reported["cpu"], reported["gpu"], reported["pool"]) == (3, 42, None, "gpu")
    assert reported["seen_at"] > reported["started_at"]


def test_no_workers_are_said_to_be_none(prompt: CliPrompt) -> None:
    assert prompt.lines("workers") == ["no worker is alive: gnomon up and gnomon worker start one"]


# ---- help ----------------------------------------------------------------------------------------


@pytest.mark.req("H-19")
@pytest.mark.parametrize(
    ("group", "commands"),
    [
        ("jobs", "validate apply list show trigger pause resume delete next schema"),
        ("executions", "list show cancel logs"),
        ("dead-letters", "list groups show replay resolve"),
    ],
)
def test_help_names_every_command_of_a_group(empty: CliPrompt, group: str, commands: str) -> None:
    text = "\n".join(empty.lines(group, "--help"))

    assert all(command in text for command in commands.split())


@pytest.mark.parametrize("group", ["jobs", "executions", "dead-letters"])
def test_help_of_a_group_loads_nothing_heavy(group: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", PROGRAM, group, "--help"], capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}

    assert not loaded & {"lark", "yaml", "sqlalchemy", "alembic", "aiosqlite", "asyncio"}


def test_the_page_about_the_command_line_names_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    root: Any = get_command(app)
    commands = [
        f"gnomon {name} {inner}".strip()
        for name, command in root.commands.items()
        for inner in getattr(command, "commands", [""])
    ]

    assert [command for command in commands if f"`{command}" not in page] == []


# ---- ids and times as people type them -----------------------------------------------------------


def test_an_id_is_named_by_as_much_of_its_beginning_as_only_one_has(prompt: CliPrompt) -> None:
    letter = prompt.failed()
    execution = prompt.data("dead-letters", "show", letter)["execution_id"]

    shown = prompt.data("executions", "show", execution[:-3])
    resolved = prompt.lines("dead-letters", "resolve", letter[:-3])

    assert (shown["execution_id"], resolved) == (execution, [f"{letter} is resolved"])


def test_the_beginning_of_several_ids_is_refused_with_a_list_of_them(prompt: CliPrompt) -> None:
    ids = sorted(prompt.triggered("cleanup", "--force") for _ in range(2))

    several, none = prompt.run("executions", "show", "run_"), prompt.run("executions", "show", "run_none")

    assert (several.code, several.err) == (2, [f"error: 'run_' is the beginning of several ids: {', '.join(ids)}"])
    assert (none.code, none.err) == (2, ["error: there is no execution 'run_none'"])


def test_the_last_execution_of_a_job_is_named_by_the_job(prompt: CliPrompt) -> None:
    prompt.triggered("report")
    prompt.triggered("cleanup", "--force")
    last = prompt.triggered("cleanup", "--force")

    assert prompt.data("executions", "show", "--job", "cleanup", "--last")["execution_id"] == last
    assert prompt.run("executions", "logs", "--job", "cleanup", "--last").code == 0
    assert prompt.lines("executions", "cancel", "--job", "cleanup", "--last") == [f"{last} is cancelled"]


@pytest.mark.parametrize(
    "arguments", [(), ("run_x", "--job", "report", "--last"), ("--last",), ("--job", "report")], ids=" ".join
)
def test_an_execution_is_named_by_its_id_or_as_the_last_of_a_job(prompt: CliPrompt, arguments: tuple[str, ...]) -> None:
    done = prompt.run("executions", "show", *arguments)

    assert (done.code, done.err) == (
        2,
        ["error: name an execution by its id, or the last one of a job with --job NAME --last"],
    )


@pytest.mark.parametrize(
    ("bound", "listed"),
    [
        (("--since", "1h"), 1),
        (("--since", "today", "--until", "today"), 1),
        (("--until", "1h"), 0),
        (("--since", "tomorrow"), 0),
    ],
)
def test_the_times_of_lists_are_typed_as_those_of_why(prompt: CliPrompt, bound: tuple[str, ...], listed: int) -> None:
    prompt.triggered()

    assert len(prompt.data("executions", "list", *bound)) == listed
    assert len(prompt.data("audit", "list", "--action", "trigger", *bound)) == listed


def test_a_time_that_is_none_is_refused_with_examples(prompt: CliPrompt) -> None:
    done = prompt.run("executions", "list", "--since", "soon")

    assert (done.code, len(done.err)) == (2, 1)
    assert done.err[0].startswith("error: --since: 'soon' is no time such as ")


def test_times_are_shown_in_the_zone_of_the_reader_or_of_the_one_job_that_is_shown(
    prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = prompt.triggered("report")

    def planned(*arguments: str) -> str:
        """The abbreviation of the zone in the column `planned`."""
        heading, row = prompt.lines(*arguments)
        return row[heading.index("planned") :][:27].split()[3]

    assert planned("executions", "list") == "UTC"
    assert planned("executions", "list", "--tz", "Asia/Tokyo") == planned("--tz", "Asia/Tokyo", "executions", "list")
    assert planned("executions", "list", "--tz", "Asia/Tokyo") == "JST"
    assert planned("executions", "list", "--job", "report") in ("EST", "EDT")
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    assert planned("executions", "list") == "IST"
    [shown] = [line for line in prompt.lines("executions", "show", execution) if line.startswith("planned")]
    assert shown.endswith(("EST", "EDT"))
    refused = prompt.run("executions", "list", "--tz", "Mars/Olympus")
    assert (refused.code, len(refused.err)) == (2, 1)
