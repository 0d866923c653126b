"""`gnomon config`: every setting, and who said so."""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct, to_builtins

from gnomon.app.operations import database_url, hidden_password, read_origins
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.target import Where
from gnomon.config.settings import Settings
from gnomon.config.sources import HIDDEN, unknown
from gnomon.core.durations import duration_text
from gnomon.errors import FieldError

#: Settings that nobody is to see, if they say anything.
_SECRET = ("password",)
_USUAL = "default"


class Shown(Struct, frozen=True, kw_only=True):
    """A setting as it may be shown."""

    setting: str
    value: object
    origin: str


def show(section: str | None, where: Where, form: Format) -> None:
    """Print every setting of a section, or of all."""
    flags = {"database.url": database_url(where.database)} if where.database else {}
    settings, origins = read_origins(where.config, flags=flags, environment=os.environ)
    sections = [name for name in Settings.__struct_fields__ if isinstance(getattr(settings, name), Struct)]
    if section is not None and section not in sections:
        raise FieldError("section", section, unknown(section, sections))
    found = [one for one in _all(settings, origins) if section is None or one.setting.startswith(f"{section}.")]
    if form is Format.TABLE:
        print_table(["setting", "value", "origin"], [[one.setting, _text(one.value), one.origin] for one in found])
    else:
        print_data([{"setting": one.setting, "value": one.value, "origin": one.origin} for one in found], form)


def _all(settings: Settings, origins: Mapping[str, str]) -> Iterator[Shown]:
    for name in Settings.__struct_fields__:
        said = getattr(settings, name)
        if not isinstance(said, Struct):
            yield _shown(name, said, origins)
            continue
        for key in said.__struct_fields__:
            yield _shown(f"{name}.{key}", getattr(said, key), origins)


def _shown(name: str, value: object, origins: Mapping[str, str]) -> Shown:
    """The setting as a file would have it, without what nobody else should read."""
    origin = origins.get(name, _USUAL)
    if name.endswith("_ms") and isinstance(value, int):
        name, value = name.removesuffix("_ms"), duration_text(value)
    elif name.rpartition(".")[2] in _SECRET:
        value = repr(HIDDEN) if value else ""
    elif isinstance(value, str) and "://" in value:
        address, mark, _ = hidden_password(value).partition("?")
        value = f"{address}{mark}{HIDDEN!r}" if mark else address
    return Shown(setting=name, value=to_builtins(value), origin=origin)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
