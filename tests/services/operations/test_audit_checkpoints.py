"""Signed checkpoints: changes to the audit trail in the database are found without help from outside."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from contracts.store import HOUR, NOON, minutely
from gnomon.adapters.auth.checkpoint_file import CheckpointFile
from gnomon.adapters.auth.local_key import LocalKey, local_key
from gnomon.adapters.sql import SqlStore, open_postgres
from gnomon.core.audit import ChainProgress, unnumbered_hash, verify_chain
from gnomon.core.model import DAY_MS, MINUTE_MS
from gnomon.ports.audit import AuditQuery
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.maintenance.audit_sealer import AuditSealer, CheckpointSigner
from gnomon.services.operations.audit import AuditService
from gnomon.testing.clock import Recorder, VirtualClock
from support.postgres_server import postgres
from support.sqlite_files import open_new_sqlite

ENTRIES = 6
INSERT = """
INSERT INTO audit (at, actor, tenant, action, kind, name, details)
VALUES ({at}, 'eve', 'default', 'trigger', 'job', 'report', '{{}}')
"""
#: Computes the chain anew after a change, as somebody without the key can.
UNSEAL = "UPDATE audit SET seq = NULL, prev_hash = NULL, hash = NULL"


class Trail:
    """A signed trail of a few entries, one a minute."""

    def __init__(self, store: SqlStore, key: LocalKey, anchor: CheckpointFile) -> None:
        self.store, self.key, self.anchor = store, key, anchor
        self.clock, self.reported = VirtualClock(NOON), Recorder()

    async def filled(self) -> "Trail":
        for number in range(1, ENTRIES + 1):
            await self.change(f"job{number}")
        await self.seal()
        return self

    async def change(self, name: str) -> None:
        self.clock.advance(MINUTE_MS)
        made = replace(minutely(name), created_at=self.clock.now())
        await self.store.schedules.add([made], actor="ada", tzdata="")

    async def seal(self, *, anchored: bool = True, key: LocalKey | None = None) -> None:
        """The step of a new server, every two seconds."""
        signer = CheckpointSigner(key or self.key, self.anchor if anchored else None, self.reported)
        await AuditSealer(
            self.store.audit, self.clock, self.reported, lease=AlwaysHeldSingleton(), signer=signer
        ).step()

    async def seal_without_key(self) -> None:
        await AuditSealer(self.store.audit, self.clock, self.reported, lease=AlwaysHeldSingleton()).step()

    async def tamper(self, *statements: str) -> None:
        def change(conn: sa.Connection) -> None:
            for statement in statements:
                conn.execute(sa.text(statement))

        await self.store.transactions.write(change)

    async def reasons(self, *, anchored: bool = True, key: LocalKey | None = None) -> list[str]:
        service = AuditService(self.store.audit, key=key or self.key, anchor=self.anchor if anchored else None)
        return [one.reason for one in (await service.verify()).breaks]


@pytest.fixture(params=["sqlite", "postgres"])
async def trail(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Trail]:
    key, anchor = local_key(tmp_path / "gnomon.db.key"), CheckpointFile(tmp_path / "gnomon.db.checkpoint")
    if request.param == "sqlite":
        store = await open_new_sqlite(tmp_path / "gnomon.db", now=lambda: NOON)
        yield await Trail(store, key, anchor).filled()
        await store.close()
        return
    async with postgres(18).database() as url:
        store = await open_postgres(url, pool_size=2)
        yield await Trail(store, key, anchor).filled()
        await store.close()


@pytest.mark.req("H-23")
async def test_a_trail_that_nobody_has_touched_is_whole_and_signed(trail: Trail) -> None:
    done = await AuditService(trail.store.audit, key=trail.key, anchor=trail.anchor).verify()

    assert (done.intact, done.head.seq, done.breaks) == (True, ENTRIES, ())
    assert done.checkpoint is not None
    assert (done.checkpoint.seq, done.checkpoint.hash) == (ENTRIES, done.head.hash)
    assert trail.anchor.read() == done.checkpoint


@pytest.mark.req("H-23")
async def test_a_swapped_number_is_found(trail: Trail) -> None:
    await trail.tamper(
        "UPDATE audit SET number = -number WHERE seq IN (2, 3)",
        "UPDATE audit SET number = (SELECT -o.number FROM audit AS o WHERE o.seq = 3) WHERE seq = 2",
        "UPDATE audit SET number = (SELECT o.number - 1 FROM audit AS o WHERE o.seq = 2) WHERE seq = 3",
    )

    assert await trail.reasons() == ["entry 2 was changed", "entry 3 was changed"]


@pytest.mark.req("H-23")
async def test_a_row_with_an_old_time_is_found_although_the_sealer_has_sealed_it(trail: Trail) -> None:
    await trail.tamper(INSERT.format(at=NOON - DAY_MS))
    await trail.change("later")
    await trail.seal()

    [reason] = await trail.reasons()
    assert reason.startswith("entry 7 is dated 2026-03-01T12:00:00+00:00, but follows one of 2026-03-02T12:06:00")


async def test_old_times_cannot_be_reached_in_small_steps(trail: Trail) -> None:
    await trail.tamper(*(INSERT.format(at=trail.clock.now() - step * 4 * MINUTE_MS) for step in range(1, 5)))
    await trail.seal()

    assert [reason.split()[1] for reason in await trail.reasons()] == ["8", "10"]


async def test_entries_that_overtook_each_other_are_no_break(trail: Trail) -> None:
    await trail.tamper(INSERT.format(at=trail.clock.now() - 4 * MINUTE_MS))
    await trail.seal()

    assert await trail.reasons() == []


@pytest.mark.req("H-23")
@pytest.mark.parametrize(
    ("cut", "left"), [("DELETE FROM audit WHERE seq >= 5", 4), ("DELETE FROM audit", 0)], ids=["a tail", "all"]
)
async def test_a_cut_end_is_found_and_stays_found(trail: Trail, cut: str, left: int) -> None:
    await trail.tamper(cut)
    found = [f"the end was cut off: 6 entries were signed at 2026-03-02T12:06:00+00:00, {left} are left"]
    assert await trail.reasons() == found
    assert await trail.reasons(anchored=False) == found

    for number in range(5):
        await trail.change(f"more{number}")
        await trail.seal()

    assert "audit_broken" in trail.reported.names()
    assert any("signed at 2026-03-02T12:06:00" in reason for reason in await trail.reasons())
    assert any("signed at 2026-03-02T12:06:00" in reason for reason in await trail.reasons(anchored=False))


@pytest.mark.req("H-23")
async def test_a_chain_that_was_made_anew_is_found(trail: Trail) -> None:
    await trail.tamper("UPDATE audit SET actor = 'eve' WHERE seq = 2", UNSEAL)
    await trail.seal()

    assert any("the chain was made anew" in reason for reason in await trail.reasons())
    assert any("the chain was made anew" in reason for reason in await trail.reasons(anchored=False))


@pytest.mark.req("H-23")
async def test_a_removed_checkpoint_is_found_and_no_new_one_hides_it(trail: Trail) -> None:
    await trail.tamper("DELETE FROM audit WHERE seq >= 5", "DELETE FROM audit_checkpoint")
    await trail.change("more")
    await trail.seal(anchored=False)

    assert trail.reported.names()[-1] == "audit_broken"
    assert any("the signed checkpoint of entry 5 is missing" in one for one in await trail.reasons(anchored=False))


async def test_entries_without_a_signature_do_not_hide_a_removed_checkpoint(trail: Trail) -> None:
    await trail.tamper("DELETE FROM audit WHERE seq >= 5", "DELETE FROM audit_checkpoint")
    await trail.change("more")
    await trail.seal_without_key()
    await trail.seal(anchored=False)

    assert any("the signed checkpoint of entry 4 is missing" in one for one in await trail.reasons(anchored=False))


@pytest.mark.req("H-23")
async def test_a_cut_of_trail_and_checkpoint_is_found_by_the_file(trail: Trail) -> None:
    await trail.tamper("DELETE FROM audit", "DELETE FROM audit_checkpoint")
    assert await trail.reasons(anchored=False) == []

    await trail.change("more")
    await trail.seal()

    assert any("the end was cut off: 6 entries were signed" in one for one in await trail.reasons())


@pytest.mark.parametrize(
    "change",
    [
        "seq = 4, hash = (SELECT hash FROM audit WHERE seq = 4)",
        "seq = 4",
        "hash = '00'",
        "at = 1",
        "signature = 'xyz'",
        "signature = ''",
    ],
)
async def test_a_forged_checkpoint_is_found_and_not_signed_over(trail: Trail, change: str) -> None:
    await trail.tamper(f"UPDATE audit_checkpoint SET {change}", "DELETE FROM audit WHERE seq >= 5")  # noqa: S608 - what the test says
    await trail.change("more")
    await trail.seal(anchored=False)

    assert "a signed checkpoint was changed" in await trail.reasons(anchored=False)


async def test_a_key_that_was_removed_is_missed(trail: Trail) -> None:
    done = await AuditService(trail.store.audit, anchor=trail.anchor).verify()

    assert [one.reason for one in done.breaks] == ["entry 6 was signed, and the key that verifies this is missing"]


async def test_a_checkpoint_of_another_key_does_not_count(trail: Trail, tmp_path: Path) -> None:
    other = local_key(tmp_path / "other.key")
    await trail.tamper("DELETE FROM audit WHERE seq >= 5", "DELETE FROM audit_checkpoint")
    await trail.change("more")
    await trail.seal(key=other)

    assert any("the signed checkpoint of entry" in one for one in await trail.reasons(anchored=False))
    assert any("the end was cut off" in one for one in await trail.reasons())


async def test_after_a_restored_backup_or_a_new_key_the_owner_accepts_the_chain(trail: Trail, tmp_path: Path) -> None:
    other = local_key(tmp_path / "other.key")
    await trail.tamper("DELETE FROM audit WHERE seq >= 5")
    assert await trail.reasons(key=other)

    service = AuditService(trail.store.audit, key=other, anchor=trail.anchor)
    await service.accept(actor="ada", now=trail.clock.now())
    await trail.seal(key=other)

    assert await trail.reasons(key=other) == []
    [entry] = await trail.store.audit.sealed(after=4, limit=1)
    assert (entry.entry.actor, entry.entry.action) == ("ada", "accept")


@pytest.mark.req("H-23")
async def test_a_chain_of_an_older_program_stays_valid_and_is_signed_at_the_next_start(trail: Trail) -> None:
    before, rows = "0" * 64, reversed(await trail.store.audit.page(AuditQuery()))
    statements = ["DELETE FROM audit_checkpoint"]
    for stored in rows:
        own = unnumbered_hash(before, stored.entry)
        statements.append(
            f"UPDATE audit SET prev_hash = '{before}', hash = '{own}' WHERE number = {stored.number}"  # noqa: S608 - our own values
        )
        before = own
    await trail.tamper(*statements)
    assert verify_chain(ChainProgress(), await trail.store.audit.sealed(after=0, limit=99))[1] == []

    await trail.seal(anchored=False)

    assert await trail.reasons(anchored=False) == []
    await trail.tamper("DELETE FROM audit WHERE seq >= 5")
    assert len(await trail.reasons(anchored=False)) == 1


async def test_a_checkpoint_is_logged_once_an_hour(trail: Trail) -> None:
    signer = CheckpointSigner(trail.key, None, trail.reported)
    sealer = AuditSealer(trail.store.audit, trail.clock, trail.reported, lease=AlwaysHeldSingleton(), signer=signer)
    trail.reported.seen.clear()

    for name in ("a", "b"):
        await trail.change(name)
        await sealer.step()
    trail.clock.advance(HOUR)
    await trail.change("c")
    await sealer.step()

    logged = [facts["seq"] for name, facts in trail.reported.seen if name == "audit_checkpoint"]
    assert logged == [7, 9]


async def test_a_file_that_holds_something_else_is_announced_and_stops_no_sealing(trail: Trail, tmp_path: Path) -> None:
    file = tmp_path / "gnomon.db.checkpoint"
    file.write_text("{}")
    await trail.change("more")

    await trail.seal()

    assert "audit_anchor_failed" in trail.reported.names()
    assert (await trail.store.audit.head())[1] == 0
