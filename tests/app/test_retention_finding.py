"""Where history goes before it is deleted, and how doctor says so."""

from pathlib import Path

import pytest

from gnomon.adapters.archive import FolderArchive
from gnomon.app.maintenance import open_archive, retention_finding
from gnomon.config.settings import load
from gnomon.errors import FieldError
from gnomon.services.observability.health import Severity
from gnomon.testing.clock import VirtualClock

SERVER = {"database.url": "postgresql://ada@db/gnomon"}
BUCKET = {"execution.archive": "s3://history/gnomon"}
KEYS = {"s3.access_key_id": "AKIDTEST", "s3.secret_access_key": "hunter2"}


@pytest.mark.req("H-11")
@pytest.mark.parametrize(
    ("flags", "grade", "reported"),
    [
        ({}, Severity.OK, "deleted 90 days after it ended, after it was archived in the folder gnomon.db.archive"),
        ({"execution.archive_dir": "/data"}, Severity.OK, "in the folder /data"),
        ({"execution.archive_dir": "none"}, Severity.OK, "without an archive"),
        (SERVER, Severity.WARNING, "in the folder gnomon.archive where the server runs: set execution.archive"),
        (SERVER | {"execution.history_retention_days": 7, "execution.archive_dir": "/data"}, Severity.OK, " 7 days "),
        (SERVER | BUCKET | KEYS, Severity.OK, "archived in s3://history/gnomon"),
        (SERVER | BUCKET, Severity.ERROR, "nothing is deleted: s3.access_key_id is empty"),
        (BUCKET | KEYS | {"s3.secret_access_key": "file:/nowhere"}, Severity.ERROR, "/nowhere cannot be read"),
    ],
)
def test_doctor_says_how_long_history_is_kept_and_where_it_goes(
    flags: dict[str, object], grade: Severity, reported: str
) -> None:
    found = retention_finding(load(flags=flags))

    assert (found.about, found.grade) == ("retention", grade)
    assert reported in found.message
    assert "hunter2" not in found.message


@pytest.mark.req("H-11")
def test_retention_is_on_without_any_setting_on_a_server_as_on_a_file() -> None:
    found = open_archive(load(flags=SERVER), VirtualClock(0))

    assert isinstance(found, FolderArchive)
    assert found.folder == Path("gnomon.archive")


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"execution.archive": "/data"}, "execution.archive"),
        ({"execution.archive": "s3:///gnomon"}, "execution.archive"),
        ({"execution.archive": "s3://ada:hunter2@history/x"}, "execution.archive"),
        ({"execution.archive": "s3://history/../x"}, "execution.archive"),
        ({"execution.archive": "s3://history/a?b"}, "execution.archive"),
        (BUCKET | {"execution.archive_dir": "/data"}, "execution.archive_dir"),
        (BUCKET | {"s3.endpoint": "https://ada:hunter2@storage"}, "s3.endpoint"),
        (BUCKET | {"s3.region": "eu/1"}, "s3.region"),
    ],
)
def test_a_place_that_is_none_is_refused_and_shows_no_password(flags: dict[str, object], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        load(flags=flags)

    assert refused.value.field == field
    assert "hunter2" not in str(refused.value)


def test_secrets_of_the_storage_are_not_printed() -> None:
    assert "hunter2" not in repr(load(flags=KEYS))
