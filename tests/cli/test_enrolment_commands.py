"""`gnomon worker enroll`, `revoke` and `enrolled` on the command line."""

from pathlib import Path

import pytest

from support.cli_prompt import CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


def test_a_worker_is_enrolled_listed_and_revoked(prompt: CliPrompt) -> None:
    said = prompt.lines("worker", "enroll", "gpu1", "--pool", "gpu", "--keys", "keys", "--expires", "90d")
    assert [line.split()[0] for line in said] == ["keys/gpu1.creds", "keys/server.creds", "keys/auth.conf"]
    assert all((prompt.folder / line.split()[0]).exists() for line in said)
    prompt.lines("worker", "enroll", "home1", "--keys", "keys")

    [gpu, home] = prompt.data("worker", "enrolled", "--keys", "keys")
    assert (gpu["name"], gpu["pool"], gpu["revoked_at"]) == ("gpu1", "gpu", None)
    assert (home["name"], home["pool"], home["expires_at"]) == ("home1", "default", None)
    assert gpu["expires_at"] - gpu["enrolled_at"] == 90 * 24 * 3_600_000

    [done] = prompt.lines("worker", "revoke", "gpu1", "--keys", "keys")
    assert "keys/auth.conf" in done
    assert prompt.data("worker", "enrolled", "--keys", "keys")[0]["revoked_at"] is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("enroll", "a.b", "--keys", "keys"), "error: name: 'a.b' must be 1 to 60 of a-z"),
        (("enroll", "gpu1", "--keys", "jobs.yaml"), "error: jobs.yaml: cannot be used"),
        (("enroll", "gpu1", "--keys", "keys", "--expires", "soon"), "error: expires: 'soon'"),
        (("revoke", "gpu1", "--keys", "missing"), "error: missing: is no folder"),
        (("enrolled", "--keys", "missing"), "error: missing: is no folder"),
    ],
)
def test_an_impossible_request_is_reported(prompt: CliPrompt, arguments: tuple[str, ...], said: str) -> None:
    done = prompt.run("worker", *arguments)

    assert done.code != 0
    assert said in done.err[0]


def test_a_name_that_nobody_has_cannot_be_revoked(prompt: CliPrompt) -> None:
    prompt.lines("worker", "enroll", "gpu1", "--keys", "keys")

    assert prompt.run("worker", "revoke", "gpu2", "--keys", "keys").code != 0
