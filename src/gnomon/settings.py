"""Every constant that someone may want to change, in one typed model.

What counts, from strongest to weakest: a flag, the environment, the file, the default. In the environment a setting is
`GNOMON_SECTION__KEY`, or the name that older schedulers gave it (`TICK_MS`).
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.model import MINUTE_MS, Catchup, Overlap
from gnomon.errors import FieldError


class Database(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where everything is kept."""

    url: str = "sqlite:///gnomon.db"
    max_connections: int = 10
    #: Off for PostgreSQL behind a pooler that hands connections out by the transaction.
    statement_cache: bool = True
    #: How long PostgreSQL may take over a statement or a lock: less than leases last, so that nobody sits on them.
    patience_ms: int = 8_000


class Ticking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How ticks are decided."""

    #: The longest time between two looks at what is due.
    tick_ms: int = 1000
    lookahead_ms: int = MINUTE_MS
    max_catchup_per_tick: int = 100
    #: How many schedules are decided in one transaction.
    batch: int = 2000
    default_overlap: Overlap = Overlap.SKIP
    default_catchup: Catchup = Catchup.NONE
    default_jitter_ms: int = 0


class Leading(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How nodes share the shards."""

    ttl_ms: int = 10_000
    renew_interval_ms: int = 3_000
    #: How often a node that has less than its share looks for shards that others gave up.
    claim_interval_ms: int = 500
    #: A node whose clock is off by more says so; by more than the second, it does not lead.
    skew_warning_ms: int = 2_000
    skew_limit_ms: int = 30_000


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of them."""

    database: Database = Database()
    ticker: Ticking = Ticking()
    leader: Leading = Leading()


_SECTIONS = {name: type(getattr(Settings(), name)) for name in Settings.__struct_fields__}
#: Names of other schedulers' settings for ours.
_OTHER_NAMES = {
    "TICK_MS": ("ticker", "tick_ms"),
    "LOOKAHEAD_MS": ("ticker", "lookahead_ms"),
    "MAX_CATCHUP_PER_TICK": ("ticker", "max_catchup_per_tick"),
    "DEFAULT_OVERLAP_POLICY": ("ticker", "default_overlap"),
    "DEFAULT_CATCHUP_POLICY": ("ticker", "default_catchup"),
    "DEFAULT_JITTER_MS": ("ticker", "default_jitter_ms"),
    "DATABASE_URL": ("database", "url"),
}
_ENVIRONMENT_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_CATCHUP_ALIASES = {"fire_immediately": "all"}
_BOUNDS = {
    "ticker.tick_ms": (10, MINUTE_MS),
    "ticker.lookahead_ms": (1000, 60 * MINUTE_MS),
    "ticker.max_catchup_per_tick": (1, 10_000),
    "ticker.batch": (1, 10_000),
    "ticker.default_jitter_ms": (0, 60 * MINUTE_MS),
    "leader.ttl_ms": (100, 10 * MINUTE_MS),
    "leader.renew_interval_ms": (10, 5 * MINUTE_MS),
    "leader.claim_interval_ms": (10, MINUTE_MS),
    "leader.skew_warning_ms": (1, 60 * MINUTE_MS),
    "leader.skew_limit_ms": (1, 60 * MINUTE_MS),
    "database.max_connections": (1, 1000),
    "database.patience_ms": (100, 10 * MINUTE_MS),
}


def load(
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings that all sources together make; FieldError names the one that is wrong.

    `flags` are named `section.key`; `file` is what a configuration file holds, already read.
    """
    environment = environment or {}
    merged: dict[str, dict[str, object]] = {}
    for section, values in (file or {}).items():
        if section not in _SECTIONS:
            raise FieldError(str(section), values, _unknown(section, _SECTIONS))
        if not isinstance(values, Mapping):
            raise FieldError(section, values, "must be a mapping of settings")
        for key, value in values.items():
            _put(merged, section, key, _with_environment(value, environment, f"{section}.{key}"))
    for name, (section, key) in _OTHER_NAMES.items():
        if name in environment:
            _put(merged, section, key, environment[name])
    for name, value in environment.items():
        if name.startswith("GNOMON_") and "__" in name:
            section, _, key = name.removeprefix("GNOMON_").lower().partition("__")
            _put(merged, section, key, value)
    for name, flag in (flags or {}).items():
        section, _, key = name.partition(".")
        _put(merged, section, key, flag)
    return _checked(merged)


def _put(merged: dict[str, dict[str, object]], section: str, key: str, value: object) -> None:
    if section not in _SECTIONS:
        raise FieldError(section, value, _unknown(section, _SECTIONS))
    known = _SECTIONS[section].__struct_fields__
    if key not in known:
        raise FieldError(f"{section}.{key}", value, _unknown(key, known))
    if key == "default_catchup" and isinstance(value, str):
        value = _CATCHUP_ALIASES.get(value, value)
    merged.setdefault(section, {})[key] = value


def _unknown(name: str, known: Any) -> str:  # noqa: ANN401 - anything that holds names
    near = get_close_matches(str(name), list(known), n=1)
    return "is no setting" + (f"; did you mean {near[0]}?" if near else "")


def _with_environment(value: object, environment: Mapping[str, str], field: str) -> object:
    """The value with `${NAME}` replaced by what the environment says."""
    if not isinstance(value, str):
        return value

    def resolved(reference: re.Match[str]) -> str:
        if reference[1] not in environment:
            raise FieldError(field, value, f"names {reference[1]}, which the environment lacks")
        return environment[reference[1]]

    return _ENVIRONMENT_REFERENCE.sub(resolved, value)


def _checked(merged: Mapping[str, Mapping[str, object]]) -> Settings:
    for section, values in merged.items():
        kind = _SECTIONS[section]
        for key, value in values.items():
            try:
                msgspec.convert({key: value}, kind, strict=False)
            except msgspec.ValidationError as error:
                reason = str(error).partition(" - at ")[0]
                raise FieldError(f"{section}.{key}", value, f"is refused: {reason}") from None
    settings: Settings = msgspec.convert(merged, Settings, strict=False)
    for name, (low, high) in _BOUNDS.items():
        section, _, key = name.partition(".")
        value = getattr(getattr(settings, section), key)
        if not low <= value <= high:
            raise FieldError(name, value, f"must be from {low} to {high}")
    if settings.leader.renew_interval_ms * 2 > settings.leader.ttl_ms:
        raise FieldError(
            "leader.renew_interval_ms", settings.leader.renew_interval_ms, "must be at most half of ttl_ms"
        )
    return settings
