"""Timers of systemd: when they fire in cron's words, and what their services do in a shell's."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import Cron
from gnomon.core.importers.report import ImportedEntry, ImportReport, merge_reports
from gnomon.core.importers.systemd import read_timers, service_of
from gnomon.core.importers.systemd_syntax import read_calendar, shell_command, span_ms, words_of
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import FieldError

SERVICE = "[Service]\nExecStart=/bin/true\n"


def imported(timer: str, service: str = SERVICE, **others: str) -> ImportReport:
    units = {"a.timer": timer, "a.service": service, **others}
    return merge_reports([read_timers(units, timezone="Europe/Berlin")], now=0)


def entry(timer: str, service: str = SERVICE) -> ImportedEntry:
    [found] = imported(f"[Timer]\n{timer}", service).entries
    return found


def job(timer: str, service: str = SERVICE) -> dict[str, Any]:
    found = entry(timer, service)
    assert found.job is not None, found.notes
    return found.job


def serving(*lines: str) -> ImportedEntry:
    return entry("OnCalendar=daily", "\n".join(("[Service]", *lines)))


def notes(found: ImportedEntry) -> list[str]:
    return [note.text for note in found.notes]


# ---- when ----------------------------------------------------------------------------------------

When = Callable[[datetime], bool]
CALENDARS: list[tuple[str, str, When]] = [
    ("minutely", "* * * * *", lambda _: True),
    ("hourly", "0 * * * *", lambda t: t.minute == 0),
    ("daily", "0 0 * * *", lambda t: (t.hour, t.minute) == (0, 0)),
    ("weekly", "0 0 * * 1", lambda t: (t.weekday(), t.hour, t.minute) == (0, 0, 0)),
    ("Monthly", "0 0 1 * *", lambda t: (t.day, t.hour, t.minute) == (1, 0, 0)),
    ("quarterly", "0 0 1 1,4,7,10 *", lambda t: t.month % 3 == 1 and (t.day, t.hour, t.minute) == (1, 0, 0)),
    ("semiannually", "0 0 1 1,7 *", lambda t: t.month in (1, 7) and (t.day, t.hour, t.minute) == (1, 0, 0)),
    ("yearly", "0 0 1 1 *", lambda t: (t.month, t.day, t.hour, t.minute) == (1, 1, 0, 0)),
    ("*-*-* 02:30:00", "30 2 * * *", lambda t: (t.hour, t.minute) == (2, 30)),
    ("02:30", "30 2 * * *", lambda t: (t.hour, t.minute) == (2, 30)),
    ("Mon..Fri 08:05", "5 8 * * 1-5", lambda t: t.weekday() < 5 and (t.hour, t.minute) == (8, 5)),
    ("Sat,Sun *-*-* 10:00", "0 10 * * 0,6", lambda t: t.weekday() > 4 and (t.hour, t.minute) == (10, 0)),
    ("Fri..Mon 10:00", "0 10 * * 0,1,5,6", lambda t: t.weekday() in (4, 5, 6, 0) and (t.hour, t.minute) == (10, 0)),
    ("wednesday", "0 0 * * 3", lambda t: (t.weekday(), t.hour, t.minute) == (2, 0, 0)),
    ("Mon..Sun 07:00", "0 7 * * *", lambda t: (t.hour, t.minute) == (7, 0)),
    ("*:0/15", "0/15 * * * *", lambda t: t.minute % 15 == 0),
    ("*:5/20", "5/20 * * * *", lambda t: t.minute in (5, 25, 45)),
    ("8..18/2:00", "0 8-18/2 * * *", lambda t: t.hour in (8, 10, 12, 14, 16, 18) and t.minute == 0),
    ("*-*-1,15 06:00", "0 6 1,15 * *", lambda t: t.day in (1, 15) and (t.hour, t.minute) == (6, 0)),
    ("*-02..04-10/5 06:00", "0 6 10/5 2-4 *", lambda t: 2 <= t.month <= 4 and t.day >= 10 and t.day % 5 == 0
        and (t.hour, t.minute) == (6, 0)),
    ("Mon *-*-01..07 03:00", "0 3 * * 1#1", lambda t: t.weekday() == 0 and t.day <= 7 and (t.hour, t.minute) == (3, 0)),
    ("*-*~01 03:00", "0 3 L * *", lambda t: (t + timedelta(days=1)).day == 1 and (t.hour, t.minute) == (3, 0)),
    ("Fri *-*~07/1 03:00", "0 3 * * 5L", lambda t: t.weekday() == 4 and (t + timedelta(days=7)).day <= 7
        and (t.hour, t.minute) == (3, 0)),
    ("05-01 09:00", "0 9 1 5 *", lambda t: (t.month, t.day, t.hour, t.minute) == (5, 1, 9, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("calendar", "expression", "meant"), CALENDARS, ids=[case[0] for case in CALENDARS])
def test_a_calendar_fires_when_systemd_would(calendar: str, expression: str, meant: When) -> None:
    assert read_calendar(calendar).schedule == expression
    cron = Cron(expression)
    instant = start = datetime(2026, 2, 20, tzinfo=UTC)
    end = start + timedelta(days=75)

    fires = []
    while (fire := cron.next_after(instant)) is not None and fire < end:
        fires.append(fire)
        instant = fire

    minutes = (start + timedelta(minutes=number) for number in range(1, 75 * 24 * 60))
    assert fires == [minute for minute in minutes if meant(minute)]


def test_seconds_are_a_sixth_field() -> None:
    assert read_calendar("*:*:0/10").schedule == "0/10 * * * * *"


def test_a_date_with_a_year_is_one_instant() -> None:
    assert read_calendar("2027-03-01 09:30 Asia/Tokyo").at == "2027-03-01T09:30:00"
    assert job("OnCalendar=2027-03-01 09:30")["at"] == "2027-03-01T09:30:00"


@pytest.mark.parametrize(
    ("calendar", "reason"),
    [
        ("2027-*-* 09:00", "names a year"),
        ("Mon 2027-03-01", "names a year"),
        ("Mon *-*-13", "cron would take either"),
        ("*-*~03", "has only the last"),
        ("*:*:00.5", "parts of seconds"),
        ("Mun 10:00", "is no expression such as"),
        ("Mon,Mun 10:00", "Mun, which is no weekday"),
        ("10", "is no expression such as"),
        ("10:00 tomorrow morning", "is no expression such as"),
        ("1:2:3:4", "neither HH:MM nor HH:MM:SS"),
        ("x:00", "no value, range or step"),
        ("*..5:00", "no value, range or step"),
        ("", "is empty"),
        ("x" * 1000, "is too long"),
    ],
)
def test_calendars_that_cron_cannot_express_are_refused(calendar: str, reason: str) -> None:
    with pytest.raises(FieldError) as refused:
        read_calendar(calendar)

    assert reason in refused.value.reason


def test_a_zone_counts_for_more_than_that_of_the_machine() -> None:
    assert job("OnCalendar=02:00")["timezone"] == "Europe/Berlin"
    assert job("OnCalendar=02:00 UTC")["timezone"] == "UTC"
    assert job("OnCalendar=daily America/New_York")["timezone"] == "America/New_York"


def test_hours_that_no_clock_shows_are_left_out() -> None:
    assert "25, which is out of range" in entry("OnCalendar=25:00").notes[0].text


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90", 90_000), ("5min 20s", 320_000), ("1h30m", 5_400_000), ("1.5h", 5_400_000), ("2d", 172_800_000),
     ("1week", 604_800_000), ("250ms", 250), ("infinity", None), ("0", 0)],
)  # fmt: skip
def test_spans_are_read_as_systemd_reads_them(text: str, ms: int | None) -> None:
    assert span_ms("TimeoutSec", text) == ms


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-5", "5min,", "1" * 500])
def test_an_invalid_time_span_is_refused(text: str) -> None:
    with pytest.raises(FieldError):
        span_ms("TimeoutSec", text)


def test_an_interval_is_one() -> None:
    found = entry("OnBootSec=2min\nOnUnitActiveSec=5min")

    assert found.job is not None
    assert found.job["every"] == "5m"
    assert found.whole
    assert "begins when the job is registered" in notes(found)[0]


def test_an_interval_from_the_end_of_a_run_is_reported() -> None:
    found = entry("OnUnitInactiveSec=1h")

    assert found.job is not None
    assert found.job["every"] == "1h"
    assert not found.whole


@pytest.mark.parametrize("key", ["OnBootSec", "OnStartupSec", "OnActiveSec"])
def test_timers_relative_to_boot_are_left_out(key: str) -> None:
    assert notes(entry(f"{key}=5min")) == [
        f"{key} counts from the start of the machine, which is no time of a schedule"
    ]


def test_a_timer_without_a_time_is_left_out() -> None:
    assert notes(entry("Persistent=true")) == ["it has no time"]
    assert notes(entry("OnUnitActiveSec=infinity")) == ["OnUnitActiveSec: there is no such interval"]
    assert notes(entry("OnUnitActiveSec=often")) == ["OnUnitActiveSec: 'often' is no span such as 5min 20s"]


def test_persistent_is_catching_up() -> None:
    assert job("OnCalendar=daily\nPersistent=true")["catchup"] == "latest"
    assert "catchup" not in job("OnCalendar=daily\nPersistent=no")


def test_a_random_delay_is_jitter_within_an_hour() -> None:
    assert job("OnCalendar=daily\nRandomizedDelaySec=10min")["jitter"] == "10m"
    assert entry("OnCalendar=daily\nRandomizedDelaySec=10min").whole
    assert not entry("OnCalendar=daily\nRandomizedDelaySec=6h").whole
    assert not entry("OnCalendar=daily\nRandomizedDelaySec=x").whole


def test_several_times_are_several_jobs_and_an_empty_one_takes_them_back() -> None:
    found = imported("[Timer]\nOnCalendar=minutely\nOnCalendar=\nOnCalendar=daily\nOnCalendar=Mon 12:00").entries

    assert [one.job and (one.job["name"], one.job["schedule"]) for one in found] == [
        ("a", "0 0 * * *"),
        ("a-2", "0 12 * * 1"),
    ]
    assert "several jobs" in notes(found[0])[0]


def test_options_that_only_systemd_has_are_reported() -> None:
    found = entry("OnCalendar=daily\nWakeSystem=true\nOnClockChange=true\nAccuracySec=1h")

    assert "WakeSystem, OnClockChange: not supported" in notes(found)


# ---- what ----------------------------------------------------------------------------------------


def test_a_unit_may_be_named_otherwise() -> None:
    units = {"a.timer": "[Timer]\nOnCalendar=daily\nUnit=b.service", "b.service": SERVICE}
    [found] = read_timers(units, timezone="UTC").entries

    assert found.job is not None
    assert service_of("a.timer", units["a.timer"]) == "b.service"
    assert service_of("b.service", SERVICE) is None


def test_a_service_that_is_not_there_is_named() -> None:
    [found] = read_timers({"a.timer": "[Timer]\nOnCalendar=daily"}, timezone="UTC").entries

    assert notes(found) == ["its service a.service is not among the files"]


def test_an_instance_runs_the_service_of_its_template_and_a_template_runs_nothing() -> None:
    timer, service = "[Timer]\nOnCalendar=daily", "[Service]\nExecStart=/bin/dump %i"
    units = {"dump@main.timer": timer, "dump@.timer": timer, "dump@.service": service}
    instance, template = read_timers(units, timezone="UTC").entries

    assert instance.job is not None
    assert (instance.job["name"], instance.job["command"]) == ("dump-main", "/bin/dump main")
    assert notes(template) == ["it is a template, and only its instances run"]


def test_a_service_becomes_a_command_with_its_limits() -> None:
    found = serving(
        "Type=oneshot",
        "Environment=A=1 \"B=two words\" 'C=3'",
        "Environment=A=2",
        "WorkingDirectory=/srv/app",
        "ExecStartPre=-/bin/rm -f lock",
        "ExecStart=/usr/bin/app \\",
        "# a comment in between",
        "  --all",
        "TimeoutStartSec=1h 30min",
    )

    assert found.job == {
        "name": "a",
        "schedule": "0 0 * * *",
        "timezone": "Europe/Berlin",
        "command": "{ /bin/rm -f lock || :; } && /usr/bin/app --all",
        "env": {"A": "2", "B": "two words", "C": "3"},
        "workdir": "/srv/app",
        "timeout": "1h30m",
        "overlap": "skip",
    }
    assert found.whole


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        (r'"a\"b" \x41\u00e9 \101 \s', ['a"b', "Aé", "A", " "]),
        (r"'a\b'", [r"a\b"]),
        ('a="b c"', ["a=b c"]),
        ("''", [""]),
        ("", []),
    ],
)
def test_words_are_split_as_systemd_does(line: str, words: list[str]) -> None:
    assert words_of("ExecStart", line) == words


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("/bin/echo plain words", "plain words"),
        ("/bin/echo 'two  blanks' * | > < & ; /bin/echo next", "two  blanks * | > < &\nnext"),
        (r"/bin/echo a \; b", "a ; b"),
        ("/bin/echo $TWO ${TWO} x$TWO", "a b a  b x$TWO"),
        ("/bin/echo costs $$5 '`date`' ${TWO}\"$(date)\"", "costs $5 `date` a  b$(date)"),
        (":/bin/echo ${TWO}", "${TWO}"),
        ("/bin/sh -c 'echo \"$TWO\" | tr a-z A-Z'", "A  B"),
        ("-/bin/false", ""),
        ("@/bin/echo called-otherwise said", "said"),
    ],
)
def test_a_shell_does_what_systemd_would(line: str, printed: str) -> None:
    command, _ = shell_command("ExecStart", line)

    done = subprocess.run(
        ["/bin/sh", "-c", command], env={"TWO": "a  b"}, capture_output=True, text=True, check=True, cwd="/dev"
    )
    assert done.stdout.rstrip("\n") == printed


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (("ExecStart=+/bin/true",), "ExecStart: the + before it"),
        (("ExecStart=/bin/true", "User=nobody"), "User nobody: it runs as the user of the worker"),
        (("ExecStart=/bin/true", "EnvironmentFile=/etc/x"), "EnvironmentFile: write its variables into env"),
        (("ExecStart=/bin/true", "StandardOutput=append:/var/log/x"), "the output of a command is in its log"),
        (("ExecStart=/bin/true", "Type=forking"), "Type forking: a job lasts as long as its command"),
        (("ExecStart=/bin/true", "MemoryMax=1G", "Nice=5"), "MemoryMax, Nice: not supported"),
        (("ExecStart=/bin/true", "WorkingDirectory=~"), "commands run in the workspace"),
        (("ExecStart=/bin/true", "Environment=1A=2"), "1A: no variable may be called that here"),
    ],
)
def test_options_that_a_job_cannot_express_are_reported(lines: tuple[str, ...], note: str) -> None:
    found = serving(*lines)

    assert found.job is not None
    assert not found.whole
    assert any(note in one for one in notes(found)), notes(found)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "ExecStart is missing in a.service"),
        (("ExecStart=/bin/echo %h",), "%h, which only systemd can fill in"),
        (("ExecStart=/bin/echo 'open",), "has a quote that does not end"),
        (("ExecStart=-",), "names no program"),
        (("ExecStart=/bin/true", "Environment=A"), "is no assignment"),
        (("ExecStart=/bin/true", "RuntimeMaxSec=x"), "is no span"),
        (("ExecStart=/bin/true", "WorkingDirectory=../x"), "inside of the workspace"),
    ],
)
def test_services_that_no_shell_could_run_are_left_out(lines: tuple[str, ...], reason: str) -> None:
    found = serving(*lines)

    assert found.job is None
    assert reason in found.notes[0].text


def test_specifiers_of_systemd_are_expanded() -> None:
    found = serving("ExecStart=/bin/echo %n %p 100%%")

    assert found.job is not None
    assert found.job["command"] == "/bin/echo a.service a 100%"


# ---- nonsense ------------------------------------------------------------------------------------

_PIECES = st.sampled_from(
    ["[Timer]", "[Service]", "OnCalendar=", "OnUnitActiveSec=", "ExecStart=", "Environment=", "Type=", "*", "-", "..",
     "/", ":", "~", "1", "Mon", "daily", "UTC", "$", "${A}", "%", "\\", "'", '"', ";", "\n", " "]
)  # fmt: skip
_TEXT = st.one_of(st.text(), st.lists(_PIECES | st.text(max_size=3), max_size=40).map("".join))


@given(_TEXT, _TEXT)
def test_nonsense_never_crashes_and_what_is_carried_over_can_be_read(timer: str, service: str) -> None:
    for one in imported(f"[Timer]\nOnCalendar=daily\n{timer}", f"{SERVICE}{service}").entries:
        if one.job is not None:
            read_job(one.job, Defaults(), now=0)
        else:
            assert one.notes[0].text


@given(st.lists(_PIECES, max_size=20).map("".join) | st.text(alphabet="*-.,/:~0123456789MonFri ", max_size=30))
def test_no_calendar_crashes(text: str) -> None:
    with suppress(FieldError):
        read_calendar(text)
