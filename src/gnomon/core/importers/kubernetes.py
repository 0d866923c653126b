"""The importer of Kubernetes CronJobs: the commands of their containers, without the containers."""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gnomon.core.durations import duration_text
from gnomon.core.importers.report import (
    USUAL_TIMEOUT,
    ImportedEntry,
    ImportNote,
    ImportReport,
    double_quoted,
    error_reason,
    shown,
    skipped_entry,
    slugify,
    with_variables,
)
from gnomon.core.model import SECOND_MS
from gnomon.core.runs.expressions import SECRET
from gnomon.errors import FieldError

_OVERLAPS = {"Allow": "allow", "Forbid": "skip", "Replace": "replace"}
#: The delays of Kubernetes between attempts.
_RETRY = {"initial_delay": "10s", "multiplier": 2, "max_delay": "6m"}
_DEFAULT_BACKOFF_LIMIT = 6
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_EVERY = re.compile(r"@every\s+((?:[0-9]{1,9}(?:\.[0-9]{1,3})?(?:ms|h|m|s))+)")
_EVERY_PART = re.compile(r"([0-9.]+)(ms|h|m|s)")
_SPANS = {"h": 3_600 * SECOND_MS, "m": 60 * SECOND_MS, "s": SECOND_MS, "ms": 1}
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")
_STEPS = re.compile(r"(?<![^,])\*/(?!1(?:,|$))([0-9]+)")
_FIELDS = 5
_DAY_FIELD, _WEEKDAY_FIELD = 2, 4
_POD_KNOWN = ("containers", "restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "schedulerName")
_CONTAINER_KNOWN = (
    "name",
    "image",
    "command",
    "args",
    "env",
    "workingDir",
    "imagePullPolicy",
    "terminationMessagePath",
)
_JOB_KNOWN = ("template", "backoffLimit", "activeDeadlineSeconds")
REMARKS = (
    "commands run in the workspace of a worker, and not in containers",
    f"a job without a deadline has a time limit of {USUAL_TIMEOUT}",
)


def read_cronjobs(documents: Iterable[object], *, place: str) -> ImportReport:
    """Import the CronJobs among the documents of a manifest."""
    entries, others = [], []
    for number, document in enumerate(_flattened(documents), 1):
        kind = document.get("kind") if isinstance(document, Mapping) else None
        if kind == "CronJob" and isinstance(document, Mapping):
            entries.append(_entry(document, place, number))
        elif document is not None:
            others.append(shown(str(kind) if isinstance(kind, str) else "a document without a kind"))
    passed = (f"no CronJobs, so not looked at: {', '.join(dict.fromkeys(others))}",) if others else ()
    return ImportReport(entries=tuple(entries), remarks=(*REMARKS, *passed))


def _flattened(documents: Iterable[object]) -> Iterator[object]:
    for document in documents:
        items = document.get("items") if isinstance(document, Mapping) else None
        if isinstance(items, Sequence) and not isinstance(items, str):
            yield from items
        else:
            yield document


def _entry(document: Mapping[Any, Any], place: str, number: int) -> ImportedEntry:
    metadata = document.get("metadata")
    about = metadata if isinstance(metadata, Mapping) else {}
    name = about.get("name")
    original = shown(name) if isinstance(name, str) else f"the CronJob in document {number}"
    notes: list[ImportNote] = []
    try:
        job = {"name": slugify(str(name)) or "cronjob"} | _job(_mapping(document, "spec"), notes)
    except FieldError as error:
        return skipped_entry(place, original, error_reason(error))
    space = about.get("namespace")
    if isinstance(space, str) and (tag := shown(space).strip()):
        job["tags"] = [tag]
    return ImportedEntry(place=place, original=original, job=job, notes=tuple(notes))


def _job(spec: Mapping[Any, Any], notes: list[ImportNote]) -> dict[str, Any]:
    job = _mapping(_mapping(spec, "jobTemplate"), "spec")
    pod = _mapping(_mapping(job, "template"), "spec")
    fields = _when(spec, notes) | _work(pod, notes)
    policy = spec.get("concurrencyPolicy", "Allow")
    if policy not in _OVERLAPS:
        raise FieldError("concurrencyPolicy", policy, f"must be one of {', '.join(_OVERLAPS)}")
    fields["overlap"] = _OVERLAPS[policy]
    deadline = _whole(job, "activeDeadlineSeconds")
    fields["timeout"] = f"{deadline}s" if deadline else USUAL_TIMEOUT
    if deadline:
        notes.append(ImportNote("activeDeadlineSeconds is for all tries together; a timeout is for each", lost=False))
    tries = _whole(job, "backoffLimit")
    tries = _DEFAULT_BACKOFF_LIMIT if tries is None else tries
    fields |= {"retry": {"max_attempts": tries + 1, **_RETRY}} if tries else {}
    fields |= {"enabled": False} if spec.get("suspend") is True else {}
    notes += _left_behind(spec, job, pod)
    return fields


def _when(spec: Mapping[Any, Any], notes: list[ImportNote]) -> dict[str, Any]:
    text, zone = spec.get("schedule"), spec.get("timeZone")
    if not isinstance(text, str):
        raise FieldError("schedule", text, "must be a text")
    prefixed = _ZONE.fullmatch(text.strip())
    if prefixed:
        zone, text = prefixed[1], prefixed[2]
    grace = _whole(spec, "startingDeadlineSeconds")
    # Without a deadline Kubernetes starts the last missed run, however late.
    late = {"catchup": "latest"} if grace is None else {"catchup": "none", "misfire_grace": f"{grace}s"}
    every = _EVERY.fullmatch(text.strip())
    if every:
        span = sum(float(count) * _SPANS[unit] for count, unit in _EVERY_PART.findall(every[1]))
        notes.append(ImportNote("@every begins when the job is registered", lost=False))
        return {"every": duration_text(round(span)), **late}
    if zone is None:
        notes.append(ImportNote("it names no timeZone: that of the controller is taken to be UTC", lost=False))
    # As in Kubernetes: a skipped time does not fire, and a repeated time fires twice.
    dst = {} if zone in (None, "UTC", "Etc/UTC") else {"dst": {"gap": "skip", "fold": "both"}}
    return {"schedule": _expression(text), "timezone": "UTC" if zone is None else str(zone), **dst, **late}


def _expression(text: str) -> str:
    """The same fires in the standard dialect, where a day that begins with a star must match with the weekday."""
    fields = text.replace("?", "*").split()
    if len(fields) == _FIELDS:
        fields[_DAY_FIELD] = _STEPS.sub(r"1-31/\1", fields[_DAY_FIELD])
        fields[_WEEKDAY_FIELD] = _STEPS.sub(r"0-6/\1", fields[_WEEKDAY_FIELD])
    return " ".join(fields)


def _work(pod: Mapping[Any, Any], notes: list[ImportNote]) -> dict[str, Any]:
    containers = pod.get("containers")
    if not isinstance(containers, list) or not all(isinstance(container, Mapping) for container in containers):
        raise FieldError("containers", containers, "must be a list")
    if len(containers) != 1:
        raise FieldError("containers", f"{len(containers)} containers", "cannot be one command: make a dag of them")
    container = containers[0]
    if not container.get("command"):
        raise FieldError("command", None, "is missing: the default command of an image is not known here")
    words = [*_texts(container, "command"), *_texts(container, "args")]
    notes.append(ImportNote(f"image {shown(str(container.get('image')))}: its programs must be there on the worker"))
    variables = dict(_variables(container, notes))
    secrets = [name for name, value in variables.items() if value == _secret(name)]
    command = " ".join(_for_shell(word, variables) for word in words)
    work = with_variables(command, variables, notes, secrets=secrets)
    folder = container.get("workingDir")
    if isinstance(folder, str) and folder:
        notes.append(
            ImportNote(f"workingDir {shown(folder)} must lie inside of the workspace (shell.workspace)", lost=False)
        )
        work["workdir"] = folder
    return work


def _for_shell(word: str, names: Collection[str]) -> str:
    """The word for a shell, with every `$(NAME)` that Kubernetes would expand as a variable."""
    if not any(not found[1] or found[1] in names for found in _REFERENCE.finditer(word)):
        return shlex.quote(word)

    def variable(found: re.Match[str]) -> str | None:
        if not found[1]:
            return "\\$"
        return f"${{{found[1]}}}" if found[1] in names else None

    return double_quoted(word, _REFERENCE, variable)


def _variables(container: Mapping[Any, Any], notes: list[ImportNote]) -> Iterator[tuple[str, str]]:
    env = container.get("env") or []
    if not isinstance(env, list) or not all(isinstance(variable, Mapping) for variable in env):
        raise FieldError("env", env, "must be a list of names and values")
    for variable in env:
        name, value = str(variable.get("name")), variable.get("value", "")
        source = variable.get("valueFrom")
        if isinstance(source, Mapping) and "secretKeyRef" in source and SECRET.fullmatch(_secret(name)):
            notes.append(
                ImportNote(f"env {shown(name)} is a secret: give it to the worker under that name (secrets.allow)")
            )
            yield name, _secret(name)
        elif source is not None:
            notes.append(ImportNote(f"env {shown(name)}: its value comes from another object"))
        else:
            if isinstance(value, str) and "$(" in value:
                notes.append(ImportNote(f"env {shown(name)}: variables inside of its value are not filled in"))
            yield name, str(value)


def _secret(name: str) -> str:
    return f"${{secret:{name}}}"


def _left_behind(spec: Mapping[Any, Any], job: Mapping[Any, Any], pod: Mapping[Any, Any]) -> Iterator[ImportNote]:
    limits = [key for key in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit") if key in spec]
    if limits:
        yield ImportNote(f"{', '.join(limits)}: history is kept by days (retention)", lost=False)
    container = pod["containers"][0]
    others = [key for key in job if key not in _JOB_KNOWN] + [key for key in pod if key not in _POD_KNOWN]
    others += [key for key in container if key not in _CONTAINER_KNOWN]
    if others:
        yield ImportNote(f"{shown(', '.join(map(str, others)), 300)}: not supported")


def _mapping(fields: Mapping[Any, Any], field: str) -> Mapping[Any, Any]:
    value = fields.get(field)
    if not isinstance(value, Mapping):
        raise FieldError(field, value, "must be a mapping")
    return value


def _texts(fields: Mapping[Any, Any], field: str) -> list[str]:
    value = fields.get(field) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise FieldError(field, value, "must be a list of texts")
    return value


def _whole(fields: Mapping[Any, Any], field: str) -> int | None:
    value = fields.get(field)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise FieldError(field, value, "must be a whole number")
    return value
