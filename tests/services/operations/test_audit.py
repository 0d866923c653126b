"""The audit trail proves that nobody has changed it: entries are tampered with in a real file, and that is found."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.audit import MemoryAuditTrail
from gnomon.adapters.memory.state import MemoryTables
from gnomon.adapters.sql import SqlStore, open_sqlite
from gnomon.core.audit import (
    GENESIS,
    AuditEntry,
    ChainHead,
    ChainProgress,
    StoredAuditEntry,
    canonical,
    chain_hash,
    schedule_digest,
    seal_entries,
    verify_chain,
)
from gnomon.core.cron import Cron
from gnomon.errors import FieldError, StoreUnavailable
from gnomon.ports.audit import AuditQuery, Sealing, SealOutcome
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.maintenance.audit_sealer import AuditSealer
from gnomon.services.operations.audit import AuditService
from gnomon.testing.clock import Recorder, VirtualClock

ENTRIES = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    """A store with a few entries, all sealed."""
    store = await open_sqlite(str(path))
    for number in range(1, ENTRIES + 1):
        await store.schedules.add([minutely(f"job{number}")], actor="ada", tzdata="")
    await AuditSealer(store.audit, VirtualClock(NOON), Recorder(), lease=AlwaysHeldSingleton()).step()
    yield store
    await store.close()


@pytest.fixture
def audit_service(store: SqlStore) -> AuditService:
    return AuditService(store.audit)


def tamper(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as conn:
        for statement in statements:
            conn.execute(statement)
    conn.close()


async def reasons(audit_service: AuditService, expect: str | None = None) -> list[str]:
    return [one.reason for one in (await audit_service.verify(expect=expect)).breaks]


@pytest.mark.req("H-23")
async def test_a_chain_that_nobody_has_touched_is_whole(audit_service: AuditService, store: SqlStore) -> None:
    done = await audit_service.verify()

    assert (done.intact, done.head.seq, done.unsealed) == (True, ENTRIES, 0)
    assert (done.head, 0) == await store.audit.head()


@pytest.mark.req("H-23")
@pytest.mark.parametrize(
    "change",
    [
        "actor = 'eve'",
        "at = at + 1",
        "tenant = 'acme'",
        "action = 'delete'",
        "kind = 'event'",
        "name = 'other'",
        "before = 'x'",
        "after = NULL",
        "details = '{}'",
    ],
)
async def test_a_changed_entry_is_found_and_named(audit_service: AuditService, path: Path, change: str) -> None:
    tamper(path, f"UPDATE audit SET {change} WHERE seq = 3")  # noqa: S608 - what the test says

    assert await reasons(audit_service) == ["entry 3 was changed"]


@pytest.mark.req("H-23")
async def test_a_changed_hash_is_found(audit_service: AuditService, path: Path) -> None:
    tamper(path, f"UPDATE audit SET hash = '{'0' * 64}' WHERE seq = 3")  # noqa: S608 - what the test says

    assert await reasons(audit_service) == [
        "entry 3 was changed",
        "entry 4 does not follow the one before it: one was added, removed or moved",
    ]


@pytest.mark.req("H-23")
@pytest.mark.parametrize(
    ("condition", "missing"),
    [
        ("seq = 3", "entry 3 is missing"),
        ("seq IN (3, 4)", "entries 3 to 4 are missing"),
        ("seq = 1", "entry 1 is missing"),
    ],
)
async def test_removed_entries_are_found(audit_service: AuditService, path: Path, condition: str, missing: str) -> None:
    tamper(path, f"DELETE FROM audit WHERE {condition}")  # noqa: S608 - what the test says

    assert await reasons(audit_service) == [missing]


def moved(seq: int, to: int) -> str:
    return f"UPDATE audit SET seq = {to} WHERE seq = {seq}"  # noqa: S608 - numbers


async def test_a_removed_entry_is_found_if_the_others_close_ranks(audit_service: AuditService, path: Path) -> None:
    tamper(path, "DELETE FROM audit WHERE seq = 3", *(moved(n, n - 1) for n in (4, 5, 6)))

    assert await reasons(audit_service) == [
        "entry 3 does not follow the one before it: one was added, removed or moved"
    ]


COPY = """
INSERT INTO audit (at, actor, tenant, action, kind, name, before, after, details, seq, prev_hash, hash)
SELECT at, actor, tenant, action, kind, name, before, after, details, 3, hash, ? FROM audit WHERE seq = 2
"""


@pytest.mark.req("H-23")
async def test_an_added_entry_is_found(audit_service: AuditService, path: Path, store: SqlStore) -> None:
    [second] = await store.audit.sealed(after=1, limit=1)
    own = chain_hash(str(second.hash), ENTRIES + 1, second.entry, signed=False)
    tamper(path, *(moved(n, n + 1) for n in (6, 5, 4, 3)))
    tamper(path, COPY.replace("?", f"'{own}'"))

    assert await reasons(audit_service) == [
        "entry 4 does not follow the one before it: one was added, removed or moved"
    ]


@pytest.mark.req("H-23")
async def test_entries_that_changed_places_are_found(audit_service: AuditService, path: Path) -> None:
    tamper(path, moved(3, 99), moved(4, 3), moved(99, 4))

    found = await reasons(audit_service)

    assert [reason.split()[1] for reason in found] == ["3", "4", "5"]


@pytest.mark.req("H-23")
async def test_an_end_that_was_cut_off_is_found_by_whoever_knows_a_hash_of_it(
    audit_service: AuditService, path: Path, store: SqlStore
) -> None:
    head, _ = await store.audit.head()
    tamper(path, "DELETE FROM audit WHERE seq >= 5")

    assert await reasons(audit_service) == []
    assert await reasons(audit_service, expect=head.hash) == [
        "the expected entry is not there: the end was cut off, or all was made anew"
    ]


async def test_a_chain_that_was_made_anew_is_found_by_whoever_knows_a_hash_of_the_old(
    audit_service: AuditService, path: Path, store: SqlStore
) -> None:
    head, _ = await store.audit.head()
    tamper(
        path,
        "UPDATE audit SET actor = 'eve' WHERE seq = 2",
        "UPDATE audit SET seq = NULL, prev_hash = NULL, hash = NULL",
    )
    await AuditSealer(store.audit, VirtualClock(NOON), Recorder(), lease=AlwaysHeldSingleton()).step()

    assert await reasons(audit_service) == []
    assert len(await reasons(audit_service, expect=head.hash)) == 1


async def test_a_hash_that_was_once_the_last_is_enough(audit_service: AuditService, store: SqlStore) -> None:
    head, _ = await store.audit.head()
    await store.schedules.add([minutely("more")], actor="bob", tzdata="")
    await AuditSealer(store.audit, VirtualClock(NOON), Recorder(), lease=AlwaysHeldSingleton()).step()

    assert await reasons(audit_service, expect=head.hash) == []
    assert await reasons(audit_service, expect=GENESIS) == []


async def test_many_broken_entries_are_reported_briefly(
    audit_service: AuditService, path: Path, store: SqlStore
) -> None:
    await store.schedules.add([minutely(f"more{n}") for n in range(50)], actor="ada", tzdata="")
    await AuditSealer(store.audit, VirtualClock(NOON), Recorder(), lease=AlwaysHeldSingleton()).step()
    tamper(path, "UPDATE audit SET actor = 'eve'")

    assert len(await reasons(audit_service)) == 20


async def test_unsealed_entries_are_counted(audit_service: AuditService, store: SqlStore) -> None:
    await store.schedules.add([minutely("more")], actor="bob", tzdata="")

    done = await audit_service.verify()

    assert (done.intact, done.head.seq, done.unsealed) == (True, ENTRIES, 1)


@pytest.mark.req("H-23")
async def test_a_change_whose_audit_entry_cannot_be_written_is_not_made(store: SqlStore, path: Path) -> None:
    tamper(path, "DROP TABLE audit")

    with pytest.raises(sqlite3.OperationalError):
        await store.schedules.add([minutely("secret")], actor="eve", tzdata="")

    assert await store.schedules.find("default", "secret") is None


@pytest.mark.parametrize("expect", ["", "abc", "0" * 63, "0" * 65, "G" * 64, "0" * 63 + "\n"])
async def test_only_a_hash_can_be_expected(audit_service: AuditService, expect: str) -> None:
    with pytest.raises(FieldError, match="is not a hash"):
        await audit_service.verify(expect=expect)


@pytest.mark.parametrize(
    "query",
    [
        AuditQuery(tenant="A"),
        AuditQuery(limit=0),
        AuditQuery(limit=10_001),
        AuditQuery(action="destroy"),
        AuditQuery(kind="people"),
        AuditQuery(actor="a\nb"),
    ],
)
async def test_a_query_that_can_match_nothing_is_refused(audit_service: AuditService, query: AuditQuery) -> None:
    with pytest.raises(FieldError):
        await audit_service.page(query)


# ---- the sealer ----------------------------------------------------------------------------------


class Away(MemoryAuditTrail):
    """Cannot be reached."""

    async def seal(self, *, limit: int, sealing: Sealing | None = None) -> SealOutcome:
        del sealing
        raise StoreUnavailable(f"no answer about {limit} entries")


class Endless(MemoryAuditTrail):
    """Has always more to seal."""

    async def seal(self, *, limit: int, sealing: Sealing | None = None) -> SealOutcome:
        del sealing
        return SealOutcome(limit)


async def test_a_sealer_waits_longer_when_there_is_nothing_to_do_than_when_there_is_more() -> None:
    assert (
        await AuditSealer(
            MemoryStore(lambda: NOON).audit, VirtualClock(NOON), Recorder(), lease=AlwaysHeldSingleton()
        ).step()
        == 2.0
    )
    assert (
        await AuditSealer(
            Endless(MemoryTables(lambda: NOON)), VirtualClock(NOON), Recorder(), lease=AlwaysHeldSingleton()
        ).step()
        == 0.25
    )


class Slow(Endless):
    """Takes half a second for it."""

    clock = VirtualClock(NOON)

    async def seal(self, *, limit: int, sealing: Sealing | None = None) -> SealOutcome:
        del sealing
        self.clock.advance(500)
        return SealOutcome(limit)


async def test_a_sealer_rests_much_longer_than_it_has_kept_others_waiting() -> None:
    slow = Slow(MemoryTables(lambda: NOON))

    assert await AuditSealer(slow, slow.clock, Recorder(), lease=AlwaysHeldSingleton()).step() == 10


async def test_a_sealer_does_not_rest_while_nobody_has_anything_urgent_to_write() -> None:
    slow = Slow(MemoryTables(lambda: NOON))
    sealer = AuditSealer(slow, slow.clock, Recorder(), lease=AlwaysHeldSingleton(), busy=lambda: False)

    assert await sealer.step() == 0


async def test_a_sealer_is_patient_with_a_store_that_is_away() -> None:
    reported = Recorder()

    assert (
        await AuditSealer(
            Away(MemoryTables(lambda: NOON)), VirtualClock(NOON), reported, lease=AlwaysHeldSingleton()
        ).step()
        > 0
    )
    assert reported.names() == ["store_unavailable"]


# ---- digests -------------------------------------------------------------------------------------


def test_a_digest_covers_all_that_was_said_and_nothing_that_happened_since() -> None:
    job = minutely()

    assert schedule_digest(job) == schedule_digest(replace(job, mark_at=NOON + 1, active_runs=3, revision=7))
    others = [
        replace(job, paused_at=NOON),
        replace(job, spec=replace(job.spec, trigger=Cron("* * * * *", "Europe/Berlin"))),
        replace(job, spec=replace(job.spec, jitter_ms=1)),
    ]
    assert len({schedule_digest(one) for one in (job, *others)}) == 4


def test_there_is_one_spelling_of_everything() -> None:
    assert canonical({"b": 1, "a": [None, "é"]}) == '{"a":[null,"é"],"b":1}'.encode()


def test_the_chain_is_what_the_page_about_it_says() -> None:
    entry = AuditEntry(at=1, actor="ada", tenant="default", action="pause", kind="job", name="report")

    [kept] = seal_entries(ChainHead(), [StoredAuditEntry(number=1, entry=entry)])

    assert kept.prev_hash == GENESIS
    assert kept.hash == chain_hash(GENESIS, 1, entry, signed=False)
    assert kept.hash is not None
    assert kept.hash in (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
    assert verify_chain(ChainProgress(), [kept]) == (ChainProgress(ChainHead(1, str(kept.hash)), 1), [])
