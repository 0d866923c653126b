"""Chat services: Telegram, Discord, Slack and Mattermost. Each sends text alone; no part of a text uploads a file."""

from gnomon.adapters.channels.configured_channel import ChannelCredentials, short_reason
from gnomon.adapters.channels.http_requests import (
    TOO_MANY,
    ChannelRequests,
    answer_fields,
    answer_reason,
    check_answer,
    is_good,
)
from gnomon.errors import ChannelFailed, ChannelRefused
from gnomon.ports.announcements import ChannelMessage

TELEGRAM_URL, DISCORD_URL, SLACK_URL = "https://api.telegram.org", "https://discord.com", "https://slack.com"
#: Errors of Slack after which the same request may succeed later.
_SLACK_LATER = frozenset(
    ("ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout")
)


class TelegramSender:
    """Sends to chats of Telegram, as Markdown; as plain text if Telegram does not accept that."""

    def __init__(self, requests: ChannelRequests) -> None:
        self._requests = requests

    async def send(self, message: ChannelMessage, credentials: ChannelCredentials) -> None:
        """See MessageSender.send."""
        chat, _, thread = message.recipient.partition(":")
        url = f"{(credentials.url or TELEGRAM_URL).rstrip('/')}/bot{credentials.token}/sendMessage"
        body: dict[str, object] = {"chat_id": chat, "text": message.text}
        if thread:
            body["message_thread_id"] = int(thread)
        first = await self._requests.post(url, {**body, "parse_mode": "Markdown"})
        if is_good(first):
            return
        if first.status == TOO_MANY:
            check_answer(first, now=message.now)
        second = await self._requests.post(url, body)
        both = f"{answer_reason(second)} (with Markdown: {answer_reason(first)})"
        check_answer(second, now=message.now, reason=both)


class DiscordSender:
    """Sends to channels of Discord, as a bot."""

    def __init__(self, requests: ChannelRequests) -> None:
        self._requests = requests

    async def send(self, message: ChannelMessage, credentials: ChannelCredentials) -> None:
        """See MessageSender.send."""
        base = (credentials.url or DISCORD_URL).rstrip("/")
        # Nobody is called, whatever the text names.
        body = {"content": message.text, "allowed_mentions": {"parse": []}}
        headers = {"Authorization": f"Bot {credentials.token}"}
        answer = await self._requests.post(f"{base}/api/v10/channels/{message.recipient}/messages", body, headers)
        check_answer(answer, now=message.now)


class SlackSender:
    """Sends to channels of Slack."""

    def __init__(self, requests: ChannelRequests) -> None:
        self._requests = requests

    async def send(self, message: ChannelMessage, credentials: ChannelCredentials) -> None:
        """See MessageSender.send."""
        base = (credentials.url or SLACK_URL).rstrip("/")
        body = {"channel": message.recipient, "text": message.text}
        headers = {"Authorization": f"Bearer {credentials.token}"}
        answer = await self._requests.post(f"{base}/api/chat.postMessage", body, headers)
        check_answer(answer, now=message.now)
        fields = answer_fields(answer)
        if fields.get("ok") is True:
            return
        if not fields:
            raise ChannelFailed(f"answered {answer.status} with something that is not from Slack")
        error = short_reason(fields.get("error", "ok is false"))
        if error in _SLACK_LATER:
            raise ChannelFailed(f"answered with the error {error}")
        raise ChannelRefused(f"answered with the error {error}")


class MattermostSender:
    """Sends to channels of Mattermost."""

    def __init__(self, requests: ChannelRequests) -> None:
        self._requests = requests

    async def send(self, message: ChannelMessage, credentials: ChannelCredentials) -> None:
        """See MessageSender.send."""
        channel, _, root = message.recipient.partition(":")
        body = {"channel_id": channel, "message": message.text} | ({"root_id": root} if root else {})
        headers = {"Authorization": f"Bearer {credentials.token}"}
        answer = await self._requests.post(f"{credentials.url.rstrip('/')}/api/v4/posts", body, headers)
        check_answer(answer, now=message.now)
