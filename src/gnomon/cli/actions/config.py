"""`gnomon config`: every setting with its value and origin."""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct, to_builtins

from gnomon.app.settings import database_url, read_settings_with_origins, redact_password
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.target import Target
from gnomon.config.agents import ProviderSettings, ToolServerSettings, provider_as_shown, server_as_shown
from gnomon.config.channels import ChannelSettings, channel_as_shown
from gnomon.config.settings import Settings
from gnomon.config.sources import REDACTED, unknown_setting_reason
from gnomon.core.durations import duration_text
from gnomon.errors import FieldError

#: Settings whose values are never printed, except the name of the file that holds one.
_SECRET = ("password", "secret_access_key", "session_token", "kernel_token")
#: Keys of payloads: those in files are shown by the name of the file.
_KEYS = "payload.keys"
_USUAL = "default"
_CHANNELS = "channels"


class SettingRow(Struct, frozen=True, kw_only=True):
    """A setting as it is printed."""

    setting: str
    value: object
    origin: str


def show(section: str | None, target: Target, form: Format) -> None:
    """Print the settings of one section or of all."""
    flags = {"database.url": database_url(target.database)} if target.database else {}
    settings, origins = read_settings_with_origins(target.config, flags=flags, environment=os.environ)
    sections = [
        name for name in Settings.__struct_fields__ if isinstance(getattr(settings, name), Struct) or name == _CHANNELS
    ]
    if section is not None and section not in sections:
        raise FieldError("section", section, unknown_setting_reason(section, sections))
    found = [one for one in _all(settings, origins) if section is None or one.setting.startswith(f"{section}.")]
    if form is Format.TABLE:
        print_table(["setting", "value", "origin"], [[one.setting, _text(one.value), one.origin] for one in found])
    else:
        print_data([{"setting": one.setting, "value": one.value, "origin": one.origin} for one in found], form)


def _all(settings: Settings, origins: Mapping[str, str]) -> Iterator[SettingRow]:
    for name in Settings.__struct_fields__:
        value = getattr(settings, name)
        if name == _CHANNELS:
            yield from _channels(settings.channels, origins.get(name, _USUAL))
            continue
        if not isinstance(value, Struct):
            yield _shown(name, value, origins)
            continue
        for key in value.__struct_fields__:
            if (name, key) == ("agents", "providers") and settings.agents.providers:
                yield from _providers(settings.agents.providers, origins.get("agents.providers", _USUAL))
                continue
            if (name, key) == ("agents", "servers") and settings.agents.servers:
                yield from _servers(settings.agents.servers, origins.get("agents.servers", _USUAL))
                continue
            yield _shown(f"{name}.{key}", getattr(value, key), origins)


def _channels(channels: Mapping[str, ChannelSettings], origin: str) -> Iterator[SettingRow]:
    """The settings of all channels that have a value."""
    for name, channel in channels.items():
        for key, value in channel_as_shown(channel).items():
            yield SettingRow(setting=f"{_CHANNELS}.{name}.{key}", value=to_builtins(value), origin=origin)


def _providers(providers: Mapping[str, ProviderSettings], origin: str) -> Iterator[SettingRow]:
    """The settings of all providers of models that have a value."""
    for name, provider in providers.items():
        for key, value in provider_as_shown(provider).items():
            yield SettingRow(setting=f"agents.providers.{name}.{key}", value=value, origin=origin)


def _servers(servers: Mapping[str, ToolServerSettings], origin: str) -> Iterator[SettingRow]:
    """The settings of all servers with tools that have a value."""
    for name, server in servers.items():
        for key, value in server_as_shown(server).items():
            yield SettingRow(setting=f"agents.servers.{name}.{key}", value=value, origin=origin)


def _shown(name: str, value: object, origins: Mapping[str, str]) -> SettingRow:
    """The setting in the format of a configuration file, with secrets redacted."""
    origin = origins.get(name, _USUAL)
    if name.endswith("_ms") and isinstance(value, int):
        name, value = name.removesuffix("_ms"), duration_text(value)
    elif name.rpartition(".")[2] in _SECRET:
        value = repr(REDACTED) if value and not str(value).startswith("file:") else value
    elif name == _KEYS and isinstance(value, tuple):
        value = [one if one.startswith("file:") else repr(REDACTED) for one in value]
    elif isinstance(value, str) and "://" in value:
        address, mark, _ = redact_password(value).partition("?")
        value = f"{address}{mark}{REDACTED!r}" if mark else address
    return SettingRow(setting=name, value=to_builtins(value), origin=origin)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
