"""The command line as a person meets it: real processes, real output, exit codes that mean something."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import gnomon

ROOT = Path(__file__).parents[2]
FRIDAY = ("--from", "2026-03-06T12:00:00Z")
FILE = ("-f", "examples/jobs.yaml", "--from", "2026-03-07T23:59:00Z")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("gnomon")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def lines(*arguments: str) -> list[str]:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_version_is_the_packages() -> None:
    assert lines("--version") == [f"gnomon {gnomon.__version__}"]


def test_help_names_every_command() -> None:
    text = "\n".join(lines("--help"))

    assert all(command in text for command in ("explain", "schedule"))


def test_help_loads_nothing_heavy() -> None:
    program = "import sys; import gnomon.cli; print(*{'lark', 'yaml', 'zoneinfo'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "lark" not in done.stdout
    assert "yaml" not in done.stdout


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
        "clocks go forward from 02:00 to 03:00: what falls in between fires once, at 03:00"
    )


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
            {"local": "2026-03-07T02:30:00-05:00", "utc": "2026-03-07T07:30:00+00:00"},
            {"local": "2026-03-08T03:00:00-04:00", "utc": "2026-03-08T07:00:00+00:00"},
        ],
        "clock_changes": [
            {
                "at": "2026-03-08T03:00:00-04:00",
                "effect": "made_up",
                "sentence": "clocks go forward from 02:00 to 03:00: what falls in between fires once, at 03:00",
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
            ["error: --from field must be an ISO instant such as 2026-12-01T09:00:00Z"],
            id="an instant that is none",
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


def test_an_unknown_option_exits_with_2() -> None:
    assert run("explain", "@daily", "--nonsense").returncode == 2


@pytest.mark.req("H-25", "H-19")
def test_schedule_lists_the_coming_fires_of_a_file() -> None:
    shown = lines("schedule", "-f", "examples/jobs.yaml", "--from", "2026-03-06T23:50:00Z", "-n", "4")

    assert shown == [
        "utc                      local          job                    schedule",
        "Sat 2026-03-07 00:00:00  Sat 00:00 UTC  provider-health-check  every 15 minutes",
        "Sat 2026-03-07 00:00:00  Sat 00:00 UTC  credit-reconciliation  every 6 hours",
        "Sat 2026-03-07 00:15:00  Sat 00:15 UTC  provider-health-check  every 15 minutes",
        "Sat 2026-03-07 00:30:00  Sat 00:30 UTC  provider-health-check  every 15 minutes",
        "… and more: -n shows a longer list, --hours looks further",
    ]


def test_schedule_speaks_json() -> None:
    found = json.loads("\n".join(lines("schedule", *FILE, "-n", "2", "-o", "json")))

    assert [(fire["job"], fire["utc"]) for fire in found] == [
        ("provider-health-check", "2026-03-08T00:00:00+00:00"),
        ("credit-reconciliation", "2026-03-08T00:00:00+00:00"),
    ]


def test_schedule_speaks_yaml() -> None:
    text = "\n".join(lines("schedule", *FILE, "-n", "1", "-o", "yaml"))

    assert yaml.safe_load(text)[0]["job"] == "provider-health-check"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("jobs: [", "is not YAML", id="broken YAML"),
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
    assert (done.returncode, done.stdout) == (2, "")


def test_a_jobs_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run("schedule", "-f", str(tmp_path / "none.yaml"))

    assert "cannot be read" in done.stderr
    assert done.returncode == 2


def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = Path(sys.executable).with_name("gnomon")
    with subprocess.Popen(
        [program, "explain", "* * * * *", "-n", "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert "Traceback" not in process.stderr.read()
