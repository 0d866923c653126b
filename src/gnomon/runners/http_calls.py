"""HTTP calls of steps: fill the request, send it, follow redirects on the host, and turn the answer into an outcome."""

import re
import time
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from gnomon.core.ids import call_key
from gnomon.core.runs.http_calls import AnswerEffect, HttpCall, http_call, judge_answer
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import HTTP
from gnomon.errors import AddressRefused, RequestFailed, UsageError, truncate
from gnomon.ports.http import HttpAnswer, HttpRequest, HttpSender
from gnomon.runners.attempt_table import RunnerEnvironment, RunningAttempt
from gnomon.runners.logs import storable
from gnomon.runners.outcomes import failed_outcome, give_up_outcome, refuse_depth, returned_outcome
from gnomon.runners.registry import Function
from gnomon.runners.secrets import Redactor

#: How long the client waits beyond the time limit of the attempt, whose own timer ends the call.
_PATIENCE_MS = 60_000
#: How many characters of a refusing answer the error shows.
_LONGEST_SHOWN_BODY = 300
#: The encodings of bodies that `zlib` reads, with its window bits: gzip or zlib, by the header of the data.
_COMPRESSED = {"gzip": 47, "x-gzip": 47, "deflate": 47}
#: The charsets of texts, all of which every Python knows. Other encodings of Python are no charsets, or need quadratic
#: time, such as `punycode`.
_CHARSETS = re.compile(
    r"utf-?8|utf-16(?:le|be)?|(?:us-)?ascii|latin-?1|iso-8859-(?:[1-9]|1[013456])|windows-125[0-8]"
    r"|koi8-[ru]|shift_jis|euc-(?:jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5(?:-hkscs)?"
)
#: Bytes that a character of the body takes in JSON at most.
_MAX_JSON_CHAR_BYTES = 6


def _never_called() -> None:
    """Placeholder for the callable of HTTP_CALL: HttpCallRunner makes the calls."""


HTTP_CALL = Function(HTTP, _never_called)


class HttpCallRunner:
    """Makes the calls of one worker."""

    def __init__(self, environment: RunnerEnvironment, sender: HttpSender) -> None:
        self._environment = environment
        self._sender = sender

    async def outcome(self, attempt: RunningAttempt) -> AttemptOutcome:
        """The outcome of the call of an attempt. Its cancellation ends the connection."""
        try:
            call = self._call(attempt)
            return await self._called(call, attempt)
        except UsageError as error:
            return give_up_outcome(attempt.log.redact(str(error)))
        except AddressRefused as error:
            return give_up_outcome(f"the URL is refused: {error}")
        except RequestFailed as error:
            return failed_outcome(attempt.log.redact(f"the URL gave no answer: {error}"))

    def _call(self, attempt: RunningAttempt) -> HttpCall:
        """The request with its secrets filled in; UsageError if one may not be used or does not fit."""
        step, given = attempt.assignment.step, attempt.assignment.input
        # Only fields of the step: the caller who triggers a run must not choose what is called.
        own = {field: given[field] for field in step.input if field in given}
        rest = {field: value for field, value in own.items() if field != "url"}
        secrets, found = self._environment.secrets, dict[str, str]()

        def read_secret(name: str) -> str:
            found[name] = secrets.read(name, tenant=attempt.tenant, job=attempt.job)
            return found[name]

        filled, in_rest = secrets.resolve(rest, tenant=attempt.tenant, job=attempt.job)
        found |= in_rest
        assignment = attempt.assignment
        key = assignment.key or call_key(assignment.run, assignment.task, assignment.step)
        try:
            return http_call(own, filled, key=key, read_secret=read_secret)
        finally:
            if found:
                attempt.log.redact_with(Redactor(found))

    async def _called(self, call: HttpCall, attempt: RunningAttempt) -> AttemptOutcome:
        while True:
            answer = await self._sender.send(
                HttpRequest(
                    method=call.method,
                    url=call.url,
                    headers={"Accept-Encoding": "identity", **call.headers},
                    body=call.body,
                ),
                timeout_ms=round(attempt.timeout * 1000) + _PATIENCE_MS,
                max_bytes=self._environment.max_output_bytes,
                cut_body=True,
            )
            verdict = judge_answer(call, answer.status, answer.headers, now=time.time_ns() // 1_000_000)
            if verdict.call is None:
                break
            call = verdict.call
        if verdict.effect is AnswerEffect.SUCCESS:
            return self._succeeded(answer, attempt)
        reason = attempt.log.redact(verdict.reason) + _shown_body(answer, attempt)
        if verdict.effect is AnswerEffect.RETRY:
            return replace(failed_outcome(reason), retry_after_ms=verdict.after_ms)
        return give_up_outcome(reason)

    def _succeeded(self, answer: HttpAnswer, attempt: RunningAttempt) -> AttemptOutcome:
        limit, redact = self._environment.max_output_bytes, attempt.log.redact
        body, cut = _decoded(answer, limit)
        about = {
            "status": answer.status,
            "headers": {storable(name): storable(value) for name, value in answer.headers.items()},
        }
        value = None if cut else _json_value(body, answer.headers)
        if value is not None:
            whole = returned_outcome(about | value, max_bytes=2 * limit, redact=redact)
            if len(whole.output or b"") <= limit:
                return whole
        text = _text(body, answer.headers)
        output = _fitted(about, _redacted_text(text, attempt, cut=cut), limit, cut=cut)
        return returned_outcome(output, max_bytes=limit, redact=redact)


def _decoded(answer: HttpAnswer, most: int) -> tuple[bytes, bool]:
    """The body without compression, and whether a part of it is missing."""
    encoding = answer.headers.get("content-encoding", "").strip().lower()
    if encoding not in _COMPRESSED:
        return answer.body, answer.cut
    reader = zlib.decompressobj(_COMPRESSED[encoding])
    try:
        body = reader.decompress(answer.body, most)
    except zlib.error:
        return answer.body, answer.cut
    return body, answer.cut or not reader.eof


def _json_value(body: bytes, headers: Mapping[str, str]) -> dict[str, Any] | None:
    """The body of an answer that says it is JSON; None if it does not, or is not."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        return None
    try:
        value = msgspec.json.decode(body)
        # The output has one level more than the body.
        refuse_depth([value])
    except (ValueError, RecursionError):
        return None
    return {"json": value}


def _text(body: bytes, headers: Mapping[str, str]) -> str:
    """The body as text, by its charset; a character that is no part of that is replaced."""
    _, _, rest = headers.get("content-type", "").lower().partition("charset=")
    charset = rest.partition(";")[0].strip(" \"'")
    return body.decode(charset if _CHARSETS.fullmatch(charset) else "utf-8", errors="replace")


def _redacted_text(text: str, attempt: RunningAttempt, *, cut: bool) -> str:
    """The text without secrets, also without the beginning of one that was cut."""
    redact = attempt.log.redact
    cleaned = storable(redact(text))
    return redact.without_beginnings(cleaned) if cut and isinstance(redact, Redactor) else cleaned


def _fitted(about: Mapping[str, Any], text: str, limit: int, *, cut: bool) -> dict[str, Any]:
    """The output with as much of the text as fits."""
    output = {**about, "body": text} | ({"truncated": True} if cut else {})
    over = len(msgspec.json.encode(output)) - limit
    if over <= 0:
        return output
    output |= {"body": "", "truncated": True}
    if len(msgspec.json.encode(output)) > limit:
        output["headers"] = {}
    space = limit - len(msgspec.json.encode(output))
    kept = text[:space]
    while len(written := msgspec.json.encode(kept)) - 2 > space:
        kept = kept[: len(kept) - max(1, (len(written) - 2 - space) // _MAX_JSON_CHAR_BYTES)]
    return output | {"body": kept}


def _shown_body(answer: HttpAnswer, attempt: RunningAttempt) -> str:
    """The beginning of a refusing answer, which often says why, on one line and without secrets."""
    body, cut = _decoded(answer, _LONGEST_SHOWN_BODY * 64)
    text = _redacted_text(_text(body, answer.headers), attempt, cut=cut)
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: _LONGEST_SHOWN_BODY * 4]).split())
    return f": {truncate(line, _LONGEST_SHOWN_BODY)}" if line else ""
