"""HTTP calls as people write them: what they become, and what is refused before anything is called."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest

from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.json_schema import job_file_schema
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.runs.workflow import HTTP, Isolation, RetryPolicy, Step
from gnomon.errors import FieldError

URL = "https://api.example/orders"


def job(*, url: str = URL, given: Mapping[str, Any] | None = None, **call: Any) -> Job:  # noqa: ANN401 - fields of a call
    return read_job({"name": "orders", "http": {"url": url, **call}, **(given or {})}, Defaults(), now=0)


def refusal(definition: Mapping[str, Any]) -> FieldError:
    with pytest.raises(FieldError) as refused:
        read_job(definition, Defaults(), now=0)
    return refused.value


def test_a_job_may_call_a_url_instead_of_a_function() -> None:
    made = job(
        method="post",
        headers={"Authorization": "Bearer ${secret:TOKEN}", "X-Number": 5},
        json={"day": "${run.planned_at}"},
        expect=[201, "204-205"],
        follow=2,
        timeout="20s",
        given={"retry": {}, "pool": "web"},
    )
    [step] = made.workflow.steps

    assert step == Step(
        name="main",
        function=HTTP,
        input={
            "url": URL,
            "method": "POST",
            "headers": {"Authorization": "Bearer ${secret:TOKEN}", "X-Number": "5"},
            "json": {"day": "${run.planned_at}"},
            "expect": [201, "204-205"],
            "follow": 2,
        },
        timeout_ms=20_000,
        retry=RetryPolicy(),
        route=step.route,
    )
    assert step.is_http_call
    assert not step.plain


def test_so_may_a_step_which_takes_the_outputs_of_others() -> None:
    steps = [
        {"step": "find", "http": {"url": URL}},
        {
            "step": "pay",
            "http": {"url": f"{URL}/${{steps.find.output.json.id}}/pay", "json": "${steps.find.output.json}"},
            "depends_on": ["find"],
        },
    ]

    [find, pay] = read_job(
        {"name": "etl", "dag": steps, "isolation": "process", "timeout": "1m"}, Defaults(), now=0
    ).workflow.steps

    assert (find.timeout_ms, find.isolation) == (60_000, Isolation.NONE)
    assert pay.input["json"] == "${steps.find.output.json}"


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"url": f"{URL}/${{input.id}}?q=${{run.id}}", "headers": {}, "expect": 200},
        {"url": "${secret:HOOK}", "body": "text", "expect": "200-399", "follow": 0},
        {"url": "${secret:BASE}/v1/${input.id}", "json": None, "method": "DELETE"},
        {"url": "http://[::1]:8080/straße?q=ä"},
    ],
)
def test_it_can_be_shown_and_read_again_and_the_schema_admits_it(call: dict[str, Any]) -> None:
    made = job(**call, given={"input": {"id": 1}, "timeout": "5s"})
    shown = job_as_data(made)

    assert shown["http"] == {"url": URL, **call}
    assert read_job(shown, Defaults(), now=0) == made
    jsonschema_rs.Draft202012Validator(job_file_schema()).validate({"jobs": [shown]})


def test_a_graph_with_calls_can_be_shown_and_read_again() -> None:
    steps = [{"step": "a", "http": {"url": f"{URL}/${{item}}"}, "foreach": [1, 2], "timeout": "5s"}]
    made = read_job({"name": "etl", "dag": steps}, Defaults(), now=0)

    assert job_as_data(made)["dag"] == steps
    jsonschema_rs.Draft202012Validator(job_file_schema()).validate({"jobs": [job_as_data(made)]})


@pytest.mark.parametrize(
    ("call", "field", "reason"),
    [
        ({"url": None}, "url", "must be a text"),
        ({"url": "ftp://x.example/"}, "url", "must be a URL such as"),
        ({"url": "api.example/x"}, "url", "must be a URL such as"),
        ({"url": "https:///x"}, "url", "must be a URL such as"),
        ({"url": "https://u:hunter22@api.example/"}, "url", "has credentials: give them as the header Authorization"),
        ({"url": "https://api.example@evil.example/"}, "url", "has credentials"),
        ({"url": "https://api.example\\@evil.example/"}, "url", "has credentials"),
        ({"url": "https://api.example/a b"}, "url", "must be a URL such as"),
        ({"url": "https://api.example/a\nb"}, "url", "cannot be printed"),
        ({"url": "https://bücher.example/"}, "url", "has a host that is not ASCII"),
        ({"url": "https://api.example:99999/"}, "url", "must be a URL such as"),
        ({"url": "https://api.example/#top"}, "url", "has a fragment"),
        ({"url": "https://api.example/a/../b"}, "url", "has a segment . or .."),
        ({"url": "https://api.example/a/%2E%2e/b"}, "url", "has a segment . or .."),
        ({"url": "${input.url}"}, "url", "would choose the host by data"),
        ({"url": "https://${input.host}/"}, "url", "would choose the host by data"),
        ({"url": "https://api.example${input.more}"}, "url", "would choose the host by data"),
        ({"url": "https://api.example:${input.port}/"}, "url", "would choose the host by data"),
        ({"url": "https://${secret:SUB}.example/"}, "url", "would choose the host by data"),
        ({"url": "${secret:BASE}${input.more}"}, "url", "must go on with / or ?"),
        ({"url": "${secret:BASE}.evil.example/"}, "url", "must go on with / or ?"),
        ({"url": "https://api.example/${HOME}"}, "url", "must begin with"),
        ({"url": "https://api.example/${steps.a.output}"}, "url", "which this step does not come after"),
        ({"url": "https://api.example/${secret:}"}, "url", "not as in ${secret:NAME}"),
        ({"url": f"https://api.example/{'x' * 5000}"}, "url", "at most 4096"),
        ({"method": "FETCH"}, "method", "must be one of GET, HEAD"),
        ({"method": 5}, "method", "must be one of GET, HEAD"),
        ({"headers": ["A: 1"]}, "headers", "must be a mapping"),
        ({"headers": {"A B": "1"}}, "headers.A B", "is no name of a header"),
        ({"headers": {"A:": "1"}}, "headers.A:", "is no name of a header"),
        ({"headers": {"Host": "evil.example"}}, "headers.Host", "is set by the connection"),
        ({"headers": {"transfer-encoding": "chunked"}}, "headers.transfer-encoding", "is set by the connection"),
        ({"headers": {"Proxy-Authorization": "x"}}, "headers.Proxy-Authorization", "is set by the connection"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "headers.x-a", "is named a second time"),
        ({"headers": {"A": "1\r\nB: 2"}}, "headers.A", "has a character that no header can have"),
        ({"headers": {"A": True}}, "headers.A", "must be a text"),
        ({"headers": {"A": "x" * 9000}}, "headers.A", "at most 8192"),
        ({"headers": {f"A{n}": "" for n in range(200)}}, "headers", "at most 100"),
        ({"json": 1, "body": "x"}, "body", "cannot be beside json"),
        ({"body": 5}, "body", "must be a text"),
        ({"body": "x" * 70_000}, "body", "at most 65536"),
        ({"json": {1, 2}}, "json", "is nothing that JSON has"),
        ({"json": {"a": "${HOME}"}}, "json", "must begin with"),
        ({"body": "x", "method": "GET"}, "body", "is a body, which GET does not have"),
        ({"expect": 99}, "expect", "must be a status"),
        ({"expect": "2xx"}, "expect", "must be a status"),
        ({"expect": "299-200"}, "expect", "must be a status"),
        ({"expect": []}, "expect", "must have 1 to 50 entries"),
        ({"expect": [True]}, "expect", "must be a status"),
        ({"expect": {"a": 1}}, "expect", "must be a status"),
        ({"follow": True}, "follow", "must be a whole number"),
        ({"follow": 21}, "follow", "must be a whole number from 0 to 20"),
        ({"timeout": "0s"}, "timeout", "must be"),
        ({"verify": False}, "verify", "is no field"),
        ({"status": 200}, "status", "is called expect here"),
        ({"payload": {}}, "payload", "is called json here"),
    ],
)
def test_a_wrong_call_is_refused_by_field_and_reason(call: dict[str, Any], field: str, reason: str) -> None:
    error = refusal({"name": "orders", "http": {"url": URL, **call}})

    assert error.field == f"http.{field}"
    assert reason in error.reason
    assert "hunter22" not in str(error)


@pytest.mark.parametrize(
    ("definition", "field", "reason"),
    [
        ({"function": "f"}, "http", "cannot be beside function"),
        ({"command": "ls"}, "http", "cannot be beside command"),
        ({"dag": []}, "dag", "cannot be beside http"),
        ({"isolation": "process"}, "isolation", "cannot be beside http"),
        ({"env": {}}, "env", "means nothing without command"),
        ({"timeout": "5s", "http": {"url": URL, "timeout": "6s"}}, "timeout", "cannot be beside http.timeout"),
        ({"http": URL}, "http", "must be a mapping with url"),
        ({"http": {}}, "http.url", "is missing"),
    ],
)
def test_two_kinds_of_work_are_refused(definition: dict[str, Any], field: str, reason: str) -> None:
    error = refusal({"name": "orders", "http": {"url": URL}, **definition})

    assert (error.field, reason in error.reason) == (field, True)


@pytest.mark.parametrize(
    ("step", "field", "reason"),
    [
        ({"function": "f"}, "function", "cannot be beside http"),
        ({"command": "ls"}, "http", "cannot be beside command"),
        ({"workflow": "w"}, "http", "cannot be beside workflow"),
        ({"input": {"a": 1}}, "input", "give it as json or body"),
        ({"http": {"url": f"{URL}/${{steps.b.output}}"}}, "http.url", "does not come after"),
        ({"http": {"url": f"{URL}/${{item}}"}}, "http.url", "must begin with steps, input, run"),
    ],
)
def test_two_kinds_of_work_in_a_step_are_refused(step: dict[str, Any], field: str, reason: str) -> None:
    error = refusal({"name": "etl", "dag": [{"step": "a", "http": {"url": URL}, **step}]})

    assert error.field == f"dag[0].{field}"
    assert reason in error.reason


def test_the_name_of_the_function_is_reserved() -> None:
    error = refusal({"name": "x", "function": HTTP})

    assert "is reserved for HTTP calls: use http instead" in error.reason
