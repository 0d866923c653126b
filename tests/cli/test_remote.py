"""Commands against a remote server: the same output, exit codes and errors as on the database."""

import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.app.remote_server import RemoteServer as Server
from support.api_server import background_scheduler
from support.cli_prompt import CliPrompt, CommandResult

JOBS = """
jobs:
  - name: report
    description: A year in numbers
    schedule: "0 9 1 1 *"
    timezone: America/New_York
    function: reports.make
    input: { day: yesterday }
    dead_letter: true
    tags: [numbers]
  - name: greet
    command: echo hello
    overlap: queue
  - name: pipeline
    dag:
      - { step: first, command: "echo first" }
      - { step: each, command: echo item, depends_on: [first], foreach: [1, 2] }
"""
NOW = re.compile('(from|until|compared_until|at|local)"?: ')


class RemotePrompt(CliPrompt):
    """A prompt in a folder without a database, and the address of a server."""

    address: str
    token: str

    def keep_token(self, mode: int) -> Path:
        """A file with the token and these permissions."""
        file = self.folder / "token"
        file.write_text(f"{self.token}\n")
        file.chmod(mode)
        return file

    def there(self, *arguments: str) -> CommandResult:
        return self.run("--server", self.address, *arguments)

    def here(self, *arguments: str) -> CommandResult:
        return self.run(*arguments, "--database", str(self.folder / "server" / "gnomon.db"))


@pytest.fixture
def prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[RemotePrompt]:
    found = RemotePrompt(tmp_path, monkeypatch, capsys)
    found.write(JOBS)
    (tmp_path / "server").mkdir()
    database = tmp_path / "server" / "gnomon.db"
    with background_scheduler(database) as server:
        found.address = str(server.address)
        found.token = (tmp_path / "server" / "gnomon.db.token").read_text().strip()
        for name in ("GNOMON_SERVER", "GNOMON_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("GNOMON_TOKEN", found.token)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        applied = found.there("jobs", "apply", "-f", "jobs.yaml")
        assert (applied.code, applied.out[-1][:10], applied.err) == (0, "3 created ", [])
        yield found


@pytest.fixture
def lived(prompt: RemotePrompt) -> RemotePrompt:
    """A server with executions, events and audit entries."""
    for command in (
        ("jobs", "trigger", "greet", "--wait"),
        ("jobs", "pause", "report"),
        ("jobs", "resume", "report"),
        ("events", "emit", "model.drift", "--body", '{"by": 3}'),
    ):
        assert prompt.there(*command).code == 0
    while any(one["seq"] is None for one in prompt.there("audit", "list", "-o", "json").data()):
        time.sleep(0.05)
    return prompt


def timeless(done: CommandResult) -> CommandResult:
    """The output without lines that depend on the current time."""
    return done._replace(out=[line for line in done.out if not NOW.search(line)])


LOOKS = [
    ("jobs", "list"),
    ("jobs", "show", "report"),
    ("jobs", "show", "none"),
    ("jobs", "next", "report", "-n", "3"),
    ("jobs", "next", "greet"),
    ("jobs", "revisions", "report"),
    ("jobs", "revisions", "none"),
    ("jobs", "plan", "-f", "nowhere.yaml"),
    ("jobs", "backfills"),
    ("jobs", "backfill", "report", "--from", "2020-01-01", "--to", "2020-02-01", "--dry-run"),
    ("executions", "list"),
    ("executions", "list", "--job", "greet", "--status", "completed"),
    ("executions", "list", "--job", "report", "--status", "skipped"),
    ("executions", "list", "--trigger", "manual", "--tag", "none", "--since", "2026-01-01T00:00:00+01:00"),
    ("executions", "list", "--until", "yesterday"),
    ("jobs", "list", "--tag", "none"),
    ("executions", "show", "run_none"),
    ("executions", "logs", "run_none"),
    ("executions", "cancel", "run_none"),
    ("dead-letters", "list"),
    ("dead-letters", "show", "dl_none"),
    ("dead-letters", "replay", "--all"),
    ("workflows", "list"),
    ("workflows", "show", "pipeline"),
    ("workflows", "show", "none"),
    ("events", "list"),
    ("why", "greet"),
    ("why", "report", "--at", "2026-01-01T09:00"),
    ("workers",),
    ("schedule", "--hours", "8784"),
    ("audit", "list"),
    ("audit", "list", "--action", "nonsense"),
    ("jobs", "trigger", "none"),
    ("jobs", "trigger", "report", "--input", "[1]"),
    ("jobs", "resume", "report", "--missed", "often"),
    ("jobs", "skip", "report", "--at", "2027-01-01T10:00"),
]


@pytest.mark.req("H-19")
def test_reading_commands_print_the_same_over_http_and_locally(lived: RemotePrompt) -> None:
    for command in LOOKS:
        for form in ((), ("-o", "json"), ("-o", "yaml")):
            # A heartbeat between two looks may change the load of a worker.
            looks = [(lived.there(*command, *form), lived.here(*command, *form))]
            while timeless(looks[-1][0]) != timeless(looks[-1][1]) and command == ("workers",) and len(looks) < 5:
                looks.append((lived.there(*command, *form), lived.here(*command, *form)))
            there, here = looks[-1]
            assert timeless(there) == timeless(here), command


@pytest.mark.req("H-19", "H-20")
def test_a_server_tells_a_caller_who_it_is_by_its_token(prompt: RemotePrompt) -> None:
    there, here = (look("whoami", "-o", "json").data() for look in (prompt.there, prompt.here))

    assert (there["tenant"], there["roles"]) == (here["tenant"], here["roles"]) == ("default", ["admin"])
    assert there["expires_at"] is not None
    assert here["expires_at"] is None
    assert [line.split()[0] for line in prompt.there("whoami").out][:3] == ["subject", "tenant", "roles"]


def test_a_local_plan_says_that_commands_of_other_origin_become_local(lived: RemotePrompt) -> None:
    there, here = (look("jobs", "plan", "-f", "jobs.yaml") for look in (lived.there, lived.here))

    assert there.out[0] == "3 unchanged"
    assert [line.split() for line in here.out if "origin" in line] == [["origin:", "api", "->", "cli"]] * 2


def test_an_execution_on_a_server_is_awaited_shown_and_read(prompt: RemotePrompt) -> None:
    started = prompt.there("jobs", "trigger", "greet", "--wait")
    execution = started.out[0].split()[0]

    assert (started.code, started.out[0]) == (0, f"{execution} accepted")
    assert "completed" in started.out[1]
    assert prompt.there("executions", "show", execution) == prompt.here("executions", "show", execution)
    for follow in ((), ("--follow",)):
        said = prompt.there("executions", "logs", execution, *follow)
        assert [line.split()[-1] for line in said.out] == ["hello"]


def test_a_graph_on_a_server_is_drawn_like_a_local_one(prompt: RemotePrompt) -> None:
    execution = prompt.there("jobs", "trigger", "pipeline", "--wait").out[0].split()[0]

    there = prompt.there("executions", "show", execution)

    assert there == prompt.here("executions", "show", execution)
    assert "each: 2 of 2 done" in "\n".join(there.out)


def test_a_change_over_http_is_audited_under_the_name_of_the_token(prompt: RemotePrompt) -> None:
    for command in (
        ("jobs", "skip", "report", "--at", "2027-01-01T09:00"),
        ("jobs", "skip", "report", "--at", "2027-01-01T09:00", "--undo"),
        ("jobs", "pause", "report"),
        ("jobs", "resume", "report", "--missed", "latest"),
        ("jobs", "delete", "pipeline", "--yes"),
    ):
        done = prompt.there(*command)
        assert (done.code, done.err) == (0, []), done

    listed = prompt.data("audit", "list", "--server", prompt.address, "-n", "5")

    assert [one["action"] for one in listed] == ["delete", "resume", "pause", "skip", "skip"]
    assert {one["actor"] for one in listed} == {"local-admin"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--server", "nowhere", "jobs", "list"), 2, "is not an address"),
        (("--server", "http://127.0.0.1:1", "jobs", "list"), 1, "cannot be reached"),
        (("--profile", "none", "jobs", "list"), 2, "there is no profile 'none'"),
        (("--server", "http://127.0.0.1:1", "--profile", "x", "jobs", "list"), 2, "use one of them"),
        (("--server", "http://127.0.0.1:1", "jobs", "list", "--database", "x.db"), 2, "for a local database"),
        (("--token-file", "x", "jobs", "list"), 2, "--token-file goes with"),
        (("--server", "http://127.0.0.1:1", "doctor"), 2, "needs direct access to the database"),
        (("--server", "http://127.0.0.1:1", "up"), 2, "needs direct access to the database"),
        (
            ("--server", "http://127.0.0.1:1", "audit", "list", "--tenant", "other"),
            2,
            "the token determines the tenant",
        ),
        (("--server", "http://127.0.0.1:1", "--token-file", "none", "jobs", "list"), 2, "none: cannot be read"),
    ],
)
def test_contradicting_options_are_refused(
    prompt: RemotePrompt, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = prompt.run(*arguments)

    assert (done.code, done.out) == (code, [])
    assert said in done.err[0]


def test_the_server_may_come_from_the_environment_and_a_database_is_stronger(
    prompt: RemotePrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNOMON_SERVER", prompt.address)

    assert "pipeline" in "\n".join(prompt.lines("jobs", "list"))
    assert prompt.run("jobs", "list", "--database", "none.db").err[0].startswith("error: there is no database")


def test_a_missing_token_is_an_error_that_names_its_sources(
    prompt: RemotePrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GNOMON_TOKEN")

    done = prompt.there("jobs", "list")

    assert done.code == 1
    assert "no token was sent" in done.err[0]
    assert "--token-file" in done.err[0]


def test_on_its_own_machine_the_owner_needs_no_token(prompt: RemotePrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNOMON_TOKEN")
    monkeypatch.chdir(prompt.folder / "server")

    assert prompt.there("jobs", "list").code == 0


@pytest.mark.parametrize(
    ("server", "token", "open_to_all"),
    [
        ("http://gnomon.example:8062", "t", True),
        ("https://gnomon.example:8062", "t", False),
        ("http://127.0.0.1:8062", "t", False),
        ("http://gnomon.example:8062", None, False),
    ],
)
def test_a_token_that_anybody_on_the_way_can_read_is_noticed(
    server: str, token: str | None, *, open_to_all: bool
) -> None:
    assert Server(server=server, token=token).sends_token_in_clear is open_to_all


# ---- profiles ------------------------------------------------------------------------------------


def test_a_profile_names_a_server_and_where_its_token_is(prompt: RemotePrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNOMON_TOKEN")
    prompt.keep_token(0o600)

    assert prompt.lines("profiles", "list") == ["no profiles: gnomon profiles add NAME --server URL names a server"]
    prompt.lines("profiles", "add", "prod", "--server", prompt.address, "--token-file", "token")
    [known] = prompt.data("profiles", "list")

    assert (known["profile"], known["server"]) == ("prod", prompt.address)
    assert known["token_file"] == str(prompt.folder / "token")
    assert prompt.lines("--profile", "prod", "jobs", "list") == prompt.lines("jobs", "list", "--profile", "prod")
    monkeypatch.setenv("GNOMON_PROFILE", "prod")
    assert "greet" in "\n".join(prompt.lines("jobs", "list"))
    assert prompt.run("--profile", "prof", "jobs", "list").err == [
        "error: there is no profile 'prof'; did you mean prod?"
    ]
    assert prompt.lines("profiles", "remove", "prod") == ["prod is deleted"]
    assert prompt.run("profiles", "remove", "prod").code == 2


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_token_that_others_can_read_is_shown_with_a_warning(prompt: RemotePrompt, mode: int) -> None:
    file = prompt.keep_token(mode)
    prompt.lines("profiles", "add", "prod", "--server", prompt.address, "--token-file", "token")

    done = prompt.run("--profile", "prod", "jobs", "list")

    assert done.err == [f"warning: {file} contains a token and others can read it: chmod 600 {file}"]
    assert (done.code, done.out) == (0, prompt.there("jobs", "list").out)


@pytest.mark.parametrize("typed", [(), ("--token-file", "open")])
def test_a_token_that_nobody_else_can_read_or_that_was_named_at_the_prompt_needs_no_warning(
    prompt: RemotePrompt, typed: tuple[str, ...]
) -> None:
    file = prompt.keep_token(0o644)
    file.rename(prompt.folder / "open")
    prompt.keep_token(0o600)
    prompt.lines("profiles", "add", "prod", "--server", prompt.address, "--token-file", "token")

    assert prompt.run("--profile", "prod", *typed, "jobs", "list").err == []


def test_the_file_of_profiles_is_its_owners_alone(prompt: RemotePrompt) -> None:
    prompt.lines("profiles", "add", "prod", "--server", prompt.address, "--token-env", "PROD_TOKEN")
    file = prompt.folder / "config" / "gnomon" / "profiles.json"
    mode = stat.S_IMODE(file.stat().st_mode)
    file.chmod(0o644)

    refused = prompt.run("profiles", "list")

    assert mode == 0o600
    assert prompt.token not in file.read_text()
    assert (refused.code, "can be read by others" in refused.err[0]) == (2, True)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (("--server", "nowhere"), "is not an address"),
        (("--server", "http://x", "--token-file", "a", "--token-env", "B"), "use one of them"),
        (("--server", "http://x", "--token-env", "a b"), "is not the name of an environment variable"),
        (("--server", "http://x", "--key-file", "a"), "goes with --cert-file"),
    ],
)
def test_a_profile_that_cannot_be_meant_is_refused(prompt: RemotePrompt, said: tuple[str, ...], reason: str) -> None:
    done = prompt.run("profiles", "add", "prod", *said)

    assert done.code == 2
    assert reason in done.err[0]
    assert not (prompt.folder / "config").exists()


def test_a_profile_whose_variable_is_not_set_is_refused(prompt: RemotePrompt) -> None:
    prompt.lines("profiles", "add", "prod", "--server", prompt.address, "--token-env", "NO_SUCH_VARIABLE")

    assert "NO_SUCH_VARIABLE" not in os.environ
    assert "which is not set" in prompt.run("--profile", "prod", "jobs", "list").err[0]


def test_a_server_that_never_answers_is_named_within_the_limit(prompt: RemotePrompt) -> None:
    # It never accepts: the kernel makes the connection.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = prompt.run("--server", address, "--timeout", "0.5", "jobs", "list")

    assert (done.code, done.err) == (1, [f"error: {address} did not answer within 0.5 s"])


def test_a_timeout_is_for_servers(prompt: RemotePrompt) -> None:
    done = prompt.run("--timeout", "5", "jobs", "list")

    assert (done.code, done.err) == (2, ["error: --timeout goes with --server or --profile"])
