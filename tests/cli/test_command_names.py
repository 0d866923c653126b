"""Names that other programs give to commands: aliases, and suggestions instead of a bare refusal."""

from pathlib import Path

import pytest

from gnomon.cli.command_names import ALIASES
from support.cli_prompt import CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(("alias", "group"), ALIASES.items())
def test_a_group_with_two_names_is_one(prompt: CliPrompt, alias: str, group: str) -> None:
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")

    assert prompt.run(alias, "list") == prompt.run(group, "list")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("run report", "gnomon jobs trigger NAME"),
        ("logs run_1", "gnomon executions logs"),
        ("trigger report", "gnomon jobs trigger"),
        ("start", "gnomon up"),
        ("status", "gnomon doctor"),
        ("job list", "gnomon jobs"),
        ("exections list", "gnomon executions"),
        ("list", "gnomon jobs list or gnomon executions list or gnomon events list"),
        ("jobs run report", "gnomon jobs trigger"),
        ("jobs aply", "gnomon jobs apply"),
        ("executions log run_1", "gnomon executions logs"),
        ("dead-letters retry dl_1", "gnomon dead-letters replay"),
    ],
)
def test_a_command_of_another_name_leads_to_ours(prompt: CliPrompt, typed: str, meant: str) -> None:
    done = prompt.run(*typed.split())

    first, second, *_ = (*typed.split(), "")
    name = second if first in ("jobs", "executions", "dead-letters") else first
    assert (done.code, done.err) == (2, [f"error: no such command {name!r}; did you mean {meant}?"])


@pytest.mark.parametrize("typed", ["xyzzy", "jobs xyzzy", "worker xyzzy"])
def test_a_word_that_resembles_no_command_leads_nowhere(prompt: CliPrompt, typed: str) -> None:
    done = prompt.run(*typed.split())

    assert (done.code, done.err) == (2, ["error: no such command 'xyzzy'"])
