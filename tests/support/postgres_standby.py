"""A standby of a PostgreSQL server that can be promoted."""

import shutil
import subprocess
import time
from pathlib import Path

from support.postgres_server import Postgres

_PATIENCE = 30.0


class Standby(Postgres):
    """A server of the newest version that replicates another one."""

    def __init__(self, version: int, primary: Postgres) -> None:
        super().__init__(version)
        self._primary = primary

    def _make_folder(self) -> Path:
        folder = super()._make_folder()
        shutil.rmtree(folder / "data")
        copied = [str(self._bin / "pg_basebackup"), "-D", str(folder / "data"), "-h", "127.0.0.1", "-U", "gnomon"]
        # With the configuration that a standby needs.
        copied += ["-p", str(self._primary.port), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
        subprocess.run(copied, check=True, capture_output=True, cwd=folder, **self.run_by)
        return folder

    async def wait_until_caught_up(self) -> None:
        """Wait until all present data of the primary is here."""
        [[reached]] = await self._primary.run("SELECT pg_current_wal_lsn()::text")
        deadline = time.monotonic() + _PATIENCE
        while True:
            [[here]] = await self.run(f"SELECT pg_last_wal_replay_lsn() >= '{reached}'::pg_lsn")
            if here:
                return
            assert time.monotonic() < deadline, "it does not follow"

    async def make_synchronous(self) -> None:
        """Let the primary confirm commits only once they are here as well."""
        await self._primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await self._primary.run("SELECT pg_reload_conf()")
        deadline = time.monotonic() + _PATIENCE
        while not await self._primary.run("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            assert time.monotonic() < deadline, "they do not agree"

    async def promote(self) -> None:
        """Promote the standby, so that it accepts writes."""
        await self.run("SELECT pg_promote()")
