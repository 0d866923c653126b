"""Attacks on the API: bodies, fields, addresses and callers. Each asserts what must hold on the target."""

import asyncio
import base64
import contextlib
import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from gnomon.app.auth import new_token
from gnomon.ports.auth import Role
from support.hostile_target import REGULAR_JOB, HostileTarget, Shape, problem, received
from support.postgres_server import postgres

Attack = Callable[[HostileTarget], None]
#: In processor time of the target: a refusal that takes more was worked on.
_LITTLE = 5.0
_FORM = "application/x-www-form-urlencoded"
_JOB = {"name": "victim", "function": "witness/coroutine"}


# ---- helpers -------------------------------------------------------------------------------------


def session_of(target: HostileTarget, caller: str = "viewer") -> dict[str, str]:
    """The cookie of a session of the dashboard, as a header."""
    sent = {"Origin": target.address, "Content-Type": _FORM}
    signed_in = target.ask("POST", "/ui/login", raw=f"token={target.token(caller)}".encode(), caller="", headers=sent)
    [(name, value)] = signed_in.cookies.items()
    # The client keeps cookies as a browser does; other attacks come without a session.
    target.client.cookies.clear()
    return {"Cookie": f"{name}={value}"}


def refuses_bodies(*bodies: bytes) -> Attack:
    """Send each body as a job; each is refused as no valid request."""

    def attack(target: HostileTarget) -> None:
        for raw in bodies:
            refused = target.ask("POST", "/v1/jobs", raw=raw)
            assert refused.status_code in (400, 422), (raw[:80], refused.status_code)
            problem(refused)

    return attack


def refuses_fields(*changes: Mapping[str, Any]) -> Attack:
    """Register a job with each change; each is refused: its field is named, unless the body cannot be read."""

    def attack(target: HostileTarget) -> None:
        for change in changes:
            said = {name: value for name, value in {**_JOB, **change}.items() if value is not None}
            before = target.processor_seconds()
            refused = target.ask("POST", "/v1/jobs", said)
            assert refused.status_code in (400, 422), (str(change)[:120], refused.status_code)
            assert problem(refused).get("errors") or refused.status_code == 400
            assert target.processor_seconds() - before < _LITTLE

    return attack


def refuses_values(field: str, values: Iterable[Any], **beside: object) -> Attack:
    """Register a job with each value of a field; each is refused."""
    return refuses_fields(*({**beside, field: value} for value in values))


def refuses_queries(path: str, *queries: str) -> Attack:
    """Ask each question; each is refused."""

    def attack(target: HostileTarget) -> None:
        for query in queries:
            refused = target.ask("GET", f"{path}?{query}")
            assert refused.status_code == 422, (query, refused.status_code)
            problem(refused)

    return attack


# ---- bodies --------------------------------------------------------------------------------------


def input_size(target: HostileTarget) -> None:
    frame = len(json.dumps({"x": ""}, separators=(",", ":")))
    too_large = target.register("large", input={"x": "y" * (65_537 - frame)})
    fits = target.register("large", input={"x": "y" * (65_536 - frame)})
    target.delete("large")

    assert (too_large.status_code, fits.status_code) == (422, 201)


def endless_body(target: HostileTarget) -> None:
    before = target.memory_kb()
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    sent = 0
    with target.connect() as connection:
        connection.sendall(b"POST /v1/jobs HTTP/1.1\r\n" + target.head() + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):  # the server closes the connection
            while sent < 64 * 2**20:
                connection.sendall(piece)
                sent += len(piece)
        heard = received(connection)

    assert not heard or heard.startswith(b"HTTP/1.1 413"), heard[:200]
    # The buffers of the kernel take some of it.
    assert sent < 32 * 2**20
    assert target.memory_kb() - before < 32 * 1024


def compressed_body(target: HostileTarget) -> None:
    raw = gzip.compress(b'{"name": "victim", "description": "' + b" " * 2**24 + b'"}')
    before = target.memory_kb()

    refused = target.ask("POST", "/v1/jobs", raw=raw, headers={"Content-Encoding": "gzip"})

    assert refused.status_code == 415
    assert target.memory_kb() - before < 32 * 1024


def other_formats(target: HostileTarget) -> None:
    form = b"&".join(b"a%d=1" % number for number in range(50_000))
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"):
        assert target.ask("POST", "/v1/jobs", raw=form, headers={"Content-Type": kind}).status_code == 415
    ranges = "bytes=" + ",".join(f"{number}-{number + 1}" for number in range(2_000))
    assert target.ask("GET", "/v1/jobs", headers={"Range": ranges}).status_code == 200


# ---- fields --------------------------------------------------------------------------------------


def instants(target: HostileTarget) -> None:
    refused = [
        "0001-01-01T00:00:00+14:00", "2026-02-30T00:00:00Z", "2026-01-01T23:59:60Z", "2026-01-01T00:00", "tomorrow-ish",
    ]  # fmt: skip
    refuses_values("at", refused)(target)
    refuses_fields({"at": "2026-03-29T02:30", "timezone": "Europe/Berlin"})(target)
    last = target.register("victim", at="9999-12-31T23:59:59Z")
    assert last.status_code in (201, 422)
    if last.status_code == 201:
        target.delete("victim")


def graphs(target: HostileTarget) -> None:
    def step(name: str, *needs: str) -> dict[str, object]:
        return {"step": name, "function": "f", "depends_on": list(needs)}

    refuses_values(
        "dag",
        [
            [step("a", "a")],
            [step("a", "c"), step("b", "a"), step("c", "b")],
            [step("a", "missing")],
            [step("a"), step("a")],
            [{"step": f"s{number}", "function": "f"} for number in range(10_000)],
        ],
        function=None,
    )(target)
    layers = [
        step(f"s{layer}.{number}", *([f"s{layer - 1}.{other}" for other in range(2)] if layer else []))
        for layer in range(40)
        for number in range(2)
    ]
    before = target.processor_seconds()
    taken = target.ask("POST", "/v1/jobs", {"name": "lattice", "dag": layers})
    assert target.processor_seconds() - before < _LITTLE
    assert taken.status_code == 201
    target.delete("lattice")


def template_text(target: HostileTarget) -> None:
    texts = ["{{ ''.__class__.__mro__ }}", "{% raw %}", "$(id)", "<%= 1 %>"]

    assert target.register("text", input={"texts": texts}).status_code == 201

    assert target.ask("GET", "/v1/jobs/text").json()["definition"]["input"] == {"texts": texts}
    target.delete("text")


def opaque_labels(target: HostileTarget) -> None:
    refuses_fields({"saga_id": "x"}, {"approval_granted": True}, {"preferred_worker_id": "w"})(target)
    labels = {"approval_granted": "true", "saga_id": "x"}
    assert target.register("labelled", labels=labels).status_code == 201
    assert target.ask("GET", "/v1/jobs/labelled").json()["definition"]["labels"] == labels
    target.delete("labelled")


def opaque_input(target: HostileTarget) -> None:
    many = {f"k{number}": 1 for number in range(100_000)}
    assert target.register("victim", input=many).status_code in (413, 422)
    odd = {"__proto__": {"admin": True}, "constructor": 1, "py/object": "os.system"}
    assert target.register("odd", input=odd).status_code == 201
    assert target.ask("GET", "/v1/jobs/odd").json()["definition"]["input"] == odd
    target.delete("odd")


# ---- questions and addresses ---------------------------------------------------------------------


def cursors(target: HostileTarget) -> None:
    refuses_queries("/v1/jobs", "limit=0", "limit=-1", "limit=1000000000", "cursor=WyJhIiwiYiJd", "cursor=%FF")(target)
    names = [f"page{number}" for number in range(2)]
    for name in names:
        assert target.register(name).status_code == 201
    cursor = target.ask("GET", "/v1/jobs?limit=1").json()["next"].partition("cursor=")[2]
    changed = target.ask("GET", f"/v1/jobs?limit=1&cursor=X{cursor[1:]}")
    foreign = target.ask("GET", f"/v1/jobs?limit=1&cursor={cursor}", caller="admin/other")
    for name in names:
        target.delete(name)

    assert (changed.status_code, foreign.status_code) == (422, 422)


def ambiguous_addresses(target: HostileTarget) -> None:
    for line in (
        b"GET /v1/jobs/..%2f..%2fmetrics HTTP/1.1",
        b"GET //v1/health HTTP/1.1",
        b"GET @evil.example HTTP/1.1",
        b"GET v1/health HTTP/1.1",
        b"GET /v1/jobs/a%00b HTTP/1.1",
    ):
        assert target.send(line + b"\r\n" + target.head() + b"\r\n").startswith(b"HTTP/1.1 400"), line


def ambiguous_lengths(target: HostileTarget) -> None:
    start = b"POST /v1/jobs HTTP/1.1\r\n" + target.head()
    for rest in (
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"X-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: +2\r\n\r\n{}",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ):
        heard = target.send(start + rest, until_closed=True)
        assert heard.startswith(b"HTTP/1.1 4"), (rest, heard[:200])
        assert heard.count(b"HTTP/1.1") == 1


def headers_of_proxies(target: HostileTarget) -> None:
    assert target.register("kept").status_code == 201
    claims = {
        "X-HTTP-Method-Override": "DELETE", "X-Tenant": "other", "X-Forwarded-User": "root",
        "X-Original-URL": "/v1/jobs/kept", "X-Rewrite-URL": "/v1/audit",
    }  # fmt: skip

    seen = target.ask("GET", "/v1/jobs/kept", caller="viewer", headers=claims)
    stranger = target.ask("GET", "/v1/jobs/kept", caller="", headers=claims)
    target.delete("kept")

    assert (seen.status_code, seen.json()["job"], stranger.status_code) == (200, "kept", 401)


def slow_callers(target: HostileTarget) -> None:
    slow = [target.connect() for _ in range(100)]
    try:
        for connection in slow:
            connection.sendall(b"G")
        assert target.ask("GET", "/v1/jobs").status_code == 200
    finally:
        for connection in slow:
            connection.close()


def forged_cursors(target: HostileTarget) -> None:
    """Cursors with a seal that anybody can compute, over a wild position and over a plausible one."""
    now = time.time_ns() // 1_000_000
    for place in ([now, -5, 2**50], [now, 4_000_000, 2**50], [now, "pulse", now + 60_000], [now, "pulse", 2**70]):
        text = json.dumps(["default", "/v1/schedule", [], place], separators=(",", ":")).encode()
        seal = hashlib.sha256(text).hexdigest()
        for length in (16, 32, 64):
            cursor = base64.urlsafe_b64encode(json.dumps([place, seal[:length]]).encode()).decode()
            before = target.processor_seconds()
            assert target.ask("GET", f"/v1/schedule?cursor={cursor}", caller="viewer").status_code == 422
            assert target.processor_seconds() - before < _LITTLE


def distant_fires(target: HostileTarget) -> None:
    assert target.register("yearly", schedule="0 0 29 2 *", timezone="Europe/Berlin").status_code == 201
    before = target.processor_seconds()
    shown = target.ask("GET", "/v1/jobs/yearly?coming=1000", caller="viewer")
    spent = target.processor_seconds() - before
    target.delete("yearly")

    assert shown.status_code in (200, 422)
    assert spent < _LITTLE


def schema_bombs(target: HostileTarget) -> None:
    """Schemas of a few hundred bytes whose check takes hours, and patterns of some KB that take seconds to compile."""
    levels = {f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(40)}
    doubled = {"$defs": {**levels, "a40": {"type": "object"}}, "$ref": "#/$defs/a0"}
    recursive = {"properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "required": ["q"]}
    escapes = {"properties": {"p": {"pattern": r"\S" * 1400}}}
    unfinished = {"properties": {"p": {"pattern": "a{" + "0" * 30_000}}}
    deep: dict[str, Any] = {}
    for _ in range(16):
        deep = {"x": deep}
    for schema in (doubled, recursive, escapes, unfinished):
        job = {**_JOB, "input": deep, "input_schema": schema}
        before = target.processor_seconds()
        planned = target.ask("POST", "/v1/plan", {"jobs": [job]}, caller="viewer")
        registered = target.ask("POST", "/v1/jobs", job)
        assert target.processor_seconds() - before < 2 * _LITTLE
        assert registered.status_code == 422
        assert planned.status_code in (200, 422)


def costly_plans(target: HostileTarget) -> None:
    """Plans of jobs that each cost as much as one may: other callers plan and change jobs meanwhile."""
    jobs = [{**_JOB, "name": f"x{n}", "input_schema": {"pattern": r"\S" * 84 + str(n)}} for n in range(80)]
    with ThreadPoolExecutor(2) as threads:
        long = [threads.submit(target.ask, "POST", "/v1/plan", {"jobs": jobs}, caller="viewer") for _ in range(2)]
        time.sleep(0.1)
        planned = [target.ask("POST", "/v1/plan", {"jobs": [_JOB]}, caller=caller) for caller in ("admin", "viewer/b")]
        assert not all(one.done() for one in long), "they were over before the others asked"
        assert [one.status_code for one in planned] == [200, 200]
        assert [one.result().status_code for one in long] == [200, 200]


# ---- headers and trailers ------------------------------------------------------------------------


def endless_trailers(target: HostileTarget) -> None:
    before = target.memory_kb()
    with target.connect() as connection:
        connection.sendall(b"POST /v1/plan HTTP/1.1\r\n" + target.head("") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                connection.sendall(b"a: b\r\n" * 10_000)

    assert target.memory_kb() - before < 32 * 1024


def token_in_trailer(target: HostileTarget) -> None:
    trailer = f"Authorization: Bearer {target.token('admin')}\r\n\r\n".encode()
    head = target.head("") + b"Transfer-Encoding: chunked\r\n\r\n"

    heard = target.send(b"POST /v1/plan HTTP/1.1\r\n" + head + b'b\r\n{"jobs":[]}\r\n0\r\n' + trailer)

    assert heard.startswith(b"HTTP/1.1 401")


def odd_headers(target: HostileTarget) -> None:
    host, token = urlsplit(target.address).netloc, target.token("viewer")
    for lines, status in (
        ([f"Authorization: Bearer {token}"], 400),
        ([f"Host: {host}", f"Host: {host}", f"Authorization: Bearer {token}"], 400),
        ([f"Host: {host}", f"Authorization: Bearer  {token}"], 401),
        ([f"Host: {host}", f"Authorization: Bearer {token}\u00a0"], 401),
        ([f"Host: {host}", f"Authorization: Bearer {token}"], 200),
    ):
        raw = "\r\n".join(["GET /v1/jobs HTTP/1.1", *lines, "", ""]).encode("latin-1")
        assert target.send(raw).startswith(f"HTTP/1.1 {status}".encode()), lines


def foreign_hosts(target: HostileTarget) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example"):
        for path in ("/livez", "/v1/jobs", "/ui/", "/ui/login"):
            assert target.ask("GET", path, headers={"Host": host}).status_code == 421


def security_headers(target: HostileTarget) -> None:
    for path, caller in (("/v1/jobs", "viewer"), ("/v1/jobs", ""), ("/livez", ""), ("/nothing", "viewer")):
        shown = target.ask("GET", path, caller=caller).headers
        assert (shown["cache-control"], shown["x-content-type-options"]) == ("no-store", "nosniff"), path
    for path, given in (("/ui/", session_of(target)), ("/ui/nothing", {}), ("/ui/", {}), ("/ui/login", {})):
        shown = target.ask("GET", path, caller="", headers=given).headers
        assert (shown["cache-control"], shown["x-content-type-options"]) == ("no-store", "nosniff"), path


#: Markup, links, terminal sequences, and a pattern that would take for ever.
_MARKUP = '"><img src=x onerror=alert(1)></script><svg onload=alert(1)> javascript:alert(1)'
_TERMINAL = "\x1b]52;c;ZXZpbA==\x07\x1b[2Jhidden\rshown"


def inert_texts(target: HostileTarget) -> None:
    assert target.register("marked", description=_MARKUP + _TERMINAL, tags=["<b>"]).status_code in (201, 422)
    target.register("marked", description=_MARKUP)
    for path in ("/v1/jobs/marked", "/v1/jobs?tag=%3Cscript%3E", f"/v1/jobs/{quote(_MARKUP + _TERMINAL, safe='')}"):
        shown = target.ask("GET", path, caller="viewer")
        assert shown.headers["content-type"].partition(";")[0] in ("application/json", "application/problem+json")
        assert shown.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in shown.headers["content-security-policy"]
        assert not [byte for byte in shown.content if byte < ord(" ") and byte != ord("\n")]
    given = session_of(target)
    for path in (
        "/ui/jobs/marked",
        "/ui/jobs/marked?tab=definition",
        f"/ui/jobs/{quote((_MARKUP + _TERMINAL).replace('/', ''))}",
    ):
        page = target.ask("GET", path, caller="", headers=given)
        # A path that no page can have is refused before there is one.
        assert page.headers["content-type"].partition(";")[0] in ("text/html", "application/problem+json")
        assert page.status_code == 400 or page.headers["content-type"].startswith("text/html"), path
        assert "'unsafe" not in page.headers["content-security-policy"]
        for tag in (b"<img", b"<svg on", b"<b>", b"</script><", b'href="javascript:'):
            assert tag not in page.content, (path, tag)
        assert not [byte for byte in page.content if byte < ord(" ") and byte not in b"\n\t"]
    target.delete("marked")


def changes_by_pages(target: HostileTarget) -> None:
    for origin, kind in (
        ("https://evil.example", "text/plain"),
        ("null", "application/x-www-form-urlencoded"),
        ("https://evil.example", "multipart/form-data; boundary=x"),
    ):
        headers = {"Origin": origin, "Content-Type": kind, "Cookie": f"token={target.token('admin')}"}
        sent = target.ask("POST", "/v1/jobs", raw=json.dumps(_JOB).encode(), caller="", headers=headers)
        assert sent.status_code in (401, 403, 415), (origin, kind)
    session = {**session_of(target, "admin"), "Content-Type": _FORM}
    # A page of another site knows neither the form token, nor can it name this server as its origin.
    for origins in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {}, {"Origin": target.address}):
        sent = target.ask(
            "POST", "/ui/jobs/report/pause", raw=b"form_token=x", caller="", headers={**session, **origins}
        )
        assert sent.status_code == 403, origins


def frames(target: HostileTarget) -> None:
    for path, caller in (("/v1/jobs", "viewer"), ("/openapi.json", ""), ("/nothing", ""), ("/livez", "")):
        shown = target.ask("GET", path, caller=caller).headers
        assert shown["x-frame-options"] == "DENY", path
        assert "frame-ancestors 'none'" in shown["content-security-policy"], path
    for path, given in (("/ui/", session_of(target)), ("/ui/login", {})):
        shown = target.ask("GET", path, caller="", headers=given).headers
        assert shown["x-frame-options"] == "DENY", path
        assert "frame-ancestors 'none'" in shown["content-security-policy"], path


def redirects(target: HostileTarget) -> None:
    sent = {"Origin": target.address, "Content-Type": _FORM}
    for where in ("//evil.example", "/\\evil.example", "javascript:alert(1)", "https://evil.example"):
        wanted = quote(where, safe="")
        for path in ("/", "/v1/jobs", "/livez", "/v1/jobs/", "/ui/", "/ui/jobs", "/ui/login"):
            for name in ("next", "redirect", "return_to"):
                for caller in ("viewer", ""):
                    _leads_to_the_dashboard(target.ask("GET", f"{path}?{name}={wanted}", caller=caller))
        form = f"token={target.token('viewer')}&next={wanted}".encode()
        signed_in = target.ask("POST", "/ui/login", raw=form, caller="", headers=sent)
        assert signed_in.status_code == 303
        _leads_to_the_dashboard(signed_in)
    # The client keeps cookies as a browser does; the attacks after this one come without a session.
    target.client.cookies.clear()


def _leads_to_the_dashboard(shown: httpx.Response) -> None:
    """Or nowhere: there is no redirect."""
    location = shown.headers.get("location")
    assert (location is not None) == (300 <= shown.status_code < 400)
    if location is not None:
        place = urlsplit(location)
        assert (place.scheme, place.netloc) == ("", "")
        assert place.path.startswith("/ui/")
        assert "\\" not in place.path


def cookies(target: HostileTarget) -> None:
    given = {"Cookie": f"session=fixed; token={target.token('admin')}"}
    assert target.ask("GET", "/v1/jobs", caller="", headers=given).status_code == 401
    for path, caller in (("/v1/jobs", "viewer"), ("/v1/jobs", ""), ("/openapi.json", ""), ("/livez", "")):
        assert (
            "set-cookie"
            not in target.ask("GET", path, caller=caller, headers={} if caller else {"Cookie": "session=fixed"}).headers
        )
    session = session_of(target, "admin")
    name = session["Cookie"].partition("=")[0]
    # A session counts for pages only, and nobody chooses one for somebody else.
    assert target.ask("GET", "/v1/jobs", caller="", headers=session).status_code == 401
    assert target.ask("GET", "/ui/jobs", caller="", headers=session).status_code == 200
    assert target.ask("GET", "/ui/jobs", caller="", headers={"Cookie": f"{name}=fixed"}).status_code == 303
    sent = {"Origin": target.address, "Content-Type": _FORM, "Cookie": f"{name}=fixed"}
    signed_in = target.ask("POST", "/ui/login", raw=f"token={target.token('viewer')}".encode(), caller="", headers=sent)
    target.client.cookies.clear()
    words = signed_in.headers["set-cookie"].lower().replace(" ", "").split(";")
    assert {"httponly", "samesite=lax", "path=/ui/"} <= set(words)
    assert "fixed" not in words[0]


def endless_lists(target: HostileTarget) -> None:
    for path in ("/v1/executions", "/v1/jobs", "/v1/ticks", "/v1/audit"):
        assert target.ask("GET", f"{path}?limit=100000").status_code == 422, path
    before = target.processor_seconds()
    for pattern in ("(a+)+$", "(.*)*" * 50, "%", "_"):
        shown = target.ask("GET", f"/v1/executions?tag={quote(pattern)}", caller="viewer")
        assert shown.status_code == 422 or shown.json()["items"] == []
    session = session_of(target)
    for query in ("limit=100000", "tag=(a%2B)%2B%24", "cursor=x"):
        page = target.ask("GET", f"/ui/executions?{query}", caller="", headers=session)
        assert page.status_code == 422 or len(page.content) < 1_000_000, query
    assert target.processor_seconds() - before < _LITTLE


def privileged_database_role(target: HostileTarget) -> None:
    """The tests use a superuser, for whom no row security counts; the tenants are kept apart all the same."""
    role = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    assert asyncio.run(postgres(18).run(role, url=target.settings.database.url))[0][0]
    tenants_in_turn(target)


# ---- concurrency ---------------------------------------------------------------------------------


def idempotency_keys(target: HostileTarget) -> None:
    assert target.register("keyed", overlap="allow").status_code == 201

    def trigger(key: str, body: object = None, caller: str = "admin") -> Any:  # noqa: ANN401 - a response
        headers = {"Idempotency-Key": key}
        return target.ask("POST", "/v1/jobs/keyed/trigger", body, caller=caller, headers=headers)

    assert trigger("x" * 10_000).status_code == 422
    with ThreadPoolExecutor(20) as threads:
        same = list(threads.map(lambda _: trigger("monday"), range(40)))
    other_body = trigger("monday", {"input": {"day": 1}})
    assert target.register("keyed", caller="admin/other").status_code == 201
    other_tenant = trigger("monday", caller="admin/other")
    target.delete("keyed")
    target.delete("keyed", caller="admin/other")

    assert {one.status_code for one in same} <= {200, 202}
    assert len({one.json()["execution_id"] for one in same}) == 1
    assert other_body.status_code == 409
    assert other_tenant.json()["execution_id"] != same[0].json()["execution_id"]


def concurrent_changes(target: HostileTarget) -> None:
    assert target.register("raced").status_code == 201
    seen = target.ask("GET", "/v1/jobs/raced").headers["etag"]

    def change(number: int) -> int:
        said = {**_JOB, "name": "raced", "description": f"change {number}"}
        return target.ask("PUT", "/v1/jobs/raced", said, headers={"If-Match": seen}).status_code

    with ThreadPoolExecutor(4) as threads:
        statuses = sorted(threads.map(change, range(4)))
    target.delete("raced")

    assert statuses == [200, 412, 412, 412]


# ---- callers -------------------------------------------------------------------------------------


def roles(target: HostileTarget) -> None:
    assert target.register("guarded").status_code == 201
    assert target.register("theirs", caller="admin/other").status_code == 201
    asked = [
        target.ask("POST", "/v1/jobs/guarded/trigger", caller="viewer"),
        target.ask("PUT", "/v1/jobs/guarded", {**_JOB, "name": "guarded"}, caller="operator"),
        target.ask("DELETE", "/v1/jobs/guarded", caller="operator"),
        target.ask("GET", "/v1/audit", caller="operator"),
        # The role is checked before the body is read, and before the object is looked for.
        target.ask("POST", "/v1/jobs", raw=b"[" * 100_000, caller="viewer"),
        target.ask("DELETE", "/v1/jobs/missing", caller="viewer"),
        target.ask("GET", "/v1/jobs/theirs"),
        target.ask("DELETE", "/v1/jobs/theirs"),
        target.ask("POST", "/v1/jobs/theirs/trigger"),
        target.ask("GET", "/v1/jobs", caller=""),
    ]
    target.delete("guarded")
    target.delete("theirs", caller="admin/other")

    assert [one.status_code for one in asked] == [403, 403, 403, 403, 403, 403, 404, 404, 404, 401]


def foreign_and_missing(target: HostileTarget) -> None:
    assert target.register("theirs", caller="admin/other").status_code == 201
    foreign = target.ask("GET", "/v1/jobs/theirs")
    missing = target.ask("GET", "/v1/jobs/nobody")
    target.delete("theirs", caller="admin/other")

    assert foreign.status_code == missing.status_code == 404
    assert foreign.text.replace("theirs", "nobody") == missing.text


def tenants_in_turn(target: HostileTarget) -> None:
    assert target.register("shared", description="of default").status_code == 201
    assert target.register("shared", description="of other", caller="admin/other").status_code == 201
    for _ in range(5):
        for caller, said in (("viewer", "of default"), ("viewer/other", "of other")):
            assert target.ask("GET", "/v1/jobs/shared", caller=caller).json()["definition"]["description"] == said
        assert target.ask("GET", "/v1/jobs", caller="viewer/third").json()["items"] == []
    target.delete("shared")
    target.delete("shared", caller="admin/other")


def public_answers(target: HostileTarget) -> None:
    for path in ("/v1/health", "/livez", "/readyz"):
        shown = target.ask("GET", path, caller="").text
        assert not [word for word in ("pulse", "witness", "postgresql://", str(target.folder)) if word in shown]
    assert target.ask("GET", "/metrics", caller="").status_code in (401, 404)


def strangers(target: HostileTarget) -> None:
    good = target.token("admin")
    for headers in (
        {},
        {"Authorization": good},
        {"Authorization": f"Basic {good}"},
        {"Authorization": f"Bearer {good}x"},
        [("Authorization", f"Bearer {target.token('viewer')}"), ("Authorization", f"Bearer {good}")],
    ):
        assert target.ask("GET", "/v1/jobs", caller="", headers=headers).status_code == 401
    for query in (f"access_token={good}", f"token={good}"):
        assert target.ask("GET", f"/v1/jobs?{query}", caller="").status_code == 401
    assert not [name for name in target.processes if good in target.log(name)]


def unsigned_tokens(target: HostileTarget) -> None:
    from support.token_issuers import token_part

    header, claims, signature = target.token("viewer").split(".")
    admin = target.token("admin").split(".")[1]
    for shown in (
        *(f"{token_part({'alg': name})}.{claims}." for name in ("none", "None", "nOnE", "")),
        f"{header}.{claims}.",
        f"{header}.{admin}.{signature}",
        f"{token_part({'alg': 'HS256'})}.{admin}.{signature}",
        f"{header}.{claims}.{signature}==",
        f"{header}.{claims}.{signature}.a.b",
    ):
        refused = target.ask("GET", "/v1/jobs", caller="", headers={"Authorization": f"Bearer {shown}"})
        assert refused.status_code == 401, shown
        assert claims not in refused.text


def other_origins(target: HostileTarget) -> None:
    for origin in ("null", "https://evil.example", target.address + ".evil.example"):
        for method, path in (("GET", "/v1/jobs"), ("OPTIONS", "/v1/jobs"), ("GET", "/livez")):
            shown = target.ask(method, path, caller="viewer", headers={"Origin": origin})
            assert not [name for name in shown.headers if name.lower().startswith("access-control-allow")]
        page = target.ask("GET", "/ui/", caller="", headers={**session_of(target), "Origin": origin})
        assert not [name for name in page.headers if name.lower().startswith("access-control-allow")]


def refusals_are_audited(target: HostileTarget) -> None:
    caller = "viewer/audited"
    refused = target.ask("DELETE", "/v1/jobs/report", caller=caller)
    forged = target.ask("DELETE", "/v1/jobs/a%0AINFO%20forged", caller=caller)
    reported = target.ask("GET", "/v1/audit?action=refuse&kind=request", caller="admin/audited").json()["items"]

    assert refused.status_code == 403
    assert forged.status_code in (400, 403)
    assert "DELETE /v1/jobs/report" in [one["name"] for one in reported]
    assert all("\n" not in one["name"] for one in reported)
    assert not [name for name in target.processes if "\nINFO forged" in target.log(name)]


def revoked_tokens(target: HostileTarget) -> None:
    """A token is refused soon after it was revoked; others of its tenant are not, and no other tenant revokes it."""
    revoked, other = (
        new_token(target.settings, Role.VIEWER, subject=subject, tenant="default", lasts_ms=60_000)
        for subject in ("leaver", "stayer")
    )
    shown, token_id = revoked.token, revoked.record.token_id

    def status(token: str) -> int:
        return target.ask("GET", "/v1/jobs", caller="", headers={"Authorization": f"Bearer {token}"}).status_code

    target.ask("POST", "/v1/tokens/revoke", {"token_id": token_id}, caller="admin/other")
    assert status(shown) == 200
    assert target.ask("POST", "/v1/tokens/revoke", {"token_id": token_id}, caller="operator").status_code == 403
    assert target.ask("POST", "/v1/tokens/revoke", {"token_id": token_id}).status_code == 200
    deadline = time.monotonic() + 60
    while status(shown) != 401:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert status(other.token) == 200


def activity_of_others(target: HostileTarget) -> None:
    """Neither workers, nor the audit trail, nor the health show a tenant the activity of another."""
    workers = target.ask("GET", "/v1/workers", caller="viewer/nosy").json()["items"]
    assert workers
    assert {(one["in_hand"], one["cpu"], bool(one["labels"])) for one in workers} == {(0, None, False)}
    for path in ("/v1/audit", "/v1/executions", "/v1/events", "/v1/ticks", "/v1/dead-letters"):
        assert target.ask("GET", path, caller="admin/nosy").json()["items"] == [], path
    assert REGULAR_JOB not in target.ask("GET", "/v1/health", caller="viewer/nosy").text


def borrowed_names(target: HostileTarget) -> None:
    assert target.register("borrowed", caller="admin/borrowed").status_code == 201
    said = {"workflow_id": "borrowed", "version": 1, "user_id": "alice-the-ceo", "idempotency_key": "k"}
    said |= {"scheduled_for": "2026-03-02T02:00:00Z"}
    started = target.ask("POST", "/v1/run-launcher/start", said, caller="operator/borrowed")
    reported = target.ask("GET", "/v1/audit?action=trigger", caller="admin/borrowed").json()["items"]
    target.delete("borrowed", caller="admin/borrowed")

    assert started.json() == {"started": True}
    assert "alice-the-ceo" not in [one["actor"] for one in reported]
    assert [one["actor"] for one in reported] == ["operator"]


def private_files(target: HostileTarget) -> None:
    found = [path for path in target.folder.glob("gnomon.db*") if path.is_file()]
    if target.shape is not Shape.SQLITE:
        found = [target.folder / "signing.key"]

    assert found
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in found} == {path.name: "0o600" for path in found}


def code_by_name(target: HostileTarget) -> None:
    for number, function in enumerate(("os:system", "builtins:eval", "..x:y", "os.system", "subprocess/run")):
        taken = target.ask("POST", "/v1/tasks", {"function": function, "input": {"command": "touch pwned"}})
        assert taken.status_code in (202, 422), (number, taken.text)
        if taken.status_code == 202:
            execution = taken.json()["execution_id"]
            shown = target.ask("GET", f"/v1/executions/{execution}").json()
            assert shown["status"] in ("pending", "failed"), shown
            target.ask("POST", f"/v1/executions/{execution}/cancel")
    assert not list(target.folder.rglob("pwned"))
