"""Notifies the service manager, by the protocol of systemd: assignments in a datagram."""

import os
import socket
from collections.abc import Mapping
from typing import Self

#: How many notifications are sent in one watchdog interval.
_PER_INTERVAL = 3


class SystemdNotifier:
    """Notifies the manager that started this process, if there is one. Never fails and never waits."""

    def __init__(self, address: str, *, watchdog_seconds: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        #: How often to send alive(); None if the manager has no watchdog.
        self.watchdog_interval_seconds = None if watchdog_seconds is None else watchdog_seconds / _PER_INTERVAL

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The notifier for the socket and the watchdog that the environment names."""
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        within = environment.get("WATCHDOG_USEC", "")
        seconds = int(within) / 1_000_000 if ours and within.isdecimal() and int(within) else None
        return cls(environment.get("NOTIFY_SOCKET", ""), watchdog_seconds=seconds)

    def ready(self, status: str) -> None:
        """Report that the process is up."""
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """Report that the process is healthy."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the process is stopping."""
        self._send("STOPPING=1\nSTATUS=waiting for running tasks")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.sendto(message.encode(), self._address)
            except OSError:
                # The manager does not listen; its watchdog acts on that.
                return
