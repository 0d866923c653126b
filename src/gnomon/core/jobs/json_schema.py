"""The JSON Schema of a jobs file, for editors. `read_job` decides: a schema cannot express every rule."""

from itertools import combinations
from typing import Any, get_args

from gnomon.core.cron import Dialect
from gnomon.core.cron.dst import Fold, Gap
from gnomon.core.jobs.fields import LONGEST_LIST, LONGEST_TEXT, NAME
from gnomon.core.jobs.routing_fields import (
    LONGEST_CAPABILITY,
    LONGEST_LABEL,
    LONGEST_LABEL_VALUE,
    LONGEST_TOPIC,
    MOST_LABELS,
    MOST_REQUIRED,
)
from gnomon.core.jobs.steps import (
    COMMAND_FIELDS,
    ENV_NAME,
    FUNCTION,
    LARGEST_MULTIPLIER,
    LONGEST_COMMAND,
    LONGEST_RETENTION_DAYS,
    LONGEST_TAG,
    MOST_ATTEMPTS,
    MOST_PARALLEL,
    MOST_TAGS,
)
from gnomon.core.model import Catchup, Overlap
from gnomon.core.pings import PingMoment
from gnomon.core.runs.external_events import LARGEST_BATCH
from gnomon.core.runs.workflow import Delivery, Isolation, Priority, When

_Schema = dict[str, Any]
_SPAN_TEXT: _Schema = {
    "type": "string",
    "minLength": 2,
    "pattern": "^" + "".join(f"([0-9]{{1,12}}{unit})?" for unit in ("d", "h", "m", "s", "ms")) + "$",
}
#: Under at_most_once there is one attempt.
_ONE_ATTEMPT: _Schema = {"max_attempts": {"const": 1}}
_WITH_COMMAND: _Schema = {field: ["command"] for field in COMMAND_FIELDS[1:]}


def job_file_schema() -> _Schema:
    """A JSON Schema of a whole file of jobs."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Gnomon jobs",
        "type": "object",
        "required": ["jobs"],
        "additionalProperties": False,
        "properties": {"jobs": {"type": "array", "items": job_schema()}},
    }


def job_schema() -> _Schema:
    """A JSON Schema of one job."""
    return {
        **_mapping("A workflow and its schedule under one name.", _job_fields()),
        "required": ["name"],
        "oneOf": [{"required": [field]} for field in ("function", "command", "dag")],
        "dependentRequired": _WITH_COMMAND,
        "allOf": [
            *({"not": {"required": list(two)}} for two in combinations(("schedule", "at", "every", "on"), 2)),
            {"not": {"required": ["function", "max_parallel"]}},
            {"not": {"required": ["command", "max_parallel"]}},
            {"not": {"required": ["command", "isolation"]}},
            {
                "if": {"required": ["lock"], "properties": {"lock": {"const": True}}},
                "then": {"properties": {"overlap": {"const": "skip"}}},
            },
            {
                "if": {"required": ["delivery"], "properties": {"delivery": {"const": "at_most_once"}}},
                "then": {"properties": {"retry": {"required": ["max_attempts"], "properties": _ONE_ATTEMPT}}},
            },
        ],
    }


def _job_fields() -> _Schema:
    return {
        "name": _named("The name of the job and of its workflow."),
        "description": {"type": "string", "maxLength": LONGEST_TEXT, "description": "The purpose of the job."},
        **_time_fields(),
        **_policy_fields(),
        **_work_fields(),
        "dag": {
            "type": "array",
            "minItems": 1,
            "maxItems": LONGEST_LIST,
            "items": _step_schema(),
            "description": "Steps that depend on each other, instead of one function.",
        },
        "max_parallel": _whole(1, MOST_PARALLEL, "How many steps of a run may run at once."),
        "input_schema": {"type": "object", "description": "A JSON Schema that inputs must satisfy."},
        "delivery": _one_of(Delivery, "Whether a lost attempt is retried."),
        "lock": _flag("Runs exclude each other by a lock that other programs can see; implies overlap skip."),
        "dead_letter": _flag("Write a dead letter when a run fails after all its attempts."),
        "retention": {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": LONGEST_RETENTION_DAYS},
                _SPAN_TEXT,
            ],
            "description": "How long the history of its runs is kept, in days.",
        },
        "ping": _ping_schema(),
        "tags": {
            "type": "array",
            "maxItems": MOST_TAGS,
            "uniqueItems": True,
            "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_TAG},
            "description": "Tags to filter jobs by.",
        },
    }


def _ping_schema() -> _Schema:
    url = _text("The URL to call; /start is appended when a run starts, /fail when it fails.")
    moments = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"enum": [str(at) for at in PingMoment]}}
    fields = {"url": url, "on": {"anyOf": [_one_of(PingMoment, "When."), moments], "description": "When to call it."}}
    mapping = {**_mapping("The URL to call, and when.", fields), "required": ["url"]}
    return {"anyOf": [url, mapping], "description": "A URL that is called when a run starts and ends."}


def _time_fields() -> _Schema:
    dst = {
        "gap": _one_of(get_args(Gap), "For wall times that are skipped."),
        "fold": _one_of(get_args(Fold), "For wall times that come twice."),
    }
    return {
        "schedule": _text("Cron, a macro, a sentence or an ISO instant."),
        "at": _text("One ISO instant; without an offset it is in the timezone of the job."),
        "every": _duration("The period of an interval, counted from start_at or from its registration."),
        "on": _event_schema(),
        "timezone": _text("An IANA time zone; UTC if not given."),
        "dialect": _one_of(get_args(Dialect), "The cron dialect of the schedule."),
        "dst": {**_mapping("The policy for clock changes.", dst), "type": ["object", "null"]},
        "start_at": _instant("There are no ticks before this instant.", "null"),
        "end_at": _instant("There are no ticks at or after this instant.", "null"),
    }


def _policy_fields() -> _Schema:
    return {
        "jitter": _duration("How far a fire may be moved from its planned time, either way; at most an hour."),
        "overlap": _one_of(Overlap, "The policy for a tick that comes due while an earlier run is still running."),
        "catchup": _one_of((*Catchup, "fire_immediately"), "Which of several overdue ticks run."),
        "misfire_grace": _duration("A tick that is late by no more than this still runs; a later one is missed."),
        "catchup_window": _duration("The greatest age of a tick that is caught up."),
        "queue_limit": _whole(1, 10_000, "How many ticks may wait under overlap queue."),
        "enabled": _flag("Whether the schedule starts runs."),
        "delete_after_run": _flag("Delete a one-shot job once it has succeeded."),
        "user_id": _text("The user on whose behalf it runs."),
    }


def _work_fields() -> _Schema:
    return {
        "function": {
            "type": "string",
            "pattern": f"^{FUNCTION.pattern}$",
            "description": "The function that a worker calls.",
        },
        **_command_fields(),
        "input": {"type": "object", "description": "The input of the function; at most 64 KiB as JSON."},
        "timeout": _duration("How long one attempt may take."),
        "retry": _mapping("How often and when a failed attempt is retried.", _retry_fields()),
        "isolation": _one_of(Isolation, "Where the function runs."),
        **_route_fields(),
    }


def _route_fields() -> _Schema:
    capability = {"type": "string", "minLength": 1, "maxLength": LONGEST_CAPABILITY}
    return {
        "pool": _named("The pool of workers that runs it."),
        "topic": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_TOPIC,
            "description": "The topic by which pools.yaml selects its pools; the function's name if not given.",
        },
        "requires": {
            "type": "array",
            "maxItems": MOST_REQUIRED,
            "items": capability,
            "description": "The capabilities that its pool must have.",
        },
        "labels": {
            "type": "object",
            "maxProperties": MOST_LABELS,
            "propertyNames": {"minLength": 1, "maxLength": LONGEST_LABEL},
            "additionalProperties": {"type": "string", "maxLength": LONGEST_LABEL_VALUE},
            "description": "Labels; those named placement.*, constraint.* and node.* must match labels of the worker.",
        },
        "priority": _one_of(Priority, "The order among tasks that wait for a worker."),
    }


def _command_fields() -> _Schema:
    return {
        "command": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_COMMAND,
            "description": "A command that sh runs in the workspace, instead of a function.",
        },
        "env": {
            "type": "object",
            "propertyNames": {"pattern": f"^{ENV_NAME.pattern}$"},
            "additionalProperties": {"type": ["string", "number"]},
            "description": "Variables of the command; they may hold references and secrets.",
        },
        "workdir": _text("The folder of the workspace in which the command runs."),
        "stdin": {"type": "string", "description": "The standard input of the command; empty if not given."},
    }


def _event_schema() -> _Schema:
    batch = {
        "max": _whole(1, LARGEST_BATCH, "How many events make a batch."),
        "wait": _duration("How long the first event waits for others."),
    }
    fields = {
        "event": _named("The name of the event."),
        "where": {
            "type": "object",
            "description": "Paths into the body of the event, and the value that each must have.",
        },
        "each": {"const": True, "description": "Every event starts a run (default)."},
        "debounce": _duration("One run for all events, once none has arrived for this long."),
        "batch": {**_mapping("One run for many events.", batch), "required": ["wait"]},
    }
    return {
        **_mapping("An event that starts the job, instead of a time.", fields),
        "required": ["event"],
        "allOf": [{"not": {"required": list(two)}} for two in combinations(("each", "debounce", "batch"), 2)],
    }


def _step_schema() -> _Schema:
    return {
        **_mapping("One step.", _step_fields()),
        "required": ["step"],
        "anyOf": [{"required": [field]} for field in ("function", "command", "workflow", "delay", "delay_until")],
        "allOf": [
            *({"not": {"required": list(two)}} for two in combinations(("function", "command", "workflow"), 2)),
            *({"not": {"required": ["command", field]}} for field in ("input", "isolation")),
        ],
        "dependentRequired": {"max_parallel": ["foreach"], **_WITH_COMMAND},
    }


def _step_fields() -> _Schema:
    return {
        "step": _named("The name of the step."),
        **_work_fields(),
        "workflow": _named("Another workflow, which the step runs and waits for."),
        "depends_on": {
            "type": "array",
            "uniqueItems": True,
            "items": _named("A step of the same dag."),
            "description": "The steps that must end before this one starts.",
        },
        "when": _one_of(When, "The outcome that those steps must have."),
        "if": _text("A condition on earlier outputs and the input; the step is skipped unless it holds."),
        "foreach": {
            "type": ["array", "string"],
            "description": "A list, or a reference to one: the step runs once for each item.",
        },
        "max_parallel": _whole(1, MOST_PARALLEL, "How many items run at once."),
        "delay": _duration("How long to wait before it starts."),
        "delay_until": _instant("The instant to wait for, or a reference to one."),
    }


def _retry_fields() -> _Schema:
    return {
        "max_attempts": _whole(1, MOST_ATTEMPTS, "The number of attempts, the first included."),
        "initial_delay": _duration("The delay after the first attempt."),
        "multiplier": _number(1, LARGEST_MULTIPLIER, "The factor by which each delay is longer than the one before."),
        "max_delay": _duration("The longest delay."),
        "jitter": _number(0, 1, "The fraction by which a delay may be longer or shorter."),
    }


def _mapping(about: str, fields: _Schema) -> _Schema:
    return {"type": "object", "description": about, "additionalProperties": False, "properties": fields}


def _text(about: str) -> _Schema:
    return {"type": "string", "maxLength": LONGEST_TEXT, "description": about}


def _named(about: str) -> _Schema:
    return {"type": "string", "pattern": f"^{NAME.pattern}$", "description": about}


def _flag(about: str) -> _Schema:
    return {"type": "boolean", "description": about}


def _one_of(values: Any, about: str) -> _Schema:  # noqa: ANN401 - an enumeration or a tuple
    return {"enum": [str(value) for value in values], "description": about}


def _whole(low: int, high: int, about: str) -> _Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "description": about}


def _number(low: float, high: float, about: str) -> _Schema:
    return {"type": "number", "minimum": low, "maximum": high, "description": about}


def _instant(about: str, *others: str) -> _Schema:
    return {"type": ["string", "integer", *others], "description": about}


def _duration(about: str) -> _Schema:
    number = {"type": "number", "minimum": 0}
    return {"anyOf": [_SPAN_TEXT, number], "description": f"{about} Such as 30s, 5m or 1h30m."}
