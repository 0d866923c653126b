"""`gnomon config show`."""

from pathlib import Path

import pytest
import yaml

from gnomon.config.settings import Settings
from support.cli_prompt import CliPrompt

SEEDS_FILE = Path(__file__).parents[1] / "data" / "seed_configuration.yaml"


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    for name in ("NATS_URL", "TICK_MS", "GNOMON_METRICS__PORT"):
        monkeypatch.delenv(name, raising=False)
    return CliPrompt(tmp_path, monkeypatch, capsys)


def seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://ada:hunter2@db/gnomon?sslpassword=hunter2")
    monkeypatch.setenv("NATS_URL", "nats://ada:hunter2@bus:4222")
    monkeypatch.setenv("NATS_PASSWORD", "hunter2")


@pytest.mark.req("H-18")
def test_every_setting_is_shown(prompt: CliPrompt) -> None:
    shown = {one["setting"] for one in prompt.data("config", "show")}

    usual = Settings()
    expected = {
        f"{name}.{key}".removesuffix("_ms")
        for name in usual.__struct_fields__
        for key in getattr(getattr(usual, name), "__struct_fields__", ())
    }
    assert shown == expected | {"jobs_file", "imports"}


@pytest.mark.req("H-18")
def test_it_is_said_where_each_value_comes_from(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    (prompt.folder / "gnomon.yaml").write_text("leader: {ttl: 20s}\nreliability: {scheduler_poll_secs: 30}\n")
    monkeypatch.setenv("GNOMON_TICKER__BATCH", "7")
    monkeypatch.setenv("TICK_MS", "500")
    monkeypatch.setenv("GNOMON_JOBS_FILE", "jobs.yaml")

    shown = prompt.data("config", "show", "--config", "gnomon.yaml", "--database", "other.db")

    assert {one["setting"]: (one["value"], one["origin"]) for one in shown if one["origin"] != "default"} == {
        "jobs_file": ("jobs.yaml", "environment GNOMON_JOBS_FILE"),
        "database.url": ("sqlite:///other.db", "flag"),
        "ticker.tick": ("500ms", "environment TICK_MS"),
        "ticker.batch": (7, "environment GNOMON_TICKER__BATCH"),
        "leader.ttl": ("20s", "file"),
        "worker.poll_secs": (30, "file"),
    }


@pytest.mark.req("H-18")
@pytest.mark.guarantee("S24")
@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_no_credentials_are_shown(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    seeds(monkeypatch)
    monkeypatch.setenv("GNOMON_PAYLOAD__KEYS", "hunter2,file:payload.key")

    shown = "\n".join(prompt.lines("config", "show", "--config", str(SEEDS_FILE), "-o", form))

    assert "hunter2" not in shown
    assert "file:payload.key" in shown
    assert "postgresql://ada@db/gnomon?[hidden]" in shown
    assert "https://hanzo.id" in shown


def test_a_section_can_be_shown_alone_for_people(prompt: CliPrompt) -> None:
    shown = prompt.lines("config", "show", "metrics")

    assert [line.split() for line in shown] == [
        ["setting", "value", "origin"],
        ["metrics.enabled", "true", "default"],
        ["metrics.host", "127.0.0.1", "default"],
        ["metrics.port", "9090", "default"],
        ["metrics.prefix", "hanzo_scheduler_", "default"],
        ["metrics.max_jobs", "200", "default"],
    ]


def test_an_unknown_section_is_refused_with_a_suggestion(prompt: CliPrompt) -> None:
    done = prompt.run("config", "show", "metrix")

    assert (done.code, done.err) == (2, ["error: section: 'metrix' is no setting; did you mean metrics?"])


@pytest.mark.parametrize(
    ("text", "environment", "error"),
    [
        ("leeder: {ttl: 20s}", {}, "error: leeder: [hidden] is no setting; did you mean leader?"),
        ("leader: {tll: 20s}", {}, "error: leader.tll: [hidden] is no setting; did you mean ttl?"),
        ("", {"GNOMON_LEADR__TTL": "1s"}, "error: leadr: [hidden] is no setting; did you mean leader?"),
        ("", {"GNOMON_AUTH__ISUER": "x"}, "error: auth.isuer: [hidden] is no setting; did you mean issuer?"),
        ("", {"GNOMON_JOBS_FLE": "x"}, "error: jobs_fle: [hidden] is no setting; did you mean jobs_file?"),
    ],
)
def test_a_misspelt_setting_is_refused_with_a_suggestion(
    prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch, text: str, environment: dict[str, str], error: str
) -> None:
    (prompt.folder / "gnomon.yaml").write_text(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    done = prompt.run("config", "show", "--config", "gnomon.yaml")

    assert (done.code, done.err) == (2, [error])


def test_a_file_that_everybody_may_write_to_is_refused(prompt: CliPrompt) -> None:
    file = prompt.folder / "gnomon.yaml"
    file.write_text("auth: {verify_tokens: true}")
    file.chmod(0o666)

    done = prompt.run("config", "show", "--config", "gnomon.yaml")

    reason = "cannot be read: everybody may write to it: chmod o-w gnomon.yaml"
    assert (done.code, done.err) == (2, [f"error: gnomon.yaml: {reason}"])


def test_shown_settings_can_be_written_to_a_file_and_read_again(prompt: CliPrompt) -> None:
    shown = prompt.data("config", "show")
    sections: dict[str, dict[str, object]] = {}
    for one in shown:
        section, _, key = one["setting"].rpartition(".")
        if section:
            sections.setdefault(section, {})[key] = one["value"]
    (prompt.folder / "all.yaml").write_text(yaml.safe_dump(sections))

    again = prompt.data("config", "show", "--config", "all.yaml")

    assert [one["value"] for one in again] == [one["value"] for one in shown]
    assert {one["origin"] for one in again} == {"file", "default"}


def test_no_key_of_a_provider_or_a_server_of_agents_is_shown(prompt: CliPrompt, tmp_path: Path) -> None:
    agents = {
        "providers": {"local": {"kind": "openai", "url": "http://a/v1?key=hunter2", "token": "hunter2"}},
        "servers": {
            "tickets": {"url": "https://b/mcp?key=hunter2", "token": "hunter2", "tools": ["search"]},
            "notes": {"command": ["notes"], "env": {"TOKEN": "hunter2", "OTHER": "file:/etc/other"}},
        },
    }
    (tmp_path / "gnomon.yaml").write_text(yaml.safe_dump({"agents": agents}))

    shown = {one["setting"]: one["value"] for one in prompt.data("config", "show", "--config", "gnomon.yaml")}

    assert "hunter2" not in repr(shown)
    assert shown["agents.providers.local.url"] == "http://a/v1?[hidden]"
    assert shown["agents.servers.tickets.url"] == "https://b/mcp?[hidden]"
    assert shown["agents.servers.tickets.tools"] == ["search"]
    assert shown["agents.servers.notes.env.OTHER"] == "file:/etc/other"


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({}, "agents.servers.n: [hidden] must have either command or url"),
        ({"command": ["x"], "url": "http://a"}, "agents.servers.n: [hidden] must have either command or url"),
        ({"url": "http://ada:hunter2@a"}, "agents.servers.n.url: [hidden] must be an http or https URL without"),
        ({"url": "http://a", "env": {"A": "b"}}, "agents.servers.n.env: [hidden] is only for a server with command"),
        ({"command": ["x"], "token": "t"}, "agents.servers.n.token: [hidden] is only for a server with url"),
        ({"command": ["x"], "folders": ["a"]}, "agents.servers.n.folders[0]: 'a' must be an absolute path"),
        ({"command": ["x"], "tools": ["a b"]}, "agents.servers.n.tools[0]: 'a b' is no name of a tool"),
        ({"command": "x"}, "agents.servers.n: [hidden] is refused: Expected `array`"),
        ({"comand": ["x"]}, "agents.servers.n.comand: [hidden] is no setting; did you mean command?"),
    ],
)
def test_a_server_of_agents_that_could_not_work_is_refused(
    prompt: CliPrompt, tmp_path: Path, server: object, reason: str
) -> None:
    (tmp_path / "gnomon.yaml").write_text(yaml.safe_dump({"agents": {"servers": {"n": server}}}))

    refused = prompt.run("config", "show", "--config", "gnomon.yaml")

    assert refused.code == 2
    assert refused.err[0].startswith(f"error: {reason}")
    assert "hunter2" not in repr(refused)
