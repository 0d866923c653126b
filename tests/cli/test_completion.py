"""Shell completion of commands, options and job names."""

from pathlib import Path

import pytest

from support.cli_prompt import CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


def offered(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch, typed: str) -> list[str]:
    monkeypatch.setenv("_GNOMON_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    done = prompt.run()
    monkeypatch.delenv("_GNOMON_COMPLETE")
    assert (done.code, done.err) == (0, [])
    return done.out


def test_commands_and_options_are_offered(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered(prompt, monkeypatch, "gnomon jobs tr") == ["trigger"]
    assert offered(prompt, monkeypatch, "gnomon jobs list --pro") == ["--profile"]


@pytest.mark.parametrize("command", ["jobs show", "jobs trigger", "why", "executions list --job"])
def test_the_names_of_jobs_are_offered(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")

    assert offered(prompt, monkeypatch, f"gnomon {command} rep") == ["report"]


def test_without_a_database_nothing_is_offered_said_or_made(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "".join(offered(prompt, monkeypatch, "gnomon jobs show rep")) == ""
    assert not (prompt.folder / "gnomon.db").exists()
