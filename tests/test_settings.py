"""Settings: one typed model, and an order in which sources count."""

from typing import Any

import pytest

from gnomon.core.model import Catchup, Overlap
from gnomon.errors import FieldError
from gnomon.settings import Settings, load


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
        pytest.param({"file": {"database": {"url": "${NOWHERE}"}}}, "database.url", id="an unknown variable"),
        pytest.param({"environment": {"DEFAULT_OVERLAP_POLICY": "never"}}, "ticker.default_overlap", id="no policy"),
        pytest.param(
            {"file": {"leader": {"ttl_ms": 1000, "renew_interval_ms": 900}}}, "leader.renew_interval_ms", id="late"
        ),
    ],
)
def test_what_is_wrong_is_named(sources: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        load(**sources)

    assert refused.value.field == field


def test_a_misspelt_key_suggests_the_right_one() -> None:
    with pytest.raises(FieldError, match="did you mean tick_ms"):
        load(file={"ticker": {"tikc_ms": 5}})
