"""The stores keep the contract while payloads are encrypted."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from contracts.external_events import ExternalEventContract
from contracts.store import ManualClock
from contracts.stuck_runs import StuckRunsContract
from contracts.tasks import TaskContract
from gnomon.adapters.payload_cipher import AesGcmCipher
from gnomon.adapters.sql import SqlStore
from gnomon.adapters.sql.connect import PayloadAccess
from support.row_editing import EditRow, WriteState, sql_row_editor, sql_state_writer
from support.sqlite_files import open_new_sqlite


class TestEncryptedSqliteStore(TaskContract, ExternalEventContract, StuckRunsContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqlStore]:
        payloads = PayloadAccess(cipher=AesGcmCipher([os.urandom(32)]))
        store = await open_new_sqlite(tmp_path / "gnomon.db", now=lambda: clock.now, payloads=payloads)
        yield store
        await store.close()

    @pytest.fixture
    def plant(self, store: SqlStore) -> EditRow:
        return sql_row_editor(store)

    @pytest.fixture
    def write_state(self, store: SqlStore) -> WriteState:
        return sql_state_writer(store)

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Callable[[int], None]:
        return clock.advance
