"""Settings: one typed model, and an order in which sources count."""

import re
from pathlib import Path
from typing import Any

import pytest

from gnomon.app.settings import load_settings
from gnomon.config.sections import (
    AuthSettings,
    CronSettings,
    MetricsSettings,
    NatsSettings,
    SecretsSettings,
    ServerSettings,
)
from gnomon.config.settings import _BOUNDS, Settings, load, load_with_origins
from gnomon.core.commands.policy import Autonomy
from gnomon.core.durations import duration_text
from gnomon.core.model import Catchup, Overlap
from gnomon.errors import FieldError, FileError

SEEDS_FILE = Path(__file__).parents[1] / "data" / "seed_configuration.yaml"
SEEDS_ENVIRONMENT = {
    "DATABASE_URL": "postgresql://ada:hunter2@db/gnomon",
    "NATS_URL": "nats://nats-mq.hanzo.svc:4222",
    "NATS_PASSWORD": "hunter2",
}


def test_without_any_source_the_defaults_count() -> None:
    assert load() == Settings()


@pytest.mark.req("C-04")
def test_the_defaults_are_the_seeds() -> None:
    ticker = load().ticker

    assert (ticker.tick_ms, ticker.lookahead_ms, ticker.max_catchup_per_tick) == (1000, 60_000, 100)
    assert (ticker.default_overlap, ticker.default_catchup, ticker.default_jitter_ms) == (Overlap.SKIP, Catchup.NONE, 0)


def test_a_flag_beats_the_environment_beats_the_file() -> None:
    file: dict[str, Any] = {"ticker": {"tick_ms": 100, "batch": 10, "lookahead_ms": 2000}}
    environment = {"GNOMON_TICKER__TICK_MS": "200", "GNOMON_TICKER__BATCH": "20"}

    ticker = load(flags={"ticker.tick_ms": 300}, environment=environment, file=file).ticker

    assert (ticker.tick_ms, ticker.batch, ticker.lookahead_ms) == (300, 20, 2000)


@pytest.mark.req("C-04")
@pytest.mark.parametrize(
    ("name", "value", "key", "expected"),
    [
        ("TICK_MS", "500", "tick_ms", 500),
        ("LOOKAHEAD_MS", "30000", "lookahead_ms", 30_000),
        ("MAX_CATCHUP_PER_TICK", "7", "max_catchup_per_tick", 7),
        ("DEFAULT_OVERLAP_POLICY", "queue", "default_overlap", Overlap.QUEUE),
        ("DEFAULT_CATCHUP_POLICY", "fire_immediately", "default_catchup", Catchup.ALL),
        ("DEFAULT_JITTER_MS", "250", "default_jitter_ms", 250),
    ],
)
def test_the_seeds_names_count(name: str, value: str, key: str, expected: object) -> None:
    assert getattr(load(environment={name: value}).ticker, key) == expected


@pytest.mark.req("H-18")
def test_the_seeds_file_loads_unchanged() -> None:
    settings = load_settings(SEEDS_FILE, environment=SEEDS_ENVIRONMENT)

    assert settings.server == ServerSettings(host="0.0.0.0", port=8062)  # noqa: S104 - what the seed says
    assert (settings.database.url, settings.database.max_connections) == (SEEDS_ENVIRONMENT["DATABASE_URL"], 10)
    assert settings.nats == NatsSettings(url=SEEDS_ENVIRONMENT["NATS_URL"], user="scheduler", password="hunter2")  # noqa: S106 - not a real one
    assert (settings.leader.ttl_ms, settings.leader.renew_interval_ms) == (15_000, 5_000)
    assert (settings.execution.default_timeout_ms, settings.execution.history_retention_days) == (300_000, 90)
    assert settings.jobs_file == "/etc/scheduler/jobs.yaml"
    assert settings.auth == AuthSettings(iam_url="https://hanzo.id", verify_tokens=True)
    assert settings.metrics == MetricsSettings(enabled=True, port=9090)


@pytest.mark.req("H-18")
@pytest.mark.parametrize("name", SEEDS_ENVIRONMENT)
def test_a_variable_that_the_seeds_file_needs_is_named_if_it_is_missing(name: str) -> None:
    environment = {key: value for key, value in SEEDS_ENVIRONMENT.items() if key != name}

    with pytest.raises(FieldError, match=f"names {name}, which the environment lacks"):
        load_settings(SEEDS_FILE, environment=environment)


def test_server_listens_on_loopback_unless_configured_otherwise() -> None:
    assert load().server == ServerSettings(host="127.0.0.1", port=8062)


def test_the_environment_and_flags_beat_the_file_on_disk(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.yaml"
    file.write_text("ticker: {tick: 2s, batch: 7}\nserver:\nleader: {ttl: 20s}\n")

    settings = load_settings(file, flags={"leader.ttl": "30s"}, environment={"GNOMON_TICKER__TICK": "3s"})

    assert (settings.ticker.tick_ms, settings.ticker.batch, settings.leader.ttl_ms) == (3000, 7, 30_000)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read: No such file"):
        load_settings(tmp_path / "none.yaml")


@pytest.mark.req("H-18")
@pytest.mark.parametrize(
    "sources",
    [
        {"file": {"leader": {"ttl": "15s"}}},
        {"file": {"leader": {"ttl": 15}}},
        {"file": {"leader": {"ttl_ms": 15_000}}},
        {"environment": {"GNOMON_LEADER__TTL": "15s"}},
        {"environment": {"GNOMON_LEADER__TTL_MS": "15000"}},
        {"flags": {"leader.ttl": "15s"}},
        {"flags": {"leader.ttl": "15s"}, "file": {"leader": {"ttl_ms": 20_000}}},
    ],
)
def test_a_span_may_be_said_as_people_write_it(sources: dict[str, Any]) -> None:
    assert load(**sources).leader.ttl_ms == 15_000


@pytest.mark.parametrize(
    "sources",
    [
        {"environment": {"GNOMON_SECRETS__ALLOW": "API_KEY, DB_PASSWORD,"}},
        {"file": {"secrets": {"allow": ["API_KEY", "${SECOND}"]}}, "environment": {"SECOND": "DB_PASSWORD"}},
        {"flags": {"secrets.allow": ("API_KEY", "DB_PASSWORD")}},
    ],
)
def test_a_list_in_the_environment_is_separated_by_commas(sources: dict[str, Any]) -> None:
    assert load(**sources).secrets == SecretsSettings(allow=("API_KEY", "DB_PASSWORD"))


@pytest.mark.parametrize(
    "sources",
    [
        {"environment": {"GNOMON_JOBS_FILE": "jobs.yaml"}},
        {"file": {"jobs_file": "${FILE}"}, "environment": {"FILE": "jobs.yaml"}},
        {"flags": {"jobs_file": "jobs.yaml"}},
    ],
)
def test_settings_outside_sections_are_read_from_every_source(sources: dict[str, Any]) -> None:
    assert load(**sources).jobs_file == "jobs.yaml"


#: Mappings of mappings.
ONLY_IN_FILES = [("agents", "providers"), ("agents", "prices"), ("agents", "servers")]


def every_key() -> list[tuple[str, str]]:
    usual = Settings()
    sections = {name: getattr(usual, name) for name in usual.__struct_fields__}
    keys = [(name, key) for name, section in sections.items() for key in getattr(section, "__struct_fields__", ())]
    return [key for key in keys if key not in ONLY_IN_FILES]


_KERNEL = "grpc://127.0.0.1:5"


@pytest.mark.req("H-18")
@pytest.mark.parametrize(("section", "key"), every_key())
def test_the_environment_can_say_every_setting(section: str, key: str) -> None:
    usual = getattr(getattr(Settings(), section), key)
    said = {bool: "false" if usual else "true", int: str(usual), tuple: "RS256", dict: "some=1"}.get(
        type(usual), str(usual)
    )
    if usual is None:
        said = {"autonomy": "full", "allowed_commands": "RS256", "max_actions_per_hour": "7"}.get(key, "true")
    if section == "security" and key in ("forbidden_paths", "allowed_roots", "path"):
        said = "/some"
    if key == "zones":
        said = "UTC"
    if not said:
        said = {"ping_url": "https://x/", "archive": "s3://bucket/x", "model": "a:b"}.get(key, "something")
        said = {"kernel": _KERNEL, "fail_mode": "open"}.get(key, said)
    name = f"GNOMON_{section.upper()}__{key.upper()}"

    settings, origins = load_with_origins(environment={name: said})

    found = getattr(getattr(settings, section), key)
    assert origins == {f"{section}.{key}": f"environment {name}"}
    known: dict[str, object] = {
        "false": False,
        "true": True,
        "RS256": ("RS256",),
        "UTC": ("UTC",),
        "something": "something",
        "full": Autonomy.FULL,
        "7": 7,
        "/some": ("/some",),
    }
    known |= {text: text for text in ("https://x/", "s3://bucket/x", "a:b", _KERNEL, "open")}
    if isinstance(found, dict):
        known["some=1"] = {"some": "1" if key == "labels" else 1}
    assert found == known.get(said, usual)


@pytest.mark.parametrize("said", ["acme", "=5", "acme=many"])
def test_pairs_in_the_environment_that_are_none_are_refused(said: str) -> None:
    with pytest.raises(FieldError, match="tenant_limits"):
        load(environment={"GNOMON_ROUTING__TENANT_LIMITS": said})


def test_other_names_in_the_environment_are_none_of_our_business() -> None:
    assert load(environment={"GNOMON_TOKEN": "x", "GNOMON_HOME": "/", "GNOMON_": "", "PATH": "/bin"}) == Settings()


@pytest.mark.parametrize(
    "sources",
    [
        {"environment": {"SCHEDULER_POLL_SECS": "30", "MAX_CONCURRENT": "7"}},
        {"file": {"reliability": {"scheduler_poll_secs": 30}, "scheduler": {"max_concurrent": 7}}},
        {"file": {"worker": {"poll_secs": 30, "max_concurrent": 7}}},
    ],
)
def test_the_names_of_a_seeds_worker_count(sources: dict[str, Any]) -> None:
    worker = load(**sources).worker

    assert (worker.poll_secs, worker.max_concurrent) == (30, 7)


@pytest.mark.req("Z-06")
@pytest.mark.parametrize(
    "sources",
    [
        {"environment": {"SCHEDULER_RETRIES": "5", "PROVIDER_BACKOFF_MS": "70"}},
        {"file": {"reliability": {"scheduler_retries": 5, "provider_backoff_ms": 70}}},
        {"file": {"cron": {"retries": 5, "backoff": "70ms"}}},
    ],
)
def test_the_names_of_a_seeds_retries_count(sources: dict[str, Any]) -> None:
    cron = load(**sources).cron

    assert (cron.retries, cron.backoff_ms) == (5, 70)
    assert load().cron == CronSettings(
        retries=3, backoff_ms=200, max_backoff_ms=30_000, jitter_ms=250, max_run_history=50
    )


@pytest.mark.req("Z-01")
@pytest.mark.parametrize(("said", "counts"), [(0, 5), (2, 5), (5, 5), (6, 6)])
def test_a_worker_looks_no_more_often_than_every_5_seconds(said: int, counts: int) -> None:
    assert load(file={"worker": {"poll_secs": said}}).worker.poll_secs == counts


@pytest.mark.guarantee("S24")
@pytest.mark.parametrize(
    "sources",
    [
        pytest.param({"file": {"nats": {"password": ["hunter2"]}}}, id="a password of the wrong kind"),
        pytest.param({"file": {"nats": {"pasword": "hunter2"}}}, id="a password under a misspelt key"),
        pytest.param({"file": {"natz": {"password": "hunter2"}}}, id="a password in a misspelt section"),
        pytest.param({"file": {"password": "hunter2"}}, id="a password beside the sections"),
        pytest.param({"file": {"nats": {"url": "nats://ada:hunter2@${HOST}"}}}, id="an address with a gap"),
        pytest.param({"file": {"database": {"url": ["postgresql://ada:hunter2@db"]}}}, id="an address in a list"),
        pytest.param({"file": {"server": {"port": "postgresql://ada:hunter2@db"}}}, id="an address somewhere else"),
        pytest.param({"file": {"database": "postgresql://ada:hunter2@db"}}, id="an address for a section"),
        pytest.param({"environment": {"GNOMON_NATS__PASSWD": "hunter2"}}, id="a password in the environment"),
        pytest.param({"flags": {"nats.passwd": "hunter2"}}, id="a password as a flag"),
    ],
)
def test_a_refusal_shows_no_credentials(sources: dict[str, Any]) -> None:
    with pytest.raises(FieldError) as refused:
        load(**sources)

    assert "[hidden]" in str(refused.value)
    assert "hunter2" not in str(refused.value) + repr(refused.value.value)


@pytest.mark.guarantee("S24")
def test_settings_do_not_show_credentials() -> None:
    settings = load_settings(SEEDS_FILE, environment=SEEDS_ENVIRONMENT)

    assert settings.nats.password == "hunter2"  # noqa: S105 - not a real one
    assert "hunter2" not in repr(settings)


def test_a_file_may_refer_to_the_environment() -> None:
    settings = load(file={"database": {"url": "postgresql://${USER}@db/gnomon"}}, environment={"USER": "ada"})

    assert settings.database.url == "postgresql://ada@db/gnomon"


@pytest.mark.parametrize(
    ("sources", "field"),
    [
        pytest.param({"file": {"ticker": {"tick_ms": 0}}}, "ticker.tick_ms", id="out of bounds"),
        pytest.param({"file": {"ticker": {"tick_ms": "soon"}}}, "ticker.tick_ms", id="not a number"),
        pytest.param({"environment": {"TICK_MS": "x"}}, "ticker.tick_ms", id="not a number in the environment"),
        pytest.param({"file": {"ticker": {"tickms": 5}}}, "ticker.tickms", id="an unknown key"),
        pytest.param({"file": {"ticker": 5}}, "ticker", id="a section that is no mapping"),
        pytest.param({"file": {"tickr": {}}}, "tickr", id="an unknown section of a file"),
        pytest.param({"flags": {"nothing.here": 5}}, "nothing", id="an unknown section"),
        pytest.param({"flags": {"nothing": 5}}, "nothing", id="an unknown flag"),
        pytest.param({"file": {"job_file": "x"}}, "job_file", id="an unknown key beside the sections"),
        pytest.param({"file": {"jobs_file": {"a": 1}}}, "jobs_file", id="a mapping for a text"),
        pytest.param({"file": {5: 5}}, "5", id="a key that is a number"),
        pytest.param({"file": {"leader": {"ttl": "15"}}}, "leader.ttl", id="a span without a unit"),
        pytest.param({"file": {"leader": {"ttl": "15s", "ttl_ms": 15_000}}}, "leader.ttl_ms", id="a span twice"),
        pytest.param({"file": {"leader": {"ttl": "1d"}}}, "leader.ttl_ms", id="a span out of bounds"),
        pytest.param({"file": {"server": {"port": 65_536}}}, "server.port", id="a port that is none"),
        pytest.param({"file": {"worker": {"poll_secs": -1}}}, "worker.poll_secs", id="time that runs backwards"),
        pytest.param({"file": {"scheduler": {"batch": 5}}}, "scheduler", id="an unknown key of a seed's section"),
        pytest.param({"file": {"database": {"url": "${NOWHERE}"}}}, "database.url", id="an unknown variable"),
        pytest.param({"environment": {"DEFAULT_OVERLAP_POLICY": "never"}}, "ticker.default_overlap", id="no policy"),
        pytest.param(
            {"file": {"leader": {"ttl_ms": 1000, "renew_interval_ms": 900}}}, "leader.renew_interval_ms", id="late"
        ),
    ],
)
def test_an_error_names_the_mistake(sources: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        load(**sources)

    assert refused.value.field == field


@pytest.mark.req("C-15")
@pytest.mark.parametrize("ms", [999, 3_600_001])
def test_the_lookahead_is_bounded(ms: int) -> None:
    with pytest.raises(FieldError, match=r"ticker\.lookahead_ms"):
        load(environment={"LOOKAHEAD_MS": str(ms)})


def test_a_misspelt_key_suggests_the_right_one() -> None:
    with pytest.raises(FieldError, match="did you mean tick_ms"):
        load(file={"ticker": {"tikc_ms": 5}})


def test_the_page_about_settings_names_every_one_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    usual = load()
    keys = [
        (name, key)
        for name in usual.__struct_fields__
        for key in getattr(getattr(usual, name), "__struct_fields__", ())
    ]

    missing = [
        f"{name}.{key}" for name, key in keys if row_of(name, key, getattr(getattr(usual, name), key)) not in page
    ]

    assert missing == []


def row_of(name: str, key: str, value: object) -> str:
    """How the row of a setting begins on the page."""
    if key.endswith("_ms") and isinstance(value, int):
        key, value = key.removesuffix("_ms"), duration_text(value)
    shown = str(value).lower() if isinstance(value, bool) else value
    shown = ", ".join(shown) if isinstance(shown, tuple | dict) else "" if shown is None else shown
    return f"| `{name}.{key}` | `{shown}` |" if shown != "" else f"| `{name}.{key}` |  |"


def test_the_page_about_settings_shows_the_bounds_of_every_one_that_has_some() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    shown = dict(re.findall(r"^\| `([\w.]+)` \|[^|]*\| ([^|]*) \|", page, re.MULTILINE))

    wanted = {
        name.removesuffix("_ms"): f"{low} to {high}"
        if not name.endswith("_ms")
        else f"{duration_text(low)} to {duration_text(high)}"
        for name, (low, high) in _BOUNDS.items()
    }

    assert {name: bounds.strip() for name, bounds in shown.items() if bounds.strip()} == wanted


@pytest.mark.parametrize("url", ["ftp://x/", "https://ada:hunter2@x/", "http://x:0/", "x"])
def test_an_address_to_ping_that_could_never_be_called_is_refused(url: str) -> None:
    with pytest.raises(FieldError, match=r"alive.ping_url: \[hidden\]"):
        load(flags={"alive.ping_url": url})


@pytest.mark.req("C-15")
def test_an_allowed_zone_that_is_none_is_refused() -> None:
    with pytest.raises(FieldError, match=r"ticker.zones: 'Mars/Olympus' is not a known time zone"):
        load(flags={"ticker.zones": "UTC,Mars/Olympus"})


def test_an_allowed_host_that_is_none_is_refused() -> None:
    with pytest.raises(FieldError, match=r"security.allowed_hosts"):
        load(flags={"security.allowed_hosts": "10.0.0.1/8"})
