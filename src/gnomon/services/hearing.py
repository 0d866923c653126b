"""Listening to what services announce."""

from collections.abc import Callable, Mapping, Sequence

from gnomon.ports.runtime import Events

#: Told the name and the facts of each event. It neither fails nor waits.
Listener = Callable[[str, Mapping[str, object]], None]


class HeardEvents:
    """Events that some listen to on their way to others."""

    def __init__(self, inner: Events, listeners: Sequence[Listener]) -> None:
        self._inner = inner
        self._listeners = tuple(listeners)

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        for listen in self._listeners:
            listen(name, facts)
        self._inner.emit(name, **facts)
