"""`gnomon token`."""

import io
import sys
from pathlib import Path

import pytest

from support.cli_prompt import CliPrompt
from support.token_issuers import token


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


@pytest.mark.req("H-20")
def test_a_token_is_printed_alone_and_says_what_was_asked_for(prompt: CliPrompt) -> None:
    [made] = prompt.lines("token", "create", "--role", "operator", "--subject", "ci", "--tenant", "acme")

    shown = prompt.data("token", "inspect", made)

    claims = shown["claims"]
    assert (claims["sub"], claims["roles"], claims["tenant"]) == ("ci", ["scheduler-operator"], "acme")
    assert (shown["signed_here"], shown["refused"]) == (True, None)


def test_without_a_subject_the_token_is_for_whoever_types(prompt: CliPrompt) -> None:
    assert prompt.data("token", "create", "--role", "viewer")["sub"] == "ada"


@pytest.mark.guarantee("S24")
def test_looking_at_a_token_does_not_show_what_makes_it_worth_stealing(prompt: CliPrompt) -> None:
    [made] = prompt.lines("token", "create", "--role", "admin")

    for form in ("table", "json", "yaml"):
        assert made.rpartition(".")[2] not in "\n".join(prompt.lines("token", "inspect", made, "-o", form))


def test_a_token_can_be_read_from_a_file_or_the_input(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    [made] = prompt.lines("token", "create", "--role", "admin")
    (prompt.folder / "token").write_text(made + "\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO(made + "\n"))

    assert prompt.lines("token", "inspect", "--file", "token") == prompt.lines("token", "inspect", "-")


def test_a_token_that_would_be_refused_ends_with_1(prompt: CliPrompt) -> None:
    done = prompt.run("token", "inspect", token())

    assert done.code == 1
    assert done.out[-1].startswith("counts")
    assert "no: its iss is not the trusted issuer" in done.out[-1]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("create", "--role", "admin", "--expires", "30"), "error: expires: '30' is no duration"),
        (("create", "--role", "admin", "--expires", "11000d"), "error: expires: '11000d' must be from 1s to 3650d"),
        (("create", "--role", "admin", "--subject", ""), "error: subject: '' is empty"),
        (("create", "--role", "admin", "--tenant", "A"), "error: tenant: 'A' must be"),
        (("create", "--role", "boss"), "error: invalid value for '--role'"),
        (("inspect",), "error: pass a token"),
        (("inspect", "--file", "nowhere"), "error: --file: 'nowhere' cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(
    prompt: CliPrompt, arguments: tuple[str, ...], error: str
) -> None:
    done = prompt.run("token", *arguments)

    assert (done.code, done.out) == (2, [])
    assert done.err[0].startswith(error)
    assert [path.name for path in prompt.folder.iterdir()] == ["jobs.yaml"]
