"""The channels that the settings name."""

from collections.abc import Callable, Mapping

from gnomon.adapters.channels.configured_channel import ConfiguredChannel, MessageSender
from gnomon.adapters.http_client import HttpClient, configured_client
from gnomon.app.secrets import secret_source
from gnomon.config.channels import ChannelSettings
from gnomon.config.sections import SecretsSettings
from gnomon.config.settings import Settings
from gnomon.core.announcements.channels import ChannelKind
from gnomon.ports.announcements import Channel
from gnomon.runners.secrets import redactor

#: The job that reads the secrets of channels: the administrator has named them, so that no rule is needed.
_READER = "channels"


def open_channels(settings: Settings) -> Mapping[str, Channel]:
    """The channels by name. Nothing is called or read yet."""
    if not settings.channels:
        return {}
    client = configured_client()
    read_secret = secret_reader(settings.secrets)
    return {
        name: ConfiguredChannel(
            name, channel, _sender(channel, client), read_secret=read_secret, make_redactor=redactor
        )
        for name, channel in settings.channels.items()
    }


def secret_reader(settings: SecretsSettings) -> Callable[[str], str]:
    """Reads the secrets that the configuration itself names."""

    def read(name: str) -> str:
        source = secret_source(SecretsSettings(allow=(f"{name}=*",), folder=settings.folder))
        return source.read(name, tenant="default", job=_READER)

    return read


def _sender(channel: ChannelSettings, client: HttpClient) -> MessageSender:
    # Each kind loads only what it needs.
    if channel.kind is ChannelKind.EMAIL:
        from gnomon.adapters.channels.mail import MailSender

        return MailSender(channel)
    if channel.kind is ChannelKind.APPRISE:
        from gnomon.adapters.channels.apprise_services import AppriseSender

        return AppriseSender()
    from gnomon.adapters.channels import chat_services, http_requests, webhook

    requests = http_requests.ChannelRequests(client, timeout_ms=channel.timeout_ms)
    senders: Mapping[ChannelKind, Callable[[http_requests.ChannelRequests], MessageSender]] = {
        ChannelKind.TELEGRAM: chat_services.TelegramSender,
        ChannelKind.DISCORD: chat_services.DiscordSender,
        ChannelKind.SLACK: chat_services.SlackSender,
        ChannelKind.MATTERMOST: chat_services.MattermostSender,
        ChannelKind.WEBHOOK: webhook.WebhookSender,
    }
    return senders[channel.kind](requests)
