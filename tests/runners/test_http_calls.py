"""HTTP calls of steps to a real server: what is sent, what each answer means, and what is never called."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from gnomon.adapters.http_client import HttpClient
from gnomon.config.sections import SecretsSettings
from gnomon.core.model import Result
from gnomon.core.outgoing import AllowedHosts
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import HTTP
from gnomon.runners.registry import Functions
from runners.runner_harness import RunnerHarness, assignment, attempt_ref, open_runner
from support.scripted_server import ScriptedReply, ScriptedServer, json_reply, scripted_server

HOUR_MS = 3_600_000
SECRETS = SecretsSettings(allow=("TOKEN", "HOOK", "PART"))


def client(*allowed: str, resolve: Any = None) -> HttpClient:  # noqa: ANN401 - a resolver
    return HttpClient(AllowedHosts(allowed, field="security.allowed_hosts"), resolve=resolve)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@pytest.fixture
async def harness() -> AsyncIterator[RunnerHarness]:
    async with open_runner(Functions(), http=client("127.0.0.1"), max_output_bytes=4096, kill_grace_ms=500) as harness:
        yield harness


def call(url: str, *, timeout_ms: int | None = None, **fields: Any) -> Assignment:  # noqa: ANN401 - fields of a call
    given = {"url": url, **fields}
    return assignment(HTTP, given, input=given, timeout_ms=timeout_ms)


async def called(harness: RunnerHarness, url: str, **fields: Any) -> AttemptOutcome:  # noqa: ANN401 - fields of a call
    harness.runner.start([assigned := call(url, **fields)])
    return await harness.outcome(assigned)


def output_of(outcome: AttemptOutcome) -> Any:  # noqa: ANN401 - any JSON
    assert outcome.output is not None, outcome.error
    return msgspec.json.decode(outcome.output)


# ---- the request ---------------------------------------------------------------------------------


async def test_a_call_is_a_get_request_with_an_idempotency_key(harness: RunnerHarness, server: ScriptedServer) -> None:
    outcome = await called(harness, server.url("/orders?open=1"), headers={"X-Team": "billing"})

    [request] = server.requests
    assert (request.method, request.target, request.body) == ("GET", "/orders?open=1", b"")
    assert request.headers["X-Team"] == "billing"
    assert request.headers["User-Agent"].startswith("gnomon/")
    assert len(request.headers["Idempotency-Key"]) == 64
    assert outcome.result is Result.SUCCEEDED
    assert output_of(outcome)["status"] == 200
    assert output_of(outcome)["body"] == "OK"


async def test_the_key_is_the_same_in_every_attempt_and_different_for_every_task(
    harness: RunnerHarness, server: ScriptedServer
) -> None:
    first, second = call(server.url()), call(server.url())
    for number, assigned in enumerate((first, first, second)):
        again = msgspec.structs.replace(assigned, task=msgspec.structs.replace(assigned.task, fence=number + 1))
        harness.runner.start([again])
        await harness.idle()

    keys = [request.headers["Idempotency-Key"] for request in server.requests]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("fields", "method", "kind", "body"),
    [
        ({"json": {"n": 1, "city": "Zürich"}}, "POST", "application/json", '{"n":1,"city":"Zürich"}'),
        ({"json": [], "method": "PUT"}, "PUT", "application/json", "[]"),
        ({"body": "größer\n"}, "POST", "text/plain; charset=utf-8", "größer\n"),
        ({"body": "<a/>", "headers": {"content-type": "text/xml"}, "method": "PATCH"}, "PATCH", "text/xml", "<a/>"),
        ({"method": "DELETE"}, "DELETE", None, ""),
    ],
)
async def test_a_body_is_sent_with_its_type(
    harness: RunnerHarness, server: ScriptedServer, fields: dict[str, Any], method: str, kind: str | None, body: str
) -> None:
    await called(harness, server.url(), **fields)

    [request] = server.requests
    assert (request.method, request.body.decode()) == (method, body)
    assert request.headers.get("Content-Type") == kind


async def test_characters_beyond_ascii_are_percent_encoded(harness: RunnerHarness, server: ScriptedServer) -> None:
    await called(harness, server.url("/straße/%2F?q=é&r=a%20b"))

    assert server.requests[0].target == "/stra%C3%9Fe/%2F?q=%C3%A9&r=a%20b"


async def test_only_fields_of_the_step_are_sent(harness: RunnerHarness, server: ScriptedServer) -> None:
    own = {"url": server.url("/mine")}
    assigned = assignment(HTTP, {**own, "method": "DELETE", "headers": {"X": "1"}, "other": 1}, input=own)
    harness.runner.start([assigned])
    await harness.outcome(assigned)

    assert (server.requests[0].method, server.requests[0].target) == ("GET", "/mine")
    assert "X" not in server.requests[0].headers


# ---- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "expect", "result"),
    [
        (200, None, Result.SUCCEEDED),
        (204, None, Result.SUCCEEDED),
        (299, None, Result.SUCCEEDED),
        (202, 201, Result.GAVE_UP),
        (404, [200, "404-410"], Result.SUCCEEDED),
        (503, "500-599", Result.SUCCEEDED),
        (302, 302, Result.SUCCEEDED),
        (304, None, Result.GAVE_UP),
        (400, None, Result.GAVE_UP),
        (401, None, Result.GAVE_UP),
        (404, None, Result.GAVE_UP),
        (422, None, Result.GAVE_UP),
        (429, None, Result.FAILED),
        (500, None, Result.FAILED),
        (502, None, Result.FAILED),
        (599, None, Result.FAILED),
    ],
)
async def test_a_status_decides_between_success_a_retry_and_giving_up(
    harness: RunnerHarness, server: ScriptedServer, status: int, expect: object, result: Result
) -> None:
    server.replies = [ScriptedReply(status, b"")]
    outcome = await called(harness, server.url(), **({} if expect is None else {"expect": expect}))

    assert outcome.result is result
    assert (outcome.error or f"answered {status}").startswith(f"answered {status}")


async def test_the_error_shows_the_beginning_of_the_answer(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [json_reply({"error": "amount\nmissing"}, 422), ScriptedReply(500, b"x" * 100_000)]

    refused, failed = [(await called(harness, server.url())).error or "" for _ in range(2)]
    assert refused.startswith("answered 422 ")
    assert refused.endswith(': {"error": "amount\\nmissing"}')
    assert failed.startswith("answered 500 Internal Server Error: xxx")
    assert len(failed) < 400


async def test_json_is_decoded_and_text_is_not(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [
        json_reply({"id": 7, "name": "Ünïcode ✓"}),
        ScriptedReply(body=b'{"id": 8}', headers={"Content-Type": "application/problem+json; charset=utf-8"}),
        ScriptedReply(body=b"{not json", headers={"Content-Type": "application/json"}),
        ScriptedReply(body="grün".encode("latin-1"), headers={"Content-Type": "text/plain; charset=ISO-8859-1"}),
        ScriptedReply(body=b"\xff\xfe", headers={"Content-Type": "text/plain; charset=nonsense"}),
        ScriptedReply(body=b"[" * 100 + b"]" * 100, headers={"Content-Type": "application/json"}),
    ]
    outputs = [output_of(await called(harness, server.url())) for _ in range(6)]

    assert [one.get("json") for one in outputs] == [{"id": 7, "name": "Ünïcode ✓"}, {"id": 8}, None, None, None, None]
    assert [one.get("body") for one in outputs[2:5]] == ["{not json", "grün", "\ufffd\ufffd"]
    assert outputs[5]["body"].startswith("[[[")
    assert outputs[0]["headers"]["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("utf-8", "grün ✓"),
        ("UTF8", "grün ✓"),
        ("us-ascii", "green"),
        ("utf-16", "grün"),
        ("UTF-16LE", "grün"),
        ("latin1", "grün"),
        *((f"iso-8859-{part}", "text") for part in (*range(1, 12), *range(13, 17))),
        *((f"windows-{page}", "text") for page in range(1250, 1259)),
        ("Shift_JIS", "日本"),
        ("euc-jp", "日本"),
        ("iso-2022-jp", "日本"),
        ("euc-kr", "한국"),
        ("koi8-r", "мир"),
        ("koi8-u", "мир"),
        ("gb2312", "中国"),
        ("gbk", "中国"),
        ("GB18030", "中国"),
        ("big5", "中文"),
        ("big5-hkscs", "中文"),
    ],
)
async def test_text_is_decoded_by_its_charset(
    harness: RunnerHarness, server: ScriptedServer, charset: str, text: str
) -> None:
    kind = f'text/plain; charset="{charset}"; format=flowed'
    server.replies = [ScriptedReply(body=text.encode(charset), headers={"Content-Type": kind})]

    assert output_of(await called(harness, server.url()))["body"] == text


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        # It would need seconds for a longer body, and keep the worker from all other calls.
        ("punycode", "bcher-kva"),
        ("idna", "xn--bcher-kva"),
        ("utf-7", "+AOk-"),
        ("unicode_escape", "\\u00e9"),
        ("raw_unicode_escape", "\\u00e9"),
        ("rot13", "text"),
        ("mbcs", "text"),
        ("undefined", "text"),
        ("iso-8859-12", "text"),
        ("utf-8\\", "text"),
    ],
)
async def test_another_encoding_of_python_counts_as_utf_8(
    harness: RunnerHarness, server: ScriptedServer, charset: str, body: str
) -> None:
    reply = ScriptedReply(body=body.encode(), headers={"Content-Type": f"text/plain; charset={charset}"})
    server.replies = [reply]

    assert output_of(await called(harness, server.url()))["body"] == body


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\u0001" * 1_000_000, "ü" * 500_000])
async def test_a_huge_answer_is_cut(harness: RunnerHarness, server: ScriptedServer, text: str) -> None:
    server.replies = [ScriptedReply(body=text.encode(), headers={"Content-Type": "text/plain"})]
    outcome = await called(harness, server.url())
    output = output_of(outcome)

    assert len(outcome.output or b"") <= 4096
    assert output["truncated"] is True
    assert output["status"] == 200
    assert len(output["body"]) > 400
    assert set(output["body"]) == {text[0]}


async def test_json_that_is_too_large_becomes_text_that_is_cut(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [json_reply(list(range(100_000)))]
    output = output_of(await called(harness, server.url()))

    assert output["truncated"] is True
    assert "json" not in output
    assert output["body"].startswith("[0, 1, 2")


async def test_headers_that_are_too_large_are_left_out(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [ScriptedReply(headers={f"X-{number}": "h" * 1000 for number in range(6)})]
    output = output_of(await called(harness, server.url()))

    assert (output["status"], output["headers"], output["truncated"]) == (200, {}, True)


async def test_compression_that_was_not_asked_for_is_undone_within_the_limit(
    harness: RunnerHarness, server: ScriptedServer
) -> None:
    encoded = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    server.replies = [
        ScriptedReply(body=gzip.compress(b'{"a": 1}'), headers=encoded),
        ScriptedReply(body=gzip.compress(b'"' + b"x" * 50_000_000 + b'"'), headers=encoded),
    ]

    assert output_of(await called(harness, server.url()))["json"] == {"a": 1}
    bomb = output_of(await called(harness, server.url()))
    assert bomb["truncated"] is True
    assert len(bomb["body"]) <= 4096
    assert server.requests[0].headers["Accept-Encoding"] == "identity"


# ---- Retry-After ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "waited_ms"),
    [("7", 7000), (" 7 ", 7000), ("0", 0), ("999999", HOUR_MS), ("9" * 30, HOUR_MS), ("-5", 0), ("soon", 0), ("", 0)],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_the_server_says_how_many_seconds_to_wait(
    harness: RunnerHarness, server: ScriptedServer, status: int, after: str, waited_ms: int
) -> None:
    server.replies = [ScriptedReply(status, b"", {"Retry-After": after})]
    outcome = await called(harness, server.url())

    assert (outcome.result, outcome.retry_after_ms) == (Result.FAILED, waited_ms)


async def test_an_instant_to_wait_for_counts_from_the_clock_of_the_server(
    harness: RunnerHarness, server: ScriptedServer
) -> None:
    theirs = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
    later = format_datetime(theirs + timedelta(seconds=90), usegmt=True)
    past = format_datetime(theirs - timedelta(days=1), usegmt=True)
    date = format_datetime(theirs, usegmt=True)
    server.replies = [
        ScriptedReply(429, b"", {"Retry-After": later, "Date": date}),
        ScriptedReply(429, b"", {"Retry-After": past, "Date": date}),
        ScriptedReply(429, b"", {"Retry-After": later.replace("Feb", "Foo"), "Date": date}),
    ]

    assert [(await called(harness, server.url())).retry_after_ms for _ in range(3)] == [90_000, 0, 0]


# ---- connections ---------------------------------------------------------------------------------


async def test_a_lost_connection_is_worth_a_retry(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [ScriptedReply(body=b"x" * 1000, cut_after=10)]
    cut = await called(harness, server.url())
    nobody = await called(harness, "http://127.0.0.1:9/")

    assert (cut.result, nobody.result) == (Result.FAILED, Result.FAILED)
    assert (cut.error or "").startswith("the URL gave no answer: cannot be called: ClientPayloadError")
    assert "127.0.0.1" not in (nobody.error or "")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
async def test_an_attempt_sends_its_request_once_also_if_the_connection_is_lost(
    harness: RunnerHarness, server: ScriptedServer, method: str
) -> None:
    """The server may have acted: whether the request is repeated is up to the retries of the job."""
    server.replies = [ScriptedReply(hangs_up=True)]
    outcome = await called(harness, server.url(), method=method)

    assert outcome.result is Result.FAILED
    assert (outcome.error or "").startswith("the URL gave no answer: cannot be called: ")
    assert [one.method for one in server.requests] == [method]


async def test_a_silent_server_is_left_when_the_time_is_over(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [ScriptedReply(silent=True)]
    outcome = await called(harness, server.url(), timeout_ms=100)

    assert (outcome.result, outcome.error) == (Result.TIMED_OUT, "took longer than 0.1 s")
    await asyncio.wait_for(server.given_up.wait(), 20)


async def test_a_cancelled_call_ends_its_connection(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [ScriptedReply(silent=True)]
    harness.runner.start([assigned := call(server.url())])
    await server.until(1)
    harness.runner.stop([attempt_ref(assigned)], why=Result.CANCELLED)

    assert (await harness.outcome(assigned)).result is Result.CANCELLED
    await asyncio.wait_for(server.given_up.wait(), 20)


async def test_many_calls_wait_at_once(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [ScriptedReply(silent=True)] * 40
    waiting = [call(server.url("/silent")) for _ in range(40)]
    harness.runner.start(waiting)
    await server.until(40)

    assert (await called(harness, server.url("/quick"))).result is Result.SUCCEEDED
    harness.runner.stop([attempt_ref(one) for one in waiting], why=Result.CANCELLED)


# ---- redirects -----------------------------------------------------------------------------------


def redirect(location: str, status: int = 302) -> ScriptedReply:
    return ScriptedReply(status, b"", {"Location": location})


async def test_redirects_on_the_host_are_followed(harness: RunnerHarness, server: ScriptedServer) -> None:
    server.replies = [redirect("/b?x=1#part"), redirect(server.url("/ü"), 301), json_reply({"at": "end"})]
    outcome = await called(harness, server.url("/a"), headers={"X-Key": "k"})

    assert [request.target for request in server.requests] == ["/a", "/b?x=1", "/%C3%BC"]
    assert {request.headers["X-Key"] for request in server.requests} == {"k"}
    assert output_of(outcome)["json"] == {"at": "end"}


@pytest.mark.parametrize(
    ("status", "repeated"),
    [(307, ("POST", b'{"n":1}')), (308, ("POST", b'{"n":1}')), (303, ("GET", b"")), (301, None), (302, None)],
)
async def test_a_redirect_repeats_a_body_only_if_it_says_so(
    harness: RunnerHarness, server: ScriptedServer, status: int, repeated: tuple[str, bytes] | None
) -> None:
    server.replies = [redirect("/new", status)]
    outcome = await called(harness, server.url("/old"), json={"n": 1})

    assert [(one.method, one.body) for one in server.requests[1:]] == ([repeated] if repeated else [])
    assert outcome.result is (Result.SUCCEEDED if repeated else Result.GAVE_UP)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://evil.example/", "another host (evil.example)"),
        ("//evil.example/x", "another host (evil.example)"),
        ("http://localhost:{port}/", "another host (localhost)"),
        ("http://127.0.0.1:9/", "another host (127.0.0.1)"),
        ("http://127.0.0.1@evil.example/", "no http or https URL without credentials"),
        ("http://u:p@127.0.0.1:{port}/", "no http or https URL without credentials"),
        ("file:///etc/passwd", "no http or https URL without credentials"),
        ("https://127.0.0.1:{port}/", "another host"),
        ("http://[::1", "no http or https URL without credentials"),
        ("//[", "no http or https URL without credentials"),
        ("http://127.0.0.1:99999/", "no http or https URL without credentials"),
        ("http:\\\\evil.example", "no http or https URL without credentials"),
    ],
)
async def test_a_redirect_to_another_host_is_not_followed(
    harness: RunnerHarness, server: ScriptedServer, location: str, reason: str
) -> None:
    server.replies = [redirect(location.format(port=server.port))]
    outcome = await called(harness, server.url("/a"))

    assert outcome.result is Result.GAVE_UP
    assert reason in (outcome.error or "")
    assert len(server.requests) == 1


@pytest.mark.parametrize("follow", [0, 3])
async def test_redirects_are_counted(harness: RunnerHarness, server: ScriptedServer, follow: int) -> None:
    server.replies = [redirect("/round")] * 10
    outcome = await called(harness, server.url("/round"), follow=follow)

    assert len(server.requests) == follow + 1
    assert outcome.error == "answered 302 Found: it redirects more often than follow allows"


# ---- addresses -----------------------------------------------------------------------------------


async def test_an_address_inside_is_called_only_if_the_settings_allow_it(server: ScriptedServer) -> None:
    async with open_runner(Functions(), http=client()) as harness:
        for host in ("127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1", "0.0.0.0"):  # noqa: S104
            outcome = await called(harness, server.url("/", host))
            assert outcome.result is Result.GAVE_UP
            assert (outcome.error or "").startswith(
                ("the URL is refused: it leads to a ", "the URL is refused: it leads to an ")
            ), host
            assert "security.allowed_hosts does not list" in (outcome.error or "")

    assert server.requests == []


class LyingResolver:
    """A name server that gives a public address first and an internal one afterwards."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        del host, port
        return self.answers.pop(0)


async def test_a_redirect_on_the_host_cannot_rebind_its_name_to_an_address_inside(server: ScriptedServer) -> None:
    """Each connection is checked: also the second one to a name that was good before."""
    resolver = LyingResolver(["127.0.0.1"], ["127.0.0.2"])
    server.replies = [redirect("/inside")]
    async with open_runner(Functions(), http=client("127.0.0.1", resolve=resolver)) as harness:
        outcome = await called(harness, server.url("/a", "name.example"))

    assert outcome.error == (
        "the URL is refused: it leads to a loopback address, which security.allowed_hosts does not list"
    )
    assert [request.target for request in server.requests] == ["/a"]
    assert resolver.answers == []


async def test_the_address_that_was_checked_is_the_one_that_is_called(server: ScriptedServer) -> None:
    """A name server that changes its mind between the check and the connection is asked only once."""
    resolver = LyingResolver(["127.0.0.2"], ["127.0.0.1"])
    async with open_runner(Functions(), http=client("127.0.0.2", resolve=resolver)) as harness:
        outcome = await called(harness, server.url("/", "name.example"))

    assert outcome.result is Result.FAILED
    assert server.requests == []
    assert len(resolver.answers) == 1


# ---- secrets -------------------------------------------------------------------------------------


@pytest.mark.guarantee("S24")
async def test_secrets_are_sent_and_never_stored(server: ScriptedServer) -> None:
    environ = {"TOKEN": "hunter22&x=/../y", "PART": "pärt-of-path"}
    async with open_runner(Functions(), http=client("127.0.0.1"), secrets=SECRETS, environ=environ) as harness:
        server.replies = [
            json_reply({"you": "Bearer hunter22&x=/../y", "also": ["hunter22%26x%3D%2F..%2Fy"]}),
            ScriptedReply(401, b"bad token hunter22&x=/../y", {"X-Token": "hunter22&x=/../y"}),
        ]
        fields: dict[str, Any] = {
            "headers": {"Authorization": "Bearer ${secret:TOKEN}"},
            "json": {"token": "${secret:TOKEN}"},
        }
        url = server.url("/${secret:PART}?key=${secret:TOKEN}")
        outcomes = [await called(harness, url, **fields) for _ in range(2)]

    assert server.requests[0].target == "/p%C3%A4rt-of-path?key=hunter22%26x%3D%2F..%2Fy"
    assert server.requests[0].headers["Authorization"] == "Bearer hunter22&x=/../y"
    assert server.requests[0].json == {"token": "hunter22&x=/../y"}
    stored = " ".join(f"{one.error} {(one.output or b'').decode()} {one.logs}" for one in outcomes)
    assert "hunter22" not in stored
    assert stored.count("[secret TOKEN]") >= 3


async def test_a_secret_may_be_a_whole_url(server: ScriptedServer) -> None:
    environ = {"HOOK": server.url("/services/T0/B0")}
    async with open_runner(Functions(), http=client("127.0.0.1"), secrets=SECRETS, environ=environ) as harness:
        outcome = await called(harness, "${secret:HOOK}/x?n=1", json={"text": "hello"})
        assert outcome.result is Result.SUCCEEDED

    assert server.requests[0].target == "/services/T0/B0/x?n=1"


@pytest.mark.parametrize(
    ("secrets", "url", "error"),
    [
        ({}, "http://127.0.0.1/${secret:TOKEN}", "secret"),
        ({"HOOK": "http://u:hunter22@127.0.0.1/"}, "${secret:HOOK}", "no http or https URL without credentials"),
        ({"HOOK": "file:///hunter22"}, "${secret:HOOK}", "no http or https URL without credentials"),
        ({"PART": "hunter22\r\nX: y"}, "http://127.0.0.1/", "no header can have"),
    ],
)
async def test_a_secret_that_does_not_fit_gives_up_without_its_value(
    server: ScriptedServer, secrets: dict[str, str], url: str, error: str
) -> None:
    async with open_runner(Functions(), http=client("127.0.0.1"), secrets=SECRETS, environ=secrets) as harness:
        fields = {"headers": {"X": "${secret:PART}"}} if "PART" in secrets else {}
        outcome = await called(harness, url, **fields)

    assert outcome.result is Result.GAVE_UP
    assert error in (outcome.error or "")
    assert "hunter22" not in (outcome.error or "")
    assert server.requests == []


async def test_a_secret_that_the_cut_splits_leaves_no_beginning(server: ScriptedServer) -> None:
    secret = "hunter22-" * 60
    async with open_runner(
        Functions(), http=client("127.0.0.1"), secrets=SECRETS, environ={"TOKEN": secret}, max_output_bytes=1024
    ) as harness:
        for shift in range(0, 540, 45):
            filler = b"." * (1024 - shift)
            server.replies.append(ScriptedReply(body=filler + secret.encode() * 2, headers={"Content-Type": "text/x"}))
            outcome = await called(harness, server.url(), headers={"X": "${secret:TOKEN}"})
            assert b"hunter" not in (outcome.output or b"")


async def test_a_worker_without_a_client_does_not_offer_calls() -> None:
    async with open_runner(Functions()) as harness:
        assert HTTP not in harness.runner.functions
        assert (await called(harness, "http://127.0.0.1/")).result is Result.NEVER_STARTED
    async with open_runner(Functions(), http=client()) as harness:
        assert HTTP in harness.runner.functions
        assert HTTP in list(harness.runner.functions)
        assert len(harness.runner.functions) == len(list(harness.runner.functions))
