"""The policy in force, as this process knows it: read from the store, and compiled once per version."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gnomon.core.policy.version import PolicyVersion
from gnomon.errors import UsageError
from gnomon.ports.policy import Policies
from gnomon.ports.runtime import Events

if TYPE_CHECKING:
    from gnomon.core.policy.compiled import CompiledPolicy


class StoredPolicy:
    """Follows the versions of the policy. A version that this program cannot read leaves the last one in force."""

    def __init__(
        self,
        policies: Policies,
        events: Events,
        *,
        compile_version: "Callable[[PolicyVersion], CompiledPolicy]",
        refresh_seconds: float,
    ) -> None:
        """`compile_version` raises UsageError for a version that it cannot read."""
        self._policies, self._events = policies, events
        self._compile = compile_version
        self._refresh_seconds = refresh_seconds
        #: One look at a time: an older version must not replace a newer one that compiled sooner.
        self._looking = asyncio.Lock()
        #: The version that was looked at last; None before the first look.
        self._seen: int | None = None
        self._unreadable = ""
        #: The policy in force; None if there is none, or none that this program can read.
        self.current: CompiledPolicy | None = None
        #: Whether `current` is in force: not before the store was read, nor if only unreadable versions are known.
        self.is_known = False

    @property
    def unreadable(self) -> str:
        """Why the newest version cannot be read; empty if it can."""
        return self._unreadable

    async def refresh(self) -> None:
        """Look at the store for a newer version."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        number = await self._policies.newest_number()
        if number == self._seen:
            return
        newest = await self._policies.newest()
        if newest is None:
            self._seen, self.current, self.is_known = 0, None, not self._unreadable
            return
        try:
            # In a thread: a long file takes too long to compile on the event loop, which the ticker shares.
            self.current, self._unreadable = await asyncio.to_thread(self._compile, newest), ""
        except UsageError as error:
            self._unreadable = f"version {newest.version} of the policy cannot be read: {error}"
            with suppress(Exception):  # a faulty event sink must not stop the gate
                self._events.emit("policy_unreadable", version=newest.version, error=str(error))
        else:
            self._events.emit("policy_in_force", version=newest.version, author=newest.author)
        self._seen = newest.version
        self.is_known = self.current is not None or not self._unreadable

    async def step(self) -> float:
        """Look at the store; return how many seconds to wait until the next look."""
        await self.refresh()
        return self._refresh_seconds
