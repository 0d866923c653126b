"""Channels as the core sees them: their kinds, what each needs of a job, and which jobs may use them."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from gnomon.core.announcements.model import AnnounceRule
from gnomon.core.announcements.split import TextLimit, TextUnit
from gnomon.core.commands.tenants import ALL_TENANTS
from gnomon.core.spelling import nearest
from gnomon.errors import FieldError


class ChannelKind(StrEnum):
    """The kinds of channels."""

    TELEGRAM = "telegram"
    DISCORD = "discord"
    SLACK = "slack"
    MATTERMOST = "mattermost"
    #: Any server that checks signatures as Standard Webhooks defines them.
    WEBHOOK = "webhook"
    EMAIL = "email"
    #: One of the services that the library Apprise knows.
    APPRISE = "apprise"


class ChannelTraits(Struct, frozen=True, kw_only=True):
    """The needs and the limits of a kind of channel."""

    #: The length of one message; None if a text is never split.
    limit: TextLimit | None = None
    #: The pause between two parts of one text.
    pause_ms: int = 0
    #: Whether each announcement needs a recipient, the form that it has, and the reason for refusing another.
    needs_recipient: bool = False
    recipient: re.Pattern[str] | None = None
    recipient_form: str = ""
    #: Whether people read the text, so that it could call all of them.
    has_mentions: bool = False
    #: Whether the service understands HTML entities, and commands between angle brackets.
    has_entities: bool = False


_ADDRESS = r"[^\s@,;<>()\"\\]+@[^\s@,;<>()\"\\]+"
TRAITS: Mapping[ChannelKind, ChannelTraits] = {
    ChannelKind.TELEGRAM: ChannelTraits(
        limit=TextLimit(4096, TextUnit.UTF16),
        pause_ms=100,
        needs_recipient=True,
        recipient=re.compile(r"(-?[0-9]{1,20}|@[A-Za-z0-9_]{1,64})(:[0-9]{1,20})?"),
        recipient_form="must be a chat such as -1001234567890 or @news, perhaps with a thread behind a colon",
        has_mentions=True,
    ),
    ChannelKind.DISCORD: ChannelTraits(
        limit=TextLimit(2000),
        pause_ms=500,
        needs_recipient=True,
        recipient=re.compile(r"[0-9]{1,20}"),
        recipient_form="must be the number of a channel",
        has_mentions=True,
    ),
    ChannelKind.SLACK: ChannelTraits(
        limit=TextLimit(40_000),
        needs_recipient=True,
        recipient=re.compile(r"#?[A-Za-z0-9._-]{1,80}"),
        recipient_form="must be the id of a channel, such as C024BE91L",
        has_mentions=True,
        has_entities=True,
    ),
    ChannelKind.MATTERMOST: ChannelTraits(
        limit=TextLimit(16_383),
        needs_recipient=True,
        recipient=re.compile(r"[A-Za-z0-9]{1,64}(:[A-Za-z0-9]{1,64})?"),
        recipient_form="must be the id of a channel, perhaps with that of a root post behind a colon",
        has_mentions=True,
    ),
    ChannelKind.WEBHOOK: ChannelTraits(),
    ChannelKind.EMAIL: ChannelTraits(
        needs_recipient=True,
        recipient=re.compile(rf"{_ADDRESS}(\s*,\s*{_ADDRESS}){{0,99}}"),
        recipient_form="must be an e-mail address, or several with commas between them",
    ),
    ChannelKind.APPRISE: ChannelTraits(has_mentions=True),
}


class ChannelRule(Struct, frozen=True, kw_only=True):
    """A configured channel as the check of jobs sees it."""

    kind: ChannelKind
    #: Its own recipient, for announcements that name none.
    to: str = ""
    #: The tenants whose jobs may use it; `*` for all. Its credentials are the operator's.
    tenants: tuple[str, ...] = ("default",)

    def admits(self, tenant: str) -> bool:
        """Whether jobs of the tenant may use it."""
        return tenant in self.tenants or ALL_TENANTS in self.tenants


Channels = Mapping[str, ChannelRule]


def check_recipient(field: str, kind: ChannelKind, to: str) -> None:
    """Raise FieldError unless the kind of channel understands the recipient."""
    traits = TRAITS[kind]
    if traits.recipient is None:
        raise FieldError(field, to, f"means nothing to a channel of kind {kind}")
    if not traits.recipient.fullmatch(to):
        raise FieldError(field, to, traits.recipient_form)


def check_announcements(rules: Sequence[AnnounceRule], channels: Channels | None, tenant: str) -> None:
    """Raise FieldError for a rule whose channel is not configured, or needs something else. None: nothing is known."""
    if channels is None:
        return
    for number, rule in enumerate(rules):
        path = "announce" if len(rules) == 1 else f"announce[{number}]"
        _check_rule(path, rule, channels, tenant)


def _check_rule(path: str, rule: AnnounceRule, channels: Channels, tenant: str) -> None:
    # A tenant does not learn the names of channels that it may not use.
    known = {name: one for name, one in channels.items() if one.admits(tenant)}
    channel = known.get(rule.channel)
    if channel is None:
        near = nearest(rule.channel, known)
        hint = f"; did you mean {near}?" if near else ""
        raise FieldError(f"{path}.channel", rule.channel, f"is no channel of the settings{hint}")
    if rule.to:
        check_recipient(f"{path}.to", channel.kind, rule.to)
    elif TRAITS[channel.kind].needs_recipient and not channel.to:
        raise FieldError(f"{path}.to", "", f"is missing: a channel of kind {channel.kind} needs a recipient")


# ---- mentions ------------------------------------------------------------------------------------

#: It has no width, and parts the sign from the word.
_ZERO_WIDTH = "\u200b"
_EVERYBODY = re.compile(r"@(?=everyone|here|channel|all\b)", re.IGNORECASE)


def without_mentions(text: str, kind: ChannelKind) -> str:
    """The text in which nothing calls everybody."""
    traits = TRAITS[kind]
    if not traits.has_mentions:
        return text
    if traits.has_entities:
        text = text.replace("<!", "&lt;!")
    return _EVERYBODY.sub(f"@{_ZERO_WIDTH}", text)


# ---- trying again --------------------------------------------------------------------------------

_FIRST_DELAY_MS, _LONGEST_DELAY_MS = 1000, 300_000
#: The longest wait that a service may ask for.
_LONGEST_ASKED_MS = 3_600_000


def retry_delay_ms(tries: int, asked_ms: int | None) -> int:
    """The delay before the next try after so many failures, or as long as the service has asked for."""
    if asked_ms is not None:
        return min(max(asked_ms, 0), _LONGEST_ASKED_MS)
    return min(_FIRST_DELAY_MS << min(max(tries - 1, 0), 16), _LONGEST_DELAY_MS)
