"""`gnomon simulate`."""

from pathlib import Path
from typing import Any

import pytest

from support.cli_prompt import CliPrompt

JOBS = """
jobs:
  - { name: probe, schedule: "*/15 * * * *", function: f, timeout: 1h }
  - { name: backup, schedule: "30 2 * * *", timezone: Europe/Berlin, function: f, catchup: latest, timeout: 48h }
  - { name: asked, function: f }
  - { name: resting, schedule: "@hourly", function: f, enabled: false }
"""
MARCH = ("simulate", "-f", "jobs.yaml", "--from", "2027-03-22T00:00Z", "--days", "7")


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    prompt = CliPrompt(tmp_path, monkeypatch, capsys)
    prompt.write(JOBS)
    return prompt


def job(found: Any, name: str) -> Any:  # noqa: ANN401 - what was printed
    [one] = [one for one in found["jobs"] if one["job"] == name]
    return one


def test_a_simulation_needs_no_database_and_makes_none(prompt: CliPrompt) -> None:
    shown = prompt.lines(*MARCH)

    assert shown[0] == "7 days from Mon 2027-03-22 00:00:00 UTC: 3 jobs, 679 runs"
    assert shown[1] == "not enabled: resting"
    assert not (prompt.folder / "gnomon.db").exists()


def test_every_day_is_a_line_of_the_heat_map(prompt: CliPrompt) -> None:
    shown = prompt.lines(*MARCH)

    days = [line for line in shown if line[4:11] == "2027-03"]
    assert len(days) == 7
    assert days[0].split() == ["Mon", "2027-03-22", "▓█▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓", "97"]
    # The day of the clock change is marked.
    assert days[-1].startswith("Sun 2027-03-28 *")


def test_the_effect_of_a_clock_change_is_shown(prompt: CliPrompt) -> None:
    shown = prompt.lines(*MARCH)

    assert shown[-2].startswith("* Sun 2027-03-28 03:00:00 CEST Europe/Berlin: clocks go forward from 02:00 to 03:00")
    assert shown[-1] == "  backup"


def test_durations_are_given_for_one_job_and_for_all_others(prompt: CliPrompt) -> None:
    found = prompt.data(*MARCH, "--duration", "20m", "--duration", "backup=30h")

    assert (job(found, "probe")["lasts_ms"], job(found, "backup")["lasts_ms"]) == (1_200_000, 108_000_000)
    assert {"kind": "skipped", "reason": "overlap", "count": 336} in job(found, "probe")["decisions"]


def test_runs_that_their_timeout_would_end_are_shown(prompt: CliPrompt) -> None:
    shown = prompt.lines(*MARCH, "--duration", "probe=2h", "--duration", "backup=2h")

    assert "probe takes 2 h, but its timeout ends it after 1 h" in shown
    assert not [line for line in shown if line.startswith("backup takes")]


def test_a_command_that_says_no_timeout_has_that_of_commands(prompt: CliPrompt) -> None:
    prompt.write('jobs: [{ name: vacuum, schedule: "@daily", command: vacuumdb }]')

    shown = prompt.lines(*MARCH, "--duration", "2h")

    assert "vacuum takes 2 h, but its timeout ends it after 2 min" in shown


def test_a_duration_of_a_job_that_is_not_there_is_refused(prompt: CliPrompt) -> None:
    done = prompt.run(*MARCH, "--duration", "bakcup=5m")

    assert (done.code, done.err) == (2, ["error: --duration: 'bakcup' is no job of the file"])


def test_durations_may_come_from_what_was_recorded(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    prompt.finish_execution(prompt.triggered("asked"))

    found = prompt.data(*MARCH, "--durations-from", "gnomon.db")

    assert (job(found, "asked")["lasts_ms"], job(found, "probe")["lasts_ms"]) == (1200, 0)


def test_an_outage_shows_what_becomes_of_its_ticks(prompt: CliPrompt) -> None:
    shown = prompt.lines(*MARCH, "--outage", "mon 01:00-04:00")

    place = shown.index("down for 3h from Mon 2027-03-22 01:00:00 UTC")
    assert shown[place + 1 : place + 3] == [
        "  backup: 1 fired (caught up)",
        "  probe: 12 missed (catchup none)",
    ]


def test_an_outage_that_has_not_ended_is_not_reported_as_harmless(prompt: CliPrompt) -> None:
    shown = prompt.lines(*MARCH, "--outage", "2027-03-28T00:00Z/2027-04-28T00:00Z")

    assert "  it goes on to the end: what was due in it is not decided" in shown
    assert "  nothing was due" not in shown


def test_an_outage_that_cannot_be_read_is_refused(prompt: CliPrompt) -> None:
    done = prompt.run(*MARCH, "--outage", "sometimes")

    assert done.code == 2
    assert done.err[0].startswith("error: --outage: 'sometimes' is no outage such as mon 02:00-04:00")


def test_a_simulation_is_data_for_machines(prompt: CliPrompt) -> None:
    found = prompt.data(*MARCH, "--tz", "Europe/Berlin")

    assert (found["runs"], found["timezone"], found["not_enabled"]) == (679, "Europe/Berlin", ["resting"])
    assert found["days"][0]["hours"][:3] == [0, 4, 5]
    assert found["collisions"]["worst"][0]["jobs"] == ["probe", "backup"]
    assert found["clock_changes"][0]["jobs"] == ["backup"]


def test_a_zone_that_nobody_knows_is_refused(prompt: CliPrompt) -> None:
    assert prompt.run(*MARCH, "--tz", "Mars/Base").code == 2


POLICY = """
default_decision: allow
rules:
  - {id: no-backup, match: {jobs: [backup]}, decision: deny, reason: the disk is full}
  - {id: second-person, match: {jobs: [probe]}, decision: require_approval}
"""


@pytest.mark.req("R-02")
def test_the_report_says_which_jobs_a_policy_file_would_hold_back(prompt: CliPrompt) -> None:
    (prompt.folder / "policy.yaml").write_text(POLICY)

    shown, found = prompt.lines(*MARCH, "--policy", "policy.yaml"), prompt.data(*MARCH, "--policy", "policy.yaml")

    assert shown[-4:] == [
        "probe is held back by the policy file:",
        "  main: require_approval by second-person",
        "backup is held back by the policy file:",
        "  main: deny by no-backup (the disk is full)",
    ]
    assert [(one["job"], one["steps"][0]["decision"]) for one in found["policy"]] == [
        ("probe", "require_approval"),
        ("backup", "deny"),
    ]


@pytest.mark.req("R-02")
def test_the_report_says_which_jobs_the_policy_in_force_would_hold_back(prompt: CliPrompt) -> None:
    (prompt.folder / "policy.yaml").write_text(POLICY)
    prompt.run("policy", "apply", "-f", "policy.yaml")

    found = prompt.data(*MARCH, "--policy-from", "gnomon.db")

    assert [(one["job"], one["version"]) for one in found["policy"]] == [("probe", 1), ("backup", 1)]
    assert prompt.data(*MARCH)["policy"] == []
    assert prompt.run(*MARCH, "--policy-from", "gnomon.db", "--policy", "policy.yaml").code == 2
