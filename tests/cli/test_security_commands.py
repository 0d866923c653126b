"""`gnomon security`: the judgement about a command, and the policies in force."""

from pathlib import Path

import pytest

from support.cli_prompt import CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


@pytest.mark.req("Z-04")
def test_an_allowed_command_is_shown_with_its_words(prompt: CliPrompt) -> None:
    code, out, _ = prompt.run("security", "check", "cat 'my file' | wc -l")

    assert code == 0
    assert out == [
        "verdict    allowed",
        "risk       low",
        "words      cat 'my file'",
        "words      wc -l",
    ]


@pytest.mark.req("Z-04", "Z-05")
@pytest.mark.parametrize(
    ("command", "rule", "character"),
    [("ls > out", "grammar", 4), ("rm x", "command", 1), ("cat ../x", "path", 5), ("git push", "approval", 1)],
)
def test_a_refused_command_fails_and_says_why_and_where(
    prompt: CliPrompt, command: str, rule: str, character: int
) -> None:
    code, out, _ = prompt.run("security", "check", command)
    shown = prompt.run("security", "check", command, "-o", "json").data()

    assert code == 1
    assert (shown["verdict"], shown["rule"], shown["character"]) == ("refused", rule, character)
    assert f"reason     {shown['reason']}" in out


def test_the_origin_and_an_approval_count(prompt: CliPrompt) -> None:
    assert prompt.data("security", "check", "ls > out", "--origin", "cli")["commands"] == "open"
    assert prompt.run("security", "check", "ls > out", "--origin", "cron", "-o", "json").data()["rule"] == "grammar"
    assert prompt.data("security", "check", "git push", "--approved")["verdict"] == "allowed"


def test_variables_are_filled_in_or_known_later(prompt: CliPrompt) -> None:
    given = ("--env", "FILE=notes.txt", "--env", "later")

    assert prompt.data("security", "check", 'cat "$FILE" $later', *given)["words"] == [["cat", "notes.txt", "$later"]]
    refused = prompt.run("security", "check", "cat $FILE", "--env", "FILE=/etc/passwd", "-o", "json")
    assert refused.data()["rule"] == "path"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["--origin", "mars"], "origin: 'mars' is none of file, import, api, cli, cron, mcp, model"),
        (["--env", "1x=2"], "env: '1x' must be NAME=VALUE, or the NAME of a variable that is known later"),
    ],
)
def test_wrong_options_are_named(prompt: CliPrompt, given: list[str], error: str) -> None:
    code, _, err = prompt.run("security", "check", "ls", *given)

    assert code != 0
    assert err == [f"error: {error}"]


@pytest.mark.req("Z-04")
def test_the_policies_are_shown_for_the_origins_that_they_hold_for(prompt: CliPrompt) -> None:
    (prompt.folder / "gnomon.yaml").write_text(
        "autonomy: { level: full, allowed_commands: [ls], max_actions_per_hour: none }\n"
    )
    opened, guarded = prompt.data("security", "show")["policies"]
    [narrow, wide] = prompt.data("security", "show", "--config", "gnomon.yaml")["policies"]

    assert opened["origins"] == ["file", "import", "cli"]
    assert (opened["commands"], opened["policy"]) == ("open", None)
    assert guarded["origins"] == ["api", "cron", "mcp", "model"]
    assert guarded["max_actions_per_hour"] == 20
    assert "git" in guarded["policy"]["allowed_commands"]
    assert narrow["policy"]["allowed_commands"] == wide["policy"]["allowed_commands"] == ["ls"]
    assert (narrow["policy"]["forbidden_paths"], wide["policy"]["workspace_only"]) == ([], True)
    assert narrow["max_actions_per_hour"] is None


def test_the_sandbox_of_the_machine_and_the_rest_of_the_budget_are_shown(prompt: CliPrompt) -> None:
    before = prompt.run("security", "show").out
    prompt.run("cron", "add", "0 4 * * *", "echo hello")
    after = prompt.data("security", "show")

    assert any(line.startswith("  sandbox: ") for line in before)
    assert "budget: there is no database yet, so nothing is spent" in before
    assert after["machine"].keys() == {"sandbox", "limits"}
    assert (after["budget"]["actions_per_hour"], after["budget"]["actions_left"]) == (20, 20)


def test_the_table_of_policies_names_lists_and_risks(prompt: CliPrompt) -> None:
    result = prompt.run("security", "show")
    out = "\n".join(result.out)

    assert result.code == 0
    assert "jobs of file, import, cli\n  open: a shell runs their commands without a check" in out
    assert "jobs of api, cron, mcp, model\n  guarded" in out
    assert "allowed_commands      git, npm, cargo, ls, cat" in out
    assert "high: " in out
