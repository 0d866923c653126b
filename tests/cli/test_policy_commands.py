"""`gnomon policy`: check, compare, apply and read policy files."""

from pathlib import Path

import pytest

from support.cli_prompt import CliPrompt

FILE = "default_decision: deny\nrules:\n  - {id: reports, match: {topics: ['reports.*']}, decision: allow}\n"


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    (tmp_path / "policy.yaml").write_text(FILE)
    return CliPrompt(tmp_path, monkeypatch, capsys)


def test_a_good_file_is_checked_without_a_database(prompt: CliPrompt) -> None:
    code, out, _ = prompt.run("policy", "check", "-f", "policy.yaml")

    assert (code, out) == (0, ["policy.yaml: 1 rule, default decision deny"])
    assert not (prompt.folder / "gnomon.db").exists()


@pytest.mark.req("R-02")
@pytest.mark.parametrize("command", ["check", "diff", "apply"])
def test_a_broken_file_is_refused_with_line_and_field_and_changes_nothing(prompt: CliPrompt, command: str) -> None:
    prompt.run("policy", "apply", "-f", "policy.yaml")
    (prompt.folder / "policy.yaml").write_text(FILE.replace("allow", "perhaps"))

    code, _, err = prompt.run("policy", command, "-f", "policy.yaml")

    assert code == 2
    assert "policy.yaml: line 3, column" in err[0]
    assert "rules[0].decision: must be one of" in err[0]
    assert [one["version"] for one in prompt.data("policy", "list")] == [1]


@pytest.mark.req("R-02")
def test_every_applied_file_is_a_version_and_the_same_file_is_none(prompt: CliPrompt) -> None:
    first = prompt.data("policy", "apply", "-f", "policy.yaml")
    again = prompt.data("policy", "apply", "-f", "policy.yaml")
    (prompt.folder / "policy.yaml").write_text("default_decision: allow")
    second = prompt.data("policy", "apply", "-f", "policy.yaml", "--expected", "1")

    assert (first["version"], again["version"], second["version"]) == (1, 1, 2)
    assert [(one["version"], one["in_force"]) for one in prompt.data("policy", "list")] == [(2, True), (1, False)]
    assert prompt.run("policy", "show").out == ["default_decision: allow"]
    assert prompt.run("policy", "show", "1").out == FILE.splitlines()
    assert {entry["name"] for entry in prompt.data("audit", "list") if entry["kind"] == "policy"} == {
        "version-1",
        "version-2",
    }


def test_a_file_that_was_compared_with_another_version_is_refused(prompt: CliPrompt) -> None:
    prompt.run("policy", "apply", "-f", "policy.yaml")
    (prompt.folder / "policy.yaml").write_text("default_decision: allow")

    code, _, err = prompt.run("policy", "apply", "-f", "policy.yaml", "--expected", "0")

    assert code != 0
    assert "has changed in the meantime" in err[0]


def test_the_differences_are_listed_by_rule(prompt: CliPrompt) -> None:
    prompt.run("jobs", "apply", "-f", "jobs.yaml")
    first = prompt.run("policy", "diff", "-f", "policy.yaml").out
    prompt.run("policy", "apply", "-f", "policy.yaml")
    same = prompt.run("policy", "diff", "-f", "policy.yaml").out
    (prompt.folder / "policy.yaml").write_text(FILE.replace("decision: allow", "decision: throttle"))
    changed = prompt.run("policy", "diff", "-f", "policy.yaml").out

    assert first[0] == "there is no policy yet:"
    assert same == ["version 1 is in force: the file changes nothing"]
    assert changed[2].split() == ["reports", "changed", "allow", "->", "throttle", "decision"]


def test_a_file_that_others_may_write_to_is_not_put_in_force(prompt: CliPrompt) -> None:
    (prompt.folder / "policy.yaml").chmod(0o666)

    code, _, err = prompt.run("policy", "apply", "-f", "policy.yaml")

    assert code != 0
    assert "everybody may write to it" in err[0]


def test_without_a_policy_the_list_says_so(prompt: CliPrompt) -> None:
    prompt.run("jobs", "apply", "-f", "jobs.yaml")

    assert prompt.run("policy", "list").out == [
        "no policy: every task is allowed; gnomon policy apply -f FILE puts one in force"
    ]
    assert prompt.run("policy", "show").code != 0


@pytest.mark.req("R-02")
def test_cases_are_judged_without_a_database_and_a_failed_one_is_shown(prompt: CliPrompt) -> None:
    case = "- {{name: {0}, task: {{topic: {1}}}, expect: {{decision: allow}}}}\n"
    (prompt.folder / "cases.yaml").write_text(
        "cases:\n" + case.format("good", "reports.make") + case.format("bad", "x")
    )

    code, out, _ = prompt.run("policy", "test", "cases.yaml", "-f", "policy.yaml")
    shown = prompt.run("policy", "test", "cases.yaml", "-f", "policy.yaml", "-o", "json").data()

    assert code == 1
    assert out == ["failed: bad: expected allow, got deny (no rule allows it)", "1 of 2 cases passed"]
    assert [(one["case"], one["passed"], one["rule"]) for one in shown] == [
        ("good", True, "reports"),
        ("bad", False, "default"),
    ]
    assert not (prompt.folder / "gnomon.db").exists()


def test_the_decisions_about_a_job_are_shown_before_it_runs(prompt: CliPrompt) -> None:
    prompt.run("jobs", "apply", "-f", "jobs.yaml")
    without = prompt.run("policy", "explain", "report").out
    by_file = prompt.run("policy", "explain", "report", "-f", "policy.yaml").out
    prompt.run("policy", "apply", "-f", "policy.yaml")

    assert without == ["no policy: every task is allowed"]
    assert by_file[1].split() == ["main", "allow", "reports"]
    assert prompt.data("policy", "explain", "cleanup")["steps"][0]["decision"] == "deny"


@pytest.mark.req("R-02")
def test_a_file_is_replayed_over_the_history_with_an_exit_code_for_ci(prompt: CliPrompt) -> None:
    prompt.run("policy", "apply", "-f", "policy.yaml")
    nothing = prompt.run("policy", "replay", "-f", "policy.yaml", "--fail-on", "changed,denied,not_known")
    data = prompt.data("policy", "replay", "-f", "policy.yaml", "--since", "90m")
    unknown = prompt.run("policy", "replay", "-f", "policy.yaml", "--fail-on", "surprises")

    assert (nothing.code, nothing.out[-1]) == (0, "0 tasks: 0 decided otherwise, 0 as before")
    assert (data["tasks"], data["changes"], data["after"]) == (0, [], None)
    assert unknown.code == 2


@pytest.mark.req("R-02")
def test_a_shadow_is_judged_by_and_promoted(prompt: CliPrompt) -> None:
    started = prompt.run("policy", "shadow", "-f", "policy.yaml")
    shown = prompt.data("policy", "shadow", "show")
    stopped = prompt.run("policy", "shadow", "stop")
    nothing = prompt.run("policy", "promote")
    prompt.run("policy", "shadow", "-f", "policy.yaml")
    promoted = prompt.run("policy", "promote", "--expected", "0")

    assert started.out == ["shadow 1 runs; gnomon policy shadow show prints the differences"]
    assert (shown["number"], shown["different"], shown["differences"]) == (1, 0, [])
    assert "0 as in force, 0 otherwise" in stopped.out[0]
    assert nothing.code != 0
    assert promoted.out == ["version 1 is in force; the shadow has ended"]
    assert prompt.run("policy", "shadow").code == 2


@pytest.mark.req("R-02")
def test_the_rest_of_each_budget_is_a_table(prompt: CliPrompt) -> None:
    prompt.run("policy", "apply", "-f", "policy.yaml")
    assert prompt.run("policy", "budgets").out == ["no budgets"]
    (prompt.folder / "policy.yaml").write_text("budgets: [{id: hourly, limit: 20, per: 1h, meter: mails}]")
    prompt.run("policy", "apply", "-f", "policy.yaml")

    code, [head, row], _ = prompt.run("policy", "budgets")

    assert (code, head.split()) == (0, ["budget", "for", "left", "spent", "reserved", "limit", "ends"])
    assert row.split()[:4] == ["hourly", "20", "0", "0"]
    assert "20 mails per 1h" in row
