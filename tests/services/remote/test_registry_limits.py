"""The workers of one NATS user have limits together, and a flood of them stops neither servers nor other workers."""

import msgspec
import pytest

from gnomon.adapters.nats.queue import WorkerRequestSlots
from gnomon.core.messages import MOST_ENDED, EndedReport, WorkerReport, decode_worker_report, encode_worker_report
from gnomon.core.model import Result, TaskId
from gnomon.core.worker_ids import MOST_STARTS
from gnomon.errors import FieldError
from gnomon.ports.messaging import HeartbeatRequest
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.remote import registry_limits
from gnomon.services.remote.registry_limits import WorkerRegistryLimits
from gnomon.testing.clock import Recorder
from support.fleet_harness import FleetHarness

LEASE = 30.0


def card(worker: str, *, size: int = 10, pool: str = "default") -> WorkerInfo:
    return WorkerInfo(worker=worker, functions=("f" * size,), slots=1, pool=pool, started_at=0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> WorkerRegistryLimits:
    for name, most in {"MOST_SHARED": 3, "MOST_POOLS": 2, "LARGEST_SHARED": 1000, "LARGEST_ENROLLED": 500}.items():
        monkeypatch.setattr(registry_limits, name, most)
    return WorkerRegistryLimits(LEASE)


def refused(limits: WorkerRegistryLimits, one: WorkerInfo, *, now: float = 0.0) -> str:
    """The field that is refused; empty if the registration is admitted."""
    try:
        limits.admit(one, now=now)
    except FieldError as error:
        return error.field
    return ""


def test_workers_without_enrolment_share_their_limits(small: WorkerRegistryLimits) -> None:
    assert [refused(small, card(f"field_{n}")) for n in range(4)] == ["", "", "", "card.worker"]
    small.forget("field_1")
    assert refused(small, card("field_9", size=990)) == "card.functions"
    assert refused(small, card("field_9", pool="gpu")) == ""
    assert refused(small, card("field_0", pool="third")) == "card.pool"
    # The first one is still there with what it has registered before.
    assert refused(small, card("field_4")) == "card.worker"


def test_an_enrolled_worker_has_limits_of_its_own(small: WorkerRegistryLimits) -> None:
    assert [refused(small, card(f"field_{n}")) for n in range(4)][-1] == "card.worker"
    assert refused(small, card("field_default.a.1", size=400)) == ""
    assert refused(small, card("field_default.a.2", size=400)) == "card.functions"
    assert refused(small, card("field_default.b.1", size=400)) == ""


def test_a_new_start_of_an_enrolled_worker_takes_the_place_of_its_oldest(small: WorkerRegistryLimits) -> None:
    starts = [card(f"field_default.a.{number}", size=5) for number in range(MOST_STARTS + 10)]

    assert [refused(small, one) for one in starts] == [""] * len(starts)


def test_a_worker_that_was_not_seen_for_a_lease_counts_no_longer(small: WorkerRegistryLimits) -> None:
    for number in range(3):
        small.admit(card(f"field_{number}"), now=0)
    small.admit(card("field_2"), now=LEASE - 1)

    assert [refused(small, card(f"field_{n}"), now=LEASE + 1) for n in (7, 8, 9)] == ["", "", "card.worker"]


def test_the_more_there_is_to_read_the_less_often_it_is_read() -> None:
    def readings(size: int) -> int:
        limits = WorkerRegistryLimits(LEASE)
        for number in range(50):
            limits.admit(card(f"field_{number}", size=size), now=0)
        return sum(limits.may_announce(now=tenths / 100) for tenths in range(1000))

    assert readings(1) > 50
    assert readings(300_000) < 10


async def test_a_flood_of_workers_is_neither_registered_nor_read_and_others_keep_their_leases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_limits, "MOST_SHARED", 5)
    fleet = FleetHarness()
    await fleet.open()
    answer = fleet.bus.heartbeats
    assert answer is not None
    for number in range(50):
        body = msgspec.json.encode(HeartbeatRequest(card=card(f"field_m{number}")))
        assert await answer(f"field_m{number}", body)

    assert len(await fleet.store.workers.alive()) <= 6
    assert "request_refused" in [name for name, _ in fleet.events.seen]


async def test_a_worker_that_another_server_has_registered_leaves_at_once() -> None:
    fleet = FleetHarness()
    await fleet.open()
    answer = fleet.bus.heartbeats
    assert answer is not None
    await fleet.store.workers.register(card("field_other"), ttl_ms=60_000)
    fleet.clock.advance(10_000)
    await fleet.publisher.capacity.read()

    await answer("field_other", msgspec.json.encode(HeartbeatRequest(card=card("field_other"), leaves=True)))
    await fleet.publisher.step()
    await fleet.publisher.capacity.read()

    assert "field_other" not in [one.worker for one in fleet.publisher.capacity._cards]  # noqa: SLF001 - what it knows


def test_a_flood_of_names_leaves_slots_to_enrolled_workers() -> None:
    slots = WorkerRequestSlots(Recorder())
    taken = [f"field_{number}" for number in range(100) if slots.take(f"field_{number}")]

    assert len(taken) == 32
    assert slots.take("field_gpu~node-1")
    for sender in taken:
        slots.give_back(sender)
    assert slots.take("field_100")


def report_with(ends: int) -> bytes:
    ended = tuple(EndedReport(task_id=TaskId(f"t{n}"), fence=1, result=Result.SUCCEEDED) for n in range(ends))
    return encode_worker_report(WorkerReport(worker="field_1", ended=ended), message_id="field_1:1", now=0)


def test_a_report_has_as_many_ends_as_a_worker_sends_at_once() -> None:
    assert decode_worker_report(report_with(MOST_ENDED), sender="field_1").data.worker == "field_1"
    with pytest.raises(FieldError, match="ended"):
        decode_worker_report(report_with(MOST_ENDED + 1), sender="field_1")
