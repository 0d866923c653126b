"""Profiles with a client certificate, against a server with TLS."""

from pathlib import Path

import pytest

from support.api_server import background_scheduler
from support.certificates import Authority
from support.cli_prompt import CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    for name in ("GNOMON_SERVER", "GNOMON_PROFILE", "GNOMON_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return CliPrompt(tmp_path, monkeypatch, capsys)


def speaking_tls(authority: Authority, *certificates: str) -> dict[str, object]:
    server = authority.server()
    return {
        "server__tls_cert_file": server.cert,
        "server__tls_key_file": server.key,
        "server__tls_client_ca_file": authority.file,
        "auth__certificates": list(certificates),
    }


@pytest.mark.req("C-15")
def test_a_caller_with_a_certificate_does_not_act_as_the_owner_of_the_database(
    tmp_path: Path, prompt: CliPrompt
) -> None:
    authority = Authority(tmp_path)
    guest = authority.vouches("guest")
    with background_scheduler(tmp_path / "gnomon.db", **speaking_tls(authority, "guest=viewer")) as scheduler:
        own = ("--ca-file", authority.file, "--cert-file", guest.cert, "--key-file", guest.key)
        prompt.lines("profiles", "add", "guest", "--server", str(scheduler.address), *own)

        assert prompt.run("--profile", "guest", "jobs", "list").code == 0
        refused = prompt.run("--profile", "guest", "jobs", "apply", "-f", "jobs.yaml")

    assert (refused.code, "needs the role admin" in refused.err[0]) == (1, True)


@pytest.mark.req("C-15")
def test_a_profile_shows_a_certificate_instead_of_a_token(tmp_path: Path, prompt: CliPrompt) -> None:
    authority = Authority(tmp_path)
    ops = authority.vouches("ops")
    (tmp_path / "server").mkdir()
    with background_scheduler(tmp_path / "server" / "gnomon.db", **speaking_tls(authority, "ops=admin")) as scheduler:
        address = str(scheduler.address)
        own = ("--cert-file", ops.cert, "--key-file", ops.key)
        prompt.lines("profiles", "add", "prod", "--server", address, "--ca-file", authority.file, *own)
        prompt.lines("profiles", "add", "bare", "--server", address, "--ca-file", authority.file)
        prompt.lines("profiles", "add", "doubtful", "--server", address)

        applied = prompt.run("--profile", "prod", "jobs", "apply", "-f", "jobs.yaml")
        actors = {
            one["actor"]
            for one in prompt.run("--profile", "prod", "audit", "list", "--kind", "job", "-o", "json").data()
        }
        bare = prompt.run("--profile", "bare", "jobs", "list")
        doubtful = prompt.run("--profile", "doubtful", "jobs", "list")

    assert address.startswith("https://")
    assert (applied.code, applied.out[-1][:13], actors) == (0, "2 created at ", {"ops"})
    assert (bare.code, "no token was sent" in bare.err[0]) == (1, True)
    assert (doubtful.code, "cannot be reached" in doubtful.err[0]) == (1, True)
