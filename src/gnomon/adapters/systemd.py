"""Telling the service manager how we are, as systemd asks for it: one word in a datagram."""

import os
import socket
from collections.abc import Mapping
from typing import Self

#: Of the time in which the manager wants to hear of us: how soon we speak.
_SHARE = 3


class SystemdNotifier:
    """Speaks to the manager that started us; without one, every word is lost. It neither fails nor waits."""

    def __init__(self, address: str, *, watchdog_seconds: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        #: How often the manager wants to hear that we are alive; None if it does not ask.
        self.watchdog_interval_seconds = None if watchdog_seconds is None else watchdog_seconds / _SHARE

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The one that the environment names."""
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        within = environment.get("WATCHDOG_USEC", "")
        seconds = int(within) / 1_000_000 if ours and within.isdecimal() and int(within) else None
        return cls(environment.get("NOTIFY_SOCKET", ""), watchdog_seconds=seconds)

    def ready(self, status: str) -> None:
        """We are up."""
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """We are still well."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """We were told to stop, and do."""
        self._send("STOPPING=1\nSTATUS=what runs may finish")

    def _send(self, words: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as line:
            try:
                line.sendto(words.encode(), self._address)
            except OSError:
                # Nobody listens; that is for the manager to notice.
                return
