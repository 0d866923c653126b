"""A configured channel: reads its credentials, bounds the time of a message, and keeps secrets out of errors."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from gnomon.adapters.guarded_files import read_file
from gnomon.config.channels import ChannelSettings
from gnomon.core.announcements.channels import TRAITS, ChannelKind, ChannelRule, ChannelTraits, without_mentions
from gnomon.core.announcements.model import Announcement
from gnomon.core.runs.admission import clean_reason
from gnomon.core.runs.secret_text import SecretPlace, parts_of
from gnomon.errors import AddressRefused, ChannelFailed, ChannelRefused, FieldError, RequestFailed
from gnomon.ports.announcements import ChannelMessage

_FILE = "file:"
_LARGEST_FILE = 16_384
#: Reads a secret by its name; FieldError without it.
ReadSecret = Callable[[str], str]
#: Makes a function that replaces these secrets in a text.
MakeRedactor = Callable[[Mapping[str, str]], Callable[[str], str]]


class ChannelCredentials(Struct, frozen=True, kw_only=True):
    """The credentials of a channel, as they are now."""

    url: str
    token: str
    secret: str
    password: str


class MessageSender(Protocol):
    """Sends a message to a service of one kind."""

    async def send(self, message: ChannelMessage, credentials: ChannelCredentials) -> None:
        """Send it. ChannelFailed if a later try may help, ChannelRefused if not; the errors may hold credentials."""
        ...


class ConfiguredChannel:
    """Implements Channel."""

    def __init__(
        self,
        name: str,
        settings: ChannelSettings,
        sender: MessageSender,
        *,
        read_secret: ReadSecret,
        make_redactor: MakeRedactor,
    ) -> None:
        self._name = name
        self._settings = settings
        self._sender = sender
        self._rule = ChannelRule(kind=settings.kind, to=settings.to, tenants=settings.tenants)
        self._read_secret, self._make_redactor = read_secret, make_redactor

    @property
    def traits(self) -> ChannelTraits:
        """See Channel.traits."""
        return TRAITS[self._settings.kind]

    @property
    def timeout_ms(self) -> int:
        """See Channel.timeout_ms."""
        return self._settings.timeout_ms

    @property
    def give_up_ms(self) -> int:
        """See Channel.give_up_ms."""
        return self._settings.give_up_ms

    def recipient_for(self, announcement: Announcement) -> str:
        """See Channel.recipient_for."""
        if not self._rule.admits(announcement.tenant):
            raise ChannelRefused(f"tenant {announcement.tenant} may not use it")
        recipient = announcement.recipient or self._settings.to
        if self.traits.needs_recipient and not recipient:
            raise ChannelRefused("the announcement names no recipient")
        if recipient and self.traits.recipient is not None and not self.traits.recipient.fullmatch(recipient):
            raise ChannelRefused(f"the recipient {self.traits.recipient_form}")
        return recipient

    def readable(self, text: str) -> str:
        """See Channel.readable."""
        return without_mentions(text, self._settings.kind)

    async def send(self, message: ChannelMessage) -> None:
        """See Channel.send."""
        credentials = await asyncio.to_thread(self._credentials)
        redact = self._redactor(credentials)
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                await self._sender.send(message, credentials)
        except TimeoutError:
            raise ChannelFailed(f"no answer within {self.timeout_ms / 1000:g} s") from None
        except ChannelRefused as error:
            raise ChannelRefused(redact(str(error))) from None
        except ChannelFailed as error:
            raise ChannelFailed(redact(str(error)), retry_after_ms=error.retry_after_ms) from None
        except (RequestFailed, AddressRefused) as error:
            raise ChannelFailed(redact(str(error))) from None

    def _redactor(self, credentials: ChannelCredentials) -> Callable[[str], str]:
        hidden = {"token": credentials.token, "secret": credentials.secret, "password": credentials.password}
        if self._settings.kind in (ChannelKind.APPRISE, ChannelKind.WEBHOOK):
            hidden["url"] = credentials.url
        return self._make_redactor({name: value for name, value in hidden.items() if value})

    def _credentials(self) -> ChannelCredentials:
        settings = self._settings
        return ChannelCredentials(
            url=self._read("url", settings.url),
            token=self._read("token", settings.token),
            secret=self._read("secret", settings.secret),
            password=self._read("password", settings.password),
        )

    def _read(self, field: str, value: str) -> str:
        """The credential, read anew whenever it is used, so that a rotated one takes effect."""
        path = f"channels.{self._name}.{field}"
        if value.startswith(_FILE):
            file = Path(value.removeprefix(_FILE))
            try:
                raw = read_file(file, largest=_LARGEST_FILE, guarded=True, private=True)
                return raw.decode("ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
                raise ChannelFailed(f"{path} cannot be read from its file: {reason}") from None
        try:
            return "".join(
                self._read_secret(part.name) if isinstance(part, SecretPlace) else part for part in parts_of(value)
            )
        except FieldError as error:
            raise ChannelFailed(f"{path} cannot be read: {error}") from None


def short_reason(text: object) -> str:
    """A text of a service, fit for an error: on one line, and short."""
    line = clean_reason(str(text))
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"


_LONGEST_REASON = 200
