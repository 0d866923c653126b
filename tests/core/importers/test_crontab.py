"""Crontabs: what becomes of every line, and that it fires and does the same."""

import random
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from gnomon import Cron
from gnomon.core.importers.crontab import read_crontab, split_percents
from gnomon.core.importers.report import ImportedEntry, ImportReport, merge_reports
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from support.random_schedules import random_cron

BERLIN = "Europe/Berlin"


def crontab(text: str, *, system: bool = False) -> ImportReport:
    return merge_reports([read_crontab(text, place="crontab", timezone=BERLIN, system=system)], now=0)


def entry(text: str, *, system: bool = False) -> ImportedEntry:
    [found] = crontab(text, system=system).entries
    return found


def job(text: str, *, system: bool = False) -> dict[str, Any]:
    found = entry(text, system=system)
    assert found.job is not None, found.notes
    return found.job


def why_left_out(text: str, *, system: bool = False) -> str:
    found = entry(text, system=system)
    assert found.job is None
    return found.notes[0].text


def test_a_line_becomes_a_job_that_does_as_cron_did() -> None:
    found = entry("30 2 * * *\t/opt/backup/dump.sh --all >/dev/null 2>&1")

    assert found.job == {
        "name": "dump",
        "schedule": "30 2 * * *",
        "timezone": BERLIN,
        "command": "/opt/backup/dump.sh --all >/dev/null 2>&1",
        "overlap": "allow",
        "timeout": "1d",
    }
    assert found.whole


@pytest.mark.parametrize("macro", ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"])
def test_macros_stay_what_they_are(macro: str) -> None:
    assert job(f"{macro} ls")["schedule"] == macro


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("@reboot /usr/bin/agent", "@reboot starts with the machine"),
        ("@fortnightly ls", "@fortnightly is unknown"),
        ("* * * *", "neither five fields and a command"),
        ("* * * * *", "neither five fields and a command"),
        ("nonsense", "neither five fields and a command"),
        ("61 * * * * ls", "minute field has 61, which is out of range 0-59"),
        ("0 0 31 2 * ls", "never fires"),
        ("0~30 * * * * ls", "choose a time at random"),
        ("@daily", "it has no command"),
        ("@daily %only input", "it has no command"),
        ("* * * * * echo \0", "not every store can hold"),
        ("* * * * * " + "x" * 20_000, "put it into a script"),
        ("* * * * * echo ${input.name}", "would make data a part of the program"),
    ],
)
def test_entries_that_are_not_imported_have_a_reason(line: str, reason: str) -> None:
    assert reason in why_left_out(line)


# ---- variables -----------------------------------------------------------------------------------


def test_variables_count_for_the_lines_below_them() -> None:
    first, second = crontab("A=1\n@daily one\nA = 2 \nB = 'two words'\n@daily two").entries

    assert first.job is not None
    assert second.job is not None
    assert first.job["env"] == {"A": "1"}
    assert second.job["env"] == {"A": "2", "B": "two words"}


@pytest.mark.parametrize(
    ("line", "env"),
    [
        ('A="x y"', {"A": "x y"}),
        ("'A'='x'", {"A": "x"}),
        ('A="it\'s"', {"A": "it's"}),
        ("A=", {"A": ""}),
        ("A=$HOME/bin", {"A": "$HOME/bin"}),
        ("A=b=c", {"A": "b=c"}),
        ("\tA=x\r", {"A": "x"}),
        ("TZ=Asia/Tokyo", {"TZ": "Asia/Tokyo"}),
    ],
)
def test_a_variable_is_read_as_cron_reads_it(line: str, env: dict[str, str]) -> None:
    assert job(f"{line}\n@daily ls")["env"] == env


def test_an_assignment_before_a_command_is_none_of_the_crontab() -> None:
    assert job("@daily A=1 ls")["command"] == "A=1 ls"
    assert job("0 0 * * * A=1 ls")["command"] == "A=1 ls"


def test_a_value_that_would_be_a_reference_is_set_by_the_command() -> None:
    assert job("A=${HOME}/it's\n@daily ls")["command"] == """export A='${HOME}/it'"'"'s'; ls"""


def test_a_name_that_no_variable_may_have_is_reported() -> None:
    found = entry("GNOMON_X=1\n@daily ls")

    assert found.job is not None
    assert "env" not in found.job
    assert found.notes[0].text == "GNOMON_X: no variable may be called that here"


def test_another_shell_runs_the_command() -> None:
    assert job("SHELL=/bin/bash\n@daily echo {a,b} 'c'")["command"] == """exec /bin/bash -c 'echo {a,b} '"'"'c'"'"''"""
    assert job("SHELL=/bin/sh\n@daily ls") == job("@daily ls")


def test_nobody_is_mailed_and_that_is_said_once() -> None:
    text = "MAILTO=ada@example.org\n@daily ls\n@hourly df\nMAILTO=\n@daily id"
    found = read_crontab(text, place="tab", timezone="UTC")

    mailed = [remark for remark in found.remarks if "MAILTO" in remark]
    assert mailed == ["MAILTO ada@example.org: nothing is mailed; the output of a command is in its log"]
    assert found.whole
    assert "env" not in job("MAILTO=x\n@daily ls")


def test_cron_tz_is_the_zone_of_the_schedule() -> None:
    assert job("CRON_TZ=Asia/Tokyo\n@daily ls")["timezone"] == "Asia/Tokyo"
    assert "timezone" in why_left_out("CRON_TZ=Mars/Olympus\n@daily ls")


def test_a_random_delay_becomes_jitter() -> None:
    found = entry("RANDOM_DELAY=30\n@daily ls")

    assert found.job is not None
    assert found.job["jitter"] == "30m"
    assert found.whole
    assert not entry("RANDOM_DELAY=90\n@daily ls").whole
    assert not entry("RANDOM_DELAY=soon\n@daily ls").whole


# ---- percent signs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "command", "stdin"),
    [
        ("cat", "cat", ""),
        ("cat%one%two", "cat", "one\ntwo\n"),
        ("cat%one%", "cat", "one\n"),
        ("cat%%%", "cat", "\n\n"),
        (r"date +\%F", "date +%F", ""),
        (r"date +\%F%50\% of it", "date +%F", "50% of it\n"),
        (r"echo a\\b", r"echo a\\b", ""),
        (r"echo \\%in", r"echo \\", "in\n"),
        ("echo \\", "echo \\", ""),
    ],
)
def test_the_first_percent_sign_begins_what_the_command_reads(written: str, command: str, stdin: str) -> None:
    assert split_percents(written) == (command, stdin)


@given(st.text(alphabet="%\\ab "))
def test_percent_signs_are_never_lost(written: str) -> None:
    command, stdin = split_percents(written)

    assert (command + stdin).count("a") == written.count("a")
    assert (command + stdin).count("%") == written.replace("\\\\", "").count("\\%")


# ---- the system's --------------------------------------------------------------------------------


def test_the_user_of_a_systems_crontab_is_reported() -> None:
    found = entry("17 * * * *\troot\tcd / && run-parts --report /etc/cron.hourly", system=True)

    assert found.job is not None
    assert found.job["command"] == "cd / && run-parts --report /etc/cron.hourly"
    assert [note.text for note in found.notes] == ["user root: it runs as the user of the worker"]
    assert job("@daily www-data php prune", system=True)["command"] == "php prune"


def test_a_user_alone_is_no_command() -> None:
    assert why_left_out("@daily root", system=True) == "it has no command behind the user"


def test_a_dash_in_front_is_reported() -> None:
    found = entry("-*/5 * * * * root ls", system=True)

    assert found.job is not None
    assert found.job["schedule"] == "*/5 * * * *"
    assert "dash" in found.notes[0].text


# ---- comments, names, places ---------------------------------------------------------------------


def test_comments_are_kept_in_place() -> None:
    found = crontab("# about\n#\n@daily one\n\n#about two\nA=1\n@daily two\n# the end")

    assert [entry.comments for entry in found.entries] == [("about", ""), ("about two",)]
    assert found.comments == ("the end",)
    assert [entry.place for entry in found.entries] == ["crontab:3", "crontab:7"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/opt/backup/dump.sh --all", "dump"),
        ("cd /srv/app && python3.11 manage.py clearsessions", "manage"),
        ("/usr/bin/python3 -m app.cli sync", "app.cli"),
        ("[ -x /usr/sbin/anacron ] || /usr/sbin/anacron -q", "anacron"),
        ("A=1 B='2 3' sudo -u www nice -n 10 /usr/bin/Certbot_renew -q", "certbot_renew"),
        ("flock -n /tmp/lock timeout 5m rsync -a src dst", "rsync"),
        ("(date; uptime) > /tmp/x", "date"),
        ("日本語", "command"),
        ("...", "command"),
        ("x" * 500, "x" * 60),
    ],
)
def test_a_job_is_named_after_its_command(command: str, name: str) -> None:
    assert job(f"@daily {command}")["name"] == name


def test_names_are_unique() -> None:
    found = crontab("@daily ls\n@hourly ls\n@weekly ls-2\n@monthly ls")

    assert [entry.job and entry.job["name"] for entry in found.entries] == ["ls", "ls-2", "ls-2-2", "ls-3"]


# ---- the same fires ------------------------------------------------------------------------------


def test_it_fires_when_cron_would() -> None:
    rng = random.Random("crontabs")
    for _ in range(60):
        text = random_cron(rng, times=True)
        if len(text.split()) != 5 or any(letter in text for letter in "L#"):
            continue
        found = entry(f"{text} ls")
        if found.job is None:
            assert "never fires" in found.notes[0].text
            continue
        trigger = read_job(found.job, Defaults(), now=0).spec.trigger
        assert isinstance(trigger, Cron)
        start = datetime(2026, 3, 1, tzinfo=ZoneInfo(BERLIN))
        expected = [fire.astimezone(UTC) for fire in islice(CronSim(text, start), 50)]

        fires: list[datetime] = []
        instant = start.astimezone(UTC)
        while len(fires) < len(expected) and (fire := trigger.next_after(instant)):
            fires.append(fire)
            instant = fire
        assert fires == expected, text
        assert instant - start > timedelta(0)


# ---- nonsense ------------------------------------------------------------------------------------

_PIECES = st.sampled_from(
    [
        "*",
        "*/5",
        "1-5",
        "@daily",
        "@reboot",
        "@",
        "#",
        "=",
        "%",
        "\\",
        "'",
        '"',
        "${",
        "}",
        "A",
        "root",
        "mon",
        "\t",
        " ",
    ]
)
_LINES = st.one_of(st.text(), st.lists(_PIECES | st.text(max_size=5)).map("".join), st.lists(_PIECES).map(" ".join))


@given(st.lists(_LINES).map("\n".join), st.booleans())
def test_nonsense_never_crashes_and_what_is_carried_over_can_be_read(text: str, system: bool) -> None:  # noqa: FBT001 - as hypothesis calls it
    found = crontab(text, system=system)

    for one in found.entries:
        if one.job is not None:
            read_job(one.job, Defaults(), now=0)
        else:
            assert one.notes[0].text
