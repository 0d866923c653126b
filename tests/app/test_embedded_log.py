"""A scheduler inside a program logs as the program says, and writes nothing else."""

import logging
from pathlib import Path

import pytest

import gnomon
from gnomon.adapters.event_sinks import LoggerEvents

QUIET = {"metrics.port": 0}


def messages(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == name]


def test_start_logs_to_the_logger_of_its_name_and_writes_to_no_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)

    with gnomon.start(database=str(tmp_path / "gnomon.db"), settings=QUIET):
        pass

    assert any(text.startswith("scheduling on sqlite:") for text in messages(caplog, "gnomon"))
    [record] = [one for one in caplog.records if getattr(one, "event", "") == "scheduling"]
    assert str(tmp_path) in record.__dict__["facts"]["database"]
    assert capfd.readouterr() == ("", "")
    # The migrations of Gnomon are no business of a program that has its own.
    assert not [one for one in caplog.records if one.name.startswith("alembic")]


def test_the_host_program_chooses_the_logger_and_its_level(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    own = logging.getLogger("host.jobs")
    own.setLevel(logging.CRITICAL)

    with gnomon.start(database=str(tmp_path / "gnomon.db"), settings=QUIET, log=own):
        pass

    assert messages(caplog, "host.jobs") == messages(caplog, "gnomon") == []


def test_an_event_that_somebody_should_look_into_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    events = LoggerEvents(logging.getLogger("gnomon"))

    events.emit("store_unavailable", error="it is\nfull")
    events.emit("task_succeeded", job="a%s", started_at=1, ended_at=3)
    events.emit("unheard_of", number=7)

    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("WARNING", "the store is unavailable: it is"),
        ("INFO", "a%s in 2 ms"),
        ("INFO", "unheard_of number=7"),
    ]


def test_a_handler_that_fails_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no disk")

    logger = logging.Logger("broken")  # noqa: LOG001 - of this test alone
    monkeypatch.setattr(logger, "handle", broken)
    events = LoggerEvents(logger)

    events.emit("scheduling", database="x")

    assert events.lost == 1
