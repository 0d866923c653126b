"""The text of an announcement: the output or the error, or a text of the job with references."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.announcements.model import AnnouncedApproval, Announcement, AnnounceMoment
from gnomon.core.instants import instant_of
from gnomon.core.model import Reason, Run
from gnomon.core.runs.expressions import SECRET_BEGINS, Scope, fill_references, references, segments, value_at
from gnomon.core.runs.secret_text import shown_data
from gnomon.errors import FieldError

#: The longest text, marker included.
LONGEST_TEXT = 65_536
_SHOWN_DIGEST = 8
_TRUNCATED = "\n...[truncated]"
#: The longest text that a job may define.
LONGEST_TEMPLATE = 4_000
#: The first segments of references in the text of an announcement, and the fields of those that have fixed ones.
TEXT_ROOTS: Mapping[str, tuple[str, ...] | None] = {
    "job": ("name", "tenant"),
    "run": ("id", "job", "planned_at", "started_at", "ended_at", "duration_ms", "trigger"),
    "tick": ("planned_at", "last_at", "count", "reason"),
    "approval": ("id", "step", "items", "rule", "reason", "needs", "expires_at", "digest"),
    "moment": (),
    "error": (),
    "failures": (),
    "output": None,
    "input": None,
    "steps": None,
}
#: Output that asks for silence. A word in brackets other than INFO is to be read.
_NO_REPLY = re.compile(r"NO_REPLY(\[INFO\])?(:.*)?", re.IGNORECASE | re.DOTALL)
_NOT_REPRESENTABLE = re.compile("[\x00\ud800-\udfff]")
_COMMAND_FIELDS = {"status", "stdout"}
_SKIP_REASONS = {Reason.OVERLAP.value: "an earlier run was active", Reason.QUEUE_FULL.value: "its queue was full"}


class AnnouncedRun(Struct, frozen=True, kw_only=True):
    """The run of an announcement, with what it was given and what it returned."""

    run: Run
    input: Any = None
    #: The output of the run, and of each of its steps.
    output: Any = None
    steps: Mapping[str, Any] = {}


def check_template(field: str, text: str, steps: frozenset[str]) -> None:
    """Raise FieldError for a text of an announcement with a secret, or with a reference that never has a value."""
    if SECRET_BEGINS.search(text):
        raise FieldError(field, text, "names a secret, and a channel shows its text to others")
    for path in references(text):
        root, *rest = segments(path)
        if root not in TEXT_ROOTS:
            raise FieldError(field, f"${{{path}}}", f"must begin with {', '.join(TEXT_ROOTS)}")
        known = TEXT_ROOTS[root]
        if known is not None and rest and (len(rest) > 1 or rest[0] not in known):
            has = f"has {', '.join(known)}" if known else "has no fields"
            raise FieldError(field, f"${{{path}}}", f"cannot be resolved: {root} {has}")
        if known and not rest:
            raise FieldError(field, f"${{{path}}}", f"must name one of {', '.join(known)}")
        if root == "steps" and (len(rest) < 2 or rest[1] != "output" or rest[0] not in steps):
            raise FieldError(field, f"${{{path}}}", "must be steps.STEP.output, and perhaps a path within it")


def announcement_text(one: Announcement, result: AnnouncedRun | None) -> str | None:
    """The text to send; None if there is nothing to say."""
    output = "" if result is None else output_text(result.output)
    if one.moment is AnnounceMoment.SUCCESS and asks_for_silence(output):
        return None
    if one.template is None:
        text = _usual_text(one, output)
    else:
        scope = _scope(one, result)
        text = fill_references(one.template, lambda path: output if path == "output" else _text_at(path, scope))
    text = bounded_text(text)
    return None if not text.strip() or asks_for_silence(text) else text


_TITLES = {
    AnnounceMoment.SUCCESS: "succeeded",
    AnnounceMoment.FAILURE: "failed",
    AnnounceMoment.RECOVERY: "succeeded again",
    AnnounceMoment.MISSED: "missed a run",
    AnnounceMoment.SKIPPED: "skipped a run",
    AnnounceMoment.APPROVAL: "waits for an approval",
}


def announcement_title(one: Announcement) -> str:
    """The title of the announcement, for channels that have titles."""
    return f"{one.job} {_TITLES[one.moment]}"


def asks_for_silence(text: str) -> bool:
    """Whether an output says that nothing is to be announced."""
    return _NO_REPLY.fullmatch(text.strip()) is not None


def output_text(output: object) -> str:
    """An output as people read it: a text as it is, of a command what it printed, anything else as JSON."""
    if output is None:
        return ""
    if isinstance(output, str):
        return output
    if isinstance(output, Mapping) and output.keys() >= _COMMAND_FIELDS and isinstance(output["stdout"], str):
        return output["stdout"].strip()
    return msgspec.json.format(msgspec.json.encode(output), indent=2).decode()


def bounded_text(text: str) -> str:
    """The text without characters that no channel can carry, cut to the longest length."""
    if _NOT_REPRESENTABLE.search(text):
        text = _NOT_REPRESENTABLE.sub("\ufffd", text)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - len(_TRUNCATED)] + _TRUNCATED


def _usual_text(one: Announcement, output: str) -> str:
    match one.moment:
        case AnnounceMoment.SUCCESS:
            return output
        case AnnounceMoment.FAILURE:
            return one.facts.error or f"{one.job} failed"
        case AnnounceMoment.RECOVERY:
            failures = "1 failure" if one.facts.failures == 1 else f"{one.facts.failures} failures in a row"
            said = "" if asks_for_silence(output) or not output.strip() else f"\n\n{output}"
            return f"{one.job} succeeded again after {failures}{said}"
        case AnnounceMoment.MISSED:
            return f"{one.job} missed {_ticks(one)}"
        case AnnounceMoment.SKIPPED:
            why = _SKIP_REASONS.get(one.facts.reason or "", one.facts.reason)
            return f"{one.job} skipped {_ticks(one)}: {why}"
        case AnnounceMoment.APPROVAL:
            return _question(one.job, one.facts.approval)


def _question(job: str, asked: AnnouncedApproval | None) -> str:
    if asked is None:
        return f"{job} waits for an approval"
    what = f"step {asked.step} of {job}" + (f", with {asked.items} items," if asked.items else "")
    because = f": {asked.reason}" if asked.reason else ""
    return (
        f"{what} waits for {asked.needs}{because}\ngnomon approvals show {asked.approval_id}"
        f"\ngnomon approvals approve {asked.approval_id} --digest {asked.digest[:_SHOWN_DIGEST]}"
    )


def _ticks(one: Announcement) -> str:
    first = _instant(one.planned_at)
    if one.facts.count == 1 or one.facts.last_at is None:
        return f"its run at {first}"
    return f"{one.facts.count} runs from {first} to {_instant(one.facts.last_at)}"


def _instant(at: int | None) -> str | None:
    return None if at is None else instant_of(at).isoformat()


def _asked_fields(asked: AnnouncedApproval) -> dict[str, Any]:
    return {
        "id": asked.approval_id,
        "step": asked.step,
        "items": asked.items or None,
        "rule": asked.rule,
        "reason": asked.reason,
        "needs": asked.needs,
        "expires_at": _instant(asked.expires_at),
        "digest": asked.digest,
    }


def _text_at(path: str, scope: Scope) -> str:
    """The value at the path as text; empty if there is none: an announcement is sent whatever it lacks."""
    try:
        value = value_at(path, scope)
    except FieldError:
        return ""
    return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _scope(one: Announcement, result: AnnouncedRun | None) -> Scope:
    facts, last_at = one.facts, one.planned_at if one.facts.last_at is None else one.facts.last_at
    about: dict[str, Any] = {
        "job": {"name": one.job, "tenant": one.tenant},
        "moment": one.moment.value,
        "error": facts.error,
        "failures": facts.failures,
        "tick": {
            "planned_at": _instant(one.planned_at),
            "last_at": _instant(last_at),
            "count": facts.count,
            "reason": facts.reason,
        },
    }
    if facts.approval is not None:
        about["approval"] = _asked_fields(facts.approval)
    if result is None:
        return about
    run = result.run
    ended_at = one.created_at
    return {
        **about,
        "run": {
            "id": run.run_id,
            "job": one.job,
            "planned_at": _instant(run.planned_at),
            "started_at": _instant(run.started_at),
            "ended_at": _instant(ended_at),
            "duration_ms": None if run.started_at is None else ended_at - run.started_at,
            "trigger": run.source.value,
        },
        "input": shown_data(result.input),
        "steps": {name: {"output": value} for name, value in result.steps.items()},
        "output": result.output,
    }
