"""`gnomon token`."""

import io
import sys
from pathlib import Path

import pytest

from gnomon.app.auth import ensure_local_access
from gnomon.app.settings import load_settings
from support.cli_prompt import CliPrompt
from support.token_issuers import claims, token


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


def test_a_token_is_listed_with_who_made_it_and_for_whom(prompt: CliPrompt) -> None:
    made = prompt.data("token", "create", "--role", "viewer", "--subject", "ci")

    [listed] = prompt.data("token", "list")

    assert (listed["token_id"], listed["subject"], listed["role"]) == (made["jti"], "ci", "scheduler-viewer")
    assert (listed["issued_by"], listed["revoked_at"]) == ("ada", None)
    assert prompt.data("token", "list", "--tenant", "acme") == []
    [entry] = prompt.data("audit", "list", "--kind", "token")
    assert (entry["actor"], entry["action"], entry["name"]) == ("ada", "issue", made["jti"])


@pytest.mark.parametrize("way", ["id", "file", "all"])
def test_a_revoked_token_no_longer_counts(prompt: CliPrompt, way: str) -> None:
    made = prompt.data("token", "create", "--role", "viewer", "--tenant", "acme")
    (prompt.folder / "token").write_text(made["token"])

    prompt.lines("token", "revoke", *{"id": [made["jti"]], "file": ["--file", "token"], "all": ["--all"]}[way])

    done = prompt.run("token", "inspect", made["token"])
    assert (done.code, "no: it was revoked" in done.out[-1]) == (1, True)
    later = prompt.data("token", "create", "--role", "viewer", "--tenant", "acme")
    assert prompt.run("token", "inspect", later["token"]).code == 0


def test_a_token_is_revoked_once(prompt: CliPrompt) -> None:
    [made] = [prompt.data("token", "create", "--role", "viewer")["jti"]]

    assert prompt.lines("token", "revoke", made) == [f"revoked {made}"]
    assert prompt.lines("token", "revoke", made) == [f"{made} was revoked before"]


def test_a_token_of_an_older_program_without_an_id_can_be_revoked_by_its_file(prompt: CliPrompt) -> None:
    (prompt.folder / "token").write_text(token())
    prompt.lines("token", "create", "--role", "viewer")

    prompt.lines("token", "revoke", "--file", "token")

    [entry] = prompt.data("audit", "list", "--action", "revoke")
    assert entry["name"].startswith("sha256:")


def test_a_token_that_is_not_valid_here_is_revoked_by_its_id(prompt: CliPrompt) -> None:
    (prompt.folder / "token").write_text(token(claims(jti="of-another-issuer")))
    prompt.lines("token", "create", "--role", "viewer")

    assert prompt.lines("token", "revoke", "--file", "token") == ["revoked of-another-issuer"]


def test_the_owner_keeps_access_when_all_tokens_are_revoked(prompt: CliPrompt) -> None:
    settings = load_settings(None, flags={}, environment={})
    ensure_local_access(settings)
    prompt.lines("token", "create", "--role", "viewer")
    before = (prompt.folder / "gnomon.db.token").read_text()

    prompt.lines("token", "revoke", "--all")

    after = (prompt.folder / "gnomon.db.token").read_text()
    assert prompt.run("token", "inspect", before.strip()).code == 1
    assert prompt.run("token", "inspect", after.strip()).code == 0


@pytest.mark.parametrize("arguments", [(), ("x", "--all"), ("x", "--file", "token"), ("--file", "token", "--all")])
def test_a_revocation_names_one_thing(prompt: CliPrompt, arguments: tuple[str, ...]) -> None:
    done = prompt.run("token", "revoke", *arguments)

    assert (done.code, "one of them" in done.err[0]) == (2, True)


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
        (("create", "--role", "admin", "--expires", "11000d"), "error: expires: '11000d' must be from 1s to 366d"),
        (("create", "--role", "admin", "--subject", ""), "error: subject: '' is empty"),
        (("create", "--role", "admin", "--tenant", "A"), "error: tenant: 'A' must be"),
        (("create", "--role", "boss"), "error: invalid value for '--role'"),
        (("inspect",), "error: pass a token"),
        (("inspect", "--file", "nowhere"), "error: --file: 'nowhere' cannot be read"),
    ],
)
def test_an_impossible_request_is_reported_and_changes_nothing(
    prompt: CliPrompt, arguments: tuple[str, ...], error: str
) -> None:
    done = prompt.run("token", *arguments)

    assert (done.code, done.out) == (2, [])
    assert done.err[0].startswith(error)
    assert [path.name for path in prompt.folder.iterdir()] == ["jobs.yaml"]


def test_on_a_database_server_without_an_issuer_the_key_to_name_is_said(prompt: CliPrompt) -> None:
    done = prompt.run("token", "create", "--role", "viewer", "--database", "postgresql://127.0.0.1:1/gnomon")

    assert done.code == 2
    assert done.err[0].startswith("error: a database server has no folder for the key that signs tokens: name a file ")
    assert "GNOMON_AUTH__KEY_FILE" in done.err[0]
