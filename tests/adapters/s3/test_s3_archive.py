"""The archive in a bucket: verified before anything is deleted, whatever the storage does."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from contracts.store import HOUR, NOON
from gnomon.adapters.archive import unpacked_rows
from gnomon.adapters.http_client import configured_client
from gnomon.adapters.s3.archive import S3Archive
from gnomon.adapters.s3.client import PART_BYTES, S3Bucket, S3Client
from gnomon.adapters.s3.signature import S3Credentials
from gnomon.errors import ArchiveUnavailable
from gnomon.ports.maintenance import ArchiveRecord
from gnomon.testing.clock import VirtualClock
from support.object_storage import BUCKET, KEY_ID, REGION, SECRET, ObjectStorage, object_storage

DAY = 24 * HOUR


@pytest.fixture
def storage() -> Iterator[ObjectStorage]:
    with object_storage() as storage:
        yield storage


def client(
    storage: ObjectStorage, *, timeout_ms: int = 20_000, token: str = "", region: str = REGION, bucket: str = BUCKET
) -> S3Client:
    found = S3Bucket(endpoint=storage.endpoint, region=region, name=bucket)
    credentials = S3Credentials(key_id=KEY_ID, secret_key=SECRET, session_token=token)
    return S3Client(found, lambda: credentials, configured_client(), VirtualClock(NOON), timeout_ms=timeout_ms)


def archive(storage: ObjectStorage) -> S3Archive:
    return S3Archive(client(storage), prefix="gnomon/one two/")


def record(name: str, at: int = NOON, text: str = "käse\n") -> ArchiveRecord:
    return ArchiveRecord("run", {"run_id": name, "error": text}, at)


def rows(storage: ObjectStorage) -> list[str]:
    return [row["run_id"] for key, content in sorted(storage.objects.items()) for row in unpacked_rows(content, key)]


@pytest.mark.req("H-11")
async def test_records_are_kept_in_an_object_for_each_day(storage: ObjectStorage) -> None:
    await archive(storage).keep([record("run_b"), record("run_a"), record("run_c", NOON + DAY)])

    days = [f"{datetime.fromtimestamp(at / 1000, UTC):%Y/%Y-%m-%d}" for at in (NOON, NOON + DAY)]
    assert [re.sub(r"\.[0-9a-f]{24}\.", ".", key) for key in sorted(storage.objects)] == [
        f"gnomon/one two/{day}.jsonl.gz" for day in days
    ]
    assert rows(storage) == ["run_a", "run_b", "run_c"]


async def test_keeping_the_same_records_again_adds_no_object(storage: ObjectStorage) -> None:
    await archive(storage).keep([record("run_a"), record("run_b")])
    before = dict(storage.objects)

    await archive(storage).keep([record("run_b"), record("run_a")])

    assert storage.objects == before


@pytest.mark.req("H-11")
async def test_a_large_object_is_written_in_parts(storage: ObjectStorage) -> None:
    content = os.urandom(2 * PART_BYTES + 5)

    await client(storage).put("large", content)

    assert storage.objects == {"large": content}
    assert await client(storage).get("large", max_bytes=len(content)) == content
    assert storage.uploads == {}


@pytest.mark.req("H-11")
@pytest.mark.parametrize("fault", [500, 503, 429, "cut", "InternalError"])
async def test_a_fault_that_passes_is_retried(storage: ObjectStorage, fault: int | str) -> None:
    storage.faults = [fault, fault]

    await archive(storage).keep([record("run_a")])

    assert rows(storage) == ["run_a"]


async def test_a_storage_that_does_not_answer_is_asked_again(storage: ObjectStorage) -> None:
    storage.faults = ["hang"]

    await client(storage, timeout_ms=500).put("slow", b"1")

    assert storage.calls == ["PUT /history/slow"] * 2


@pytest.mark.parametrize("fault", [500, "InternalError"])
async def test_each_request_of_a_large_object_is_retried_by_itself(storage: ObjectStorage, fault: int | str) -> None:
    content = bytes(PART_BYTES + 1)
    # To begin, each of two parts, and to complete.
    storage.faults = [fault, None] * 4

    await client(storage).put("large", content)

    assert storage.objects == {"large": content}
    assert len(storage.calls) == 8


@pytest.mark.req("H-11")
async def test_an_upload_that_fails_is_aborted_so_that_its_parts_cost_nothing(storage: ObjectStorage) -> None:
    storage.answers = {"partNumber=2": (400, "InvalidPart")}

    with pytest.raises(ArchiveUnavailable, match="InvalidPart"):
        await client(storage).put("large", bytes(PART_BYTES + 1))

    assert storage.calls[-1].startswith("DELETE ")
    assert (storage.objects, storage.uploads) == ({}, {})


async def test_an_upload_that_is_completed_with_an_error_has_failed(storage: ObjectStorage) -> None:
    storage.answers = {"POST /history/large?uploadId": (200, "EntityTooSmall")}

    with pytest.raises(ArchiveUnavailable, match="EntityTooSmall"):
        await client(storage).put("large", bytes(PART_BYTES + 1))


@pytest.mark.req("H-11")
@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"refuses": "AccessDenied"}, r"AccessDenied \(the credentials need"),
        ({"alters": True}, "does not read back"),
        ({"session_token": "other"}, "AccessDenied|ExpiredToken"),
        ({"faults": [500] * 4}, "Whatever"),
    ],
)
async def test_an_uncertain_upload_is_an_error(
    storage: ObjectStorage, change: dict[str, object], reported: str
) -> None:
    for name, value in change.items():
        setattr(storage, name, value)

    with pytest.raises(ArchiveUnavailable, match=reported) as refused:
        await archive(storage).keep([record("run_a")])

    assert SECRET not in str(refused.value)
    assert KEY_ID not in str(refused.value)


@pytest.mark.parametrize(
    ("bucket", "region", "reported"),
    [("other", REGION, "there is no such bucket"), (BUCKET, "us-east-1", "set s3.region")],
)
async def test_a_wrong_setting_is_named(storage: ObjectStorage, bucket: str, region: str, reported: str) -> None:
    with pytest.raises(ArchiveUnavailable, match=reported):
        await client(storage, bucket=bucket, region=region).put("a", b"1")

    assert len(storage.calls) == 1


async def test_a_refusal_is_not_repeated(storage: ObjectStorage) -> None:
    storage.refuses = "AccessDenied"

    with pytest.raises(ArchiveUnavailable):
        await client(storage).put("a", b"1")

    assert len(storage.calls) == 1


async def test_temporary_credentials_carry_their_token(storage: ObjectStorage) -> None:
    token = storage.session_token = "temporary/" + "="

    await client(storage, token=token).put("a", b"1")

    assert storage.objects == {"a": b"1"}
