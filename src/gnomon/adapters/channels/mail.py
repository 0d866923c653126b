"""E-mail: one message for each announcement, over SMTP."""

import socket
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import urlsplit

from gnomon.adapters.channels.configured_channel import ChannelCredentials, short_reason
from gnomon.config.channels import ChannelSettings
from gnomon.core.announcements.text import announcement_title
from gnomon.errors import ChannelFailed, ChannelRefused
from gnomon.ports.announcements import ChannelMessage

_PORTS = {"tls": 465, "starttls": 587, "none": 25}
_PERMANENT = range(500, 600)


class MailSender:
    """Sends an e-mail, by STARTTLS unless the settings choose otherwise."""

    def __init__(self, settings: ChannelSettings) -> None:
        self._settings = settings

    async def send(self, message: ChannelMessage, credentials: ChannelCredentials) -> None:
        """See MessageSender.send."""
        import aiosmtplib

        settings = self._settings
        address = urlsplit(credentials.url)
        protection = "tls" if address.scheme == "smtps" else settings.tls or "starttls"
        recipients = [one.strip() for one in message.recipient.split(",")]
        try:
            refused, _ = await aiosmtplib.send(
                mail_of(message, sender=settings.sender, recipients=recipients),
                sender=settings.sender,
                recipients=recipients,
                hostname=address.hostname,
                port=address.port or _PORTS[protection],
                username=settings.user or None,
                password=credentials.password or None,
                # The library would ask the name server, and wait for it.
                local_hostname=socket.gethostname(),
                use_tls=protection == "tls",
                start_tls=protection == "starttls",
                cert_bundle=settings.ca_file or None,
                timeout=settings.timeout_ms / 1000,
            )
        except aiosmtplib.SMTPRecipientsRefused as error:
            _raise_answer(max(one.code for one in error.recipients), "no recipient was accepted")
        except aiosmtplib.SMTPResponseException as error:
            _raise_answer(error.code, error.message)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise ChannelFailed(f"the mail cannot be sent: {type(error).__name__}: {short_reason(error)}") from None
        if refused:
            # The others have it: another try would send it to them again.
            raise ChannelRefused(f"{len(refused)} of {len(recipients)} recipients were refused; the others have it")


def _raise_answer(code: int, text: str) -> None:
    reason = f"the mail server answered {code}: {short_reason(text)}"
    raise ChannelRefused(reason) if code in _PERMANENT else ChannelFailed(reason)


def mail_of(message: ChannelMessage, *, sender: str, recipients: list[str]) -> EmailMessage:
    """The announcement as an e-mail. Every try has the same id, by which mail servers find doubles."""
    one = message.announcement
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Subject"] = announcement_title(one)
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.now / 1000, UTC))
    mail["Message-ID"] = f"<{one.announcement_id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail
