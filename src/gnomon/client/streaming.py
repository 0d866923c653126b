"""Reading the stream of changes: lines of server-sent events, and what they tell."""

import msgspec

from gnomon.core.responses import StreamChange
from gnomon.errors import Unavailable

#: The server says every fifteen seconds that it is still there: whoever is silent for so long is gone.
SILENCE_SECONDS = 45.0
TARGET = "/v1/stream"


class Listening:
    """Makes changes out of lines, one after the other."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def heard(self, line: bytes) -> StreamChange | None:
        """The change that this line completes, if it does."""
        text = line.decode().rstrip("\r\n")
        if text:
            # A line that begins with a colon only says that somebody is there.
            name, _, value = text.partition(": ")
            self._said[name] = value
            return None
        said, self._said = self._said, {}
        if "data" not in said:
            return None
        try:
            facts = msgspec.json.decode(said["data"], type=dict[str, object])
            told = {"kind": said["event"], "number": int(said["id"]), "facts": facts, **facts}
            known = {field: told.get(field) for field in StreamChange.__struct_fields__}
            return msgspec.convert(known, StreamChange)
        except (KeyError, ValueError) as error:
            raise Unavailable(f"the stream cannot be read: {error}") from None
