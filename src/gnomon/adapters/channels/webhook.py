"""Webhooks: one signed request for each announcement, as Standard Webhooks defines it."""

import base64
import binascii
import hashlib
import hmac

import msgspec
from msgspec.structs import asdict

from gnomon.adapters.channels.configured_channel import ChannelCredentials
from gnomon.adapters.channels.http_requests import ChannelRequests, check_answer
from gnomon.core.announcements.text import announcement_title
from gnomon.core.instants import instant_of
from gnomon.errors import ChannelRefused
from gnomon.ports.announcements import ChannelMessage

_PREFIX = "whsec_"


class WebhookSender:
    """Sends an announcement as JSON with a signature over its id, the time and the body."""

    def __init__(self, requests: ChannelRequests) -> None:
        self._requests = requests

    async def send(self, message: ChannelMessage, credentials: ChannelCredentials) -> None:
        """See MessageSender.send."""
        body = webhook_body(message)
        stamp = message.now // 1000
        name = message.announcement.announcement_id
        headers = {
            "webhook-id": name,
            "webhook-timestamp": str(stamp),
            "webhook-signature": f"v1,{webhook_signature(credentials.secret, name, stamp, body)}",
        }
        answer = await self._requests.post(credentials.url, body, headers)
        check_answer(answer, now=message.now)


def webhook_body(message: ChannelMessage) -> bytes:
    """The announcement as JSON: its type, its time and its data."""
    one = message.announcement
    facts = one.facts
    data: dict[str, object] = {
        "announcement_id": one.announcement_id,
        "tenant": one.tenant,
        "job": one.job,
        "execution_id": one.run_id,
        "moment": one.moment.value,
        "planned_at": instant_of(one.planned_at).isoformat(),
        "title": announcement_title(one),
        "text": message.text,
        "error": facts.error,
        "failures": facts.failures,
        "reason": facts.reason,
        "count": facts.count,
    }
    if facts.approval is not None:
        data["approval"] = {**asdict(facts.approval), "expires_at": instant_of(facts.approval.expires_at).isoformat()}
    return msgspec.json.encode(
        {"type": f"job.{one.moment.value}", "timestamp": instant_of(one.created_at).isoformat(), "data": data}
    )


def webhook_signature(secret: str, name: str, stamp: int, body: bytes) -> str:
    """The signature, version 1: HMAC-SHA256 in Base64 over `id.timestamp.body`."""
    signed = f"{name}.{stamp}.".encode() + body
    return base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest()).decode()


def _key(secret: str) -> bytes:
    """The key: the text behind the prefix is Base64; a secret without the prefix is the key itself."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ChannelRefused("its secret begins with whsec_, but the rest is not Base64") from None
