"""The services of the library Apprise, an extra: it blocks, so that each message has a thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from gnomon.adapters.channels.configured_channel import ChannelCredentials
from gnomon.core.announcements.model import AnnounceMoment
from gnomon.core.announcements.text import announcement_title
from gnomon.errors import ChannelFailed, ChannelRefused
from gnomon.ports.announcements import ChannelMessage

_THREADS = 4
_TYPES = {AnnounceMoment.SUCCESS: "success", AnnounceMoment.RECOVERY: "success", AnnounceMoment.FAILURE: "failure"}


class AppriseSender:
    """Sends to the service of an Apprise URL, which splits long texts by itself."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="gnomon-apprise")

    async def send(self, message: ChannelMessage, credentials: ChannelCredentials) -> None:
        """See MessageSender.send."""
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(self._threads, _notify, message, credentials.url):
            raise ChannelFailed("the service did not take it")


def _notify(message: ChannelMessage, url: str) -> bool:
    try:
        import apprise
    except ImportError:
        raise ChannelRefused("it needs the package apprise: pip install 'gnomon[apprise]'") from None
    # Its lines could hold what is sent.
    apprise.logger.disabled = True
    services = apprise.Apprise()
    if not services.add(url):
        raise ChannelRefused("its url is none that Apprise knows")
    for service in services:
        service.overflow_mode = apprise.OverflowMode.SPLIT
    return bool(
        services.notify(
            body=message.text,
            title=announcement_title(message.announcement),
            notify_type=_TYPES.get(message.announcement.moment, "warning"),
            body_format=apprise.NotifyFormat.TEXT,
        )
    )
