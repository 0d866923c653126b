"""Everything that reads what others write, as targets for random input.

A target takes an input that is almost valid. It may refuse it with an error of our own tree and nothing else, within a
budget of processor time; what it accepts can be written and read again.
"""

import gzip
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from gnomon.adapters.archive import read_file
from gnomon.adapters.files import read_jobs, read_mapping, read_pools_file
from gnomon.adapters.payload_cipher import AesGcmCipher
from gnomon.core.auth import ClaimRules, parse_token, read_certificates, verify_claims
from gnomon.core.durations import duration_ms, duration_text
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.messages import (
    assignment_of,
    decode_task_message,
    decode_worker_report,
    encode_task_message,
    task_message_of,
)
from gnomon.core.outgoing import AllowedHosts
from gnomon.core.payloads import is_sealed
from gnomon.core.pings import is_http_url, redacted_url
from gnomon.core.runs.expressions import DataAllowance, check_references, evaluate_condition, resolve_references
from gnomon.core.schedule_parser import parse_schedule
from gnomon.core.time_expressions import outages, parse_time_ranges
from gnomon.core.timezones import zone
from gnomon.errors import FieldError, GnomonError
from support.dispatched_assignments import dispatched_assignment
from support.forgotten_caches import forget_what_was_read
from support.token_issuers import NOW, claims, token

#: The processor time for one input, and how often it is tried. The slowest regular input takes a hundredth of it.
BUDGET_SECONDS, _TRIES = 0.5, 4
_SCOPE = {
    "input": {"mode": "full", "rows": [1, 2, {"a": None}]},
    "steps": {"a": {"output": {"rows": 3, "name": "x"}}},
    "run": {"planned_at": "2026-01-01T00:00:00Z"},
}
_SCRATCH = Path(tempfile.mkdtemp(prefix="gnomon-fuzz-"))


@dataclass(frozen=True)
class FuzzTarget:
    """A reader, and inputs for it."""

    name: str
    inputs: st.SearchStrategy[Any]
    #: Reads the input and checks what it has accepted.
    read: Callable[[Any], None]
    #: The parts of the inputs.
    seeds: tuple[Any, ...]

    def accepts(self, seed: object) -> bool:
        """Whether the reader accepts the seed as it is."""
        try:
            self.read(seed)
        except GnomonError:
            return False
        return True

    def check(self, given: object) -> None:
        """Fail unless the input is accepted, or refused in our words, within the budget."""
        # The machine is slower at one time than at another.
        assert any(self._seconds(given) < BUDGET_SECONDS for _ in range(_TRIES))

    def _seconds(self, given: object) -> float:
        forget_what_was_read()
        started = time.thread_time()
        try:
            self.read(given)
        except GnomonError as error:
            refusal = str(error)
        else:
            refusal = ""
        assert refusal.isprintable()
        return time.thread_time() - started


# ---- inputs --------------------------------------------------------------------------------------

_ODD = (
    "", " ", "\n", "\t", "\x00", "\ud800", "\u202e", "\u0663", "\uff11", "-", "--", ".", "..", ",", ":", "::", "/", "*",
    "0", "00", "-1", "1e999", "9" * 40, "NaN", "null", "true", "[]", "{}", "[" * 70, "${", "${secret:A}", "}", "&a",
    "*a", "<<: ", "!!python/name:os.system", "%", "%00", "'", '"', "\\", "#", "@", "é", "\U0001d7d8",
)  # fmt: skip


@st.composite
def _edited(draw: st.DrawFn, seeds: tuple[str, ...]) -> str:
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 8)))
        other = draw(st.sampled_from(seeds))
        piece = draw(
            st.sampled_from(_ODD) | st.text(max_size=4) | st.just(text[begin:end] * 3) | st.just(other[begin:end])
        )
        text = text[:begin] + piece + text[end:]
    return text


def edited(*seeds: str) -> st.SearchStrategy[str]:
    """Texts that are almost valid: seeds, with some pieces replaced, removed, repeated or inserted."""
    return _edited(seeds) | st.text(max_size=40)


def edited_bytes(*seeds: bytes) -> st.SearchStrategy[bytes]:
    """The same for bytes."""
    encoding = "utf-8" if all(map(bytes.isascii, seeds)) else "latin-1"

    def encoded(text: str) -> bytes:
        try:
            return text.encode(encoding)
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogatepass")

    return edited(*(seed.decode("latin-1") for seed in seeds)).map(encoded) | st.binary(max_size=40)


def text_target(name: str, read: Callable[[str], None], *seeds: str) -> FuzzTarget:
    """A target that reads edited texts."""
    return FuzzTarget(name, edited(*seeds), read, seeds)


def bytes_target(name: str, read: Callable[[bytes], None], *seeds: bytes) -> FuzzTarget:
    """A target that reads edited bytes."""
    return FuzzTarget(name, edited_bytes(*seeds), read, seeds)


# ---- readers -------------------------------------------------------------------------------------


def _schedule(text: str) -> None:
    trigger = parse_schedule(text, timezone="Europe/Berlin" if len(text) % 2 else None)
    assert parse_schedule(trigger.describe()).describe() == trigger.describe()


def _duration(text: str) -> None:
    found = duration_ms("timeout", text)
    assert duration_ms("timeout", duration_text(found)) == found


def _zone(name: str) -> None:
    found = zone(name)
    assert found is None or name.isascii()


def _moment(text: str) -> None:
    for found in parse_time_ranges(text, "Europe/Berlin", now=NOW):
        assert found is not None


def _outage(text: str) -> None:
    outages([text], zone="Europe/Berlin", after=NOW, until=NOW + 30 * 86_400_000)


def _condition(text: str) -> None:
    before = {"step": "a", "function": "f"}
    read_job({"name": "a", "dag": [before, {**before, "step": "b", "if": text}]}, Defaults(), now=NOW)
    assert isinstance(evaluate_condition(text, _SCOPE), bool)


def _references(text: str) -> None:
    value = {"a": [text, {"b": text}]}
    check_references("input", value, frozenset("a"), item=False)
    resolve_references(value, _SCOPE, DataAllowance(1 << 20))


def _file(content: bytes, suffix: str) -> Path:
    path = _SCRATCH / f"fuzzed{suffix}"
    path.write_bytes(content)
    return path


def _jobs_file(content: bytes) -> None:
    for job in read_jobs(_file(content, ".yaml"), Defaults(), now=NOW):
        assert read_job(job_as_data(job), Defaults(), now=NOW) == job


def _configuration(content: bytes) -> None:
    read_mapping(_file(content, ".yaml"))


def _pools(content: bytes) -> None:
    read_pools_file(_file(content, ".yaml"))


def _archive(content: bytes) -> None:
    read_file(_file(content, ".jsonl.gz"))


def _token(text: str) -> None:
    parsed = parse_token(text, algorithms=("RS256",), largest=8192)
    verify_claims(parsed.claims, ClaimRules(roles=frozenset({"scheduler-admin"})), now=NOW)


def _claims(said: dict[str, Any]) -> None:
    found = verify_claims(said, ClaimRules(roles=frozenset({"scheduler-admin"})), now=NOW)
    assert found.roles <= {"scheduler-admin"}


def _certificates(text: str) -> None:
    read_certificates([text])


def _task_message(body: bytes) -> None:
    message = decode_task_message(body)
    again = task_message_of(assignment_of(message), deadline=message.deadline)
    assert (again.task_id, again.fence, again.function) == (message.task_id, message.fence, message.function)


def _worker_report(body: bytes) -> None:
    for report in decode_worker_report(body, sender="field_1").data.ended:
        assert report.outcome().snooze_ms >= 0


def _url(text: str) -> None:
    if is_http_url(text):
        assert text.isprintable()
    assert redacted_url(text).isprintable()


def _schema(said: tuple[dict[str, Any], object]) -> None:
    schema, given = said
    read_job({"name": "a", "function": "f", "input": {"x": given}, "input_schema": schema}, Defaults(), now=NOW)


def _envelope(body: bytes) -> None:
    opened = _CIPHER.unseal("run_1", body)
    # An envelope that was altered stays closed; anything else is no envelope and stays as it is.
    assert opened in (body, b"{}")
    assert opened == body or is_sealed(body)


def _host(entry: str) -> None:
    AllowedHosts([entry], field="allowed_hosts")


def _job(said: object) -> None:
    if not isinstance(said, dict):
        raise FieldError("job", "", "is no mapping")
    job = read_job(said, Defaults(), now=NOW)
    assert read_job(job_as_data(job), Defaults(), now=NOW) == job


def _json_or_text(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body


# ---- seeds ---------------------------------------------------------------------------------------

_TIMES = (
    "*/5 * * * *", "0 9 * * 1-5", "0 0 L * *", "15 3 1,15 jan-mar mon#2", "@daily", "every weekday at 9am in Berlin",
    "every 15 minutes", "every last friday at 17:00 except in december", "2026-12-01T09:00:00Z",
    "once at 2026-03-29T02:30", "at noon and midnight on the first monday of every month",
)  # fmt: skip
_CONDITIONS = (
    'steps.a.output.rows > 0 and input.mode == "full"', "not input.mode", "input.rows[0] in [1, 2]", "null == null",
    'run.planned_at < "2027"', "(steps.a.output.name or input.mode) != 'x'",
)  # fmt: skip
_JOBS = (
    b"""jobs:
- &a {name: report, schedule: '*/5 * * * *', function: f, retry: {max_attempts: 3}}
- {<<: *a, name: b}
""",
    b"""jobs:
- name: etl
  dag:
  - {step: x, command: ls, env: {A: '${input.a}'}}
  - {step: y, function: f, depends_on: [x], if: 'steps.x.output.status == 0'}
  input: {a: 1}
""",
    b"""jobs:
- name: c
  on: {event: model.drift, where: {model: zen}}
  function: f
  input_schema: {type: object}
""",
)
_CLAIMS = st.dictionaries(
    st.sampled_from(["iss", "sub", "aud", "roles", "iat", "exp", "nbf", "tenant", "typ", "nonce", "token_use"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("scheduler-admin"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    ),
).map(lambda said: {**claims(), **said})
_TASK = encode_task_message(task_message_of(dispatched_assignment(), deadline=5), now=NOW)
_REPORT = json.dumps({
    "schema": "hanzo.mq.v1", "id": "field_1:1", "type": "scheduler.report", "source": "field_1",
    "timestamp": "2026-01-01T00:00:00Z",
    "data": {
        "worker": "field_1",
        "ended": [{"task_id": "t", "fence": 1, "result": "succeeded", "snooze_ms": 5, "logs": []}],
    },
}).encode()  # fmt: skip
_CIPHER = AesGcmCipher([bytes(32)])
_NAMES = st.sampled_from(["x", "y", "a"])
_SCHEMAS = st.recursive(
    st.sampled_from([
        {}, True, {"$ref": "#"}, {"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}, {"type": "object"}, {"required": ["q"]},
        {"pattern": "(a|b)*c{2,50}"}, {"pattern": "(a+)+$"}, {"pattern": r"\S" * 1000}, {"multipleOf": 1e-9},
        {"uniqueItems": True},
        {"enum": [[], {}, 0]}, {"$ref": "http://127.0.0.1:1/"}, {"$dynamicRef": "#x"}, {"const": "x" * 100},
    ]),
    lambda inner: st.dictionaries(
        st.sampled_from(["allOf", "anyOf", "oneOf", "prefixItems"]), st.lists(inner, min_size=1, max_size=3),
        min_size=1, max_size=2,
    )
    | st.dictionaries(
        st.sampled_from(["not", "items", "contains", "additionalProperties", "propertyNames", "if", "then", "else",
                         "unevaluatedProperties"]), inner, min_size=1, max_size=2,
    )
    | st.dictionaries(_NAMES, inner, max_size=3).map(lambda keys: {"properties": keys}),
    max_leaves=12,
)  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(alphabet="abcx", max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=20,
)
_SCHEMA_INPUTS = st.tuples(
    st.builds(
        lambda schema, defs: {**(schema if isinstance(schema, dict) else {}), "$defs": defs},
        _SCHEMAS,
        st.dictionaries(_NAMES, _SCHEMAS, max_size=3),
    ),
    _VALUES,
)
_ARCHIVES = (
    b'{"rows":1,"sha256":"' + b"0" * 64 + b'"}\n{"a":1}\n',
    b'{"rows":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}\n',
    b"[]\n",
)

_JOB_TEXTS = (
    b'{"name":"a","every":"5m","function":"f","input":{"a":["${secret:B}"]},"retry":{"max_attempts":2}}',
    b'{"name":"b","dag":[{"step":"x","function":"f","foreach":[1],"input":{"i":"${item}"}}],"tags":["t"]}',
)
_PACKED = tuple(gzip.compress(archive, mtime=0) for archive in _ARCHIVES)

TARGETS = (
    text_target("schedule", _schedule, *_TIMES),
    text_target("duration", _duration, "30s", "5m", "1h30m", "250ms", "2d", "0.5h"),
    text_target("time zone", _zone, "Europe/Berlin", "UTC", "America/Argentina/Buenos_Aires", "../etc/passwd"),
    text_target("moment", _moment, "02:00", "yesterday 14:30", "mon 02:00", "2026-03-01T10:00:00+01:00", "now"),
    text_target("outage", _outage, "sat,sun 01:00-05:00", "2026-03-01T00:00..2026-03-02T00:00", "22:00-23:00"),
    text_target("condition", _condition, *_CONDITIONS),
    text_target("reference", _references, "${input.mode}", "x ${steps.a.output.rows} y", "${input.rows[2].a}"),
    bytes_target("jobs file", _jobs_file, *_JOBS),
    bytes_target("configuration file", _configuration, b"server:\n  port: 1\nsecrets: {allow: [A]}\n"),
    bytes_target("pools file", _pools, b"topics: {reports: default}\npools: {default: {}}\n"),
    FuzzTarget(
        "archive file", edited_bytes(*_ARCHIVES).map(gzip.compress) | edited_bytes(*_PACKED), _archive, seeds=_PACKED
    ),
    text_target("token", _token, token(), token(claims(roles={}), kid=None)),
    FuzzTarget("claims", _CLAIMS, _claims, seeds=(claims(),)),
    text_target("certificate grant", _certificates, "billing=operator", "spiffe://corp/etl=operator/acme"),
    bytes_target("task message", _task_message, _TASK),
    bytes_target("worker report", _worker_report, _REPORT),
    text_target("ping URL", _url, "https://example.org:443/a?b=c#d", "http://[::1]/x", "https://u:p@h/"),
    FuzzTarget("input schema", _SCHEMA_INPUTS, _schema, seeds=(({"properties": {"x": {"pattern": "^a"}}}, "ab"),)),
    bytes_target("encrypted payload", _envelope, _CIPHER.seal("run_1", b"{}"), b'{"$gnomon_encrypted":"x"}'),
    text_target("allowed host", _host, "hooks.internal", "10.20.0.0/16", "[::1]", "2001:db8::/32", "*.x"),
    FuzzTarget(
        "job", edited_bytes(*_JOB_TEXTS).map(_json_or_text), _job, seeds=tuple(map(msgspec.json.decode, _JOB_TEXTS))
    ),
)
