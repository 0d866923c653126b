"""The command line: output, errors and exit codes; in a process where more than the command matters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import gnomon
from gnomon.adapters.sql.migrator import SCHEMA
from support.command_line import run_command

ROOT = Path(__file__).parents[2]
FRIDAY = ("--from", "2026-03-06T12:00:00Z")
FILE = ("-f", "examples/jobs.yaml", "--from", "2026-03-07T23:59:00Z")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, folder=ROOT)


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("gnomon")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def lines(*arguments: str) -> list[str]:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["explain", "@daily", *FRIDAY, "-n", "1"], ["explain", "61 * * * *"], ["explian"], ["jobs"]],
)
def test_a_process_prints_and_exits_as_the_command_does(arguments: list[str]) -> None:
    inside, process = run(*arguments), run_process(*arguments)

    assert (process.stdout, process.stderr, process.returncode) == (inside.stdout, inside.stderr, inside.returncode)


def test_the_version_is_the_packages() -> None:
    assert lines("--version") == [f"gnomon {gnomon.__version__}"]


def test_help_names_every_command() -> None:
    text = run_process("--help").stdout

    assert all(command in text for command in ("explain", "schedule"))


@pytest.mark.parametrize("arguments", [("--help",), ("explain", "--help"), ("--version",)])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    program = Path(sys.executable).with_name("gnomon")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", program, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}

    assert "gnomon" in loaded
    assert not loaded & {"lark", "yaml", "sqlalchemy", "alembic", "aiosqlite", "asyncio"}


@pytest.mark.req("H-03", "H-25")
def test_explain_says_the_sentence_the_cron_and_the_fires() -> None:
    assert lines("explain", "every weekday at 9am", "--tz", "America/New_York", *FRIDAY, "-n", "2") == [
        "Every weekday at 09:00 in America/New_York",
        "cron  0 9 * * 1-5",
        "zone  America/New_York",
        "",
        "local                     utc",
        "Fri 2026-03-06 09:00 EST  Fri 2026-03-06 14:00 UTC",
        "Mon 2026-03-09 09:00 EDT  Mon 2026-03-09 13:00 UTC",
    ]


def test_explain_notes_the_day_on_which_clocks_change() -> None:
    shown = lines("explain", "30 2 * * *", "--tz", "America/New_York", *FRIDAY, "-n", "2")

    assert shown[-1] == (
        "Sun 2026-03-08 03:00 EDT  Sun 2026-03-08 07:00 UTC  "
        "clocks go forward from 02:00 to 03:00: skipped times fire once, at 03:00"
    )


def test_explain_notes_a_change_once() -> None:
    shown = lines("explain", "*/30 * * * *", "--tz", "America/New_York", "--from", "2026-03-08T06:00:00Z", "-n", "4")

    assert [line[52:] for line in shown[5:]] == [
        "",
        "clocks go forward from 02:00 to 03:00: fires follow elapsed time",
        "",
        "",
    ]


@pytest.mark.parametrize("start", ["20260306T120000Z", "2026-03-06 12:00+00:00", "2026-03-06T07:00"])
def test_the_start_is_any_iso_instant_in_the_zone_given(start: str) -> None:
    shown = lines("explain", "@hourly", "--tz", "America/New_York", "--from", start, "-n", "1")

    assert shown[-1] == "Fri 2026-03-06 08:00 EST  Fri 2026-03-06 13:00 UTC"


def test_explain_without_fires_says_nothing_about_them() -> None:
    assert lines("explain", "@daily", "-n", "0") == ["Every day at 00:00", "cron  0 0 * * *", "zone  UTC"]


def test_explain_searches_to_the_end_of_the_calendar() -> None:
    shown = lines("explain", "* * * * *", "--from", "9999-12-31T23:58:00Z")

    assert shown[-1] == "Fri 9999-12-31 23:59 UTC  Fri 9999-12-31 23:59 UTC"


def test_explain_says_that_an_interval_is_no_cron() -> None:
    assert "cron  cannot say this evenly" in lines("explain", "every 7 minutes", *FRIDAY)[1]


def test_explain_says_when_nothing_will_fire_any_more() -> None:
    assert lines("explain", "2020-01-01T00:00:00Z", *FRIDAY)[-1] == "no fires to come"


def test_explain_speaks_json() -> None:
    found = json.loads(
        "\n".join(lines("explain", "30 2 * * *", "--tz", "America/New_York", *FRIDAY, "-n", "2", "-o", "json"))
    )

    assert found == {
        "text": "30 2 * * *",
        "kind": "cron",
        "sentence": "Every day at 02:30 in America/New_York",
        "cron": "30 2 * * *",
        "timezone": "America/New_York",
        "dialect": "standard",
        "dst": {"gap": "next", "fold": "first"},
        "fires": [
            {"local": "2026-03-07T02:30:00-05:00", "utc": "2026-03-07T07:30:00Z"},
            {"local": "2026-03-08T03:00:00-04:00", "utc": "2026-03-08T07:00:00Z"},
        ],
        "clock_changes": [
            {
                "at": "2026-03-08T03:00:00-04:00",
                "effect": "made_up",
                "sentence": "clocks go forward from 02:00 to 03:00: skipped times fire once, at 03:00",
            }
        ],
    }


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(
            ["61 * * * *"],
            ["error: minute field has 61, which is out of range 0-59", "  61 * * * *", "  ^^"],
            id="the caret stands under the offending place",
        ),
        pytest.param(
            ["0 0 1,99 * *"],
            ["error: day field has 99, which is out of range 1-31", "  0 0 1,99 * *", "        ^^"],
            id="wherever it is",
        ),
        pytest.param(
            ["0 0 * * mon", "--dialect", "posix"],
            [
                'error: weekday field has the name "mon"; POSIX cron takes numbers only',
                "  0 0 * * mon",
                "          ^^^",
                "try: 0 0 * * 1",
            ],
            id="with what would be accepted",
        ),
        pytest.param(
            ["0 0 31 2 *"],
            ["error: expression never fires: no such day exists in its months", "  0 0 31 2 *"],
            id="or under nothing, when it is the whole",
        ),
        pytest.param(
            ["@daily", "--tz", "Europe/Romme"],
            ['error: timezone "Europe/Romme" is not an IANA time zone', "try: Europe/Rome"],
            id="a zone that does not exist",
        ),
        pytest.param(
            ["0 0 * * \x1b[31m"],
            [
                'error: weekday field has "?[31m", which is neither a number nor a name of this field',
                "  0 0 * * ?[31m",
                "          ^^^^^",
            ],
            id="what a terminal would obey is not passed on",
        ),
        pytest.param(
            ["@daily", "--from", "every day at 2am"],
            ['error: --from: "every day at 2am" is not an instant such as 2026-12-01T09:00:00Z'],
            id="an instant that is none",
        ),
        pytest.param(
            ["@daily", "--from", "2026-03-06T12:00"],
            ['error: --from: "2026-03-06T12:00" names no time zone: add one, such as Z for UTC'],
            id="an instant without a zone",
        ),
        pytest.param(
            ["@daily", "--from", "0001-01-01T00:00+10:00"],
            ['error: --from: "0001-01-01T00:00+10:00" lies outside the calendar'],
            id="an instant beyond the calendar",
        ),
        pytest.param(
            ["every 7 minutes", "--tz", "Nonsense/Zone"],
            ['error: timezone "Nonsense/Zone" is not an IANA time zone'],
            id="a bad zone beside an interval",
        ),
        pytest.param(
            ["2026-12-01T09:00:00Z", "--tz", "Nope"],
            ['error: timezone "Nope" is not an IANA time zone'],
            id="a bad zone beside an instant",
        ),
        pytest.param(
            ["every day at 9am utc", "--tz", "Europe/Berlin"],
            [
                "error: it names the zone UTC, but the timezone given with it is Europe/Berlin: say one",
                "  every day at 9am utc",
                "                   ^^^",
            ],
            id="two zones",
        ),
    ],
)
def test_bad_input_is_shown_and_exits_with_2(arguments: list[str], shown: list[str]) -> None:
    done = run("explain", *arguments)

    assert done.stderr.splitlines() == shown
    assert (done.returncode, done.stdout) == (2, "")


def test_a_sentence_that_is_not_understood_shows_what_was_expected() -> None:
    done = run("explain", "evry weekday at 9am")

    assert done.stderr.splitlines()[:3] == [
        'error: it has "evry", which is not a word of schedules',
        "  evry weekday at 9am",
        "  ^^^^",
    ]
    assert done.stderr.splitlines()[-1] == "try: every weekday at 9am"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("explain @daily --nonsense", "--nonsense"),
        ("explain @daily -n many", "-n"),
        ("explain", "EXPR"),
        ("executions list -n 0", "-n"),
        ("executions list --status bogus", "bogus"),
        ("up --slots 0", "--slots"),
        ("explian @daily", "explian"),
    ],
)
def test_a_usage_error_is_one_line_and_exits_with_2(arguments: str, named: str) -> None:
    done = run(*arguments.split())

    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert named in line
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("arguments", [(), ("jobs",)])
def test_without_a_command_the_help_is_shown(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)

    assert "Usage: gnomon" in done.stdout + done.stderr
    assert "error:" not in done.stderr
    assert done.returncode == 2


@pytest.mark.req("H-25", "H-19")
def test_schedule_lists_the_coming_fires_of_a_file() -> None:
    shown = lines("schedule", "-f", "examples/jobs.yaml", "--from", "2026-03-06T23:50:00Z", "-n", "4")

    assert shown == [
        "utc                      local          job                    schedule",
        "Sat 2026-03-07 00:00:00  Sat 00:00 UTC  provider-health-check  every 15 minutes",
        "Sat 2026-03-07 00:00:00  Sat 00:00 UTC  credit-reconciliation  every 6 hours",
        "Sat 2026-03-07 00:15:00  Sat 00:15 UTC  provider-health-check  every 15 minutes",
        "Sat 2026-03-07 00:30:00  Sat 00:30 UTC  provider-health-check  every 15 minutes",
        "... and more: -n shows a longer list, --hours looks further",
    ]


def test_schedule_searches_to_the_end_of_the_calendar() -> None:
    shown = lines("schedule", "-f", "examples/jobs.yaml", "--from", "9999-12-31T23:44:00Z")

    assert shown[-1].startswith("Fri 9999-12-31 23:45:00")


def test_schedule_shows_names_as_wide_as_they_are_and_obeys_none(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text('jobs: [{name: "\u6bce\u65e5", schedule: "@daily"}, {name: "a\\e[31m", schedule: "@daily"}]')

    shown = lines("schedule", "-f", str(file), "--from", "2026-03-06T23:50:00Z")

    assert [line[40:] for line in shown] == [
        "job     schedule",
        "\u6bce\u65e5    every day at 00:00",
        "a?[31m  every day at 00:00",
    ]


def test_schedule_speaks_json() -> None:
    found = json.loads("\n".join(lines("schedule", *FILE, "-n", "2", "-o", "json")))

    assert [(fire["job"], fire["utc"]) for fire in found] == [
        ("provider-health-check", "2026-03-08T00:00:00Z"),
        ("credit-reconciliation", "2026-03-08T00:00:00Z"),
    ]


def test_schedule_speaks_yaml() -> None:
    text = "\n".join(lines("schedule", *FILE, "-n", "1", "-o", "yaml"))

    assert yaml.safe_load(text)[0]["job"] == "provider-health-check"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("jobs: [", "line 1, column 8: is not YAML: expected the node content", id="broken YAML"),
        pytest.param(
            "jobs:\n- name: a\n  schedule: @daily\n",
            "line 3, column 13: is not YAML: found character '@' that cannot start any token: "
            "a value that begins with @ must be quoted",
            id="a macro without quotes",
        ),
        pytest.param(
            "jobs:\n- name: a\n  schedule: */5 * * * *\n",
            "a value that begins with * must be quoted",
            id="stars without quotes",
        ),
        pytest.param(
            "jobs: [{name: a, schedule: 2026-13-45}]",
            "looks like a date or a number to YAML, but is none (month must be in 1..12): quote it",
            id="a date that is none",
        ),
        pytest.param(f"jobs: [{{name: a, schedule: {'9' * 5000}}}]", "quote it", id="a number without end"),
        pytest.param("[" * 1500, "is nested too deeply", id="brackets without end"),
        pytest.param(
            "jobs: [{name: a, schedule: 2026-12-01}]",
            "jobs[0].schedule: must be a text, not 2026-12-01: quote it",
            id="a date",
        ),
        pytest.param(
            "jobs: [{name: a, schedule: '@daily', timezome: UTC}]",
            "jobs[0].timezome: is no field; did you mean timezone?",
            id="a key with a slip",
        ),
        pytest.param("jobs: [{name: a, schedule: '@daily', 5: x}]", "jobs[0].5: is no field; known are", id="a key"),
        pytest.param(
            "jobs: [{name: a, schedule: every 7 minutes, timezone: Nope}]",
            'jobs[0] (a): Invalid timezone "Nope": it is not an IANA time zone',
            id="a bad zone",
        ),
        pytest.param("- name: a", 'must be a mapping with a list under "jobs"', id="no jobs"),
        pytest.param("", 'must be a mapping with a list under "jobs"', id="empty"),
        pytest.param("jobs: [5]", "jobs[0]: must be a mapping", id="a job that is a number"),
        pytest.param("jobs: [{schedule: '@daily'}]", "jobs[0].name: is missing", id="no name"),
        pytest.param("jobs: [{name: a}]", "jobs[0].schedule: is missing", id="no schedule"),
        pytest.param("jobs: [{name: a, schedule: 5}]", "jobs[0].schedule: must be a text, not 5", id="a number"),
        pytest.param("jobs: [{name: a, schedule: '61 * * * *'}]", "jobs[0] (a): Invalid cron", id="bad cron"),
        pytest.param(
            "jobs: [{name: a, schedule: '@daily', dst: often}]", "jobs[0].dst: must be a mapping", id="a bad choice"
        ),
        pytest.param(
            "jobs: [{name: a, schedule: '@daily'}, {name: a, schedule: '@daily'}]",
            'jobs[1].name: "a" is already the name of another job',
            id="a name twice",
        ),
        pytest.param("!!python/object/apply:os.system ['true']", "is not YAML", id="YAML that would run something"),
    ],
)
def test_a_bad_jobs_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)

    done = run("schedule", "-f", str(file))

    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (done.returncode, done.stdout) == (2, "")


def test_a_jobs_file_may_say_all_that_a_job_can(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    keys = "function input timeout retry lock dead_letter tags dag overlap catchup jitter start_at end_at delivery"
    more = ", ".join(f"{key}: x" for key in f"{keys} retention input_schema description enabled".split())
    file.write_text(f"jobs: [{{name: a, schedule: '@daily', timezone: UTC, dst: {{gap: skip}}, {more}}}]")

    assert lines("schedule", "-f", str(file))


def test_a_jobs_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run("schedule", "-f", str(tmp_path / "none.yaml"))

    assert "cannot be read" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("count", ["1", "1000"])
def test_a_reader_that_leaves_early_is_no_error(count: str) -> None:
    program = Path(sys.executable).with_name("gnomon")
    with subprocess.Popen(
        [program, "explain", "* * * * *", "-n", count], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()

        assert process.stderr.read() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("explain", "* * * * *", "-n", "1000"), ("explain", "@daily"), ("--help",)])
def test_output_that_cannot_be_written_is_one_line_of_error(arguments: tuple[str, ...]) -> None:
    program = Path(sys.executable).with_name("gnomon")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
        )

    assert (done.returncode, done.stderr) == (1, "error: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_a_terminal_without_unicode_is_served_too(tmp_path: Path, form: str) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text('jobs: [{name: "\u6bce\u65e5", schedule: "* * * * *"}]', encoding="utf-8")
    program = Path(sys.executable).with_name("gnomon")
    done = subprocess.run(
        [program, "schedule", "-f", str(file), "-n", "1", "-o", form],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii"},
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert {"table": "??", "json": "\\u6bce\\u65e5", "yaml": "\\u6BCE\\u65E5"}[form] in done.stdout


def test_migrating_a_database_makes_it_and_is_done_once(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'gnomon.db'}"

    first, second = (lines("db", "migrate", "--database", address) for _ in range(2))

    assert first == second == [f"schema {SCHEMA:04}"]


def test_migrating_reads_the_configuration_file_as_every_other_command_does(tmp_path: Path) -> None:
    file, database = tmp_path / "gnomon.yaml", tmp_path / "kept.db"
    file.write_text(f"database: {{url: 'sqlite:///{database}'}}\n")

    assert lines("db", "migrate", "--config", str(file)) == [f"schema {SCHEMA:04}"]
    assert database.exists()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        pytest.param("mysql://somewhere", "a store is at", id="a database we do not know"),
        pytest.param("sqlite:////no/such/folder/gnomon.db", "no/such/folder", id="a folder that is not there"),
        pytest.param("postgresql://nobody@127.0.0.1:1/none", "127.0.0.1", id="a server that is not there"),
    ],
)
def test_a_database_that_cannot_be_opened_is_an_error_in_one_line(address: str, problem: str) -> None:
    done = run("db", "migrate", "--database", address)

    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode in (1, 2)


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("up", "no.such.module"),
        ("worker --nats nats://127.0.0.1:1", "no.such.module"),
        ("up --import no.other", "no.other"),
    ],
)
def test_modules_to_import_are_a_setting_that_the_command_line_replaces(
    tmp_path: Path, command: str, module: str
) -> None:
    program = [str(Path(sys.executable).with_name("gnomon")), *command.split()]
    environment = {**os.environ, "GNOMON_IMPORTS": "json, no.such.module"}

    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: cannot import {module}:")
