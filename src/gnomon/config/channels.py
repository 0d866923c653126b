"""The channels to which jobs announce: the settings `channels`, a mapping of names to what each of them is."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gnomon.config.sources import REDACTED, RedactedSettings, redact_value, unknown_setting_reason
from gnomon.core.announcements.channels import TRAITS, ChannelKind, ChannelRule, Channels, check_recipient
from gnomon.core.durations import duration_ms, duration_text
from gnomon.core.model import MINUTE_MS, SECOND_MS
from gnomon.core.pings import is_http_url, redacted_url
from gnomon.errors import FieldError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MAIL_SERVER = re.compile(r"smtps?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_TIMEOUT_MS = (10, 10 * MINUTE_MS)
_GIVE_UP_MS = (0, 30 * 24 * 60 * MINUTE_MS)
_FILE, _SECRET = "file:", "${secret:"


class ChannelSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One channel."""

    kind: ChannelKind
    #: The base address of the service, the address of a webhook or of a mail server, or the URL of Apprise.
    url: str = ""
    #: The credentials, each as it is, as `file:PATH` or as `${secret:NAME}`.
    token: str = ""
    secret: str = ""
    user: str = ""
    password: str = ""
    #: The recipient of announcements that name none.
    to: str = ""
    #: The sender of e-mails, the protection of the connection, and the authority of the server's certificate.
    sender: str = ""
    tls: Literal["", "starttls", "tls", "none"] = ""
    ca_file: str = ""
    #: How long one try may take, and how long an announcement is tried.
    timeout_ms: int = 10 * SECOND_MS
    give_up_ms: int = 60 * MINUTE_MS
    #: The tenants whose jobs may use it; `*` for all. Its credentials are the operator's.
    tenants: tuple[str, ...] = ("default",)


#: The fields of every kind, those that each kind needs, and those that it may have besides.
_COMMON = ("kind", "to", "timeout", "give_up", "tenants")
_NEEDED: Mapping[ChannelKind, tuple[str, ...]] = {
    ChannelKind.TELEGRAM: ("token",),
    ChannelKind.DISCORD: ("token",),
    ChannelKind.SLACK: ("token",),
    ChannelKind.MATTERMOST: ("url", "token"),
    ChannelKind.WEBHOOK: ("url", "secret"),
    ChannelKind.EMAIL: ("url", "sender"),
    ChannelKind.APPRISE: ("url",),
}
_OPTIONAL: Mapping[ChannelKind, tuple[str, ...]] = {
    ChannelKind.TELEGRAM: ("url",),
    ChannelKind.DISCORD: ("url",),
    ChannelKind.SLACK: ("url",),
    ChannelKind.EMAIL: ("user", "password", "tls", "ca_file"),
}
_SPANS = {"timeout": _TIMEOUT_MS, "give_up": _GIVE_UP_MS}
#: Settings whose values are never shown, except the name of the file or of the secret that holds one.
CREDENTIAL_FIELDS = ("token", "secret", "password")


def read_channels(value: object) -> dict[str, ChannelSettings]:
    """The channels by name; raise FieldError, which names the first wrong field and never shows a credential."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise FieldError("channels", REDACTED, "must be a mapping of names to channels")
    found: dict[str, ChannelSettings] = {}
    for name, fields in value.items():
        if isinstance(fields, ChannelSettings):
            found[name] = fields
            continue
        lowered = name.lower() if isinstance(name, str) else name
        if not isinstance(lowered, str) or not _NAME.fullmatch(lowered):
            raise FieldError("channels", name, "must be named with a-z, 0-9, dash and underscore")
        if lowered in found:
            raise FieldError(f"channels.{lowered}", REDACTED, "is configured a second time")
        found[lowered] = _read_channel(f"channels.{lowered}", fields)
    return found


def _read_channel(path: str, fields: object) -> ChannelSettings:
    if not isinstance(fields, Mapping):
        raise FieldError(path, REDACTED, "must be a mapping with a kind")
    kind = _kind(path, fields)
    needed, optional = _NEEDED[kind], _OPTIONAL.get(kind, ())
    known = (*_COMMON, *needed, *optional)
    values: dict[str, Any] = {}
    for key, value in fields.items():
        name = str(key).removesuffix("_ms")
        if name not in known or (name != key and name not in _SPANS):
            raise FieldError(f"{path}.{key}", REDACTED, unknown_setting_reason(key, known))
        if name in _SPANS:
            low, high = _SPANS[name]
            # Under its long name it is a number of milliseconds.
            span = f"{value}ms" if name != key else value
            values[f"{name}_ms"] = duration_ms(f"{path}.{key}", span, low=low, high=high)
        else:
            values[name] = value
    for name in needed:
        if not values.get(name):
            raise FieldError(f"{path}.{name}", "", f"is missing: a channel of kind {kind} needs it")
    channel = _converted(path, values)
    _check(path, channel)
    return channel


def _kind(path: str, fields: Mapping[Any, Any]) -> ChannelKind:
    kind = fields.get("kind")
    try:
        return ChannelKind(str(kind))
    except ValueError:
        raise FieldError(f"{path}.kind", kind, f"must be one of {', '.join(ChannelKind)}") from None


def _converted(path: str, values: Mapping[str, Any]) -> ChannelSettings:
    # The ids of chats are numbers.
    values = {key: str(value) if key == "to" and isinstance(value, int) else value for key, value in values.items()}
    for key, value in values.items():
        try:
            msgspec.convert({"kind": values["kind"], key: value}, ChannelSettings, strict=False)
        except msgspec.ValidationError as error:
            field, reason = f"{path}.{key.removesuffix('_ms')}", str(error).partition(" - at ")[0]
            shown = REDACTED if key in CREDENTIAL_FIELDS else redact_value(field, value)
            raise FieldError(field, shown, f"is refused: {reason}") from None
    return msgspec.convert(values, ChannelSettings, strict=False)


def _check(path: str, channel: ChannelSettings) -> None:
    kind = channel.kind
    if kind is ChannelKind.EMAIL:
        _check_mail_server(path, channel)
    elif kind is not ChannelKind.APPRISE and channel.url and not is_http_url(channel.url):
        raise FieldError(f"{path}.url", REDACTED, "must be an http or https URL without credentials")
    if channel.to:
        check_recipient(f"{path}.to", kind, channel.to)
    if not channel.tenants:
        raise FieldError(f"{path}.tenants", "", "names no tenant")


def _check_mail_server(path: str, channel: ChannelSettings) -> None:
    if not _MAIL_SERVER.fullmatch(channel.url):
        raise FieldError(f"{path}.url", REDACTED, "must be a mail server such as smtp://mail.example.com:587")
    pattern = TRAITS[ChannelKind.EMAIL].recipient
    if pattern is None or not pattern.fullmatch(channel.sender) or "," in channel.sender:
        raise FieldError(f"{path}.sender", channel.sender, "must be an e-mail address")
    if channel.url.startswith("smtps:") and channel.tls not in ("", "tls"):
        raise FieldError(f"{path}.tls", channel.tls, "contradicts smtps://, which is TLS from the first byte on")
    if bool(channel.user) != bool(channel.password):
        raise FieldError(f"{path}.user", channel.user, "needs a password, and a password needs a user")


def channel_rules(channels: Mapping[str, ChannelSettings]) -> Channels:
    """The channels as the check of jobs sees them."""
    return {name: ChannelRule(kind=one.kind, to=one.to, tenants=one.tenants) for name, one in channels.items()}


def channel_as_shown(channel: ChannelSettings) -> dict[str, object]:
    """The fields of the channel that have a value, in the format of a file, without credentials."""
    shown: dict[str, object] = {}
    for key in channel.__struct_fields__:
        value = getattr(channel, key)
        if key.endswith("_ms"):
            shown[key.removesuffix("_ms")] = duration_text(value)
        elif value:
            shown[key] = _field_as_shown(channel, key, value)
    return shown


def _field_as_shown(channel: ChannelSettings, key: str, value: object) -> object:
    if not isinstance(value, str) or value.startswith((_FILE, _SECRET)):
        return value
    if key in CREDENTIAL_FIELDS or (key == "url" and channel.kind is ChannelKind.APPRISE):
        return repr(REDACTED)
    # Anyone who knows the path of a webhook can call it.
    return redacted_url(value) if key == "url" and channel.kind is ChannelKind.WEBHOOK else value
