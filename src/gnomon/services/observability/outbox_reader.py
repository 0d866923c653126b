"""Counting what other processes commit: the metrics outbox, and the server that reads it.

Purpose. Servers export the counters of executions, attempts and dead letters; alerts and dashboards rest on them. In
a fleet on a database, workers commit most of these changes, and so does a command that works on the database itself.
Neither needs to serve metrics, and a worker may be gone a second later. Every commit must be counted nevertheless,
once.

How. A process that does not count its own commits writes a row to the outbox in the same transaction
(`CommitJournal`, `adapters/sql/after_commit.py`): the change and the row are there together or not at all. One
server, which holds the lease `metrics`, deletes the rows, and adds their values to its own counters once the deletion
is committed. A server counts its own commits directly, when they are committed, and writes no rows.

Why this is right. A row can be deleted only once, so no commit is counted twice, even if two servers read at a time.
The lease saves the other servers the work, and keeps the counts of a job in one series, for alerts that look at
single series. If the reading server dies, another one continues with the rows that are left. Rows that the dead
server had deleted are lost only with its own counters, as Prometheus expects of a process that starts anew. While no
server runs, the rows wait. Counters of a living process never go back, and the sum over all servers equals the rows
of runs and attempts.

Cost. A worker writes one small row more in a transaction that already writes several, and the reading server
looks at an empty table once a second.

Alternatives. Workers could export their own counters, but a worker that is not scraped, or that ends between two
scrapes, would be missing. A server could look for changed rows of runs and attempts, but would need indexes by time
on the busiest tables, and could miss commits that become visible out of order.
"""

from collections.abc import Callable

import msgspec

from gnomon.core.metrics import MetricChanges
from gnomon.errors import Unavailable
from gnomon.ports.commit_observer import MetricsOutbox
from gnomon.services.coordination import Singleton

#: How often the outbox is looked at, and how many entries are taken at once.
_READ_SECONDS, _ENTRIES_AT_ONCE = 1.0, 500
#: Servers that export no metrics remove what nobody has counted for so long, and look for that so often.
_UNCOUNTED_MS, _DISCARD_SECONDS = 60 * 60_000, 60.0
_DECODER = msgspec.json.Decoder(MetricChanges)


class OutboxReader:
    """Counts the commits of processes that serve no counters; without `count` it only removes old ones."""

    def __init__(
        self,
        outbox: MetricsOutbox,
        lease: Singleton,
        *,
        count: Callable[[MetricChanges], None] | None,
        active: Callable[[], bool],
    ) -> None:
        """`active` says whether this process runs its services: one that stands by leaves the outbox alone."""
        self._outbox = outbox
        self._lease = lease
        self._count = count
        self._active = active

    async def step(self) -> float:
        """Count what is in the outbox. Returns how many seconds to wait before the next step."""
        if not self._active():
            return _READ_SECONDS
        try:
            if self._count is None:
                await self._outbox.discard(older_than_ms=_UNCOUNTED_MS)
                return _DISCARD_SECONDS
            if not await self._lease.ours():
                return self._lease.retry_seconds
            return await self._read(self._count)
        except Unavailable:
            # The entries wait until the store is available again; other services announce that.
            return _READ_SECONDS

    async def _read(self, count: Callable[[MetricChanges], None]) -> float:
        entries = await self._outbox.take(limit=_ENTRIES_AT_ONCE)
        for entry in entries:
            try:
                changes = _DECODER.decode(entry)
            except msgspec.DecodeError:
                # An entry of a program that this one does not understand is not worth an error in every step.
                continue
            count(changes)
        return 0.0 if len(entries) == _ENTRIES_AT_ONCE else _READ_SECONDS
