"""The ping settings of a job, and the calls that follow from them."""

from typing import Any

import pytest

from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.json_schema import job_file_schema
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.pings import Ping, PingMoment, is_http_url, ping_retry_delay_ms, redacted_url
from gnomon.errors import FieldError

URL = "https://hc-ping.com/5a2c"


def job(ping: Any) -> Job:  # noqa: ANN401 - whatever someone writes
    return read_job({"name": "backup", "function": "f", "ping": ping}, Defaults(), now=0)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (URL, Ping(url=URL)),
        ({"url": URL}, Ping(url=URL)),
        ({"url": URL, "on": "failure"}, Ping(url=URL, on=(PingMoment.FAILURE,))),
        ({"url": URL, "on": ["start", "success"]}, Ping(url=URL, on=(PingMoment.START, PingMoment.SUCCESS))),
        ("${secret:BACKUP_PING}", Ping(url="${secret:BACKUP_PING}")),
        ("http://localhost:8000/ping/${secret:PING_KEY}", Ping(url="http://localhost:8000/ping/${secret:PING_KEY}")),
    ],
)
def test_a_ping_is_an_address_and_when_to_call_it(said: object, meant: Ping) -> None:
    made = job(said)

    assert made.workflow.ping == meant
    assert read_job(job_as_data(made), Defaults(), now=0) == made


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("ftp://example.org/x", "ping"),
        ("hc-ping.com/5a2c", "ping"),
        ("https:///x", "ping"),
        ("https://example.org:99999/x", "ping"),
        ("https://example.org/a b", "ping"),
        ("https://example.org/ü", "ping"),
        ("https://example.org/x#y", "ping"),
        ("https://example.org/x\r\nX: y", "ping"),
        (7, "ping"),
        ({"on": "start"}, "ping.url"),
        ({"url": URL, "when": "start"}, "ping.when"),
        ({"url": URL, "on": "never"}, "ping.on"),
        ({"url": URL, "on": ["start", "never"]}, "ping.on[1]"),
        ({"url": URL, "on": ["start", "start"]}, "ping.on"),
        ({"url": URL, "on": []}, "ping.on"),
    ],
)
def test_an_invalid_ping_is_refused_by_its_field(said: object, field: str) -> None:
    with pytest.raises(FieldError) as refused:
        job(said)

    assert refused.value.field == field


def test_a_refused_address_is_not_shown_whole() -> None:
    with pytest.raises(FieldError) as refused:
        job("https://example.org/my key")

    assert "my key" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "start", "fail"),
    [
        (URL, f"{URL}/start", f"{URL}/fail"),
        (f"{URL}/", f"{URL}/start", f"{URL}/fail"),
        (f"{URL}?rid=1", f"{URL}/start?rid=1", f"{URL}/fail?rid=1"),
    ],
)
def test_start_and_fail_stand_behind_the_path(url: str, start: str, fail: str) -> None:
    ping = Ping(url=url, on=tuple(PingMoment))

    assert [ping.at(moment) for moment in PingMoment] == [start, url, fail]


def test_nothing_is_called_when_it_was_not_asked_for() -> None:
    assert Ping(url=URL).at(PingMoment.START) is None
    assert Ping(url=URL, on=(PingMoment.START,)).at(PingMoment.FAILURE) is None


def test_pauses_grow_up_to_a_minute() -> None:
    assert [ping_retry_delay_ms(failures) for failures in (1, 2, 3, 7, 100)] == [1000, 2000, 4000, 60_000, 60_000]


@pytest.mark.parametrize("url", [URL, "https://ada:pass@hc-ping.com/5a2c?key=1"])
def test_a_logged_address_reveals_no_ping_key(url: str) -> None:
    assert redacted_url(url) == "https://hc-ping.com/…"


@pytest.mark.parametrize("url", ["${secret:X}", "http://[::1", "", "http://a\x1b[31m/"])
def test_an_unparsable_address_is_hidden_entirely(url: str) -> None:
    assert not is_http_url(url)
    assert redacted_url(url) == "…"


def test_editors_know_pings() -> None:
    import jsonschema_rs

    schema = jsonschema_rs.validator_for(job_file_schema())
    for said in (URL, {"url": URL, "on": "failure"}, {"url": URL, "on": ["start"]}):
        assert schema.is_valid({"jobs": [{"name": "a", "function": "f", "ping": said}]})
    for wrong in (7, {"on": "start"}, {"url": URL, "on": "never"}):
        assert not schema.is_valid({"jobs": [{"name": "a", "function": "f", "ping": wrong}]})
